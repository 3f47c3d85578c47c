//! Faults that can be planted in the backend "sample" (`dtl-ctk run --backend sample --fault
//! NAME`), each with the test that must find it. They show what failures look like, and prove that
//! the tests can fail.

use std::sync::OnceLock;

/// Returns the names, each with a test that finds the fault.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    include_str!("faults.txt").lines().skip(1).filter_map(|line| line.split_once(" | "))
}

/// Whether there is a fault of this name.
pub(crate) fn is_known(name: &str) -> bool {
    all().any(|(known, _)| known == name)
}

static CHOSEN: OnceLock<String> = OnceLock::new();

/// Selects the fault of the backend. Returns false if no fault has that name.
pub(crate) fn choose(name: &str) -> bool {
    is_known(name) && CHOSEN.set(name.to_owned()).is_ok()
}

/// Whether it has this fault.
pub(crate) fn is(name: &str) -> bool {
    let chosen = CHOSEN.get();
    debug_assert!(chosen.is_none() || is_known(name), "{name} is not in the list");
    chosen.is_some_and(|chosen| chosen == name)
}

/// Returns `wrong` if the fault is planted, else `right`.
pub(crate) fn or<T>(name: &str, wrong: T, right: T) -> T {
    if is(name) { wrong } else { right }
}
