//! The process that the user starts for named tests. First the slots are called by themselves; if
//! that fails, no other test is run. Then a worker process runs the tests of each component and is
//! watched through its report. If a worker ends or hangs, the test that it was in has failed, and
//! the tests after it run in a new worker.

use crate::kit::catalog::Test;
use crate::kit::expect::{self, Expected};
use crate::kit::options::{Kernels, Target, Wanted, Work, is_of_ranks};
use crate::kit::outcome::{Stop, complain, say};
use crate::kit::report::{Ended, Entry, Run};
use crate::kit::session::{Hopeless, Session, cannot};
use crate::kit::{catalog, stress, worker};
use crate::worker::CANNOT;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

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
        let run = Run {
            subject: wanted.subject(),
            ranks,
            entries,
            seconds: begin.elapsed().as_secs_f64(),
        };
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
        Some(path) => {
            expect::read(path).map_err(|error| (2, format!("{}: {error}", path.display())))?
        }
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

/// What has been shown so far.
struct Shown<'a> {
    wanted: &'a Wanted,
    expected: &'a [Expected],
    bar: ProgressBar,
    entries: Vec<Entry>,
    /// Texts of failures, with the tests that have them.
    alike: Vec<(String, Vec<&'static str>)>,
    /// Reason why no more tests are run, if so.
    stopped: Option<String>,
}

impl<'a> Shown<'a> {
    fn new(wanted: &'a Wanted, expected: &'a [Expected], tests: usize) -> Shown<'a> {
        let bar = ProgressBar::new(tests as u64);
        if let Ok(style) = ProgressStyle::with_template("{pos}/{len} [{bar:40}] {elapsed} {msg}") {
            bar.set_style(style);
        }
        Shown { wanted, expected, bar, entries: Vec::new(), alike: Vec::new(), stopped: None }
    }

    /// Above the bar on a terminal, a plain line elsewhere.
    fn line(&self, line: &str) {
        if std::io::stderr().is_terminal() {
            self.bar.suspend(|| say!("{line}"))
        } else {
            say!("{line}")
        }
    }

    fn show(&mut self, test: &'static Test, ended: Ended, seconds: f64) {
        let entry = Entry::new(test.name, ended, seconds, self.expected);
        self.bar.inc(1);
        self.bar.set_message(entry.test);
        let is_new = !entry.is_bad() || self.is_new(&entry);
        if self.wanted.verbose || (!entry.is_quiet() && is_new) {
            self.line(&entry.line());
        }
        if entry.is_bad() {
            self.count(test);
        }
        self.entries.push(entry);
    }

    /// Whether no earlier test has failed with this text.
    fn is_new(&mut self, entry: &Entry) -> bool {
        let text = entry.text();
        match self.alike.iter_mut().find(|(known, _)| *known == text) {
            Some((_, tests)) => tests.push(entry.test),
            None => self.alike.push((text, vec![entry.test])),
        }
        self.alike.iter().any(|(_, tests)| tests.as_slice() == [entry.test])
    }

    /// Stops the run after a failure of the first stage, and at the limit of `--max-failures`.
    fn count(&mut self, test: &Test) {
        let failures = 1 + self.entries.iter().filter(|entry| entry.is_bad()).count() as u64;
        if test.body.is_first() {
            self.stopped = Some(format!("the slot tests run first, and {} failed", test.name));
        } else if self.wanted.max_failures.is_some_and(|most| failures >= most) {
            self.stopped = Some(format!("{failures} failed (--max-failures)"));
        }
    }

    /// Failures that the worker may still have; 0: no limit.
    fn most(&self) -> u64 {
        let failures = self.entries.iter().filter(|entry| entry.is_bad()).count() as u64;
        self.wanted.max_failures.map_or(0, |most| most.saturating_sub(failures).max(1))
    }

    /// Runs tests in sessions, until there are none left.
    fn run(&mut self, wanted: &Wanted, mut left: &[&'static Test]) -> Result<(), Hopeless> {
        while let Some(first) = left.first() {
            if let Some(why) = &self.stopped {
                let why = why.clone();
                self.show(first, Ended::NotRun(why), 0.0);
                left = &left[1..];
                continue;
            }
            let results = Session::new(wanted, left, self.most()).and_then(Session::run)?;
            let (done, rest) = left.split_at(results.len());
            for (test, (_, ended, seconds)) in done.iter().zip(results) {
                self.show(test, ended, seconds);
            }
            left = rest;
        }
        Ok(())
    }

    /// Prints a line for the tests whose failures were not shown because an earlier one has the
    /// same text.
    fn fold(&self) {
        for (_, tests) in &self.alike {
            let [first, others @ ..] = tests.as_slice() else { continue };
            if !others.is_empty() && !self.wanted.verbose {
                let (some, dots) =
                    (&others[..others.len().min(3)], if others.len() > 3 { ", ..." } else { "" });
                let count = others.len();
                say!(
                    "FAIL     {count} more with the same text as {first}: {}{dots}",
                    some.join(", ")
                );
            }
        }
    }
}

