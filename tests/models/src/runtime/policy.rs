//! Models of `loads`: selecting the resource with the fewest tasks, and taking a free place.

#[path = "../../../../src/runtime/policy/loads.rs"]
mod loads;

use crate::Model;
use loads::Loads;
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

pub const ALL: &[Model] = &[
    ("loads: two that select stay even", two_stay_even),
    ("loads: one that selects against one that ends", select_against_end),
    ("loads: a place for one excludes", one_place_excludes),
];

/// As long as no task ends, counts differ by at most one.
fn two_stay_even() {
    let loads = Arc::new(Loads::new(2));
    let other = Arc::clone(&loads);
    let thread = thread::spawn(move || {
        let _ = other.take_least(0);
        let _ = other.take_least(1);
    });
    let _ = loads.take_least(0);
    let _ = loads.take_least(0);
    thread.join().unwrap();
    assert_eq!((loads.of(0), loads.of(1)), (2, 2));
}

/// What is counted is never lost.
fn select_against_end() {
    let loads = Arc::new(Loads::new(2));
    let first = loads.take_least(0);
    let other = Arc::clone(&loads);
    let thread = thread::spawn(move || other.give_back(first));
    let taken = loads.take_least(0);
    thread.join().unwrap();
    assert_eq!(loads.of(0) + loads.of(1), 1);
    assert_eq!(loads.of(taken), 1);
}

struct Shared {
    loads: Loads,
    value: UnsafeCell<u64>,
}

// SAFETY: loom watches over the cell.
unsafe impl Sync for Shared {}
// SAFETY: an integer.
unsafe impl Send for Shared {}

impl Shared {
    fn try_add(&self) -> u64 {
        let Some(index) = self.loads.take_free(0, 1) else { return 0 };
        // SAFETY: loom fails the model if another thread is in here meanwhile.
        self.value.with_mut(|value| unsafe { *value += 1 });
        self.loads.give_back(index);
        1
    }
}

/// Who has the only place sees what the one before had done, and is alone.
fn one_place_excludes() {
    let shared = Arc::new(Shared { loads: Loads::new(1), value: UnsafeCell::new(0) });
    let other = Arc::clone(&shared);
    let thread = thread::spawn(move || other.try_add() + other.try_add());
    let mine = shared.try_add();
    let all = mine + thread.join().unwrap();
    // SAFETY: the other thread is over.
    assert_eq!(shared.value.with(|value| unsafe { *value }), all);
}
