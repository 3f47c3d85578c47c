//! A worker process and its supervision: its report, and the text for a worker that ends or hangs.

use crate::kit::catalog::Test;
use crate::kit::options::{Place, Wanted};
use crate::kit::report::Ended;
use crate::kit::step;
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

/// Why there is no result at all: the exit status and what to say.
pub(crate) type Hopeless = (u8, String);

pub(crate) fn cannot(error: Error) -> Hopeless {
    (CANNOT, error.to_string())
}

/// Groups texts of ranks: each text once, with the ranks that have it.
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

/// One worker and its files.
pub(crate) struct Session<'a> {
    wanted: &'a Wanted,
    tests: &'a [&'static Test],
    /// Failures after which the worker ends; 0: no limit.
    most: u64,
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
pub(crate) type Results = Vec<(&'static str, Ended, f64)>;

impl<'a> Session<'a> {
    pub(crate) fn new(
        wanted: &'a Wanted,
        tests: &'a [&'static Test],
        most: u64,
    ) -> Result<Self, Hopeless> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("dtl-ctk-{}-{number}", std::process::id()));
        let of_ranks = tests.first().is_some_and(|test| test.body.is_of_ranks());
        let ranks = if of_ranks { wanted.ranks as usize } else { 1 };
        let session = Session { wanted, tests, most, folder, ranks };
        let names: Vec<&str> = tests.iter().map(|test| test.name).collect();
        let made = std::fs::create_dir(&session.folder)
            .and_then(|()| std::fs::write(session.folder.join("names"), names.join("\n")))
            .and_then(|()| File::create(session.folder.join("report")).map(|_| ()));
        made.map_err(|error| (CANNOT, format!("{}: {error}", session.folder.display())))?;
        Ok(session)
    }

    pub(crate) fn files(&self) -> [PathBuf; 4] {
        ["--names".into(), self.folder.join("names"), "--report".into(), self.folder.join("report")]
    }

    /// The worker, under a launcher where ranks are processes.
    fn command(&self) -> Result<Command, Error> {
        let own = std::env::current_exe()?;
        let of_ranks = self.tests.first().is_some_and(|test| test.body.is_of_ranks());
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
        command.arg(format!("--max-failures={}", self.most));
        if let Some(seconds) = self.wanted.stress {
            command.arg(format!("--stress={seconds}"));
        }
        Ok(command)
    }

    /// Runs the worker to its end or to the first test that it does not survive. The results are
    /// those of the first tests; at least one, unless nothing can be run at all.
    pub(crate) fn run(self) -> Result<Results, Hopeless> {
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
            let why = format!("before the first test, {}", self.why(status));
            let rest = || Ended::NotRun(format!("{why}, in that of {}", self.tests[0].name));
            let ended = |at: usize| if at == 0 { Ended::Failed(why.clone()) } else { rest() };
            return Ok(self
                .tests
                .iter()
                .enumerate()
                .map(|(at, test)| (test.name, ended(at), 0.0))
                .collect());
        }
        let (mut results, mut failures) = (Results::new(), 0);
        for test in self.tests {
            match lines.of(test.name, self.ranks) {
                Some((Ended::Failed(text), seconds)) => {
                    let text = if test.body.is_first() { text + &self.stuck() } else { text };
                    results.push((test.name, Ended::Failed(text), seconds));
                    failures += 1;
                    if self.ranks > 1 || test.body.is_of_ranks() || failures == self.most {
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
        let last = results
            .last_mut()
            .filter(|(_, ended, _)| !ended_well && !matches!(ended, Ended::Failed(_)));
        if let Some((_, ended, _)) = last {
            *ended = Ended::Failed(format!(
                "behind it, at the end of the process, {}",
                self.why(status)
            ));
        }
        Ok(results)
    }

    /// Slots that ranks are in or ended in, with the ranks.
    fn places(&self) -> Option<String> {
        let places = step::read(&self.folder.join("report"), self.ranks);
        let is_alone = self.ranks == 1;
        let text = |what: &str, ranks: &[i32]| {
            if is_alone { what.to_owned() } else { format!("{what} ({})", ranks_text(ranks)) }
        };
        let places: Vec<String> =
            grouped(places.into_iter()).iter().map(|(what, ranks)| text(what, ranks)).collect();
        (!places.is_empty()).then(|| places.join(", "))
    }

    /// Text for a test that failed on some ranks: the slots that other ranks were still in.
    fn stuck(&self) -> String {
        self.places().map_or(String::new(), |places| format!("; not returned: {places}"))
    }

    /// Why a worker ended in the middle of a test.
    fn why(&self, status: Option<ExitStatus>) -> String {
        let said = std::fs::read_to_string(self.folder.join("said")).unwrap_or_default();
        let (place, limit) = (self.places(), self.wanted.limit.as_secs_f64());
        // The texts of the Rust runtime and of the C++ runtime.
        let threw = ["cannot catch foreign exceptions", "terminate called after throwing"];
        let threw = threw.iter().any(|text| said.contains(text));
        let ended = |signal: Option<i32>, code: Option<i32>| match (signal, code, &place) {
            (Some(_), _, Some(place)) if threw => {
                format!("{place} threw an exception, which must not leave a slot")
            }
            (Some(signal), _, Some(place)) => format!("{place} crashed (signal {signal})"),
            (Some(signal), _, None) => format!("crashed: signal {signal}"),
            (_, Some(code), Some(place)) => {
                format!("{place} ended the process with exit status {code}")
            }
            (_, Some(code), None) => format!("the process ended with exit status {code}"),
            _ => "the process ended".to_owned(),
        };
        let what = match (status, &place) {
            (None, Some(place)) => format!("{place} did not return within {limit:.0} s"),
            (None, None) => format!("timed out after {limit:.0} s"),
            (Some(status), _) => match (status.signal(), status.code()) {
                (None, Some(code @ 129..=192)) => ended(Some(code - 128), None),
                (signal, code) => ended(signal, code),
            },
        };
        let last: Vec<&str> =
            said.lines().rev().filter(|line| !line.trim().is_empty()).take(3).collect();
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
            lines.ended.entry(test.to_owned()).or_default().push((
                rank.parse().unwrap_or(0),
                ended,
                seconds,
            ));
        }
        lines
    }

    /// How a test ended on all ranks; `None`: not all say.
    fn of(&self, test: &str, ranks: usize) -> Option<(Ended, f64)> {
        let ended = self.ended.get(test)?;
        let seconds = ended.iter().fold(0.0, |most: f64, (_, _, seconds)| most.max(*seconds));
        let failed = ended.iter().filter_map(|(rank, ended, _)| match ended {
            Ended::Failed(text) => Some((*rank as i32, text.clone())),
            _ => None,
        });
        let failed = grouped(failed);
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
