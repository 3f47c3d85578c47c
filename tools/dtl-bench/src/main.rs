//! dtl-bench: measures the library's calls, messages, allocations, parallel loops and memory copies
//! on this machine, and compares them with those of other libraries.
//!
//! `measure` contains the measuring method: the library and its peers (the implementations that it
//! is compared with) run short batches alternately, and the results are grouped by the distance
//! between the processors (round-trip time of a cache line). `table` and `json` print the results,
//! `picture` draws plots. Each subcommand has a file or folder: `comm`; `alloc`, `call`, `copy`,
//! `dispatch`, `launch`, `parallel_for` and `select`, which use `local`; `report`, which runs all
//! measurements and writes a page. `model` does not measure: from the steps of each collective, it
//! computes how the cost of that collective grows with the number of ranks.
//!
//! The library functions that are measured are called through the C interface, as in a C program.
#![allow(
    clippy::indexing_slicing,
    reason = "an index out of range is a bug of the program, and says so"
)]

mod alloc;
mod call;
mod comm;
mod copy;
mod dispatch;
mod json;
mod launch;
mod library;
mod local;
mod machine;
mod measure;
mod model;
mod options;
mod out;
mod parallel_for;
mod picture;
mod probe;
mod report;
mod select;
mod stats;
mod table;
mod tbb;

use clap::Parser;
use options::{Command, Options};
use out::{Stop, complain};
use std::process::ExitCode;
use std::time::SystemTime;

/// Exit status for a command-line error, which is equal to the exit status that clap uses.
const MISUSED: u8 = 2;

fn main() -> ExitCode {
    let begun = SystemTime::now();
    manual::programs::generate::<Options>();
    let ended = match Options::parse().command {
        Command::Comm(wanted) => comm::run(&wanted),
        Command::Alloc(wanted) => alloc::run(&wanted).map_err(Stop::from),
        Command::ParallelFor(wanted) => parallel_for::run(&wanted).map_err(Stop::from),
        Command::Call(wanted) => call::run(&wanted).map_err(Stop::from),
        Command::Report(wanted) => report::run(&wanted),
        Command::Model(wanted) => model::run(&wanted),
        Command::Launch(wanted) => launch::run(&wanted).map_err(Stop::from),
        Command::Now => {
            launch::tell(begun);
            Ok(())
        }
        Command::Select(wanted) => select::run(&wanted).map_err(Stop::from),
        Command::Copy(wanted) => copy::run(&wanted).map_err(Stop::from),
        Command::Dispatch(wanted) => dispatch::run(&wanted).map_err(Stop::from),
    };
    let ended = ended.and_then(|()| out::lost().map_or(Ok(()), |why| Err(Stop::Failed(why))));
    let (code, text) = match ended {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Stop::Misused(text)) => (ExitCode::from(MISUSED), text),
        Err(Stop::Failed(text)) => (ExitCode::FAILURE, text),
    };
    complain!("dtl-bench: {text}");
    code
}
