//! Models of the basis of windows: locks that ranks share, and elements that all ranks change.

use super::compute::elements::cell;
use super::sync::AtomicU64;
use crate::Model;
use crate::runtime::comm::rma::robust_rwlock::{self, SharedLock};
use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering;
use loom::thread;
use std::sync::Arc;

pub const ALL: &[Model] = &[
    ("shared lock: one writes, one shares", writes_and_shares),
    ("shared lock: two that write", two_write),
    ("shared lock: two that share, and then one writes", two_share),
    ("shared lock: who finds it taken finds who has it", holder_is_found),
    ("shared lock: two that take it from a dead rank", taken_over),
    ("element: two change it, and what each wrote before", two_change),
];

/// Words of a lock, and the data that it protects.
struct Guarded {
    words: Vec<AtomicU64>,
    data: [UnsafeCell<u64>; 2],
}

// SAFETY: loom watches over the cells.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn new() -> Arc<Self> {
        let words = (0..robust_rwlock::words(3)).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Guarded { words, data: [UnsafeCell::new(0), UnsafeCell::new(0)] })
    }

    fn lock(&self) -> SharedLock<'_> {
        SharedLock::new(&self.words).unwrap()
    }

    fn write(&self, index: usize) {
        // SAFETY: loom fails the model if somebody else is at it.
        self.data[index].with_mut(|at| unsafe { *at += 1 });
    }

    fn read(&self, index: usize) -> u64 {
        // SAFETY: loom fails the model if somebody writes it meanwhile.
        self.data[index].with(|at| unsafe { *at })
    }

    fn write_if_free(&self, rank: usize) -> u64 {
        let taken = self.lock().try_exclusive(rank, false);
        if taken {
            self.write(0);
            self.lock().leave_exclusive();
        }
        u64::from(taken)
    }

    fn read_if_free(&self, rank: usize) -> u64 {
        let taken = self.lock().try_shared(rank, false);
        if taken {
            self.read(0);
            self.lock().leave_shared(rank);
        } else {
            self.lock().leave_line(rank);
        }
        u64::from(taken)
    }

    fn is_free(&self) -> bool {
        self.words.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }
}

fn beside<T: 'static>(
    guarded: &Arc<Guarded>,
    work: impl FnOnce(&Guarded) -> T + 'static,
) -> thread::JoinHandle<T> {
    let guarded = Arc::clone(guarded);
    thread::spawn(move || work(&guarded))
}

fn writes_and_shares() {
    let guarded = Guarded::new();
    let other = beside(&guarded, |guarded| guarded.write_if_free(1));
    let shared = guarded.read_if_free(0);
    let written = other.join().unwrap();
    assert!(written + shared > 0, "one of them comes first");
    assert_eq!((guarded.read(0), guarded.is_free()), (written, true));
}

fn two_write() {
    let guarded = Guarded::new();
    let other = beside(&guarded, |guarded| guarded.write_if_free(1));
    let written = guarded.write_if_free(0);
    let both = written + other.join().unwrap();
    assert!((1..=2).contains(&both));
    assert!(guarded.lock().try_exclusive(2, false));
    assert_eq!(guarded.read(0), both);
}

fn two_share() {
    let guarded = Guarded::new();
    let other = beside(&guarded, |guarded| guarded.read_if_free(1));
    assert_eq!(guarded.read_if_free(0), 1, "nobody writes");
    let written = guarded.write_if_free(2);
    assert!(other.join().unwrap() + written > 0, "one of them comes first");
    assert!(guarded.is_free());
}

/// A rank locks and dies: another rank finds out who the holder is.
fn holder_is_found() {
    let guarded = Guarded::new();
    let other = beside(&guarded, |guarded| guarded.lock().try_shared(1, true));
    let lock = guarded.lock();
    if !lock.try_exclusive(0, false) {
        assert!(lock.is_in_the_way(1, true), "it is taken by nobody");
    }
    other.join().unwrap();
}

/// Rank 0 has died with a shared lock. Then one rank writes and one shares, in either order.
fn taken_over() {
    let guarded = Guarded::new();
    assert!(guarded.lock().try_shared(0, true));
    let other = beside(&guarded, |guarded| guarded.read_if_free(1));
    let written = guarded.lock().take_over(2, true, |rank| rank == 0);
    if written {
        guarded.write(0);
        guarded.lock().leave_exclusive();
    }
    assert!(other.join().unwrap() + u64::from(written) > 0, "one of them comes first");
    assert_eq!(guarded.read(0), u64::from(written));
}

/// Each thread writes data and then changes the element. The second one must see the data of the
/// first.
fn two_change() {
    let guarded = Guarded::new();
    let work = |guarded: &Guarded, index: usize| {
        guarded.write(index);
        let was = cell::update(&guarded.words[0], |was| was + 1 + index as u64);
        if was != 0 {
            assert_eq!(guarded.read(1 - index), 1);
        }
    };
    let other = beside(&guarded, move |guarded| work(guarded, 1));
    work(&guarded, 0);
    other.join().unwrap();
    assert_eq!(guarded.words[0].load(Ordering::Relaxed), 3);
}
