//! Runs the steps of a report's plan one after another and keeps their output. If a step fails, its
//! error is reported, and the report does not contain any results of this step.

use super::run::{Key, Run};
use super::steps::{Plan, Step};
use super::{replace, verdict};
use crate::options::Report;
use crate::out::{Outcome, complain};
use crate::table::bar;
use indicatif::ProgressBar;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use subprocess::{Setup, end, listen, prepare};

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
/// Maximum duration of all second runs together: a share of the duration of the first, or at least
/// this number of seconds.
const SECOND: (f64, f64) = (0.25, 120.0);

/// Runs all steps, and then once more the rows that missed their targets. Returns the results, and
/// messages that name what was not measured.
pub(crate) fn run(wanted: &Report, folder: &Path) -> Outcome<(Vec<Run>, Vec<String>)> {
    let plan = Plan::new(wanted)?;
    let total: f64 = plan.steps.iter().map(|step| step.seconds).sum();
    complain!(
        "dtl-bench: {} runs, about {total:.0} s; leave the machine alone meanwhile",
        plan.steps.len()
    );
    let bar = bar(total.ceil() as u64, "{elapsed} of about {len} s {bar:30} {msg}");
    let (mut runs, mut missing, mut spent) = (Vec::new(), plan.missing, 0.0);
    let mut seconds = Vec::new();
    let begin = Instant::now();
    for (number, step) in (1..).zip(&plan.steps) {
        bar.set_message(step.name.clone());
        if bar.is_hidden() {
            complain!("dtl-bench: {number} of {}: {}", plan.steps.len(), step.name);
        }
        let kept = folder.join(format!("{}.json", step.name));
        let known = if wanted.resume { Run::read(&kept).ok() } else { None };
        let (is_known, began) = (known.is_some(), Instant::now());
        match known.map_or_else(|| one(step, &kept, &bar, spent), Ok) {
            Ok(run) => {
                let missed = if is_known { Vec::new() } else { verdict::missed(&run) };
                if let Some(step) = step.of_rows(&missed, &run, began.elapsed()) {
                    seconds.push((runs.len(), step, missed));
                }
                runs.push(run);
            }
            Err((why, said)) => {
                bar.suspend(|| {
                    complain!("dtl-bench: {}: `{}`: {why}\n{said}", step.name, step.command.text())
                });
                missing.push(format!("{}: {why}", step.name));
            }
        }
        spent += step.seconds;
    }
    bar.finish_and_clear();
    let limit = SECOND.1.max(SECOND.0 * begin.elapsed().as_secs_f64());
    missing.extend(second_runs(&mut runs, &seconds, folder, limit));
    Ok((runs, missing))
}

/// Runs steps with the rows that missed their targets in a run, and replaces these rows there.
/// Returns messages about the steps for which there was no time, or which failed.
fn second_runs(
    runs: &mut [Run],
    steps: &[(usize, Step, Vec<Key>)],
    folder: &Path,
    limit: f64,
) -> Vec<String> {
    let (bar, mut missing, mut spent) = (ProgressBar::hidden(), Vec::new(), 0.0);
    for (number, (index, step, missed)) in (1..).zip(steps) {
        if spent + step.seconds > limit {
            missing.push(format!("second run of {}: no time was left for it", step.name));
            continue;
        }
        let (name, of, rows) = (&step.name, steps.len(), missed.len());
        complain!("dtl-bench: second run {number} of {of}: {name}, {rows} missed rows");
        let again = folder.join(format!("{}.again.json", step.name));
        let merged = one(step, &again, &bar, spent).map_err(|error| error.0).and_then(|second| {
            drop(fs::remove_file(&again));
            let merged = runs[*index].with_second(&second, missed)?;
            replace(&folder.join(format!("{}.json", step.name)), &format!("{:#}\n", merged.head))?;
            Ok(merged)
        });
        match merged {
            Ok(merged) => runs[*index] = merged,
            Err(why) => missing.push(format!("second run of {}: {why}", step.name)),
        }
        spent += step.seconds;
    }
    missing
}

/// Runs a step to its end. Returns the reason and the step's error output if it fails.
fn one(step: &Step, kept: &Path, bar: &ProgressBar, spent: f64) -> Result<Run, (String, String)> {
    let silent = |why: String| (why, String::new());
    let data =
        File::create(kept).map_err(|error| silent(format!("{}: {error}", kept.display())))?;
    let mut command = step.command.start();
    command.stdout(data).stderr(Stdio::piped());
    // Else ranks would go on without a report, and spoil what is measured next.
    prepare(&mut command, Setup { is_launcher: true, ..Setup::default() });
    let mut child = command.spawn().map_err(|error| silent(error.to_string()))?;
    // A pipe, not a file: the error may be that the disk is full.
    let said = child.stderr.take().map(listen);
    let outcome = wait(child, step, bar, spent);
    let text = said.and_then(|said| said.recv_timeout(LAST_WORDS).ok()).unwrap_or_default();
    outcome.and_then(|()| Run::read(kept)).map_err(|why| {
        drop(fs::remove_file(kept));
        (why, text.trim_end().to_owned())
    })
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
            drop(end(&mut child, GRACE));
            return Err(format!("it did not end within {:.0} s", limit.as_secs_f64()));
        }
        bar.set_position((spent + begin.elapsed().as_secs_f64().min(step.seconds)) as u64);
        sleep(LOOK);
    }
}
