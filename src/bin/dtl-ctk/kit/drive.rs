//! The process that the user starts for named tests: a worker process for each component, watched through
//! its report. A worker that ends or hangs is the failure of the test that it was in; the tests behind it run
//! in a new worker.

use crate::kit::catalog::Test;
use crate::kit::expect::{self, Expected};
use crate::kit::options::{Place, Target, Wanted, Work, is_of_ranks};
use crate::kit::outcome::{Stop, complain, say};
use crate::kit::report::{Ended, Entry, Run};
use crate::kit::{catalog, stress, worker};
use crate::stop;
use crate::worker::CANNOT;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Error, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Why there is no result at all: the exit status and what to say.
type Hopeless = (u8, String);

/// Runs the tests and reports.
pub(crate) fn drive(wanted: &Wanted, launched: bool) -> ExitCode {
    let begin = Instant::now();
    let result = prepare(wanted).and_then(|(tests, expected)| {
        let entries = if launched {
            under_launcher(wanted, &tests, &expected)?
        } else {
            all(wanted, &tests, &expected)?
        };
        let ranks = wanted.ranks;
        let run = Run { subject: wanted.subject(), ranks, entries, seconds: begin.elapsed().as_secs_f64() };
        write(wanted, &run).map_err(|error| (CANNOT, error))?;
        Ok(run)
    });
    match result {
        // A rank other than 0 under a launcher has nothing to say.
        Ok(run) if run.entries.is_empty() && launched => ExitCode::SUCCESS,
        Ok(run) => {
            say!("{}{}", run.skips(), run.table().trim_end());
            match run.away() {
                _ if !run.passed() => ExitCode::FAILURE,
                Some(why) => {
                    complain!("dtl-ctk: {}: {why}", run.subject);
                    ExitCode::from(CANNOT)
                }
                None => ExitCode::SUCCESS,
            }
        }
        Err((code, text)) => {
            complain!("dtl-ctk: {text}");
            ExitCode::from(code)
        }
    }
}

fn prepare(wanted: &Wanted) -> Result<(Vec<&'static Test>, Vec<Expected>), Hopeless> {
    let tests = wanted.tests();
    if tests.is_empty() {
        return Err((2, "no test matches (see dtl-ctk list)".to_owned()));
    }
    let expected = match &wanted.expect {
        None => Vec::new(),
        Some(path) => expect::read(path).map_err(|error| (2, format!("{}: {error}", path.display())))?,
    };
    Ok((tests, expected))
}

