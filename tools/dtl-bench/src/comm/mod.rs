//! Subcommand `comm`: measures messages and collectives on a communicator of the library, and on an
//! MPI communicator in the same processes.
//!
//! `test` defines the tests (rows of the table). `batch` runs a test with an implementation of
//! `endpoint`: the library (`ours`) or an MPI library (`raw`). `ucx` runs a UCX program for
//! comparison. `start` creates the ranks. This file contains the measurement on one rank.

mod batch;
mod endpoint;
mod ours;
mod raw;
mod start;
mod test;
mod ucx;

pub(crate) use start::{is_launched, run};
pub(crate) use test::Test;

use crate::measure::{self, Bench};
use crate::options::Comm;
use crate::out::Outcome;
use crate::probe::{self, Part, Probe};
use crate::stats::Samples;
use crate::table::{Line, Progress};
use batch::{Buffers, Place, batch, verify};
use dtl::tooling::os::{SharedMapping, node_id};
use endpoint::Endpoint;
use ours::Ours;
use raw::Raw;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use test::Row;
use ucx::Ucx;

/// Communication library with which libdtl is compared.
enum Peer {
    Mpi(Raw),
    Ucx(Ucx),
    /// The library with each copy method for large messages, instead of the automatic choice.
    Methods(Vec<Ours>),
}

impl Peer {
    fn names(&self) -> Vec<&'static str> {
        match self {
            Peer::Mpi(raw) => vec![raw.name()],
            Peer::Ucx(_) => vec!["ucx"],
            Peer::Methods(forced) => forced.iter().map(Endpoint::name).collect(),
        }
    }

    /// Returns the name and version of the communication library, for the table header.
    fn facts(&self) -> Value {
        match self {
            Peer::Mpi(raw) => {
                let file = Path::new(&raw.file).file_name().map(|name| name.to_string_lossy());
                json!({ "name": "mpi", "version": raw.version, "file": file })
            }
            Peer::Ucx(ucx) => json!({ "name": "ucx", "version": ucx.version }),
            Peer::Methods(_) => json!({ "name": METHODS }),
        }
    }
}

/// Name of the comparison with the forced copy methods, in results.
pub(crate) const METHODS: &str = "methods";

/// State of one rank: the library's communicator, the implementation that it is compared with, and
/// the buffers.
struct Rank<'a> {
    ours: Ours,
    peer: Option<&'a mut Peer>,
    place: Place,
    buffers: Buffers,
    probe: Option<Probe>,
    /// Test (row of the table) that is being measured.
    row: Row,
}

impl Rank<'_> {
    /// Runs and measures all tests. Returns the rows of the table, which are meaningful on rank 0
    /// only.
    fn measure(&mut self, rows: &[Row], wanted: &Comm) -> Outcome<Vec<Line>> {
        let names: Vec<_> = self.sides();
        let mut progress = (self.place.rank == 0)
            .then(|| Progress::new(rows.len() * wanted.common.rounds as usize));
        let mut all = vec![vec![Samples::default(); names.len()]; rows.len()];
        for round in 0..wanted.common.rounds {
            for (&row, sides) in rows.iter().zip(&mut all) {
                self.row = row;
                if let Some(progress) = &mut progress {
                    progress.next(&format!("{} {} B", row.test.name(), row.bytes));
                }
                if round == 0 {
                    self.verify()?;
                }
                let found = measure::in_turn(self, names.len(), wanted.common.budget())?;
                sides.iter_mut().zip(found).for_each(|(side, found)| side.append(found));
            }
        }
        let line = |(row, sides): (&Row, Vec<Samples>)| Line {
            test: row.test.name(),
            bytes: Some(row.bytes as u64),
            unit: row.unit(),
            sides: names.iter().map(|&name| name.to_owned()).zip(sides).collect(),
        };
        Ok(rows.iter().zip(all).map(line).collect())
    }

    fn sides(&self) -> Vec<&'static str> {
        let mut names = vec![self.ours.name()];
        names.extend(self.peer.iter().flat_map(|peer| peer.names()));
        names
    }

    /// Runs several batches with the library and returns the median of their times per operation.
    /// Together, the batches take about as long as one run of ucx_perftest, including its warm-up.
    fn several(&mut self) -> Outcome<f64> {
        let mut values = [0.0; 21];
        for value in &mut values {
            *value = batch(&mut self.ours, &mut self.buffers, self.row, self.place)?;
        }
        values.sort_by(f64::total_cmp);
        Ok(values[values.len() / 2])
    }

    fn verify(&mut self) -> Outcome {
        verify(&mut self.ours, &mut self.buffers, self.row, self.place)?;
        match self.peer.as_deref_mut() {
            Some(Peer::Mpi(raw)) => verify(raw, &mut self.buffers, self.row, self.place),
            Some(Peer::Methods(forced)) => forced
                .iter_mut()
                .try_for_each(|ours| verify(ours, &mut self.buffers, self.row, self.place)),
            _ => Ok(()),
        }
    }
}

