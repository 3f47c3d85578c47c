//! dtl-ctk: the conformance kit. `options` is the command line; `drive` starts workers (`session`),
//! watches them and reports; `worker` runs named tests or random cases.
//!
//! Named tests: `tests` (the functions and `catalog.txt`), `kit` (their machinery), `sample` and
//! `minimal` (backends to try them on). Random cases for communicators: made by `generate`, run by
//! `case_run` with `collective`, `batch` and `window`, compared with `reference`, reduced by
//! `shrink`. Both use the library through its public C functions only.
#![allow(
    clippy::indexing_slicing,
    reason = "an index out of range is a bug of the kit, and says so"
)]

mod api;
mod batch;
mod case;
mod case_run;
mod collective;
mod data;
mod drive;
mod generate;
mod kit;
mod minimal;
mod options;
mod plan;
mod reference;
mod sample;
mod session;
mod shrink;
mod stop;
mod tests;
mod user;
mod window;
mod worker;

use clap::Parser;
use kit::outcome::{errln, lost, outln};
use kit::{checklist, show};
use options::{Cases, Command, List, Options, Place, Run};
use std::fs::File;
use std::io::{BufWriter, Error, Write};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let ended = run();
    let Some(why) = lost() else { return ended };
    errln!("dtl-ctk: standard output: {why}");
    if ended == ExitCode::SUCCESS { ExitCode::from(worker::CANNOT) } else { ended }
}

fn run() -> ExitCode {
    match Options::parse().command {
        Command::Run(run) => start(&run),
        Command::List(list) => say_list(&list),
        Command::Explain { test } => match show::explain(&test) {
            Ok(text) => {
                outln!("{}", text.trim_end());
                ExitCode::SUCCESS
            }
            Err(error) => misused(&error),
        },
        Command::Checklist { folder } => say_checklist(&folder),
        Command::Cases(cases) => match write_cases(&cases) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                errln!("dtl-ctk: {}: {error}", cases.out.display());
                ExitCode::from(worker::CANNOT)
            }
        },
    }
}

fn misused(error: &str) -> ExitCode {
    errln!("dtl-ctk: {error}");
    ExitCode::from(2)
}

fn start(run: &Run) -> ExitCode {
    if let Err(error) = run.check() {
        return misused(&error);
    }
    let launched = run.place() == Place::Processes && is_launched();
    if run.worker.worker || run.is_random() && launched {
        return worker::work(run);
    }
    if !launched {
        stop::listen();
    }
    let ended = drive::drive(run, launched);
    stop::status().unwrap_or(ended)
}

/// Returns true if a launcher started this process as one of several ranks.
fn is_launched() -> bool {
    let variables = ["DTL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_STEP_ID"];
    variables.iter().any(|name| std::env::var_os(name).is_some())
}

fn say_list(list: &List) -> ExitCode {
    if list.faults {
        sample::fault::all().for_each(|(fault, test)| outln!("{fault:<48} {test}"));
    } else if list.cases {
        case::OPS.iter().for_each(|(_, name, what)| outln!("{name:<21} {what}"));
    } else {
        outln!("{}", show::list(&list.component, &list.only).trim_end());
    }
    ExitCode::SUCCESS
}

fn say_checklist(folder: &Path) -> ExitCode {
    match checklist::answers(folder) {
        Err(error) => misused(&error),
        Ok(answers) => {
            for answer in &answers {
                outln!(
                    "{} {}: {}",
                    if answer.yes { "yes" } else { "NO " },
                    answer.question,
                    answer.reason
                );
            }
            let open = answers.iter().filter(|answer| !answer.yes).count();
            outln!("{} of {} boxes", answers.len() - open, answers.len());
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
