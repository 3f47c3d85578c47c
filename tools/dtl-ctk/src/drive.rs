//! Driver: the process that the user starts. It runs no tests itself, but starts workers
//! (`session`), supervises them and prints their results. A crash or hang of a worker is a failure.
//!
//! Named tests: the first stage calls each function in a backend's function table separately; if
//! this stage fails, no other test runs. Then a worker runs the tests of each component. If the
//! worker exits or hangs in a test, this test has failed, and the remaining tests run in a new
//! worker. Random cases: a failing case is reduced to the smallest form that still fails.

use crate::generate;
use crate::kit::catalog::{self, COMPONENTS, Test};
use crate::kit::expect::{self, Expected};
use crate::kit::outcome::{Stop, errln, outln};
use crate::kit::report::{Ended, Entry, Report};
use crate::options::{Run, Target};
use crate::session::{Hopeless, Session};
use crate::shrink::{self, Change};
use crate::worker::{self, CANNOT};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

/// Maximum number of runs with smaller cases while a failing case is reduced.
const TRIES: usize = 200;
/// Maximum time limit of a call while the failing case is reduced.
const SHORT: Duration = Duration::from_secs(5);

/// Runs the tests or cases and reports the results. `launched` is true if a launcher has started
/// this process as one of several ranks.
pub(crate) fn drive(run: &Run, launched: bool) -> ExitCode {
    let ended = if run.is_random() { cases(run) } else { tests(run, launched) };
    ended.unwrap_or_else(|(code, text)| {
        errln!("dtl-ctk: {text}");
        ExitCode::from(code)
    })
}

