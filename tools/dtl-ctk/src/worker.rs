//! The process that runs cases: one rank, or all ranks as threads.

use crate::api::{Comm, Failure, check, cuts};
use crate::kit::outcome::{complain, say};
use crate::minimal;
use crate::options::Run;
use crate::rank::{Failed, Rank};
use crate::sample::Parts;
use crate::user;
use dtl_sys::{DTL_SUCCESS, dtl_comm_rank, dtl_comm_size, dtl_comm_t, dtl_finalize, dtl_status_t};
use std::fs::{File, OpenOptions};
use std::process::ExitCode;
use std::thread;

/// The kind could not be opened, or a file not written.
pub(crate) const CANNOT: u8 = 3;

/// Kinds whose ranks are threads of one process.
pub(crate) fn is_threaded(kind: &str) -> bool {
    ["threads", "minimal", "faulty", "sample"].contains(&kind)
}

fn finalize() -> dtl_status_t {
    // SAFETY: the cases are over: nobody uses memory or names of the library any more.
    unsafe { dtl_finalize() }
}

/// Runs the cases as one rank of a job, or as all of them.
pub(crate) fn work(run: &Run) -> ExitCode {
    let outcome =
        user::make().and_then(|()| if is_threaded(&run.kind) { threads(run) } else { single(run) });
    match outcome {
        // A launcher of MPI's takes a process for crashed that ends without.
        Ok(true) if finalize() == DTL_SUCCESS => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(failure) => {
            complain!("dtl-ctk: {}", failure.text);
            ExitCode::from(CANNOT)
        }
    }
}

fn progress(run: &Run) -> Option<File> {
    OpenOptions::new().write(true).open(run.progress.as_ref()?).ok()
}

fn single(run: &Run) -> Result<bool, Failure> {
    let comm = Comm::open(&run.kind, None, run.limit_ns())?;
    let (rank, ranks) = place(comm.handle)?;
    let cuts = cuts(&run.kind, run.no_time_limit);
    let passed = one(Rank { run, rank, ranks, comm, cuts, progress: progress(run) });
    if passed && rank == 0 && !run.worker {
        // Under a launcher of the user's own, nobody else says so.
        let (kind, count, seed) = (&run.kind, run.numbers().count(), run.choice.seed);
        say!("{kind}, {ranks} rank(s): {count} case(s) passed (seed {seed})");
    }
    Ok(passed)
}

/// Rank and number of ranks.
fn place(comm: dtl_comm_t) -> Result<(u64, u64), Failure> {
    let (mut rank, mut ranks) = (0, 0);
    // SAFETY: `rank` is a local.
    check("dtl_comm_rank", unsafe { dtl_comm_rank(comm, &raw mut rank) })?;
    // SAFETY: `ranks` is a local.
    check("dtl_comm_size", unsafe { dtl_comm_size(comm, &raw mut ranks) })?;
    Ok((rank as u64, ranks as u64))
}

fn threads(run: &Run) -> Result<bool, Failure> {
    let mut opened: Vec<Option<Comm>> = Vec::new();
    if run.kind == "threads" {
        opened.extend(Comm::threads(run.ranks, run.limit_ns())?.into_iter().map(Some));
    } else {
        if run.kind == "sample" {
            let registered = Parts::for_ranks(run.ranks).register("sample", 0);
            registered.map_err(|refused| Failure::wrong(refused.text))?;
        } else {
            minimal::register(&run.kind, run.ranks)?;
        }
        opened.resize_with(run.ranks as usize, || None);
    }
    let go = |rank: u64, opened: Option<Comm>| -> Result<bool, Failure> {
        let place = (rank as i32, run.ranks as i32);
        let open = || Comm::open(&run.kind, Some(place), run.limit_ns());
        let comm = opened.map_or_else(open, Ok)?;
        let cuts = cuts(&run.kind, run.no_time_limit);
        Ok(one(Rank { run, rank, ranks: run.ranks, comm, cuts, progress: progress(run) }))
    };
    thread::scope(|scope| {
        let ranks = opened.into_iter().zip(0..);
        let started: Vec<_> =
            ranks.map(|(comm, rank)| scope.spawn(move || go(rank, comm))).collect();
        let mut all_passed = true;
        for rank in started {
            let panicked = |_| Err(Failure::wrong("a rank's thread panicked".into()));
            all_passed &= rank.join().unwrap_or_else(panicked)?;
        }
        Ok(all_passed)
    })
}

/// A rank's cases; says what failed on it.
fn one(rank: Rank) -> bool {
    match rank.go() {
        Ok(all_passed) => all_passed,
        Err(Failed { text, out_of_step }) => {
            complain!("dtl-ctk: {text}");
            if out_of_step {
                // The others may wait for this rank: the launcher, or the end of the process, ends
                // them.
                std::process::exit(1);
            }
            false
        }
    }
}
