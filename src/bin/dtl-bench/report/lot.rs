//! Runs the lot: this program with each subcommand, under each launcher, one after another. Keeps what they write.

use super::run::Run;
use crate::options::{Part, Report};
use crate::out::{Outcome, Stop, complain};
use dtl::sys::child::{self, Setup};
use dtl::sys::dl::Module;
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::{self, File};
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// Sizes of the plots.
const CURVE: &str = "1,4,16,64,256,1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB";
const CURVE_ROWS: usize = 2 * 13;
/// Rows of `comm` with its own sizes.
const COMM_ROWS: usize = 32;
/// How often a child is looked after: seldom, as it is being measured.
const LOOK: Duration = Duration::from_millis(200);

/// How long the text of one that has ended is awaited: a process that it left behind may hold the pipe.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// One run of this program.
struct Step {
    part: Part,
    /// Of its file.
    name: String,
    /// Variables, launcher and arguments.
    words: Vec<String>,
    /// About how long it takes.
    seconds: f64,
}

/// Runs all steps. A step that fails is named and left out.
pub(crate) fn run(wanted: &Report, folder: &Path) -> Result<Vec<Run>, Stop> {
    let own = std::env::current_exe().map_err(|error| format!("this program's file: {error}"))?;
    let steps = steps(wanted, &own.display().to_string())?;
    let total: f64 = steps.iter().map(|step| step.seconds).sum();
    complain!("dtl-bench: {} runs, about {total:.0} s; leave the machine alone meanwhile", steps.len());
    let bar = bar(total);
    let (mut runs, mut spent) = (Vec::new(), 0.0);
    for step in &steps {
        bar.set_message(step.name.clone());
        match one(step, folder, &bar, spent) {
            Ok(run) => runs.push(run),
            Err(text) => bar.suspend(|| complain!("dtl-bench: {}: {text}", step.name)),
        }
        spent += step.seconds;
    }
    bar.finish_and_clear();
    Ok(runs)
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

fn steps(wanted: &Report, own: &str) -> Result<Vec<Step>, Stop> {
    let seconds = wanted.seconds().as_secs_f64();
    let (row, rounds) = (seconds.to_string(), wanted.rounds().to_string());
    // Long operations take more than their share, and every row a moment.
    let each = (1.3 * seconds + 0.05) * f64::from(wanted.rounds());
    let time = |rows: usize, sides: usize| 0.5 + (rows * sides) as f64 * each;
    let common = ["--json", "--seconds", &row, "--rounds", &rounds];
    let step = |part: Part, name: String, before: &[String], arguments: &[&str], seconds: f64| Step {
        part,
        name,
        words: [before, &[own.to_owned()], &owned(arguments), &owned(&common)].concat(),
        seconds,
    };
    let mut steps = Vec::new();
    let launchers = launchers(&wanted.mpirun)?;
    let curve = ["--only", "latency,bandwidth", "--sizes", CURVE];
    for (number, launcher) in (1..).zip(&launchers) {
        let before = [&launcher[..], &owned(&["-n", "2"])].concat();
        let comm = ["comm", "--vs", "mpi"];
        steps.push(step(Part::Comm, format!("mpi-{number}"), &before, &comm, time(COMM_ROWS, 2)));
        steps.push(step(
            Part::Comm,
            format!("mpi-{number}-curve"),
            &before,
            &[&comm[..], &curve].concat(),
            time(CURVE_ROWS, 2),
        ));
    }
    if launchers.is_empty() {
        complain!("dtl-bench: no mpirun, no comparison with an MPI; name it with --mpirun");
        let comm = ["comm", "-n", "2"];
        steps.push(step(Part::Comm, "comm".to_owned(), &[], &comm, time(COMM_ROWS, 1)));
        steps.push(step(
            Part::Comm,
            "comm-curve".to_owned(),
            &[],
            &[&comm[..], &curve].concat(),
            time(CURVE_ROWS, 1),
        ));
    }
    let threads = ["comm", "--kind", "threads", "-n", "2"];
    steps.push(step(Part::Threads, "threads".to_owned(), &[], &threads, time(COMM_ROWS, 1)));
    for (part, name, rows) in [(Part::Alloc, "alloc", 13), (Part::Call, "call", 5), (Part::Copy, "copy", 8)] {
        steps.push(step(part, name.to_owned(), &[], &[name], time(rows, 2)));
    }
    // SAFETY: a library that a C program would be linked with; nothing of it is called here.
    let has_gomp = unsafe { Module::open(Path::new("libgomp.so.1")) }.is_ok();
    let loops: &[&str] = if has_gomp { &["parallel_for", "--vs", "libgomp"] } else { &["parallel_for"] };
    steps.push(step(Part::ParallelFor, "parallel_for".to_owned(), &[], loops, time(3, 2)));
    steps.retain(|step| wanted.only.is_empty() || wanted.only.contains(&step.part));
    Ok(steps)
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// What is named, else what is installed.
fn launchers(named: &[String]) -> Result<Vec<Vec<String>>, Stop> {
    if !named.is_empty() {
        let words = named.iter().map(|text| text.split_whitespace().map(str::to_owned).collect());
        let words: Vec<Vec<String>> = words.collect();
        return match words.iter().position(|words| !words.iter().any(|word| !is_variable(word))) {
            None => Ok(words),
            Some(at) => Err(Stop::Misused(format!("--mpirun '{}' names no program", named[at]))),
        };
    }
    let is_there = |name: &&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
    };
    let particular: Vec<&str> = ["mpirun.openmpi", "mpirun.mpich"].into_iter().filter(is_there).collect();
    let found =
        if particular.is_empty() { ["mpirun"].into_iter().filter(is_there).collect() } else { particular };
    Ok(found.into_iter().map(|name| vec![name.to_owned()]).collect())
}

/// NAME=value, as a shell takes it before a command.
fn is_variable(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// Runs a step to its end.
fn one(step: &Step, folder: &Path, bar: &ProgressBar, spent: f64) -> Outcome<Run> {
    let kept = folder.join(format!("{}.json", step.name));
    let data = File::create(&kept).map_err(|error| format!("{}: {error}", kept.display()))?;
    let count = step.words.iter().take_while(|word| is_variable(word)).count();
    let (variables, words) = step.words.split_at(count);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(data).stderr(Stdio::piped());
    command.envs(variables.iter().filter_map(|word| word.split_once('=')));
    // Else ranks would go on without a report, and spoil what is measured next.
    child::prepare(&mut command, Setup { is_launcher: true, ..Setup::default() });
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", words[0]))?;
    let said = child.stderr.take().map(listen);
    let outcome = wait(child, step, bar, spent);
    let text = said.and_then(|said| said.recv_timeout(LAST_WORDS).ok()).unwrap_or_default();
    let outcome = outcome.and_then(|()| Run::read(&kept));
    outcome.map_err(|why| {
        drop(fs::remove_file(&kept));
        format!("`{}`: {why}\n{}", step.words.join(" "), text.trim_end())
    })
}

/// What a child says until its end: not in a file, as a full disk may be what it speaks of.
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
    loop {
        let ended = child.try_wait().map_err(|error| error.to_string())?;
        if let Some(status) = ended {
            return if status.success() { Ok(()) } else { Err(status.to_string()) };
        }
        bar.set_position((spent + begin.elapsed().as_secs_f64().min(step.seconds)) as u64);
        sleep(LOOK);
    }
}