/// Creates a progress bar, which is hidden if standard error is not a terminal.
fn bar(length: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Outcome of a run of random cases.
struct Outcome {
    status: Option<ExitStatus>,
    /// Messages of the ranks.
    said: String,
    /// Number of the last case that rank 0 has begun; `None` if there is none.
    case: Option<u64>,
}

impl Outcome {
    fn passed(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    fn failed(&self) -> bool {
        let cannot = self.status.and_then(|status| status.code()) == Some(i32::from(CANNOT));
        !self.passed() && !cannot
    }
}

fn cases(run: &Run) -> Result<ExitCode, Hopeless> {
    let begin = Instant::now();
    let template = "{pos}/{len} cases [{bar:40}] {elapsed}, {eta} to go";
    let outcome = watched(run, &bar(run.numbers().end, template))?;
    if outcome.passed() {
        let (count, kind, ranks) = (run.numbers().count(), run.subject(), run.ranks());
        let (seconds, seed) = (begin.elapsed().as_secs_f64(), run.random.seed);
        outln!("{kind}, {ranks} rank(s): {count} case(s) passed in {seconds:.1} s (seed {seed})");
        return Ok(ExitCode::SUCCESS);
    }
    outcome.said.lines().for_each(|line| errln!("{line}"));
    let Some(number) = outcome.case.filter(|_| outcome.failed()) else {
        return Ok(ExitCode::from(CANNOT));
    };
    failed(run, number, &outcome);
    Ok(ExitCode::FAILURE)
}

/// Reports a failed case after reducing it.
fn failed(run: &Run, number: u64, outcome: &Outcome) {
    match outcome.status {
        None => errln!("dtl-ctk: case {number}: the ranks hang (they were ended)"),
        Some(status) => errln!("dtl-ctk: case {number} failed ({status})"),
    }
    let mut small = run.clone();
    (small.random.case, small.random.digest) = (Some(number), None);
    if run.random.no_shrink {
        return say_command(&small);
    }
    small.timeout = Some(small.limit().min(SHORT));
    match watched(&small, &ProgressBar::hidden()) {
        Ok(again) if again.failed() => {}
        _ => {
            errln!(
                "dtl-ctk: alone, the case passes: it needs those before it, or luck. Repeat with"
            );
            return errln!("  dtl-ctk {}", run.arguments().join(" "));
        }
    }
    let said = smaller(&mut small);
    let mut case = generate::case(&small.choice().space(small.ranks()), number);
    shrink::apply(&mut case, &small.random.shrink);
    errln!("dtl-ctk: the smallest form that fails: {}", case.describe());
    said.lines().for_each(|line| errln!("{line}"));
    small.timeout = run.timeout;
    say_command(&small);
}

fn say_command(run: &Run) {
    let launcher =
        run.launcher.as_ref().map(|words| format!(" --launcher \"{words}\"")).unwrap_or_default();
    errln!("dtl-ctk: repeat with\n  dtl-ctk {}{launcher}", run.arguments().join(" "));
}

/// Makes the failing case smaller, one change after another, as long as it still fails. Returns the
/// error output of the ranks in the last failing run.
fn smaller(run: &mut Run) -> String {
    let number = run.random.case.unwrap_or(0);
    let mut said = String::new();
    let mut tries = 0;
    loop {
        let mut case = generate::case(&run.choice().space(run.ranks()), number);
        shrink::apply(&mut case, &run.random.shrink);
        let found = shrink::candidates(&case).into_iter().find_map(|change| {
            tries += 1;
            let outcome = if tries > TRIES { None } else { attempt(run, change) };
            outcome.map(|outcome| (change, outcome))
        });
        let Some((change, outcome)) = found else { return said };
        run.random.shrink.push(change);
        said = outcome.said;
    }
}

/// Runs the case with one more change that makes it smaller. Returns the outcome if the case still
/// fails.
fn attempt(run: &Run, change: Change) -> Option<Outcome> {
    let mut changed = run.clone();
    changed.random.shrink.push(change);
    watched(&changed, &ProgressBar::hidden()).ok().filter(Outcome::failed)
}

/// Runs the cases in a worker and supervises the worker.
fn watched(run: &Run, bar: &ProgressBar) -> Result<Outcome, Hopeless> {
    let session = Session::new(run, true, "")?;
    let status = session.run(&[], &mut |session| {
        bar.set_position(session.case());
        session.case()
    });
    bar.finish_and_clear();
    Ok(Outcome {
        status: status?,
        said: session.text("stderr"),
        case: session.case().checked_sub(1),
    })
}

fn tests(run: &Run, launched: bool) -> Result<ExitCode, Hopeless> {
    let report = results(run, launched)?;
    // A rank other than 0 under a launcher has nothing to say.
    if report.entries.is_empty() && launched {
        return Ok(ExitCode::SUCCESS);
    }
    outln!("{}{}", report.skips(), report.table().trim_end());
    verdict(&report)
}

pub(crate) fn verdict(report: &Report) -> Result<ExitCode, Hopeless> {
    match report.away() {
        _ if !report.passed() => Ok(ExitCode::FAILURE),
        Some(why) => Err((CANNOT, format!("{}: {why}", report.subject))),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Runs the named tests and writes the files that the options name.
pub(crate) fn results(run: &Run, launched: bool) -> Result<Report, Hopeless> {
    let begin = Instant::now();
    let tests = selected(run);
    if tests.is_empty() {
        return Err((2, "no test matches (see dtl-ctk list)".to_owned()));
    }
    let expected = run.named.expect.as_ref().map_or(Ok(Vec::new()), |path| {
        expect::read(path).map_err(|error| (2, format!("{}: {error}", path.display())))
    })?;
    let entries = match launched {
        true => under_launcher(run, &tests, &expected)?,
        false => all(run, &tests, &expected)?,
    };
    let (subject, ranks, seconds) = (run.subject(), run.ranks(), begin.elapsed().as_secs_f64());
    let report = Report { subject, ranks, entries, seconds };
    write(run, &report).map_err(|error| (CANNOT, error))?;
    Ok(report)
}

/// Returns the selected named tests, sorted by component in the order of `COMPONENTS`.
fn selected(run: &Run) -> Vec<&'static Test> {
    let named = &run.named.component;
    // The tests of slots require a backend that registers its function tables.
    let has_tables = run.plugin.is_some()
        || run.name().is_some_and(|name| ["sample", "minimal", "faulty"].contains(&name));
    let wanted = |test: &&'static Test| {
        let component = test.component();
        let fits = match run.target() {
            _ if !named.is_empty() => named.iter().any(|name| name == component),
            Target::Kind(_) => component == "comm",
            Target::Library => component == "abi",
            Target::Backend(_) | Target::Plugin(_) => true,
        };
        fits && (!test.body.is_first() || has_tables) && catalog::matches_one(&run.only, test.name)
    };
    let mut tests: Vec<_> = catalog::all().filter(wanted).collect();
    tests.sort_by_key(|test| COMPONENTS.iter().position(|name| *name == test.component()));
    tests
}

/// Writes the files that the options request.
fn write(run: &Run, report: &Report) -> Result<(), String> {
    let put = |path: &Path, text: String| {
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    if let Some(path) = run.named.json.as_ref().filter(|_| !run.named.quiet) {
        put(path, format!("{:#}\n", report.json()))?;
    }
    run.named.junit.as_ref().map_or(Ok(()), |path| put(path, report.junit()))
}

/// Results that have been printed so far.
struct Shown<'a> {
    run: &'a Run,
    expected: &'a [Expected],
    bar: ProgressBar,
    entries: Vec<Entry>,
    /// Failure messages, each with the names of the tests that failed with it.
    alike: Vec<(String, Vec<&'static str>)>,
    /// Reason why no more tests are run, if there is one.
    stopped: Option<String>,
}

impl<'a> Shown<'a> {
    fn new(run: &'a Run, expected: &'a [Expected], tests: usize) -> Shown<'a> {
        let bar = bar(tests as u64, "{pos}/{len} [{bar:40}] {elapsed} {msg}");
        Shown { run, expected, bar, entries: Vec::new(), alike: Vec::new(), stopped: None }
    }

    /// Prints a line: above the progress bar on a terminal, otherwise as plain output.
    fn line(&self, line: &str) {
        if self.run.named.quiet {
            return;
        }
        match std::io::stderr().is_terminal() {
            true => self.bar.suspend(|| outln!("{line}")),
            false => outln!("{line}"),
        }
    }

    fn show(&mut self, test: &'static Test, ended: Ended, seconds: f64) {
        let entry = Entry::new(test.name, ended, seconds, self.expected);
        self.bar.inc(1);
        self.bar.set_message(entry.test);
        let is_new = !entry.is_bad() || self.is_new(&entry);
        if self.run.named.verbose || (!entry.is_quiet() && is_new) {
            self.line(&entry.line());
        }
        if entry.is_bad() {
            self.count(test);
        }
        self.entries.push(entry);
    }

    /// Records the failure message of a test. Returns true if no earlier test has failed with the
    /// same message.
    fn is_new(&mut self, entry: &Entry) -> bool {
        let text = entry.text();
        match self.alike.iter_mut().find(|(known, _)| *known == text) {
            Some((_, tests)) => tests.push(entry.test),
            None => self.alike.push((text, vec![entry.test])),
        }
        self.alike.iter().any(|(_, tests)| tests.as_slice() == [entry.test])
    }

    /// Counts a failure. Stops the run if the test belongs to the first stage (the tests that call
    /// functions of the backend's vtable directly), or if the limit of `--max-failures` is reached.
    fn count(&mut self, test: &Test) {
        let failures = 1 + self.failures();
        if test.body.is_first() {
            self.stopped = Some(format!("the slot tests run first, and {} failed", test.name));
        } else if self.run.named.max_failures.is_some_and(|most| failures >= most) {
            self.stopped = Some(format!("{failures} failed (--max-failures)"));
        }
    }

    fn failures(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.is_bad()).count() as u64
    }

    /// Runs tests in one worker process after another until no test is left.
    fn test(&mut self, run: &Run, mut left: &[&'static Test]) -> Result<(), Hopeless> {
        while let Some(first) = left.first() {
            if let Some(why) = self.stopped.clone() {
                self.show(first, Ended::NotRun(why), 0.0);
                left = &left[1..];
                continue;
            }
            let names: Vec<&str> = left.iter().map(|test| test.name).collect();
            let session = Session::new(run, first.body.is_of_ranks(), &names.join("\n"))?;
            // Failures that the worker may still have.
            let failures = self.failures();
            let most = run.named.max_failures.map(|most| most.saturating_sub(failures).max(1));
            let results = session.test(left, most)?;
            let (done, rest) = left.split_at(results.len());
            for (test, (ended, seconds)) in done.iter().zip(results) {
                self.show(test, ended, seconds);
            }
            left = rest;
        }
        Ok(())
    }

    /// Prints one line for the failed tests that were not shown because an earlier failure has the
    /// same message.
    fn fold(&self) {
        for (_, tests) in &self.alike {
            let [first, others @ ..] = tests.as_slice() else { continue };
            if !others.is_empty() && !self.run.named.verbose && !self.run.named.quiet {
                let (some, dots) =
                    (&others[..others.len().min(3)], if others.len() > 3 { ", ..." } else { "" });
                let count = others.len();
                outln!(
                    "FAIL     {count} more with the same text as {first}: {}{dots}",
                    some.join(", ")
                );
            }
        }
    }
}

/// Runs the tests of single vtable functions (slots), then all other tests component by component,
/// then stress tests and timings.
fn all(run: &Run, tests: &[&'static Test], expected: &[Expected]) -> Result<Vec<Entry>, Hopeless> {
    let mut shown = Shown::new(run, expected, tests.len());
    for is_first in [true, false] {
        for component in COMPONENTS {
            let fits =
                |test: &&&Test| test.component() == component && test.body.is_first() == is_first;
            let some: Vec<&'static Test> = tests.iter().filter(fits).copied().collect();
            shown.test(run, &some)?;
        }
    }
    if let Some(seconds) = run.named.stress {
        let mut long = run.clone();
        long.timeout = Some(run.limit() + Duration::from_secs(seconds));
        shown.expected = &[];
        let has = |of_ranks: bool| {
            tests.iter().any(|test| {
                test.body.is_of_ranks() == of_ranks && (of_ranks || test.component() != "abi")
            })
        };
        for test in catalog::stress().filter(|test| has(test.body.is_of_ranks())) {
            shown.test(&long, &[test])?;
        }
    }
    shown.bar.finish_and_clear();
    shown.fold();
    if run.named.time && shown.stopped.is_none() {
        Session::new(run, false, "")?.measure()?;
    }
    Ok(shown.entries)
}

/// Runs this rank's part of the tests in a job that was started by an external launcher such as
/// mpirun. Only rank 0 returns entries of the report.
fn under_launcher(
    run: &Run,
    tests: &[&'static Test],
    expected: &[Expected],
) -> Result<Vec<Entry>, Hopeless> {
    let of_ranks: Vec<_> = tests.iter().copied().filter(|test| test.body.is_of_ranks()).collect();
    let mut entries = Vec::new();
    let outcome = worker::launched(run, &of_ranks, &mut |test, outcome, seconds| {
        let ended = match outcome {
            Ok(()) => Ended::Passed,
            Err(Stop::Skipped(why)) => Ended::Skipped(why.clone()),
            Err(Stop::Failed(text)) => Ended::Failed(text.clone()),
        };
        let entry = Entry::new(test.name, ended, seconds, expected);
        if run.named.verbose || entry.is_bad() {
            outln!("{}", entry.line());
        }
        entries.push(entry);
    });
    let told = |why: String| {
        let text = format!(
            "{why}; by its environment this is a rank of a launcher's job, where comm tests run: \
             if nobody launched it, unset DTL_RANK, OMPI_COMM_WORLD_RANK, PMI_RANK and \
             SLURM_STEP_ID"
        );
        (CANNOT, text)
    };
    outcome.map(|()| entries).map_err(told)
}
