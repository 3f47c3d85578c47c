//! Creates the ranks of the subcommand `comm`: joins a launcher's job, starts a job with dtlrun, or
//! runs the ranks as threads.

use super::bare::Bare;
use super::batch::{Buffers, Place};
use super::ours::Ours;
use super::raw::Raw;
use super::test::{Row, Test};
use super::ucx::Ucx;
use super::{Peer, Rank, probe_between};
use crate::library::{call, own_file};
use crate::machine;
use crate::options::{Comm, CommPeer};
use crate::out::{Outcome, Stop, complain};
use crate::probe::{self, Probe};
use crate::table;
use crate::table::Table;
use dtl::tooling::os::SharedMapping;
use dtl_sys::{dtl_finalize, dtl_init};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::thread;

/// Maximum value of a count argument (int) of an MPI function.
const MPI_MOST: usize = i32::MAX as usize;

/// Runs the measurements that the command line requests.
pub(crate) fn run(wanted: &Comm) -> Result<(), Stop> {
    let mut only = wanted.only.clone();
    only.extend(wanted.rows.iter().map(|row| row.0));
    let is_vs = |peer| wanted.vs.contains(&peer);
    if is_vs(CommPeer::Ucx) {
        let can = [Test::Latency, Test::Bandwidth];
        if only.iter().any(|test| !can.contains(test)) {
            return Err(Stop::Misused(
                "--vs ucx: only latency and bandwidth can be compared with ucx_perftest".to_owned(),
            ));
        }
        only = if only.is_empty() { can.to_vec() } else { only };
    }
    let named = wanted.rows.iter().map(|&(test, bytes)| Row::list(&[test], &[bytes]));
    let rows: Result<Vec<_>, _> = match wanted.rows.is_empty() {
        true => Row::list(&only, &wanted.sizes),
        false => named.collect::<Result<Vec<_>, _>>().map(|lists| lists.concat()),
    };
    let rows = rows.map_err(Stop::Misused)?;
    if wanted.kind == "self" {
        return Err(Stop::Misused(
            "--kind self has 1 rank, but a message needs 2: --kind threads measures ranks of one \
             process, --kind shm (or none named) processes of this node"
                .to_owned(),
        ));
    }
    if is_vs(CommPeer::Methods) && !["auto", "shm"].contains(&&*wanted.kind) {
        return Err(Stop::Misused(format!(
            "--vs methods: only kind shm has copy methods, leave --kind {} out",
            wanted.kind
        )));
    }
    let is_threaded = wanted.kind == "threads";
    if is_threaded && !wanted.vs.is_empty() {
        return Err(Stop::Misused("--vs needs processes: leave --kind threads out".to_owned()));
    }
    call!(dtl_init(std::ptr::null()))?;
    if is_threaded {
        threads(wanted, &rows)?;
    } else if is_launched() {
        // A rank that fails exits: others may wait for it for ever, and the launcher then ends
        // them.
        process(wanted, &rows)?;
    } else {
        return launch(wanted);
    }
    Ok(call!(dtl_finalize())?)
}

/// Returns true if environment variables show that a launcher started this process as a rank.
pub(crate) fn is_launched() -> bool {
    let variables = ["DTL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_STEP_ID"];
    variables.iter().any(|name| std::env::var_os(name).is_some())
}

/// Replaces this process with dtlrun (exec), which starts the ranks with this program and the same
/// arguments.
fn launch(wanted: &Comm) -> Result<(), Stop> {
    let Some(ranks) = wanted.ranks else {
        return Err(Stop::Misused(
            "comm needs ranks: -n 2, `dtlrun -n 2 dtl-bench comm`, or `mpirun -n 2 dtl-bench comm`"
                .to_owned(),
        ));
    };
    if wanted.vs.contains(&CommPeer::Mpi) {
        return Err(Stop::Misused(
            "--vs mpi needs MPI's own launcher: `mpirun -n 2 dtl-bench comm --vs mpi`, without -n \
             here"
                .to_owned(),
        ));
    }
    let own = own_file()?;
    let dtlrun = own.with_file_name("dtlrun");
    let mut command = Command::new(&dtlrun);
    command.args(["-n", &ranks.to_string()]).arg(own).args(std::env::args_os().skip(1));
    let error = command.exec();
    Err(Stop::Failed(format!("{}: {error}; it belongs beside this program", dtlrun.display())))
}

/// Runs all ranks as threads of this process.
fn threads(wanted: &Comm, rows: &[Row]) -> Outcome {
    let memory = probe::memory().ok();
    let ranks = Ours::threads(wanted.ranks.unwrap_or(2))?;
    thread::scope(|scope| {
        for ours in ranks {
            let memory = memory.clone();
            scope.spawn(move || {
                if let Err(text) = one(wanted, rows, ours, memory.as_ref(), &mut []) {
                    // The other threads may wait for this one for ever.
                    complain!("dtl-bench: {text}");
                    std::process::exit(1);
                }
            });
        }
    });
    Ok(())
}

