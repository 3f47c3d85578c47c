//! Table of all tests, used to run, list and explain them. Names, rules and descriptions are in
//! `tests/catalog.txt`, the functions in `crate::tests`.

use crate::kit::calls::Backend;
use crate::kit::outcome::Outcome;
use crate::kit::rank::Rank;
use crate::kit::slot_comm::SlotComm;
use crate::kit::subject::{KINDS, Subject, kind_name};
use crate::kit::vtables::Vtables;
use crate::tests;
use std::sync::OnceLock;

/// Test of one memory kind.
pub(crate) type OfKind = fn(&Subject, u64) -> Outcome;
/// Test of copies from one memory kind to another.
pub(crate) type Between = fn(&Subject, (u64, u64)) -> Outcome;

/// Function of a test, with its arguments.
#[derive(Clone, Copy)]
pub(crate) enum Body {
    /// Test that is called in one process with one backend.
    Alone(fn(&Subject) -> Outcome),
    /// Test that is called in one process with one backend and one memory kind.
    OfKind(OfKind, u64),
    /// Test that is called in one process with one backend and with the memory kinds of the source
    /// and the destination.
    Between(Between, (u64, u64)),
    /// Test that is called in one process with one backend, even if the backend cannot run here.
    Backend(fn(Backend) -> Outcome),
    /// Test that is called on every rank of a communicator.
    Ranks(fn(&Rank) -> Outcome),
    /// Test of the library itself, with function tables that the test registers.
    Tables(fn() -> Outcome),
    /// Test that must pass before other tests run. It calls the functions in the backend's tables
    /// directly, in one process.
    Slots(fn(&Vtables) -> Outcome),
    /// Test that must pass before other tests run. It calls the functions in a comm table directly,
    /// on every rank.
    SlotComm(fn(&SlotComm) -> Outcome),
}

impl Body {
    /// Returns true if several ranks run the test.
    pub(crate) fn is_of_ranks(&self) -> bool {
        matches!(self, Body::Ranks(_) | Body::SlotComm(_))
    }

    /// Returns true if the test calls the functions of a backend's tables directly. If such a test
    /// fails, the tests that depend on these functions are not run.
    pub(crate) fn is_first(&self) -> bool {
        matches!(self, Body::Slots(_) | Body::SlotComm(_))
    }

    /// Returns true if the test requires a backend that can run here.
    pub(crate) fn is_of_subject(&self) -> bool {
        matches!(self, Body::Alone(_) | Body::OfKind(..) | Body::Between(..))
    }
}

/// Named test. The name describes what has failed if the test fails.
pub(crate) struct Test {
    pub(crate) name: &'static str,
    /// Description of what is checked, in one line.
    pub(crate) what: &'static str,
    pub(crate) body: Body,
    /// Minimum number of ranks.
    pub(crate) least: i32,
    /// Function under test in a backend's table, for example "memory.alloc".
    pub(crate) slot: &'static str,
    /// Requirements that a backend must meet for the test to run.
    pub(crate) needs: Vec<Need>,
    /// Rule in dtl.h that the test checks.
    pub(crate) rule: &'static str,
    /// Usual cause of a failure of this test.
    pub(crate) usually: &'static str,
}

/// Requirement of a test on a backend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The backend has a device table.
    Device,
    /// The backend has at least two devices.
    TwoDevices,
    /// The backend has a memory table.
    Memory,
    /// The backend has a device table or a memory table. A backend without a device table may
    /// report all of its memory as memory of device 0.
    DeviceMemory,
    /// The backend has this memory kind.
    Kind(u64),
    /// Streams are available: those of the backend, or those that the library implements over the
    /// backend's memory.
    Streams,
    /// Contents can be copied: of the memory kinds that the test needs, or else of all kinds.
    Copies,
    /// The backend executes the functions that are passed to kernel launches and parallel loops. A
    /// backend with the flag DTL_BACKEND_NO_COMPUTE ignores these functions.
    Compute,
    /// A message longer than the receive buffer is truncated as dtl.h specifies.
    Cut,
}

/// Requirements, each with its name in the catalog and its description for users.
const NEEDS: [(&str, Need, &str); 8] = [
    ("devices", Need::Device, "a device table"),
    ("two_devices", Need::TwoDevices, "two devices"),
    ("memory", Need::Memory, "a memory table"),
    ("device_memory", Need::DeviceMemory, "a device table or a memory table"),
    ("copies", Need::Copies, "a transfer table, or host access to the memory"),
    ("streams", Need::Streams, "streams"),
    ("compute", Need::Compute, "launches and loops that compute (not DTL_BACKEND_NO_COMPUTE)"),
    (
        "cut",
        Need::Cut,
        "truncation by the library: a time limit, or a kind without \"comm.direct\"",
    ),
];

impl Need {
    pub(crate) fn text(self) -> String {
        let known = NEEDS.iter().find(|(_, need, _)| *need == self);
        match self {
            Need::Kind(kind) => format!("memory kind {}", kind_name(kind)),
            _ => known.map_or(String::new(), |(.., text)| (*text).to_owned()),
        }
    }

