//! UCX as the implementation with which the library is compared: runs ucx_perftest on the
//! processors of both ranks, once for each batch.
//!
//! ucx_perftest uses its own message window and clock. Its results are used as reported: the median
//! latency, or the mean time per message of a stream.

use super::test::{Row, Test};
use crate::out::Outcome;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;
use subprocess::{Setup, prepare};

const PROGRAM: &str = "ucx_perftest";
/// Approximate duration of each run in nanoseconds.
const RUN: f64 = 1e7;
/// Number of attempts to connect to the ucx_perftest process of the other rank, and the pause
/// between two attempts.
const TRIES: usize = 400;
const PAUSE: Duration = Duration::from_millis(5);

/// One rank's side of a measurement of UCX: ucx_perftest as the client on rank 0, as the server on
/// rank 1.
pub(crate) struct Ucx {
    rank: i32,
    /// TCP port on which the two ucx_perftest processes connect; a different one for each run.
    port: u16,
    /// Version of UCX.
    pub(crate) version: String,
}

impl Ucx {
    /// Creates the state of one rank for measurements of UCX. The first TCP port is derived from
    /// `first`, which must be equal on all ranks.
    pub(crate) fn new(rank: i32, first: u64) -> Outcome<Ucx> {
        let text = |output: Output| String::from_utf8_lossy(&output.stdout).into_owned();
        let found = Command::new("ucx_info").arg("-v").output();
        let said =
            text(found.map_err(|error| format!("--vs ucx: ucx_info: {error}; install ucx-utils"))?);
        let version = said.lines().find_map(|line| line.split("ersion").nth(1)).unwrap_or_default();
        let version = version.trim_matches([':', ' ']).to_owned();
        Ok(Ucx { rank, port: 20000 + (first.wrapping_mul(37) % 10000) as u16, version })
    }

    /// Runs ucx_perftest once. Rank 0 returns the result in nanoseconds per message, other ranks 0.
    pub(crate) fn batch(&mut self, row: Row) -> Outcome<f64> {
        self.port = 20000 + (self.port - 20000 + 1) % 10000;
        match self.rank {
            0 => self.client(row),
            1 => self.server(),
            _ => Ok(0.0),
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).args(["-p", &self.port.to_string()]).stdin(Stdio::null());
        // It ends with this process.
        prepare(&mut command, Setup::default());
        command
    }

    /// Runs the server on rank 1, which waits for the client and serves any test that the client
    /// requests.
    fn server(&self) -> Outcome<f64> {
        let output = self.command(&[]).output().map_err(|error| format!("{PROGRAM}: {error}"))?;
        if output.status.success() { Ok(0.0) } else { Err(failure(&output)) }
    }

    fn client(&self, row: Row) -> Outcome<f64> {
        let (test, bytes) =
            (if row.test == Test::Latency { "tag_lat" } else { "tag_bw" }, row.bytes);
        let count = (RUN / (300.0 + bytes as f64 / 8.0)).clamp(20.0, 20000.0) as usize;
        let (size, count, warm_up) =
            (bytes.to_string(), count.to_string(), (count / 10).to_string());
        let words = ["127.0.0.1", "-t", test, "-s", &size, "-n", &count, "-w", &warm_up, "-f"];
        let mut last = None;
        for _ in 0..TRIES {
            let output =
                self.command(&words).output().map_err(|error| format!("{PROGRAM}: {error}"))?;
            if output.status.success() {
                let value = value(&String::from_utf8_lossy(&output.stdout), row.test);
                return value.ok_or_else(|| format!("{PROGRAM}: unexpected output: {output:?}"));
            }
            last = Some(failure(&output));
            sleep(PAUSE);
        }
        Err(last.unwrap_or_default())
    }
}

fn failure(output: &Output) -> String {
    format!("{PROGRAM}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())
}

/// Returns the result from the last line of the output, whose columns are count, median (us), mean,
/// overall mean, ...
fn value(said: &str, test: Test) -> Option<f64> {
    let numbers: Vec<&str> = said.lines().last()?.split_whitespace().collect();
    let column = if test == Test::Latency { 1 } else { 3 };
    numbers.get(column)?.parse::<f64>().ok().filter(|value| *value > 0.0).map(|value| value * 1e3)
}

#[cfg(test)]
#[path = "tests/ucx.rs"]
mod tests;
