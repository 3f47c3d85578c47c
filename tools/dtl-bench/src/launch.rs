//! Subcommand `launch`: measures the time to start two processes with dtlrun, compared with another
//! launcher.
//!
//! The program that the launchers start is dtl-bench itself. Its subcommand `now` prints the time
//! at which `main` began, then exits.

use crate::library::own_file;
use crate::local::{self, Case};
use crate::machine;
use crate::options::{Launch, Launcher};
use crate::out::{Outcome, say};
use crate::table::Unit;
use serde_json::json;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Prints the time `begun` in nanoseconds since 1970, for the subcommand `launch`.
pub(crate) fn tell(begun: SystemTime) {
    say!("{}", since_1970(begun));
}

fn since_1970(moment: SystemTime) -> u128 {
    moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}

/// Runs the measurements of `launch` that the command line selects.
pub(crate) fn run(wanted: &Launch) -> Outcome {
    let own = own_file()?;
    let dtlrun = own.with_file_name("dtlrun").display().to_string();
    let ours = Launcher { variables: Vec::new(), words: vec![dtlrun] };
    let program = own.display().to_string();
    let mut cases = Vec::new();
    for (test, is_whole) in [("to main", false), ("to the end", true)] {
        let side = |launcher: Launcher| {
            let program = program.clone();
            Box::new(move || once(&launcher, &program, is_whole)) as Box<_>
        };
        let mut sides = vec![("dtl", side(ours.clone()))];
        sides.extend(wanted.mpirun.iter().map(|launcher| ("mpirun", side(launcher.clone()))));
        cases.push(Case { test, bytes: None, unit: Unit::Microseconds, sides });
    }
    let processors = machine::shared_processors();
    let lines = local::measure(cases, &wanted.common, None)?;
    let facts = |launcher: &Launcher| json!({ "name": "mpirun", "version": launcher.name() });
    let peer = wanted.mpirun.as_ref().map(facts);
    local::show("launch", lines, processors, &wanted.common, json!({ "peer": peer }));
    Ok(())
}

/// Starts two processes of this program. Returns the time in nanoseconds until both have entered
/// main or, if `is_whole` is true, until the launcher has exited.
fn once(launcher: &Launcher, program: &str, is_whole: bool) -> Outcome<f64> {
    let mut command = launcher.start();
    command.args(["-n", "2", program, "now"]);
    let begin = SystemTime::now();
    let output = command.output().map_err(|error| format!("{}: {error}", launcher.text()))?;
    let whole = begin.elapsed().unwrap_or(Duration::ZERO);
    let said = String::from_utf8_lossy(&output.stdout);
    let moments: Vec<u128> = said.lines().filter_map(|line| line.trim().parse().ok()).collect();
    let &[one, other] = &moments[..] else {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`{}` started no two processes: {}", launcher.text(), errors.trim()));
    };
    let to_main = one.max(other).saturating_sub(since_1970(begin));
    Ok(if is_whole { whole.as_nanos() } else { to_main } as f64)
}
