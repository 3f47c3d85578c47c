//! Test load of a plugin in a separate process before the plugin is loaded into this process. It is
//! off by default (docs/adr/0010-probe-before-loading.md); DTL_PLUGIN_PROBE enables it.
//!
//! The separate process runs the installed program `dtl-info --probe FILE`, which loads the plugin
//! and reports the result. This module finds and runs the program, and parses its output line.

use super::Step;
use crate::abi::status::DTL_ERROR_UNAVAILABLE;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::{explain, settings};
use crate::sys::os::dl;
use crate::sys::os::process::{self, Capture, ChildOutput};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PROGRAM: &str = "dtl-info";
/// Additional time for which this process waits for dtl-info, beyond the time limit that dtl-info
/// itself enforces.
const GRACE: Duration = Duration::from_secs(10);

/// Fails if the test load of a file in a separate process crashes, hangs or cannot be run. Succeeds
/// if dtl-info rejects the file with an error: this process can open such a file without harm, and
/// then returns the error itself.
pub fn pass(file: &Path, step: Step) -> Result<()> {
    let Some(limit_ns) = settings::current().plugin_probe_ns else { return Ok(()) };
    step("the probe");
    let program = find(dl::own_file().as_deref())?;
    let mut command = Command::new(&program);
    command.arg("--probe").arg(file).args(["--time-limit", &format!("{limit_ns}ns")]);
    // Otherwise each probe would start another probe.
    command.env_remove("DTL_PLUGIN_PROBE").env_remove("DTL_PLUGIN_PATH");
    // Otherwise its trace would overwrite this process' trace.
    command.env_remove("DTL_TRACE");
    let limit = Duration::from_nanos(limit_ns) + GRACE;
    let ran = process::run(&mut command, Capture::Output, limit);
    let ChildOutput { output, in_time } = ran.map_err(|error| {
        let program = program.display();
        failure!(
            DTL_ERROR_UNAVAILABLE,
            "not loaded, since it cannot be probed: {program}: {error}; mend that, or unset \
             DTL_PLUGIN_PROBE"
        )
    })?;
    if !in_time {
        return fail!(DTL_ERROR_UNAVAILABLE, "the probe: hung: no word from {}", program.display());
    }
    judge(file, &program, &String::from_utf8_lossy(&output))
}

/// Returns the path of the dtl-info program in this library's installation.
fn find(own: Option<&Path>) -> Result<PathBuf> {
    let folder = own.and_then(Path::parent).unwrap_or(Path::new("/"));
    // Beside a program into which the library was linked; relative to lib, lib64 or lib/MACHINE.
    let places = match own {
        Some(own) if dl::is_in_program(own) => vec![folder.join(PROGRAM)],
        _ => ["../bin", "../../bin"].map(|bin| folder.join(bin).join(PROGRAM)).into(),
    };
    if let Some(found) = places.iter().find(|place| place.is_file()) {
        return Ok(found.clone());
    }
    let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
    let what = format!(
        "not loaded, since DTL_PLUGIN_PROBE=1 finds no {}: install dtl-info there, or unset \
         DTL_PLUGIN_PROBE",
        places.join(" or ")
    );
    explain::degraded("plugins", &what)?;
    Err(Error::new(DTL_ERROR_UNAVAILABLE, what))
}

/// Parses dtl-info's output line "verdict FILE: reason". Fails unless the verdict is "ok" or
/// "refused".
fn judge(file: &Path, program: &Path, output: &str) -> Result<()> {
    let (verdict, rest) = output.split_once(' ').unwrap_or(("", ""));
    let reason =
        rest.trim_start().strip_prefix(&format!("{}: ", file.display())).map(str::trim_end);
    match (verdict, reason) {
        ("ok" | "refused", Some(_)) => Ok(()),
        ("crashed" | "hung", Some(reason)) => {
            fail!(DTL_ERROR_UNAVAILABLE, "the probe: {verdict}: {reason}")
        }
        _ => fail!(
            DTL_ERROR_UNAVAILABLE,
            "not loaded, since it cannot be probed: {} gave no verdict (its reason is on standard \
             error); mend that, or unset DTL_PLUGIN_PROBE",
            program.display()
        ),
    }
}

#[cfg(test)]
#[path = "tests/plugin_probe.rs"]
mod tests;