    fn named(name: &str) -> Option<Need> {
        let kind = || KINDS.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind);
        let known = NEEDS.iter().find(|(known, ..)| *known == name).map(|(_, need, _)| *need);
        known.or_else(|| kind().map(Need::Kind))
    }
}

/// Expands to pairs of a name and a function: `named![one, two = |s, kind| ...]`.
macro_rules! named {
    ($($name:ident $(= $function:expr)?),+) => {
        &[$((stringify!($name), $crate::kit::catalog::functions!(@ $name $($function)?))),+]
    };
}
pub(crate) use named;

/// Expands to a list of tests, each with its full name and its function: `functions![Ranks
/// "comm.open.": opens, opens_again =
/// |p| ...;]`.
macro_rules! functions {
    ($($body:ident $prefix:literal: $($name:ident $(= $function:expr)?),+;)+) => {
        &[$($((
            concat!($prefix, stringify!($name)),
            $crate::kit::catalog::Body::$body(functions!(@ $name $($function)?)),
        ),)+)+]
    };
    (@ $name:ident) => { $name };
    (@ $name:ident $function:expr) => { $function };
}
pub(crate) use functions;

/// Components of the interface, in the order in which they are tested.
pub(crate) const COMPONENTS: [&str; 6] = ["abi", "device", "memory", "transfer", "exec", "comm"];

impl Test {
    /// Returns the component that the test checks: the part of the test's name before the first
    /// dot.
    pub(crate) fn component(&self) -> &'static str {
        self.name.split('.').next().unwrap_or(self.name)
    }
}

const TEXT: &str = include_str!("../tests/catalog.txt");

/// Returns the paragraphs of `tests/catalog.txt`. A paragraph whose first line begins with `each`
/// is repeated for every value in that line.
fn paragraphs() -> impl Iterator<Item = &'static str> {
    let repeated = |paragraph: &'static str| -> Vec<&'static str> {
        let Some((values, rest)) =
            paragraph.strip_prefix("each ").and_then(|rest| rest.split_once('\n'))
        else {
            return vec![paragraph];
        };
        let with = |value: &str| -> &'static str {
            let (value, needs) = value.split_once('=').unwrap_or((value, value));
            let needs = needs.replace('+', " ");
            rest.replace(" @\n", &format!(" {}\n", value.to_uppercase()))
                .replace('@', value)
                .replace('%', &needs)
                .leak()
        };
        values.split(' ').map(with).collect()
    };
    TEXT.split("\n\n").flat_map(repeated)
}

/// Reads `tests/catalog.txt`. Lines that describe a test without a function are skipped here and
/// reported by a unit test.
fn read() -> Vec<Test> {
    let mut found = Vec::new();
    for paragraph in paragraphs() {
        let (mut slot, mut rule, mut usually, mut needs) = ("", "", "", Vec::new());
        for line in paragraph.lines().filter(|line| !line.starts_with('#')) {
            if let Some((name, what)) = line.split_once(" | ") {
                let (least, name) = name.split_once(' ').unwrap_or(("1", name));
                let least = least.parse().unwrap_or(1);
                let row = |body| Test {
                    name,
                    what,
                    body,
                    least,
                    slot,
                    needs: needs.clone(),
                    rule,
                    usually,
                };
                found.extend(tests::body(name).map(row));
                continue;
            }
            match line.split_once(' ').unwrap_or((line, "")) {
                ("slot", text) => slot = text,
                ("rule", text) => rule = text,
                ("usually", text) => usually = text,
                ("needs", names) => needs = names.split(' ').filter_map(Need::named).collect(),
                _ => {}
            }
        }
    }
    found
}

/// Returns all tests. The tests that only --stress runs are last.
fn tests() -> &'static [Test] {
    static TESTS: OnceLock<Vec<Test>> = OnceLock::new();
    TESTS.get_or_init(read)
}

/// Returns all tests except those of --stress, in the order in which they run.
pub(crate) fn all() -> impl Iterator<Item = &'static Test> {
    tests().iter().filter(|test| test.component() != "stress")
}

/// Returns the tests of --stress.
pub(crate) fn stress() -> impl Iterator<Item = &'static Test> {
    tests().iter().filter(|test| test.component() == "stress")
}

/// Returns the test with the given name.
pub(crate) fn find(name: &str) -> Option<&'static Test> {
    tests().iter().find(|test| test.name == name)
}

/// Returns true if a name matches one of the patterns, or if there are no patterns.
pub(crate) fn matches_one(patterns: &[String], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| matches(pattern, name))
}

/// Returns true if a name matches a pattern. `*` matches any string. A pattern without `*` matches
/// if it is the whole name, or a prefix of the name that is followed by a dot.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    if !pattern.contains('*') {
        return name
            .strip_prefix(pattern)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    }
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

#[cfg(test)]
#[path = "tests/catalog.rs"]
mod unit;
