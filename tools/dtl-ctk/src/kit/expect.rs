//! Expected failures: a file of lines `"pattern" = "reason"`, which is valid TOML.

use crate::kit::catalog;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Pattern for the names of tests that are expected to fail, with the reason.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) pattern: String,
    pub(crate) reason: String,
}

/// Maximum size, in bytes, of the file that lists the expected failures. Without a limit, reading
/// from a device such as /dev/zero would never end.
const MOST_BYTES: u64 = 1 << 20;

/// Reads a file.
pub(crate) fn read(path: &Path) -> Result<Vec<Expected>, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    let read = file.take(MOST_BYTES + 1).read_to_string(&mut text);
    if read.map_err(|error| error.to_string())? as u64 > MOST_BYTES {
        return Err(format!(
            "more than {MOST_BYTES} bytes: a file of lines \"pattern\" = \"reason\" is expected"
        ));
    }
    parse(&text)
}

/// Parses the contents of the file of expected failures. Every pattern must have a reason and match
/// a test.
pub(crate) fn parse(text: &str) -> Result<Vec<Expected>, String> {
    let lines = text.lines().map(str::trim).zip(1..);
    let meant = lines
        .filter(|(line, _)| !line.is_empty() && !line.starts_with('#') && !line.starts_with('['));
    meant
        .map(|(line, number)| parse_line(line).map_err(|error| format!("line {number}: {error}")))
        .collect()
}

fn parse_line(line: &str) -> Result<Expected, String> {
    let form = || "expected \"pattern\" = \"reason\"".to_owned();
    let (pattern, reason) = line.split_once('=').ok_or_else(form)?;
    let pattern = pattern.trim().trim_matches('"').to_owned();
    let reason =
        reason.trim().strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or_else(form)?;
    if reason.trim().is_empty() {
        return Err(format!("{pattern}: say why it is expected to fail"));
    }
    if !catalog::all().any(|test| catalog::matches(&pattern, test.name)) {
        return Err(format!("{pattern}: no test has that name (see dtl-ctk list)"));
    }
    Ok(Expected { pattern, reason: reason.to_owned() })
}

/// Returns the reason why this test is expected to fail; `None` if it is expected to pass.
pub(crate) fn reason<'a>(all: &'a [Expected], test: &str) -> Option<&'a str> {
    all.iter().find(|one| catalog::matches(&one.pattern, test)).map(|one| one.reason.as_str())
}

#[cfg(test)]
#[path = "tests/expect.rs"]
mod tests;
