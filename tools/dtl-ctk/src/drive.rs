//! The process that the user starts: starts the ranks, watches them, and when a case fails looks
//! for the smallest form of it that still fails. A crash or a hang of a rank is a failed case, too.

use crate::generate;
use crate::kit::outcome::{complain, say};
use crate::options::Run;
use crate::shrink::{self, Change};
use crate::stop;
use crate::worker::{CANNOT, is_threaded};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::io::{Error, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// At most so many tries of smaller cases.
const TRIES: usize = 200;
/// How long a launcher has to end its ranks.
const GRACE: Duration = Duration::from_secs(5);
/// A try of a smaller case that hangs is over after this.
const SHORT: Duration = Duration::from_secs(5);

/// How a run ended.
struct Outcome {
    status: Option<ExitStatus>,
    /// What the ranks said.
    said: String,
    /// The case that rank 0 was in; `None`: it began none.
    case: Option<u64>,
}

impl Outcome {
    fn passed(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    fn cannot(&self) -> bool {
        self.status.and_then(|status| status.code()) == Some(i32::from(CANNOT))
    }
}

/// A file that is removed in the end.
struct Scratch {
    path: PathBuf,
    file: File,
}

impl Scratch {
    fn new() -> Result<Scratch, Error> {
        let path = std::env::temp_dir().join(format!("dtl-ctk-{}", std::process::id()));
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        Ok(Scratch { path, file })
    }

    /// Number of the case, plus one; 0: none was begun.
    fn read(&self) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 0).map_or(0, |()| u64::from_le_bytes(bytes))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Runs the cases and reports.
pub(crate) fn drive(run: &Run) -> ExitCode {
    let begin = Instant::now();
    match watched(run, true) {
        Err(error) => {
            complain!("dtl-ctk: {error}");
            ExitCode::from(CANNOT)
        }
        Ok(outcome) if outcome.passed() => {
            let (count, kind, ranks) = (run.numbers().count(), &run.kind, run.ranks);
            let seconds = begin.elapsed().as_secs_f64();
            say!(
                "{kind}, {ranks} rank(s): {count} case(s) passed in {seconds:.1} s (seed {})",
                run.choice.seed
            );
            ExitCode::SUCCESS
        }
        Ok(outcome) => {
            outcome.said.lines().for_each(|line| complain!("{line}"));
            match outcome.case {
                Some(number) if !outcome.cannot() => {
                    failed(run, number, &outcome);
                    ExitCode::FAILURE
                }
                _ => ExitCode::from(CANNOT),
            }
        }
    }
}

/// Reports a failed case, as small as it gets.
fn failed(run: &Run, number: u64, outcome: &Outcome) {
    match outcome.status {
        None => complain!("dtl-ctk: case {number}: the ranks hang (they were ended)"),
        Some(status) => complain!("dtl-ctk: case {number} failed ({status})"),
    }
    let mut small = run.clone();
    (small.case, small.digest) = (Some(number), None);
    if run.no_shrink {
        return say_command(&small);
    }
    small.timeout = small.timeout.min(SHORT);
    match watched(&small, false) {
        Ok(again) if !again.passed() && !again.cannot() => {}
        _ => {
            complain!(
                "dtl-ctk: alone, the case passes: it needs those before it, or luck. Repeat with"
            );
            return complain!("  dtl-ctk {}", run.arguments().join(" "));
        }
    }
    let said = smaller(&mut small);
    let mut case = generate::case(&small.choice.space(small.ranks), number);
    shrink::apply(&mut case, &small.shrink);
    complain!("dtl-ctk: the smallest form that fails: {}", case.describe());
    said.lines().for_each(|line| complain!("{line}"));
    small.timeout = run.timeout;
    say_command(&small);
}

fn say_command(run: &Run) {
    let launcher =
        run.launcher.as_ref().map(|words| format!(" --launcher \"{words}\"")).unwrap_or_default();
    complain!("dtl-ctk: repeat with\n  dtl-ctk {}{launcher}", run.arguments().join(" "));
}

/// Adds changes to the run as long as it fails; what the ranks said last.
fn smaller(run: &mut Run) -> String {
    let number = run.case.unwrap_or(0);
    let mut said = String::new();
    let mut tries = 0;
    loop {
        let mut case = generate::case(&run.choice.space(run.ranks), number);
        shrink::apply(&mut case, &run.shrink);
        let found = shrink::candidates(&case).into_iter().find_map(|change| {
            tries += 1;
            let outcome = if tries > TRIES { None } else { attempt(run, change) };
            outcome.map(|outcome| (change, outcome))
        });
        let Some((change, outcome)) = found else { return said };
        run.shrink.push(change);
        said = outcome.said;
    }
}

/// The run with one more change, if that fails, too.
fn attempt(run: &Run, change: Change) -> Option<Outcome> {
    let mut changed = run.clone();
    changed.shrink.push(change);
    let outcome = watched(&changed, false).ok()?;
    (!outcome.passed() && !outcome.cannot()).then_some(outcome)
}

/// Starts the ranks and waits for them.
fn watched(run: &Run, shows: bool) -> Result<Outcome, Error> {
    stop::check(None)?;
    let scratch = Scratch::new()?;
    let mut child = stop::with_us(&mut command(run)?)
        .arg("--progress")
        .arg(&scratch.path)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    let mut pipe = child.stderr.take();
    let reader = thread::spawn(move || {
        let mut said = Vec::new();
        if let Some(pipe) = &mut pipe {
            let _ = pipe.read_to_end(&mut said);
        }
        String::from_utf8_lossy(&said).into_owned()
    });
    let status = until_it_ends(run, &mut child, &scratch, shows)?;
    let said = reader.join().unwrap_or_default();
    Ok(Outcome { status, said, case: scratch.read().checked_sub(1) })
}

/// Waits; `None`: it made no progress for too long and was ended.
fn until_it_ends(
    run: &Run,
    child: &mut Child,
    scratch: &Scratch,
    shows: bool,
) -> Result<Option<ExitStatus>, Error> {
    // Hidden by itself where standard error is no terminal.
    let bar = if shows { ProgressBar::new(run.numbers().end) } else { ProgressBar::hidden() };
    if let Ok(style) =
        ProgressStyle::with_template("{pos}/{len} cases [{bar:40}] {elapsed}, {eta} to go")
    {
        bar.set_style(style);
    }
    let (mut last, mut since) = (0, Instant::now());
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            bar.finish_and_clear();
            return Ok(Some(status));
        }
        stop::check(Some(child))?;
        let now = scratch.read();
        if now != last {
            (last, since) = (now, Instant::now());
            bar.set_position(now);
        }
        if since.elapsed() > run.patience() {
            bar.finish_and_clear();
            end(child)?;
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// Ends a launcher: it is asked to, so that it ends its ranks, which it cannot if it is killed at
/// once.
pub(crate) fn end(child: &mut Child) -> Result<(), Error> {
    subprocess::send_signal(child.id(), libc::SIGTERM);
    let begin = Instant::now();
    while begin.elapsed() < GRACE {
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.kill()?;
    child.wait().map(|_| ())
}

/// A program under a launcher of the user's.
pub(crate) fn launched(launcher: &str, ranks: u64, program: &Path) -> Command {
    let words = launcher.replace("{ranks}", &ranks.to_string());
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("mpirun"));
    command.args(words).arg(program);
    command
}

/// The command that runs the cases: this program, under a launcher where ranks are processes.
fn command(run: &Run) -> Result<Command, Error> {
    let own = std::env::current_exe()?;
    let mut command = if run.kind == "self" || is_threaded(&run.kind) {
        Command::new(&own)
    } else if let Some(launcher) = &run.launcher {
        launched(launcher, run.ranks, &own)
    } else {
        let mut command = Command::new(own.parent().unwrap_or(Path::new(".")).join("dtlrun"));
        command.arg("-n").arg(run.ranks.to_string()).arg("--on-failure=wait:1s").arg(&own);
        command
    };
    command.args(run.arguments()).arg("--worker");
    Ok(command)
}
