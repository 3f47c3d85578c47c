//! Entries of the C interface pass their own names to the wrappers in `src/ffi/guard.rs`: traces
//! show the call under that name.

use super::{report, sources};

/// The name of the exported function that a line begins.
fn entry(line: &str) -> Option<&str> {
    let (_, rest) = line.strip_prefix("pub ")?.split_once("extern \"C\" fn ")?;
    rest.split('(').next().filter(|name| name.starts_with("dtl_"))
}

/// Calls that pass the name of an entry: of the wrappers, and of what collectives share.
const CALLS: [&str; 5] =
    ["guard::call(", "guard::wait(", "guard::hold(", "unsafe { wait(", "unsafe { start("];

/// The first argument of a wrapper that a line calls. `None`: it calls none, or the argument is on
/// the next line.
pub(super) fn name_passed(line: &str) -> Option<&str> {
    let call = CALLS.iter().find_map(|call| line.split_once(call))?;
    call.1.split([',', ')']).next().filter(|name| !name.is_empty())
}

/// Calls of functions in `src/ffi` that pass a text other than the name of the entry they are in.
#[test]
fn entries_pass_their_own_names() {
    let mut findings = Vec::new();
    let mut seen = 0;
    for file in sources().iter().filter(|file| file.is_in("src/ffi")) {
        let (mut current, mut is_call_open) = ("", false);
        for (number, line) in file.code() {
            current = entry(line).unwrap_or(if line.starts_with('}') { "" } else { current });
            let passed = name_passed(line)
                .or_else(|| is_call_open.then(|| line.trim().trim_end_matches(',')))
                .filter(|name| name.starts_with('"'));
            is_call_open = CALLS.iter().any(|call| line.ends_with(call));
            let Some(passed) = passed else { continue };
            seen += 1;
            if !current.is_empty() && passed.trim_matches('"') != current {
                findings.push(format!("{}:{number}: pass \"{current}\"", file.path));
            }
        }
    }
    assert!(seen > 150, "only {seen} names seen: is the form of the calls right?");
    report(&findings);
}
