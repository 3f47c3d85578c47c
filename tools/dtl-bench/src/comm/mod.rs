//! Subcommand `comm`: measures messages and collectives on a communicator of the library, and on an
//! MPI communicator in the same processes.
//!
//! `test` defines the tests (rows of the table). `batch` runs a test with an implementation of
//! `endpoint`: the library (`ours`), an MPI library (`raw`) or a prototype without matching
//! (`bare`). `ucx` runs a UCX program for comparison. `start` creates the ranks. This file contains
//! the measurement on one rank.

mod bare;
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
use crate::stats::Regime;
use crate::stats::Samples;
use crate::table::{Line, Progress};
use bare::Bare;
use batch::{Buffers, Place, WARMED, batch, verify};
use dtl::tooling::os::{SharedMapping, node_id};
use endpoint::Endpoint;
use ours::Ours;
use raw::Raw;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use test::Row;
use ucx::Ucx;

/// Implementation with which libdtl is compared.
enum Peer {
    Mpi(Raw),
    Ucx(Ucx),
    /// The library with one copy method for large messages, instead of the automatic choice.
    Method(Ours),
    Prototype(Box<Bare>),
}

impl Peer {
    fn name(&self) -> &'static str {
        match self {
            Peer::Mpi(raw) => raw.name(),
            Peer::Ucx(_) => "ucx",
            Peer::Method(forced) => forced.name(),
            Peer::Prototype(bare) => bare.name(),
        }
    }

    /// Returns the name and version of the implementation, for the table header.
    fn facts(&self) -> Value {
        match self {
            Peer::Mpi(raw) => {
                let file = Path::new(&raw.file).file_name().map(|name| name.to_string_lossy());
                json!({ "name": "mpi", "version": raw.version, "file": file })
            }
            Peer::Ucx(ucx) => json!({ "name": "ucx", "version": ucx.version }),
            Peer::Method(_) => json!({ "name": METHODS }),
            Peer::Prototype(_) => json!({ "name": PROTOTYPE }),
        }
    }
}

/// Factor of the measuring time of rows with large data in that comparison: a round needs some
/// hundred messages, of which the trials of other methods are a small part.
const LONG: u32 = 4;
/// Name of the comparison with the forced copy methods, in results.
pub(crate) const METHODS: &str = "methods";
/// Name of the bare prototype, in results.
pub(crate) const PROTOTYPE: &str = "prototype";

/// State of one rank: the library's communicator, the implementations that it is compared with, and
/// the buffers.
struct Rank<'a> {
    ours: Ours,
    peers: &'a mut [Peer],
    place: Place,
    buffers: Buffers,
    probe: Option<Probe>,
    /// Distance of the processors at its last measurement.
    distance: Option<f64>,
    /// Test (row of the table) that is being measured.
    row: Row,
}

impl Rank<'_> {
    /// Runs and measures all tests. Returns the rows of the table, which are meaningful on rank 0
    /// only.
    fn measure(&mut self, rows: &[Row], wanted: &Comm) -> Outcome<Vec<Line>> {
        let mut names = vec![self.ours.name()];
        names.extend(self.peers.iter().map(Peer::name));
        let compares_methods = self.peers.iter().any(|peer| matches!(peer, Peer::Method(_)));
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
                let factor = if compares_methods && row.bytes > WARMED { LONG } else { 1 };
                let found = measure::in_turn(self, names.len(), factor * wanted.common.budget())?;
                sides.iter_mut().zip(found).for_each(|(side, found)| side.append(round, found));
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

    fn verify(&mut self) -> Outcome {
        let Rank { ours, peers, buffers, row, place, .. } = self;
        verify(ours, buffers, *row, *place)?;
        peers.iter_mut().try_for_each(|peer| match peer {
            Peer::Mpi(raw) => verify(raw, buffers, *row, *place),
            Peer::Method(forced) => verify(forced, buffers, *row, *place),
            Peer::Prototype(bare) => bare.ways.clone().try_for_each(|way| {
                bare.way = way;
                verify(&mut **bare, buffers, *row, *place)
            }),
            Peer::Ucx(_) => Ok(()),
        })
    }
}

/// Returns the median of the times per operation of `count` batches.
fn median(count: usize, mut batch: impl FnMut() -> Outcome<f64>) -> Outcome<f64> {
    let mut values = (0..count).map(|_| batch()).collect::<Outcome<Vec<_>>>()?;
    values.sort_by(f64::total_cmp);
    Ok(values[count / 2])
}

/// Number of batches that together take about as long as one run of ucx_perftest, including its
/// warm-up.
const AS_UCX: usize = 21;

impl Bench for Rank<'_> {
    fn batch(&mut self, side: usize) -> Outcome<f64> {
        let regime = Regime::of(self.distance, self.distance);
        let Rank { ours, peers, buffers, row, place, .. } = self;
        let (row, place) = (*row, *place);
        let is_vs_ucx = peers.iter().any(|peer| matches!(peer, Peer::Ucx(_)));
        let count = if is_vs_ucx { AS_UCX } else { 1 };
        let took = match side.checked_sub(1).map(|side| &mut peers[side]) {
            None => median(count, || batch(ours, buffers, row, place)),
            Some(Peer::Mpi(raw)) => batch(raw, buffers, row, place),
            Some(Peer::Ucx(ucx)) => ucx.batch(row),
            Some(Peer::Method(forced)) => batch(forced, buffers, row, place),
            Some(Peer::Prototype(bare)) => {
                bare.choose(row, regime);
                let took = median(count, || batch(&mut **bare, buffers, row, place))?;
                bare.record(row, regime, took);
                Ok(took)
            }
        }?;
        if row.test.is_of_two() {
            return Ok(took);
        }
        // The mean time of the slowest rank counts.
        self.ours.largest(took)
    }

    fn distance(&mut self) -> Option<f64> {
        self.distance = self.probe.as_mut().map(Probe::round_trip);
        self.distance
    }

    fn agree(&mut self, go_on: bool) -> Outcome<bool> {
        Ok(self.ours.bcast_words([u64::from(go_on)], 0)? != [0])
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
        ours.bcast_words([process, descriptor, node, cpu, processors as u64], 0)?;
    let is_here = ours.rank == 1 && process != 0 && node == first_node;
    let found = is_here
        .then(|| shared.cloned().or_else(|| probe::open([process, descriptor]).ok()))
        .flatten();
    let is_one_cpu = cpu != u64::MAX && cpu == first_cpu;
    let [has_found, is_one_cpu] =
        ours.bcast_words([u64::from(found.is_some()), u64::from(is_one_cpu)], 1)?;
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
