//! Supervises a worker process (which runs the tests or random test cases): starts it, monitors its
//! progress, kills it if it hangs, reads its report, and describes a crash or a hang.

use crate::kit::catalog::Test;
use crate::kit::costs::Costs;
use crate::kit::current_slot;
use crate::kit::report::Ended;
use crate::options::{Place, Run};
use crate::stop;
use crate::worker::CANNOT;
use std::collections::HashMap;
use std::fs::File;
use std::io::Error;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Exit status and error message of a run in which no test or case can be executed.
pub(crate) type Hopeless = (u8, String);

pub(crate) fn cannot(error: Error) -> Hopeless {
    (CANNOT, error.to_string())
}

/// Time within which a launcher must end its ranks and exit after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// Worker process (which runs the tests or random test cases), with the temporary folder for its
/// files (names of the tests, report files, standard error).
pub(crate) struct Session<'a> {
    run: &'a Run,
    folder: PathBuf,
    /// Number of ranks that report results; `None` if the worker runs without ranks.
    ranks: Option<u64>,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl<'a> Session<'a> {
    pub(crate) fn new(run: &'a Run, of_ranks: bool, names: &str) -> Result<Self, Hopeless> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("dtl-ctk-{}-{number}", std::process::id()));
        let session = Session { run, folder, ranks: of_ranks.then(|| run.ranks()) };
        let made = std::fs::create_dir(&session.folder)
            .and_then(|()| std::fs::write(session.file("names"), names))
            .and_then(|()| File::create(session.file("report")).map(drop));
        made.map_err(|error| (CANNOT, format!("{}: {error}", session.folder.display())))?;
        Ok(session)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the contents of a file in the worker's folder, or an empty string if it cannot be
    /// read.
    pub(crate) fn text(&self, name: &str) -> String {
        let bytes = std::fs::read(self.file(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the number of rank 0's current random case plus one; 0 if rank 0 has not begun a
    /// case.
    pub(crate) fn case(&self) -> u64 {
        let bytes = std::fs::read(self.file("report")).unwrap_or_default();
        bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Returns the size of the worker's report file in bytes.
    pub(crate) fn reported(&self) -> u64 {
        std::fs::metadata(self.file("report")).map_or(0, |data| data.len())
    }

    /// Returns the command that starts the worker. If the ranks are processes, the command starts
    /// them with a launcher.
    fn command(&self) -> Result<Command, Error> {
        let own = std::env::current_exe()?;
        let processes = self.ranks.filter(|_| self.run.place() == Place::Processes);
        let mut command = match (processes, &self.run.launcher) {
            (None, _) => Command::new(&own),
            (Some(ranks), Some(launcher)) => {
                let words = launcher.replace("{ranks}", &ranks.to_string());
                let mut words = words.split_whitespace();
                let mut command = Command::new(words.next().unwrap_or("mpirun"));
                command.args(words).arg(&own);
                command
            }
            (Some(ranks), None) => {
                let dtlrun = own.parent().unwrap_or(Path::new(".")).join("dtlrun");
                let mut command = Command::new(dtlrun);
                command.arg("-n").arg(ranks.to_string()).arg("--on-failure=wait:1s").arg(&own);
                command
            }
        };
        command.args(self.run.arguments()).arg("--worker");
        command.arg("--names").arg(self.file("names")).arg("--report").arg(self.file("report"));
        if let (Some(ranks), None) = (self.ranks, processes) {
            command.arg(format!("--threads={ranks}"));
        }
        Ok(command)
    }

    /// Runs the worker with additional arguments until it exits. Returns `None` if the worker was
    /// killed because the value that `progress` returns did not change for longer than
    /// `Run::patience`.
    pub(crate) fn run(
        &self,
        more: &[String],
        progress: &mut dyn FnMut(&Session) -> u64,
    ) -> Result<Option<ExitStatus>, Hopeless> {
        let stderr = File::create(self.file("stderr")).map_err(cannot)?;
        let mut command = self.command().map_err(cannot)?;
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = stop::with_us(command.args(more))
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(|error| (CANNOT, format!("{name}: {error}")))?;
        self.watch(&mut child, progress).map_err(cannot)
    }

    fn watch(
        &self,
        child: &mut Child,
        progress: &mut dyn FnMut(&Session) -> u64,
    ) -> Result<Option<ExitStatus>, Error> {
        let (mut last, mut since) = (0, Instant::now());
        let mut pause = Duration::from_micros(500);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            stop::check(Some(child))?;
            let now = progress(self);
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if since.elapsed() > self.run.patience() {
                subprocess::end(child, GRACE)?;
                return Ok(None);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Runs the worker with --costs. Returns its lines: kind, name and value. If the worker could
    /// not measure, a line of another kind has the reason.
    pub(crate) fn costs(&self, what: Costs) -> Result<Vec<[String; 3]>, Hopeless> {
        let name = format!("--costs={what:?}").to_lowercase();
        let status = self.run(&[name], &mut |session| session.reported())?;
        let of = |line: &str| {
            let fields: Vec<&str> = line.splitn(4, '\t').collect();
            let [kind, _, name, value] = fields[..] else { return None };
            Some([kind, name, value].map(str::to_owned))
        };
        let mut lines: Vec<_> = self.text("report").lines().filter_map(of).collect();
        let ended = status.and_then(|status| status.code());
        if ![Some(0), Some(i32::from(CANNOT))].contains(&ended) {
            lines.push(["X".to_owned(), String::new(), self.why(status)]);
        }
        Ok(lines)
    }

    /// Runs the worker with --time, so that it prints a table of times.
    pub(crate) fn measure(&self) -> Result<(), Hopeless> {
        let mut command = self.command().map_err(cannot)?;
        command.arg("--time").status().map(drop).map_err(cannot)
    }
}

/// Results of tests in the order of execution, each with its duration in seconds.
pub(crate) type Results = Vec<(Ended, f64)>;

impl Session<'_> {
    /// Runs named tests until the worker exits, crashes or hangs. Returns at least one result. The
    /// results are in the order of `tests`, up to the test during which the worker ended. Fails if
    /// no test can be run. `most` is the number of failures after which the worker exits.
    pub(crate) fn test(
        &self,
        tests: &[&'static Test],
        most: Option<u64>,
    ) -> Result<Results, Hopeless> {
        let more: Vec<String> =
            most.map(|most| format!("--max-failures={most}")).into_iter().collect();
        let status = self.run(&more, &mut |session| session.reported())?;
        let lines = Lines::read(&self.text("report"));
        let ranks = self.ranks.unwrap_or(1) as usize;
        if let Some(why) = lines.unable {
            return Err((CANNOT, format!("{}: {why}", self.run.subject())));
        }
        if let Some(absent) = &lines.absent {
            // But for what was tested before that was found out.
            let result = |test: &&Test| lines.of(test.name, ranks).unwrap_or((absent.clone(), 0.0));
            return Ok(tests.iter().map(result).collect());
        }
        if !lines.begun {
            let why = format!("before the first test, {}", self.why(status));
            let rest = Ended::NotRun(format!("{why}, in that of {}", tests[0].name));
            let mut results = vec![(rest, 0.0); tests.len()];
            results[0].0 = Ended::Failed(why);
            return Ok(results);
        }
        let (mut results, mut failures) = (Results::new(), 0);
        for test in tests {
            let Some((ended, seconds)) = lines.of(test.name, ranks) else {
                results.push((Ended::Failed(self.why(status)), 0.0));
                return Ok(results);
            };
            let Ended::Failed(text) = ended else {
                results.push((ended, seconds));
                continue;
            };
            let stuck = if test.body.is_first() { self.stuck() } else { String::new() };
            results.push((Ended::Failed(text + &stuck), seconds));
            failures += 1;
            if self.ranks.is_some() || Some(failures) == most {
                return Ok(results);
            }
        }
        // Libraries are closed at the end of the process: that belongs to the last test.
        let ended_well = status.is_some_and(|status| status.success());
        if let Some((ended, _)) = results.last_mut().filter(|_| !ended_well) {
            if !matches!(ended, Ended::Failed(_)) {
                let why = self.why(status);
                *ended = Ended::Failed(format!("behind it, at the end of the process, {why}"));
            }
        }
        Ok(results)
    }

    /// Returns a string that lists the slots (functions in a backend's tables) and plugin loading
    /// steps that ranks are executing, or were executing when they ended, each with its ranks;
    /// `None` if there are none.
    fn places(&self) -> Option<String> {
        let ranks = self.ranks.unwrap_or(1) as usize;
        let places = current_slot::read(&self.file("report"), ranks);
        let text = |(what, on): &(String, Vec<i32>)| match ranks {
            1 => what.clone(),
            _ => format!("{what} ({})", ranks_text(on)),
        };
        let places: Vec<String> = grouped(places.into_iter()).iter().map(text).collect();
        (!places.is_empty()).then(|| places.join(", "))
    }

    /// Returns a string that lists the slots (functions in a backend's tables) and plugin loading
    /// steps that ranks were still executing, to be appended to the message of a failed test.
    fn stuck(&self) -> String {
        self.places().map_or(String::new(), |places| format!("; not returned: {places}"))
    }

    /// Returns a string that describes how a worker process ended during a test (crash, hang or
    /// exit), with the last lines of its standard error.
    fn why(&self, status: Option<ExitStatus>) -> String {
        let stderr = self.text("stderr");
        let (place, limit) = (self.places(), self.run.limit().as_secs_f64());
        // The texts of the Rust runtime and of the C++ runtime.
        let threw = ["cannot catch foreign exceptions", "terminate called after throwing"];
        let threw = threw.iter().any(|text| stderr.contains(text));
        let ended = status.map(|status| match (status.signal(), status.code()) {
            (None, Some(code @ 129..=192)) => (Some(code - 128), None),
            ended => ended,
        });
        let what = match (ended, &place) {
            (None, Some(place)) => format!("{place} did not return within {limit:.0} s"),
            (None, None) => format!("timed out after {limit:.0} s"),
            (Some((Some(_), _)), Some(place)) if threw => {
                format!("{place} threw an exception, which must not leave a slot")
            }
            (Some((Some(signal), _)), Some(place)) => format!("{place} crashed (signal {signal})"),
            (Some((Some(signal), _)), None) => format!("crashed: signal {signal}"),
            (Some((None, Some(code))), Some(place)) => {
                format!("{place} ended the process with exit status {code}")
            }
            (Some((None, Some(code))), None) => {
                format!("the process ended with exit status {code}")
            }
            _ => "the process ended".to_owned(),
        };
        let mut last: Vec<&str> =
            stderr.lines().rev().map(str::trim).filter(|line| !line.is_empty()).take(3).collect();
        last.reverse();
        if last.is_empty() { what } else { format!("{what}; it said: {}", last.join(" ")) }
    }
}

/// Groups ranks that have the same string. Returns each string once, with its ranks.
fn grouped(texts: impl Iterator<Item = (i32, String)>) -> Vec<(String, Vec<i32>)> {
    let mut groups: Vec<(String, Vec<i32>)> = Vec::new();
    for (rank, text) in texts {
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, ranks)) => ranks.push(rank),
            None => groups.push((text, vec![rank])),
        }
    }
    groups
}

fn ranks_text(ranks: &[i32]) -> String {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    let names: Vec<String> = ranks.iter().map(i32::to_string).collect();
    format!("rank{} {}", if ranks.len() > 1 { "s" } else { "" }, names.join(", "))
}

/// Parsed lines of a worker's report file.
#[derive(Default)]
struct Lines {
    /// Reason why no test can be run, if the worker has reported one.
    unable: Option<String>,
    /// True if a test has begun.
    begun: bool,
    /// Outcome of every test for which no rank has reported a result, if the worker could not run
    /// the tests.
    absent: Option<Ended>,
    /// Results by test name: rank, outcome and seconds, for each rank that has reported the test.
    ended: HashMap<String, Vec<(i32, Ended, f64)>>,
}

impl Lines {
    fn read(text: &str) -> Lines {
        let mut lines = Lines::default();
        for line in text.lines() {
            let fields: Vec<&str> = line.splitn(4, '\t').collect();
            let [what, rank, test, detail] = fields[..] else { continue };
            let seconds = detail.parse::<f64>().map_or(0.0, |micros| micros / 1e6);
            let detail = detail.to_owned();
            let ended = match what {
                "P" => Ended::Passed,
                "S" => Ended::Skipped(detail),
                "F" => Ended::Failed(detail),
                _ => {
                    match what {
                        "B" => lines.begun = true,
                        "X" => lines.unable = Some(detail),
                        "A" => lines.absent = Some(Ended::Skipped(detail)),
                        "U" => lines.absent = Some(Ended::Away(detail)),
                        "O" => {
                            let text = format!("cannot be begun with: {detail}");
                            lines.absent = Some(Ended::Failed(text));
                        }
                        _ => {}
                    }
                    continue;
                }
            };
            let of_test = lines.ended.entry(test.to_owned()).or_default();
            of_test.push((rank.parse().unwrap_or(0), ended, seconds));
        }
        lines
    }

    /// Returns the combined result of all ranks for a test; `None` if no rank has failed and not
    /// all ranks have reported a result for the test.
    fn of(&self, test: &str, ranks: usize) -> Option<(Ended, f64)> {
        let ended = self.ended.get(test)?;
        let seconds = ended.iter().fold(0.0, |most: f64, (_, _, seconds)| most.max(*seconds));
        let failed = grouped(ended.iter().filter_map(|(rank, ended, _)| match ended {
            Ended::Failed(text) => Some((*rank, text.clone())),
            _ => None,
        }));
        if !failed.is_empty() {
            let text = |(text, on): &(String, Vec<i32>)| {
                if ranks > 1 { format!("{}: {text}", ranks_text(on)) } else { text.clone() }
            };
            let texts: Vec<String> = failed.iter().map(text).collect();
            return Some((Ended::Failed(texts.join("; ")), seconds));
        }
        if ended.len() < ranks {
            return None;
        }
        let skipped = ended.iter().find(|(_, ended, _)| matches!(ended, Ended::Skipped(_)));
        Some((skipped.map_or(Ended::Passed, |(_, ended, _)| ended.clone()), seconds))
    }
}
