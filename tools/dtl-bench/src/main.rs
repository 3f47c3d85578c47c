//! dtl-bench: what calls, messages, allocations, loops and copies cost here, next to the best that
//! others offer.
//!
//! `measure` has the method (short batches in turn, sorted by how far apart the processors are),
//! `table` and `json` show what came out. One file or folder per subcommand: `comm`; `alloc`,
//! `call`, `copy`, `dispatch`, `launch`, `parallel_for` and `select` go by `local`; `report` runs
//! them all and writes a page. `model` measures nothing: it tells from the steps of collectives how
//! cost grows with the number of ranks.
//!
//! What it measures of the library it calls as a C program does.
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

/// Exit status for what is wrong with the command line, as clap has it.
const MISUSED: u8 = 2;

fn main() -> ExitCode {
    let begun = SystemTime::now();
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
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Misused(text)) => {
            complain!("dtl-bench: {text}");
            ExitCode::from(MISUSED)
        }
        Err(Stop::Failed(text)) => {
            complain!("dtl-bench: {text}");
            ExitCode::FAILURE
        }
    }
}
