//! Entries of the C interface pass their own names to the wrappers in `src/ffi/guard.rs`: traces
//! show the call under that name.

use super::{report, sources};

/// Returns the name of the exported function whose declaration a line begins.
fn entry(line: &str) -> Option<&str> {
    let (_, rest) = line.strip_prefix("pub ")?.split_once("extern \"C\" fn ")?;
    rest.split('(').next().filter(|name| name.starts_with("dtl_"))
}

/// Returns the name in `Entry("name")`.
pub(super) fn name_passed(line: &str) -> Option<&str> {
    line.split_once("Entry(\"")?.1.split('"').next()
}

#[test]
fn entries_pass_their_own_names() {
    let mut findings = Vec::new();
    let mut seen = 0;
    for file in sources().iter().filter(|file| file.is_in("src/ffi")) {
        let mut current = "";
        for (number, line) in file.code() {
            current = entry(line).unwrap_or(if line.starts_with('}') { "" } else { current });
            let Some(passed) = name_passed(line) else { continue };
            seen += 1;
            if !current.is_empty() && passed != current {
                findings.push(format!("{}:{number}: pass \"{current}\"", file.path));
            }
        }
    }
    assert!(seen > 150, "only {seen} names seen: is the form of the calls right?");
    report(&findings);
}
