//! Runs the steps of a report's plan one after another and keeps their output. If a step fails, its
//! error is reported, and the report does not contain any results of this step.

use super::run::Run;
use super::steps::{Plan, Step};
use crate::options::Report;
use crate::out::{Outcome, complain};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::{self, File};
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};
use subprocess::{Setup, prepare, send_signal};

/// Interval at which a child is polled for its exit. It is long, so that the polls do not disturb
/// the measurement.
const LOOK: Duration = Duration::from_millis(200);
/// Maximum time to wait for the end of the output of a child that has exited. The wait is limited
/// because a process that the child has left behind may hold the pipe open.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Extra time in seconds, in addition to several times the expected duration, after which a step
/// counts as hung.
const PATIENCE: f64 = 60.0;
/// Time limit for a child to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);
const SIGTERM: i32 = 15;

/// Runs all steps. Returns the results, and messages that name what was not measured.
pub(crate) fn run(wanted: &Report, folder: &Path) -> Outcome<(Vec<Run>, Vec<String>)> {
    let plan = Plan::new(wanted)?;
    let total: f64 = plan.steps.iter().map(|step| step.seconds).sum();
    complain!(
        "dtl-bench: {} runs, about {total:.0} s; leave the machine alone meanwhile",
        plan.steps.len()
    );
    let bar = bar(total);
    let (mut runs, mut missing, mut spent) = (Vec::new(), plan.missing, 0.0);
    for (number, step) in (1..).zip(&plan.steps) {
        bar.set_message(step.name.clone());
        if bar.is_hidden() {
            complain!("dtl-bench: {number} of {}: {}", plan.steps.len(), step.name);
        }
        let kept = folder.join(format!("{}.json", step.name));
        let known = if wanted.resume { Run::read(&kept).ok() } else { None };
        match known.map_or_else(|| one(step, &kept, &bar, spent), Ok) {
            Ok(run) => runs.push(run),
            Err((why, said)) => {
                bar.suspend(|| {
                    complain!("dtl-bench: {}: `{}`: {why}\n{said}", step.name, step.text())
                });
                missing.push(format!("{}: {why}", step.name));
            }
        }
        spent += step.seconds;
    }
    bar.finish_and_clear();
    Ok((runs, missing))
}

fn bar(seconds: f64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(seconds.ceil() as u64);
    if let Ok(style) = ProgressStyle::with_template("{elapsed} of about {len} s {bar:30} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Runs a step to its end. Returns the reason and the step's error output if it fails.
fn one(step: &Step, kept: &Path, bar: &ProgressBar, spent: f64) -> Result<Run, (String, String)> {
    let silent = |why: String| (why, String::new());
    let data =
        File::create(kept).map_err(|error| silent(format!("{}: {error}", kept.display())))?;
    let mut command = Command::new(&step.words[0]);
    command.args(&step.words[1..]).stdin(Stdio::null()).stdout(data).stderr(Stdio::piped());
    command.envs(step.variables.iter().map(|(name, value)| (name, value)));
    // Else ranks would go on without a report, and spoil what is measured next.
    prepare(&mut command, Setup { is_launcher: true, ..Setup::default() });
    let mut child = command.spawn().map_err(|error| silent(error.to_string()))?;
    let said = child.stderr.take().map(listen);
    let outcome = wait(child, step, bar, spent);
    let text = said.and_then(|said| said.recv_timeout(LAST_WORDS).ok()).unwrap_or_default();
    outcome.and_then(|()| Run::read(kept)).map_err(|why| {
        drop(fs::remove_file(kept));
        (why, text.trim_end().to_owned())
    })
}

/// Collects the standard error of a child through a pipe, not in a file, because the error may be
/// that the disk is full.
fn listen(mut pipe: ChildStderr) -> Receiver<String> {
    let (sender, receiver) = channel();
    spawn(move || {
        let mut said = Vec::new();
        let _ = pipe.read_to_end(&mut said); // what came before a failure counts
        let _ = sender.send(String::from_utf8_lossy(&said).into_owned()); // nobody may wait any more
    });
    receiver
}

fn wait(mut child: Child, step: &Step, bar: &ProgressBar, spent: f64) -> Outcome {
    let begin = Instant::now();
    let limit = Duration::from_secs_f64(PATIENCE + 4.0 * step.seconds);
    loop {
        let ended = child.try_wait().map_err(|error| error.to_string())?;
        if let Some(status) = ended {
            return if status.success() { Ok(()) } else { Err(status.to_string()) };
        }
        if begin.elapsed() > limit {
            end(child);
            return Err(format!("it did not end within {:.0} s", limit.as_secs_f64()));
        }
        bar.set_position((spent + begin.elapsed().as_secs_f64().min(step.seconds)) as u64);
        sleep(LOOK);
    }
}

/// Ends a launcher with SIGTERM, so that the launcher can end its ranks; after SIGKILL, the ranks
/// could continue to run. Sends SIGKILL only if the launcher does not exit within `GRACE`.
fn end(mut child: Child) {
    send_signal(child.id(), SIGTERM);
    let begin = Instant::now();
    while begin.elapsed() < GRACE {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        sleep(LOOK);
    }
    drop(child.kill());
    drop(child.wait());
}