/// Runs the slot tests, then all other tests, component by component; then stress and times.
fn all(
    wanted: &Wanted,
    tests: &[&'static Test],
    expected: &[Expected],
) -> Result<Vec<Entry>, Hopeless> {
    let mut shown = Shown::new(wanted, expected, tests.len());
    for is_first in [true, false] {
        for component in catalog::COMPONENTS {
            let fits = |test: &&&'static Test| {
                test.component() == component && test.body.is_first() == is_first
            };
            let some: Vec<&'static Test> = tests.iter().filter(fits).copied().collect();
            shown.run(wanted, &some)?;
        }
    }
    if let Some(seconds) = wanted.stress {
        let mut long = wanted.clone();
        long.limit += Duration::from_secs(seconds);
        let has_comm = tests.iter().any(|test| is_of_ranks(test));
        let has_other = tests.iter().any(|test| !is_of_ranks(test) && test.component() != "abi");
        shown.expected = &[];
        for test in
            stress::tests().filter(|test| if is_of_ranks(test) { has_comm } else { has_other })
        {
            shown.run(&long, &[test])?;
        }
    }
    shown.bar.finish_and_clear();
    shown.fold();
    if wanted.time && shown.stopped.is_none() {
        let session = Session::new(wanted, &[], 0)?;
        let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
        command.args(wanted.arguments()).arg("--time").args(session.files());
        let _ = command.status().map_err(cannot)?;
    }
    Ok(shown.entries)
}

/// All ranks were started by a launcher of the user's: this one runs its part. Entries on rank 0
/// only.
fn under_launcher(
    wanted: &Wanted,
    tests: &[&'static Test],
    expected: &[Expected],
) -> Result<Vec<Entry>, Hopeless> {
    let text = |target: &Target, which: fn(&Target) -> Option<&String>| which(target).cloned();
    let work = Work {
        backend: text(&wanted.target, |target| {
            if let Target::Backend(name) = target { Some(name) } else { None }
        }),
        kind: text(
            &wanted.target,
            |target| if let Target::Kind(name) = target { Some(name) } else { None },
        ),
        plugin: if let Target::Plugin(path) = &wanted.target { Some(path.clone()) } else { None },
        threads: 0,
        call_ms: (wanted.limit / 3).as_millis() as u64,
        no_time_limit: wanted.no_time_limit,
        names: PathBuf::new(),
        report: PathBuf::new(),
        named: Vec::new(),
        stress: 0,
        fault: None,
        max_failures: 0,
        time: false,
        kernels: Kernels::default(),
    };
    let of_ranks: Vec<_> = tests
        .iter()
        .filter(|test| is_of_ranks(test))
        .filter_map(|test| catalog::find(test.name))
        .collect();
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
                "{why}; by its environment this is a rank of a launcher's job, where comm tests \
                 run: if nobody \
                 launched it, unset DTL_RANK, OMPI_COMM_WORLD_RANK, PMI_RANK and SLURM_STEP_ID"
            ),
        )),
    }
}