/// Runs this process as one rank.
fn process(wanted: &Comm, rows: &[Row]) -> Result<(), Stop> {
    // MPI first: it determines rank and size.
    let raw = match wanted.vs.contains(&CommPeer::Mpi) {
        true => Some(Raw::start(wanted.kind == "mpi")?),
        false => None,
    };
    let ours = Ours::open(&wanted.kind)?;
    if let Some(ranks) = wanted.ranks.filter(|&ranks| ranks != ours.size) {
        let text =
            format!("-n {ranks}, but the launcher started {} rank(s): leave -n out", ours.size);
        return Err(Stop::Misused(text));
    }
    let mut peers = Vec::new();
    if let Some(raw) = raw {
        peers.push(Peer::Mpi(fitting(raw, &ours, rows)?));
    }
    if wanted.vs.contains(&CommPeer::Methods) {
        peers.extend(Ours::with_each_method()?.into_iter().map(Peer::Method));
    }
    if wanted.vs.contains(&CommPeer::Ucx) {
        let [first] = ours.bcast_words([u64::from(std::process::id())], 0)?;
        peers.push(Peer::Ucx(Ucx::new(ours.rank, first)?));
    }
    if wanted.vs.contains(&CommPeer::Prototype) {
        peers.push(Peer::Prototype(Box::new(Bare::open(&ours)?)));
    }
    one(wanted, rows, ours, None, &mut peers)?;
    let ends = peers.into_iter().map(|peer| match peer {
        Peer::Mpi(raw) => raw.end(),
        _ => Ok(()),
    });
    Ok(ends.collect::<Outcome>()?)
}

/// Checks that this process has the same rank and size in MPI_COMM_WORLD as in the communicator,
/// and that the sizes of all rows are within the range of MPI's `int` counts. Returns `raw`, or an
/// error message.
fn fitting(raw: Raw, ours: &Ours, rows: &[Row]) -> Outcome<Raw> {
    let most = rows.iter().map(|row| row.bytes).max().unwrap_or(0);
    if most > MPI_MOST {
        return Err(format!("--sizes {most}: MPI's counts end at {MPI_MOST}"));
    }
    if (raw.rank, raw.size) != (ours.rank, ours.size) {
        let (rank, size) = (raw.rank, raw.size);
        return Err(format!(
            "rank {} of {} is rank {rank} of {size} for {}: start all with that MPI's own mpirun",
            ours.rank, ours.size, raw.file
        ));
    }
    Ok(raw)
}

/// Runs the measurements of one rank, which is a process or a thread.
fn one(
    wanted: &Comm,
    rows: &[Row],
    ours: Ours,
    shared: Option<&Arc<SharedMapping>>,
    peers: &mut [Peer],
) -> Outcome {
    if ours.size < 2 {
        return Err("1 rank, but a message needs 2: start two or more, -n 2".to_owned());
    }
    let processors = machine::shared_processors();
    let place = Place {
        rank: ours.rank,
        ranks: ours.size,
        is_oversubscribed: ours.size as usize > processors,
    };
    if !wanted.place.no_pin {
        machine::pin(place.rank as usize);
    }
    let mut probe = probe_between(&ours, shared, processors)?;
    let round_trip = probe.as_mut().ok().map(Probe::round_trip);
    let mut head = head(wanted, &ours, peers.first(), (processors, probe.as_ref().err()));
    head["round_trip_ns"] = round_trip.map(f64::round).into();
    if place.rank == 0 {
        if place.is_oversubscribed {
            complain!(
                "dtl-bench: {} ranks on {processors} processor(s): ranks take turns, so the values \
                 include context switches",
                place.ranks
            );
        } else if let Err(why) = &probe {
            complain!(
                "dtl-bench: distance of the processors not measured ({why}); values vary with it"
            );
        }
    }
    let buffers = Buffers::new(rows, place.ranks as usize);
    let (probe, row) = (probe.ok(), rows[0]);
    let mut rank = Rank { ours, peers, place, buffers, probe, distance: None, row };
    let lines = rank.measure(rows, wanted)?;
    if place.rank == 0 {
        table::show(&Table { head, lines }, wanted.common.json);
    }
    Ok(())
}

/// Returns the properties that are printed before the table.
fn head(
    wanted: &Comm,
    ours: &Ours,
    peer: Option<&Peer>,
    (processors, no_probe): (usize, Option<&String>),
) -> Value {
    json!({
        "measured": "comm",
        "version": env!("CARGO_PKG_VERSION"),
        "machine": machine::facts(processors),
        "kind": ours.kind,
        "transport": ours.transport,
        "ranks": ours.size,
        "pinned": !wanted.place.no_pin,
        "peer": peer.map(Peer::facts),
        "seconds": wanted.common.budget().as_secs_f64(),
        "rounds": wanted.common.rounds,
        "no_distance": no_probe,
    })
}
