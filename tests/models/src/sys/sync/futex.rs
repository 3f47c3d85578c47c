//! Futex as a lock and a condition variable of loom. A sleeper compares the word under the lock,
//! and a waker takes the lock, as the kernel does with its lock of a word's sleepers. A wake
//! reaches every sleeper, which the callers must expect in any case. A missing wake is a deadlock,
//! which loom detects.

use crate::sys::sync::{AtomicU32, AtomicU64, Ordering};
use loom::sync::{Condvar, Mutex};
use std::time::Duration;

loom::lazy_static! {
    static ref SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
}

fn sleep_if(is_unchanged: impl FnOnce() -> bool) {
    let lock = SLEEPERS.0.lock().unwrap();
    if is_unchanged() {
        drop(SLEEPERS.1.wait(lock).unwrap());
    }
}

fn wake_all() {
    drop(SLEEPERS.0.lock().unwrap());
    SLEEPERS.1.notify_all();
}

pub fn wait(word: &AtomicU32, value: u32) {
    sleep_if(|| word.load(Ordering::Relaxed) == value);
}

/// Sleeps without a time limit: a missing wake is a deadlock, which loom detects.
pub fn wait_for(word: &AtomicU32, value: u32, _limit: Duration) {
    wait(word, value);
}

pub fn wake(_word: &AtomicU32, _most: u32) {
    wake_all();
}

pub fn wait_upper(word: &AtomicU64, value: u32) {
    sleep_if(|| (word.load(Ordering::Relaxed) >> 32) as u32 == value);
}

pub fn wake_upper(_word: &AtomicU64, _most: u32) {
    wake_all();
}
