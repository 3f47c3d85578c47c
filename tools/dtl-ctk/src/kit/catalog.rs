//! Which tests there are: one table, from which running, listing and explaining are made.

use crate::kit::bare::Bare;
use crate::kit::calls::Backend;
use crate::kit::outcome::Outcome;
use crate::kit::peer::Peer;
use crate::kit::subject::Subject;
use crate::kit::wire::Wire;
use crate::tests;

/// What a test is run with.
#[derive(Clone, Copy)]
pub(crate) enum Body {
    /// One process, one backend.
    Alone(fn(&Subject) -> Outcome),
    /// One process, one backend, also if that cannot run here.
    Backend(fn(Backend) -> Outcome),
    /// Every rank of a communicator calls it; the number is the least of ranks that it takes.
    Ranks(i32, fn(&Peer) -> Outcome),
    /// The library itself: tables that the kit makes and registers.
    Tables(fn() -> Outcome),
    /// First stage: one process calls the slots of the backend's tables.
    Slots(fn(&Bare) -> Outcome),
    /// First stage: every rank of a comm table calls its slots. The number is the least number of
    /// ranks.
    Wire(i32, fn(&Wire) -> Outcome),
}

impl Body {
    /// Whether several ranks run it.
    pub(crate) fn is_of_ranks(&self) -> bool {
        matches!(self, Body::Ranks(..) | Body::Wire(..))
    }

    /// Whether it calls the slots directly. If such a test fails, the tests that build on the slots
    /// are not run.
    pub(crate) fn is_first(&self) -> bool {
        matches!(self, Body::Slots(_) | Body::Wire(..))
    }
}

/// A test: its name says what is wrong if it fails.
#[derive(Clone, Copy)]
pub(crate) struct Test {
    pub(crate) name: &'static str,
    /// One line: what is checked.
    pub(crate) what: &'static str,
    pub(crate) body: Body,
    /// What this test needs besides its group's needs.
    pub(crate) also: Option<Need>,
}

/// Tests of one slot (or of a few that work together), which share their explanation.
pub(crate) struct Group {
    /// The slot that the tests are about, for example "memory.alloc".
    pub(crate) slot: &'static str,
    /// What a backend must have for these tests.
    pub(crate) needs: &'static [Need],
    /// The rule of the header.
    pub(crate) rule: &'static str,
    /// What it usually means if such a test fails.
    pub(crate) usually: &'static str,
    pub(crate) tests: &'static [Test],
}

/// What a backend must have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// A device table.
    Device,
    /// At least two devices.
    TwoDevices,
    /// A memory table.
    Memory,
    /// A device table, or a memory table alone, which may tell of all of its memory as device 0.
    DeviceMemory,
    /// A memory kind.
    Kind(u64),
    /// Streams: its own, or the library's over its memory.
    Streams,
    /// Launches and loops really compute.
    Compute,
    /// A message longer than its buffer is cut as the header says.
    Cut,
}

impl Need {
    pub(crate) fn text(self) -> String {
        match self {
            Need::Device => "a device table".into(),
            Need::TwoDevices => "two devices".into(),
            Need::Memory => "a memory table".into(),
            Need::DeviceMemory => "a device table or a memory table".into(),
            Need::Kind(kind) => format!("memory kind {}", crate::kit::subject::kind_name(kind)),
            Need::Streams => "streams".into(),
            Need::Compute => "launches and loops that compute (not DTL_BACKEND_NO_COMPUTE)".into(),
            Need::Cut => {
                "truncation by the library: a time limit, or a kind without \"comm.direct\"".into()
            }
        }
    }
}

/// A test of one process.
pub(crate) const fn alone(
    name: &'static str,
    what: &'static str,
    body: fn(&Subject) -> Outcome,
) -> Test {
    Test { name, what, body: Body::Alone(body), also: None }
}

/// A test of at least so many ranks.
pub(crate) const fn ranks(
    least: i32,
    name: &'static str,
    what: &'static str,
    body: fn(&Peer) -> Outcome,
    also: Option<Need>,
) -> Test {
    Test { name, what, body: Body::Ranks(least, body), also }
}

/// A test of the library's own rules for tables.
pub(crate) const fn tables(name: &'static str, what: &'static str, body: fn() -> Outcome) -> Test {
    Test { name, what, body: Body::Tables(body), also: None }
}

/// Tests of one process as rows: `"name": "what" => function;`.
macro_rules! tests_alone {
    ($($name:literal: $what:literal => $body:path;)*) => { &[$($crate::kit::catalog::alone($name, $what, $body)),*] };
}
pub(crate) use tests_alone;

