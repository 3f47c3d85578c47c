//! The command line of dtlrun.

use clap::{Parser, ValueEnum};
use std::ffi::OsString;
use std::time::Duration;

const AFTER: &str = "\
Each rank finds DTL_RANK, DTL_SIZE, DTL_LOCAL_RANK, DTL_LOCAL_SIZE and DTL_JOB in its environment. \
Rank 0 reads dtlrun's input, the others read nothing. Ctrl-C and SIGTERM reach every rank; when \
dtlrun \
itself is killed, the ranks are killed too. Ranks may start more (dtl_comm_grow): dtlrun numbers \
these \
processes after the first ones.

Exit status: 0 if all ranks succeed; else that of the first rank that failed (128 + number for a \
signal); \
127 if the program is not found, 126 if it cannot be run, 125 if dtlrun itself fails. With \
--prefix \
dtlrun writes for the ranks: 125, too, if it cannot; 141 if its reader has gone, as in dtlrun … | \
head.

Example: dtlrun -n 4 --prefix ./solver --steps 100";

/// Maximum number of ranks of a job.
pub(crate) const MOST_RANKS: u32 = 1024;

/// Run a program as several ranks on this machine.
#[derive(Parser)]
#[command(name = "dtlrun", version, after_help = AFTER, max_term_width = 100)]
pub(crate) struct Options {
    /// Number of ranks
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_RANKS)))]
    pub(crate) ranks: u32,

    /// Action after the failure of a rank: "wait:TIME" gives the others TIME to exit, "kill" ends
    /// them at once (SIGTERM, 2 s later SIGKILL), "continue" lets them run
    #[arg(long, value_name = "WHAT", default_value = "wait:5s", value_parser = parse_on_failure)]
    pub(crate) on_failure: OnFailure,

    /// Put "[rank] " before each line of the ranks' output
    #[arg(long)]
    pub(crate) prefix: bool,

    /// Where ranks run
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = Bind::None)]
    pub(crate) bind: Bind,

    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROG [ARGS]"
    )]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Bind {
    /// Each rank on a core of its own
    Core,
    /// Ranks run wherever the operating system schedules them
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnFailure {
    Wait(Duration),
    Kill,
    Continue,
}

fn parse_on_failure(text: &str) -> Result<OnFailure, String> {
    match text {
        "kill" => Ok(OnFailure::Kill),
        "continue" => Ok(OnFailure::Continue),
        _ => {
            text.strip_prefix("wait:").and_then(parse_time).map(OnFailure::Wait).ok_or_else(|| {
                "expected wait:TIME (as wait:5s, wait:500ms), kill or continue".to_string()
            })
        }
    }
}

fn parse_time(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds = number.parse::<f64>().ok()? * unit;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
#[path = "tests/options.rs"]
mod tests;
