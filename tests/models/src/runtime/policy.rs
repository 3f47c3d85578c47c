//! Models of `loads` (selecting the resource with the fewest tasks, and taking a free place) and of
//! the tuning runs of a task.

#[path = "../../../../src/runtime/policy/loads.rs"]
mod loads;
#[path = "../../../../src/runtime/policy/tuning_run.rs"]
mod tuning_run;

use crate::Model;
use loads::Loads;
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;
use tuning_run::{Report, Trial};

pub const ALL: &[Model] = &[
    ("loads: two that select stay even", two_stay_even),
    ("loads: one that selects against one that ends", select_against_end),
    ("loads: one that selects against its own thread's end", select_against_own_end),
    ("loads: a place for one excludes", one_place_excludes),
    ("trial: the last report sees all times", last_sees_all),
    ("trial: the last part sees all times", last_part_sees_all),
    ("trial: a tuning begins with nothing", begins_with_nothing),
];

/// Selects a resource as a submit does.
fn take(loads: &Loads, thread: usize) -> usize {
    loads.take_own(thread).unwrap_or_else(|| loads.take_least(thread))
}

/// Checks that counts differ by at most one as long as no task ends.
fn two_stay_even() {
    let loads = Arc::new(Loads::new(2));
    let other = Arc::clone(&loads);
    let thread = thread::spawn(move || {
        let _ = take(&other, 0);
        let _ = take(&other, 1);
    });
    let _ = take(&loads, 0);
    let _ = take(&loads, 0);
    thread.join().unwrap();
    assert_eq!((loads.of(0), loads.of(1)), (2, 2));
}

/// Checks that no counted task is lost.
fn select_against_end() {
    let loads = Arc::new(Loads::new(2));
    let first = take(&loads, 0);
    let other = Arc::clone(&loads);
    let thread = thread::spawn(move || other.give_back(first));
    let taken = take(&loads, 0);
    thread.join().unwrap();
    assert_eq!(loads.of(0) + loads.of(1), 1);
    assert_eq!(loads.of(taken), 1);
}

/// Checks that no counted task is lost when the resource's own thread ends tasks while another
/// thread removes tasks.
fn select_against_own_end() {
    let loads = Arc::new(Loads::new(2));
    let first = take(&loads, 0);
    let other = Arc::clone(&loads);
    let thread = thread::spawn(move || {
        let taken = other.take_least(2);
        other.give_back_in(1, taken);
        other.take_least(2)
    });
    loads.give_back_in(0, first);
    let again = take(&loads, 0);
    loads.give_back_in(0, again);
    let taken = thread.join().unwrap();
    assert_eq!((loads.of(taken), loads.of(1 - taken)), (1, 0));
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
    fn try_add(&self, thread: usize) -> u64 {
        let Some(index) = self.loads.take_own(thread).or_else(|| self.loads.take_free(thread, 1))
        else {
            return 0;
        };
        // SAFETY: loom fails the model if another thread is in here meanwhile.
        self.value.with_mut(|value| unsafe { *value += 1 });
        self.loads.give_back_in(thread, index);
        1
    }
}

/// Checks that the task in the only place sees all writes of the preceding task and runs alone.
fn one_place_excludes() {
    let shared = Arc::new(Shared { loads: Loads::new(1), value: UnsafeCell::new(0) });
    let other = Arc::clone(&shared);
    let thread = thread::spawn(move || other.try_add(1) + other.try_add(1));
    let mine = shared.try_add(0);
    let all = mine + thread.join().unwrap();
    // SAFETY: the other thread is over.
    assert_eq!(shared.value.with(|value| unsafe { *value }), all);
}

/// Runs the task and reports the time of its resource.
fn run_and_report(trial: &Trial, thread: usize, times: [u64; 2]) -> Option<Report> {
    let turn = trial.take_run(thread)?;
    Some(trial.report(turn, Some(times[turn.resource])))
}

/// Checks that exactly one report of a tuning is the last, in whichever thread, and that it finds
/// the minimum of all times.
fn last_sees_all() {
    let trial = Arc::new(Trial::new(2, 0, 1));
    let other = Arc::clone(&trial);
    let thread = thread::spawn(move || run_and_report(&other, 0, [5, 3]));
    let mine = run_and_report(&trial, 0, [5, 3]).unwrap();
    let reports = [mine, thread.join().unwrap().unwrap()];
    assert!(reports.contains(&Report::OneOfMany) && reports.contains(&Report::Last(1, 3)));
    assert_eq!((trial.best(), trial.leader(), trial.take_run(0)), (Some(1), 1, None));
}

/// Checks the last report where each thread has a part of its own: both parts are run, and each run
/// once.
fn last_part_sees_all() {
    let trial = Arc::new(Trial::new(1, 0, 2));
    let other = Arc::clone(&trial);
    let thread = thread::spawn(move || run_and_report(&other, 0, [5, 0]));
    let mine = run_and_report(&trial, 1, [3, 0]).unwrap();
    let reports = [mine, thread.join().unwrap().unwrap()];
    assert!(reports.contains(&Report::OneOfMany) && reports.contains(&Report::Last(0, 3)));
    assert_eq!((trial.best(), trial.take_run(0), trial.take_run(1)), (Some(0), None, None));
}

/// Checks two threads that restart the tuning: no time of the previous tuning counts, and no time
/// of the current tuning is lost.
fn begins_with_nothing() {
    let trial = Arc::new(Trial::new(1, 0, 1));
    assert_eq!(run_and_report(&trial, 0, [10, 0]), Some(Report::Last(0, 10)));
    let other = Arc::clone(&trial);
    let again = |trial: &Trial, thread| {
        trial.begin_anew();
        let report = run_and_report(trial, thread, [20, 0]);
        assert!(matches!(report, None | Some(Report::Last(0, 20))), "{report:?}");
        usize::from(report.is_some())
    };
    let thread = thread::spawn(move || again(&other, 1));
    let mine = again(&trial, 0);
    assert!(mine + thread.join().unwrap() > 0);
    assert_eq!(trial.best(), Some(0));
}