/// Tests of a backend that need not be able to run here, as rows: `"name": "what" => function;`.
macro_rules! tests_of_backends {
    ($($name:literal: $what:literal => $body:path;)*) => {
        &[$($crate::kit::catalog::Test {
            name: $name,
            what: $what,
            body: $crate::kit::catalog::Body::Backend($body),
            also: None,
        }),*]
    };
}
pub(crate) use tests_of_backends;

/// Tests of ranks as rows: `least "name": "what" => function;`, or `=> function, if Need;`.
macro_rules! tests_of_ranks {
    ($($least:literal $name:literal: $what:literal => $body:path $(, if $need:ident)?;)*) => {
        &[$($crate::kit::catalog::ranks($least, $name, $what, $body, tests_of_ranks!(@need $($need)?))),*]
    };
    (@need $need:ident) => { Some($crate::kit::catalog::Need::$need) };
    (@need) => { None };
}
pub(crate) use tests_of_ranks;

/// Tests of tables as rows: `"name": "what" => function;`.
macro_rules! tests_of_tables {
    ($($name:literal: $what:literal => $body:path;)*) => { &[$($crate::kit::catalog::tables($name, $what, $body)),*] };
}
pub(crate) use tests_of_tables;

/// The components, in the order in which they are tested.
pub(crate) const COMPONENTS: [&str; 6] = ["abi", "device", "memory", "transfer", "exec", "comm"];

impl Test {
    /// The part of the name before the first dot.
    pub(crate) fn component(&self) -> &'static str {
        self.name.split('.').next().unwrap_or(self.name)
    }
}

/// All groups, in the order in which they are run.
pub(crate) fn groups() -> impl Iterator<Item = &'static Group> {
    [
        tests::abi::GROUPS,
        tests::abi_answers::GROUPS,
        tests::abi_calls::GROUPS,
        tests::abi_windows::GROUPS,
        tests::slots::GROUPS,
        tests::wire::GROUPS,
        tests::presence::BEFORE,
        tests::device::GROUPS,
        tests::device_info::GROUPS,
        tests::memory::GROUPS,
        tests::memory_handles::GROUPS,
        tests::memory_stream::GROUPS,
        tests::memory_kinds::GROUPS,
        tests::placement::GROUPS,
        tests::transfer::GROUPS,
        tests::transfer_pitched::GROUPS,
        tests::stream::GROUPS,
        tests::stream_wait::GROUPS,
        tests::event::GROUPS,
        tests::executor::GROUPS,
        tests::kernel::GROUPS,
        tests::module::GROUPS,
        tests::life::GROUPS,
        tests::presence::GROUPS,
        tests::open::GROUPS,
        tests::p2p::GROUPS,
        tests::p2p_more::GROUPS,
        tests::leak::GROUPS,
        tests::matching::GROUPS,
        tests::collective::GROUPS,
        tests::window::GROUPS,
        tests::win::GROUPS,
        tests::win_life::GROUPS,
        tests::win_atomics::GROUPS,
    ]
    .into_iter()
    .flatten()
}

/// All tests with their groups.
pub(crate) fn all() -> impl Iterator<Item = (&'static Group, &'static Test)> {
    groups().flat_map(|group| group.tests.iter().map(move |test| (group, test)))
}

/// The test of a name.
pub(crate) fn find(name: &str) -> Option<(&'static Group, &'static Test)> {
    all().find(|(_, test)| test.name == name)
}

/// Whether a name matches a pattern: `*` stands for any text; without one, the pattern is a name or
/// the beginning of one that ends at a dot.
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
mod unit {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_well_formed() {
        let mut seen = HashSet::new();
        for (group, test) in all() {
            assert!(seen.insert(test.name), "{} is there twice", test.name);
            assert!(COMPONENTS.contains(&test.component()), "{}", test.name);
            assert!(test.name.split('.').count() >= 3, "{}: component.slot.what", test.name);
            assert!(!test.what.is_empty() && !group.rule.is_empty() && !group.usually.is_empty());
        }
        assert!(seen.len() >= 250, "only {} tests", seen.len());
    }

    #[test]
    fn patterns() {
        assert!(matches("memory.host", "memory.host.one_byte"));
        assert!(matches("memory", "memory.host.one_byte"));
        assert!(!matches("mem", "memory.host.one_byte"));
        assert!(matches("*.one_*", "memory.host.one_byte"));
        assert!(matches("memory.*byte", "memory.host.one_byte"));
        assert!(!matches("*.two*", "memory.host.one_byte"));
        assert!(matches("*", "x.y.z"));
    }
}
