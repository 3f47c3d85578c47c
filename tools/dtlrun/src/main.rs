//! dtlrun: starts the ranks of a job on this node and supervises them.
//!
//! `options` parses the command line, `ranks` starts the processes of the ranks, `watch` waits for
//! these processes, `requests` starts more of them for the ranks, and `output` forwards the lines
//! that they write, each with a prefix.
#![allow(clippy::print_stderr, reason = "a program speaks to its user")]

mod options;
mod output;
mod ranks;
mod requests;
mod watch;

use clap::Parser;
use options::Options;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    manual::programs::generate::<Options>();
    let options = Options::parse();
    match run(&options) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "dtlrun: {}", failure.text);
            ExitCode::from(failure.code)
        }
    }
}

/// Reason why the job could not be started, with the exit status.
struct Failure {
    text: String,
    code: u8,
}

/// Starts the ranks and waits for them.
fn run(options: &Options) -> Result<u8, Failure> {
    let name = ranks::job_name().map_err(|error| Failure::own("random job name", &error))?;
    let watch =
        watch::Watch::new(options, &name).map_err(|error| Failure::own("signals", &error))?;
    let launcher = watch.launcher();
    let job = ranks::Job { name: &name, size: options.ranks, kind: None, launcher };
    let places: Vec<_> =
        (0..options.ranks).map(|rank| ranks::Place { rank, number: rank }).collect();
    let ranks = ranks::start(options, &job, &places)?;
    Ok(watch.until_all_have_ended(ranks))
}

impl Failure {
    /// Creates the failure for a system error in an operation of dtlrun itself.
    fn own(what: &str, error: &std::io::Error) -> Failure {
        Failure { text: format!("{what}: {error}"), code: 125 }
    }
}
