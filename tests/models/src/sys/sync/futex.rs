//! The kernel's sleep on a word, as loom's lock and condition: who sleeps compares under the lock,
//! who wakes takes the lock, as with the kernel's own lock of a word's sleepers. A wake reaches
//! every sleeper, which the callers of the library's module must expect anyway; a missing one is a
//! deadlock that loom sees.

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

/// No limit here: a wake that is missing is a deadlock that loom sees.
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