/// The files that were asked for.
fn write(wanted: &Wanted, run: &Run) -> Result<(), String> {
    let put = |path: &Path, text: String| {
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    if let Some(path) = &wanted.json {
        put(path, format!("{:#}\n", run.json()))?;
    }
    wanted.junit.as_ref().map_or(Ok(()), |path| put(path, run.junit()))
}

/// All tests, component by component; then stress and times.
fn all(wanted: &Wanted, tests: &[&'static Test], expected: &[Expected]) -> Result<Vec<Entry>, Hopeless> {
    let bar = ProgressBar::new(tests.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{pos}/{len} [{bar:40}] {elapsed} {msg}") {
        bar.set_style(style);
    }
    let mut entries = Vec::new();
    let mut show = |entry: Entry| {
        bar.inc(1);
        bar.set_message(entry.test);
        let quiet =
            matches!(entry.verdict, crate::kit::report::Verdict::Pass | crate::kit::report::Verdict::Skip(_));
        if wanted.verbose || !quiet {
            // Above the bar on a terminal, a plain line elsewhere.
            if std::io::stderr().is_terminal() {
                bar.suspend(|| say!("{}", entry.line()))
            } else {
                say!("{}", entry.line())
            }
        }
        entries.push(entry);
    };
    for component in catalog::COMPONENTS {
        let mut left: Vec<&'static Test> =
            tests.iter().copied().filter(|test| test.component() == component).collect();
        while !left.is_empty() {
            let ended = Session::new(wanted, &left).and_then(Session::run)?;
            left.drain(..ended.len());
            ended
                .into_iter()
                .for_each(|(test, ended, seconds)| show(Entry::new(test, ended, seconds, expected)));
        }
    }
    if let Some(seconds) = wanted.stress {
        let mut long = wanted.clone();
        long.limit += Duration::from_secs(seconds);
        let has_comm = tests.iter().any(|test| is_of_ranks(test));
        let has_other = tests.iter().any(|test| !is_of_ranks(test) && test.component() != "abi");
        for test in stress::tests().filter(|test| if is_of_ranks(test) { has_comm } else { has_other }) {
            let ended = Session::new(&long, &[test]).and_then(Session::run)?;
            ended.into_iter().for_each(|(test, ended, seconds)| show(Entry::new(test, ended, seconds, &[])));
        }
    }
    bar.finish_and_clear();
    if wanted.time {
        let session = Session::new(wanted, &[])?;
        let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
        command.args(wanted.arguments()).arg("--time").args(session.files());
        let _ = command.status().map_err(cannot)?;
    }
    Ok(entries)
}

fn cannot(error: Error) -> Hopeless {
    (CANNOT, error.to_string())
}

/// One worker and its files.
struct Session<'a> {
    wanted: &'a Wanted,
    tests: &'a [&'static Test],
    folder: PathBuf,
    /// Ranks that report.
    ranks: usize,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// How tests ended, in order: name, outcome, seconds.
type Results = Vec<(&'static str, Ended, f64)>;

impl<'a> Session<'a> {
    fn new(wanted: &'a Wanted, tests: &'a [&'static Test]) -> Result<Self, Hopeless> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("dtl-ctk-{}-{number}", std::process::id()));
        let of_ranks = tests.first().is_some_and(|test| is_of_ranks(test));
        let ranks = if of_ranks { wanted.ranks as usize } else { 1 };
        let session = Session { wanted, tests, folder, ranks };
        let names: Vec<&str> = tests.iter().map(|test| test.name).collect();
        let made = std::fs::create_dir(&session.folder)
            .and_then(|()| std::fs::write(session.folder.join("names"), names.join("\n")))
            .and_then(|()| File::create(session.folder.join("report")).map(|_| ()));
        made.map_err(|error| (CANNOT, format!("{}: {error}", session.folder.display())))?;
        Ok(session)
    }

    fn files(&self) -> [PathBuf; 4] {
        ["--names".into(), self.folder.join("names"), "--report".into(), self.folder.join("report")]
    }

    /// The worker, under a launcher where ranks are processes.
    fn command(&self) -> Result<Command, Error> {
        let own = std::env::current_exe()?;
        let of_ranks = self.tests.first().is_some_and(|test| is_of_ranks(test));
        let threads = of_ranks && self.wanted.place() == Place::Threads;
        let mut command = if !of_ranks || threads {
            Command::new(&own)
        } else if let Some(launcher) = &self.wanted.launcher {
            crate::drive::launched(launcher, self.ranks as u64, &own)
        } else {
            let mut command = Command::new(own.parent().unwrap_or(Path::new(".")).join("dtlrun"));
            command.arg("-n").arg(self.ranks.to_string()).arg("--on-failure=wait:1s").arg(&own);
            command
        };
        command.args(self.wanted.arguments()).args(self.files());
        if threads {
            command.arg(format!("--threads={}", self.ranks));
        }
        if let Some(seconds) = self.wanted.stress {
            command.arg(format!("--stress={seconds}"));
        }
        Ok(command)
    }

    /// Runs the worker to its end or to the first test that it does not survive. The results are those of
    /// the first tests; at least one, unless nothing can be run at all.
    fn run(self) -> Result<Results, Hopeless> {
        let said = File::create(self.folder.join("said")).map_err(cannot)?;
        let command = self.command().map_err(cannot)?;
        let name = command.get_program().to_string_lossy().into_owned();
        let mut command = command;
        let mut child = stop::with_us(&mut command)
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .map_err(|error| (CANNOT, format!("{name}: {error}")))?;
        let status = self.watch(&mut child).map_err(cannot)?;
        self.results(status)
    }

    /// Waits; `None`: a test took too long and the worker was ended.
    fn watch(&self, child: &mut Child) -> Result<Option<ExitStatus>, Error> {
        let (mut size, mut since) = (0, Instant::now());
        let mut pause = Duration::from_micros(500);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            stop::check(Some(child))?;
            let now = std::fs::metadata(self.folder.join("report")).map_or(0, |data| data.len());
            if now != size {
                (size, since) = (now, Instant::now());
            }
            if since.elapsed() > self.wanted.limit {
                crate::drive::end(child)?;
                return Ok(None);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    fn results(&self, status: Option<ExitStatus>) -> Result<Results, Hopeless> {
        let text = std::fs::read_to_string(self.folder.join("report")).unwrap_or_default();
        let lines = Lines::read(&text);
        if let Some(why) = lines.unable {
            return Err((CANNOT, format!("{}: {why}", self.wanted.subject())));
        }
        if let Some(absent) = &lines.absent {
            // But for what was tested before that was found out.
            let result = |test: &&'static Test| {
                let (ended, seconds) =
                    lines.of(test.name, self.ranks).unwrap_or_else(|| (absent.clone(), 0.0));
                (test.name, ended, seconds)
            };
            return Ok(self.tests.iter().map(result).collect());
        }
        if !lines.begun {
            let why = format!("before its first test, {}", self.why(status));
            return Ok(self.tests.iter().map(|test| (test.name, Ended::Failed(why.clone()), 0.0)).collect());
        }
        let mut results = Results::new();
        for test in self.tests {
            match lines.of(test.name, self.ranks) {
                Some((Ended::Failed(text), seconds)) => {
                    results.push((test.name, Ended::Failed(text), seconds));
                    if self.ranks > 1 || is_of_ranks(test) {
                        return Ok(results);
                    }
                }
                Some((ended, seconds)) => results.push((test.name, ended, seconds)),
                None => {
                    results.push((test.name, Ended::Failed(self.why(status)), 0.0));
                    return Ok(results);
                }
            }
        }
        // Libraries are closed at the end of the process: that belongs to the last test.
        let ended_well = status.is_some_and(|status| status.success());
        let last =
            results.last_mut().filter(|(_, ended, _)| !ended_well && !matches!(ended, Ended::Failed(_)));
        if let Some((_, ended, _)) = last {
            *ended = Ended::Failed(format!("behind it, at the end of the process, {}", self.why(status)));
        }
        Ok(results)
    }

    /// Why a worker ended in the middle of a test.
    fn why(&self, status: Option<ExitStatus>) -> String {
        let what = match status {
            None => format!("timed out after {:.0} s", self.wanted.limit.as_secs_f64()),
            Some(status) => match (status.signal(), status.code()) {
                (Some(signal), _) => format!("crashed: signal {signal}"),
                (_, Some(code @ 129..=192)) => format!("crashed: signal {}", code - 128),
                (_, Some(code)) => format!("the process ended with exit status {code}"),
                _ => "the process ended".to_owned(),
            },
        };
        let said = std::fs::read_to_string(self.folder.join("said")).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().filter(|line| !line.trim().is_empty()).take(3).collect();
        let colon = if last.is_empty() { "" } else { "; it said: " };
        last.iter()
            .rev()
            .fold(format!("{what}{colon}"), |all, line| format!("{all}{} ", line.trim()))
            .trim_end()
            .to_owned()
    }
}

/// What the workers reported.
#[derive(Default)]
struct Lines {
    /// Nothing can be run: why.
    unable: Option<String>,
    /// Some test has begun.
    begun: bool,
    /// Every test ends like this.
    absent: Option<Ended>,
    /// How a test ended on the ranks that say so.
    ended: HashMap<String, Vec<(usize, Ended, f64)>>,
}

impl Lines {
    fn read(text: &str) -> Lines {
        let mut lines = Lines::default();
        for line in text.lines() {
            let mut fields = line.splitn(4, '\t');
            let (Some(what), Some(rank), Some(test), Some(detail)) =
                (fields.next(), fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let detail = detail.to_owned();
            let seconds = detail.parse::<f64>().map_or(0.0, |micros| micros / 1e6);
            let ended = match what {
                "P" => Ended::Passed,
                "S" => Ended::Skipped(detail),
                "F" => Ended::Failed(detail),
                "B" => {
                    lines.begun = true;
                    continue;
                }
                "X" => {
                    lines.unable = Some(detail);
                    continue;
                }
                "A" => {
                    lines.absent = Some(Ended::Skipped(detail));
                    continue;
                }
                "U" => {
                    lines.absent = Some(Ended::Away(detail));
                    continue;
                }
                "O" => {
                    lines.absent = Some(Ended::Failed(format!("cannot be begun with: {detail}")));
                    continue;
                }
                _ => continue,
            };
            lines.ended.entry(test.to_owned()).or_default().push((rank.parse().unwrap_or(0), ended, seconds));
        }
        lines
    }

    /// How a test ended on all ranks; `None`: not all say.
    fn of(&self, test: &str, ranks: usize) -> Option<(Ended, f64)> {
        let ended = self.ended.get(test)?;
        let seconds = ended.iter().fold(0.0, |most: f64, (_, _, seconds)| most.max(*seconds));
        let failed: Vec<String> = ended
            .iter()
            .filter_map(|(rank, ended, _)| match ended {
                Ended::Failed(text) if ranks > 1 => Some(format!("rank {rank}: {text}")),
                Ended::Failed(text) => Some(text.clone()),
                _ => None,
            })
            .collect();
        if !failed.is_empty() {
            return Some((Ended::Failed(failed.join("; ")), seconds));
        }
        if ended.len() < ranks {
            return None;
        }
        let skipped = ended.iter().find(|(_, ended, _)| matches!(ended, Ended::Skipped(_)));
        Some((skipped.map_or(Ended::Passed, |(_, ended, _)| ended.clone()), seconds))
    }
}

/// All ranks were started by a launcher of the user's: this one runs its part. Entries on rank 0 only.
fn under_launcher(
    wanted: &Wanted,
    tests: &[&'static Test],
    expected: &[Expected],
) -> Result<Vec<Entry>, Hopeless> {
    let text = |target: &Target, which: fn(&Target) -> Option<&String>| which(target).cloned();
    let work = Work {
        backend: text(
            &wanted.target,
            |target| if let Target::Backend(name) = target { Some(name) } else { None },
        ),
        kind: text(&wanted.target, |target| if let Target::Kind(name) = target { Some(name) } else { None }),
        plugin: if let Target::Plugin(path) = &wanted.target { Some(path.clone()) } else { None },
        threads: 0,
        call_ms: (wanted.limit / 3).as_millis() as u64,
        no_time_limit: wanted.no_time_limit,
        names: PathBuf::new(),
        report: PathBuf::new(),
        named: Vec::new(),
        stress: 0,
        fault: None,
        time: false,
    };
    let of_ranks: Vec<_> =
        tests.iter().filter(|test| is_of_ranks(test)).filter_map(|test| catalog::find(test.name)).collect();
    let mut entries = Vec::new();
    let outcome = worker::launched(&work, &of_ranks, |test, outcome, seconds| {
        let ended = match outcome {
            Ok(()) => Ended::Passed,
            Err(Stop::Skipped(why)) => Ended::Skipped(why.clone()),
            Err(Stop::Failed(text)) => Ended::Failed(text.clone()),
        };
        let entry = Entry::new(test.name, ended, seconds, expected);
        if wanted.verbose || entry.is_bad() {
            say!("{}", entry.line());
        }
        entries.push(entry);
    });
    match outcome {
        Ok(()) => Ok(entries),
        Err(why) => Err((
            CANNOT,
            format!(
                "{why}; by its environment this is a rank of a launcher's job, where comm tests run: if nobody \
                 launched it, unset DTL_RANK, OMPI_COMM_WORLD_RANK, PMI_RANK and SLURM_STEP_ID"
            ),
        )),
    }
}
