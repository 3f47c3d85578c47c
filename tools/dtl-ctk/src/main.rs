//! dtl-ctk: the conformance kit. Named tests of every component (`kit` runs them, `tests` has them,
//! `sample` is a backend to try them on) and random cases for communicators: made (`generate`), run
//! through the public C entries (`rank`, `collective`, `batch`), compared with a serial reference
//! (`reference`), made small when they fail (`drive`).
//!
//! What it tests of the library it sees as a C program does.
#![allow(
    clippy::indexing_slicing,
    reason = "an index out of range is a bug of the kit, and says so"
)]

mod api;
mod batch;
mod case;
mod collective;
mod data;
mod drive;
mod generate;
mod kit;
mod minimal;
mod options;
mod plan;
mod rank;
mod reference;
mod sample;
mod shrink;
mod stop;
mod tests;
mod user;
mod window;
mod worker;

use clap::Parser;
use kit::outcome::{complain, say};
use kit::{checklist, show};
use options::{Cases, Command, List, Options, Run, RunOptions, Task};
use std::fs::File;
use std::io::{BufWriter, Error, Write};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let ended = run();
    let Some(why) = kit::outcome::lost() else { return ended };
    complain!("dtl-ctk: standard output: {why}");
    if ended == ExitCode::SUCCESS { ExitCode::from(worker::CANNOT) } else { ended }
}

fn run() -> ExitCode {
    match Options::parse().command {
        Command::Run(run) => start(*run),
        Command::List(list) => say_list(&list),
        Command::Explain { test } => match show::explain(&test) {
            Ok(text) => {
                say!("{}", text.trim_end());
                ExitCode::SUCCESS
            }
            Err(error) => misused(&error),
        },
        Command::Checklist { folder } => say_checklist(&folder),
        Command::Cases(cases) => match write_cases(&cases) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                complain!("dtl-ctk: {}: {error}", cases.out.display());
                ExitCode::from(worker::CANNOT)
            }
        },
        Command::Work(work) => kit::worker::work(&work),
    }
}

fn misused(error: &str) -> ExitCode {
    complain!("dtl-ctk: {error}");
    ExitCode::from(2)
}

fn start(options: RunOptions) -> ExitCode {
    match options.task() {
        Err(error) => misused(&error),
        Ok(Task::Random(run)) if run.worker || is_a_rank(&run) => worker::work(&run),
        Ok(Task::Random(run)) => {
            stop::listen();
            let ended = drive::drive(&run);
            stop::status().unwrap_or(ended)
        }
        Ok(Task::Named(wanted)) => {
            let launched = wanted.place() == kit::options::Place::Processes && is_launched();
            if !launched {
                stop::listen();
            }
            let ended = kit::drive::drive(&wanted, launched);
            stop::status().unwrap_or(ended)
        }
    }
}

/// Whether a launcher started this process as one of several ranks.
fn is_a_rank(run: &Run) -> bool {
    let single = run.kind == "self" || worker::is_threaded(&run.kind);
    !single && is_launched()
}

fn is_launched() -> bool {
    let variables = ["DTL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_STEP_ID"];
    variables.iter().any(|name| std::env::var_os(name).is_some())
}

fn say_list(list: &List) -> ExitCode {
    if list.faults {
        sample::fault::FAULTS.iter().for_each(|(fault, test)| say!("{fault:<48} {test}"));
    } else if list.cases {
        case::OPS.iter().for_each(|(_, name, what)| say!("{name:<21} {what}"));
    } else {
        say!("{}", show::list(&list.component, &list.only).trim_end());
    }
    ExitCode::SUCCESS
}

fn say_checklist(folder: &Path) -> ExitCode {
    match checklist::answers(folder) {
        Err(error) => misused(&error),
        Ok(answers) => {
            for answer in &answers {
                say!(
                    "{} {}: {}",
                    if answer.yes { "yes" } else { "NO " },
                    answer.question,
                    answer.reason
                );
            }
            let open = answers.iter().filter(|answer| !answer.yes).count();
            say!("{} of {} boxes", answers.len() - open, answers.len());
            if open == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
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
