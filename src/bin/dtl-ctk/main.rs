//! dtl-ctk: the conformance test kit for communicators. It makes random cases (`generate`), runs them
//! through the public C entries (`rank`, `collective`, `batch`), and compares with a serial reference
//! (`reference`); `drive` starts the ranks and makes failing cases small.
//!
//! It sees no more of the library than a C program does.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks to its user")]
#![allow(clippy::indexing_slicing, reason = "an index out of range is a bug of the kit, and says so")]

mod api;
mod batch;
mod case;
mod collective;
mod data;
mod drive;
mod generate;
mod minimal;
mod options;
mod plan;
mod rank;
mod reference;
mod shrink;
mod user;
mod worker;

use clap::Parser;
use options::{Cases, Command, Options, Run};
use std::fs::File;
use std::io::{BufWriter, Error, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    match Options::parse().command {
        Command::Run(run) if run.kind == "self" && run.ranks != 1 => {
            eprintln!("dtl-ctk: kind self has one rank, not {}", run.ranks);
            ExitCode::from(2)
        }
        Command::Run(run) if run.worker || is_a_rank(&run) => worker::work(&run),
        Command::Run(run) => drive::drive(&run),
        Command::List => {
            for (_, name, what) in case::OPS {
                println!("{name:<21} {what}");
            }
            ExitCode::SUCCESS
        }
        Command::Cases(cases) => match write_cases(&cases) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("dtl-ctk: {}: {error}", cases.out.display());
                ExitCode::from(worker::CANNOT)
            }
        },
    }
}

/// Whether a launcher started this process as one of several ranks.
fn is_a_rank(run: &Run) -> bool {
    let variables = ["DTL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_STEP_ID"];
    let single = run.kind == "self" || worker::is_threaded(&run.kind);
    !single && variables.iter().any(|name| std::env::var_os(name).is_some())
}

fn write_cases(cases: &Cases) -> Result<(), Error> {
    let mut file = BufWriter::new(File::create(&cases.out)?);
    let space = cases.choice.space(cases.ranks);
    writeln!(file, "{} {} {}", cases.choice.seed, cases.ranks, cases.choice.cases)?;
    for number in 0..cases.choice.cases {
        writeln!(file, "{}", generate::case(&space, number).line())?;
    }
    file.flush()
}