impl Bench for Rank<'_> {
    fn batch(&mut self, side: usize) -> Outcome<f64> {
        let took = match (self.peer.as_deref_mut(), side) {
            (Some(Peer::Mpi(raw)), 1) => batch(raw, &mut self.buffers, self.row, self.place),
            (Some(Peer::Ucx(ucx)), 1) => ucx.batch(self.row),
            (Some(Peer::Ucx(_)), _) => self.several(),
            (Some(Peer::Methods(forced)), 1..) => {
                batch(&mut forced[side - 1], &mut self.buffers, self.row, self.place)
            }
            _ => batch(&mut self.ours, &mut self.buffers, self.row, self.place),
        }?;
        if self.row.test.is_of_two() {
            return Ok(took);
        }
        // Ranks leave a collective at different times: the mean.
        Ok(self.ours.sum(took)? / f64::from(self.place.ranks))
    }

    fn distance(&mut self) -> Option<f64> {
        self.probe.as_mut().map(Probe::round_trip)
    }

    fn agree(&mut self, go_on: bool) -> Outcome<bool> {
        Ok(self.ours.tell([u64::from(go_on)], 0)? != [0])
    }
}

/// Creates a probe for the distance (round-trip time of a cache line) between the processors of
/// ranks 0 and 1, or returns the reason why that is impossible. `shared` is memory for the probe,
/// if all ranks are in one process. Collective operation.
fn probe_between(
    ours: &Ours,
    shared: Option<&Arc<SharedMapping>>,
    processors: usize,
) -> Outcome<Result<Probe, String>> {
    let node = node_id().unwrap_or(0);
    let cpu = crate::machine::only_processor().map_or(u64::MAX, |cpu| cpu as u64);
    let made = if ours.rank == 0 { shared.cloned().or_else(|| probe::memory().ok()) } else { None };
    let [process, descriptor] = made.as_ref().map_or([0, 0], |memory| probe::address_of(memory));
    let [process, descriptor, first_node, first_cpu, processors] =
        ours.tell([process, descriptor, node, cpu, processors as u64], 0)?;
    let is_here = ours.rank == 1 && process != 0 && node == first_node;
    let found = is_here
        .then(|| shared.cloned().or_else(|| probe::open([process, descriptor]).ok()))
        .flatten();
    let is_one_cpu = cpu != u64::MAX && cpu == first_cpu;
    let [has_found, is_one_cpu] =
        ours.tell([u64::from(found.is_some()), u64::from(is_one_cpu)], 1)?;
    if ours.size as u64 > processors {
        return Ok(Err(format!("{} ranks share {processors} processor(s)", ours.size)));
    }
    if is_one_cpu != 0 {
        return Ok(Err("ranks 0 and 1 run on the same processor".to_owned()));
    }
    let part = if ours.rank == 0 { Part::Ping } else { Part::Pong };
    let memory = made.or(found).filter(|_| has_found != 0 && ours.rank < 2);
    let probe = memory.and_then(|memory| Probe::new(&memory, part));
    Ok(probe.ok_or_else(|| "ranks 0 and 1 share no memory".to_owned()))
}
