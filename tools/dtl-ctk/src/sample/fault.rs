//! Faults that can be injected into the backend "sample" (`dtl-ctk run --backend sample --fault
//! NAME`), each with the test that must detect it. They show what failures look like, and prove
//! that the tests can fail.

use std::sync::OnceLock;

/// Returns the name of each fault, paired with the name of a test that must detect the fault.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    include_str!("faults.txt").lines().skip(1).filter_map(|line| line.split_once(" | "))
}

/// Returns true if a fault with this name exists.
pub(crate) fn is_known(name: &str) -> bool {
    all().any(|(known, _)| known == name)
}

static CHOSEN: OnceLock<String> = OnceLock::new();

/// Selects the fault to inject into the backend. Returns false if no fault has this name or a fault
/// is already selected.
pub(crate) fn choose(name: &str) -> bool {
    is_known(name) && CHOSEN.set(name.to_owned()).is_ok()
}

/// Returns true if this fault is injected.
pub(crate) fn is(name: &str) -> bool {
    let chosen = CHOSEN.get();
    debug_assert!(chosen.is_none() || is_known(name), "{name} is not in the list");
    chosen.is_some_and(|chosen| chosen == name)
}

/// Returns `wrong` if this fault is injected, else `right`.
pub(crate) fn or<T>(name: &str, wrong: T, right: T) -> T {
    if is(name) { wrong } else { right }
}
