//! Waits on futex words: a thread sleeps until another thread of this process wakes it.
//!
//! A sleeping thread must check the word again when it wakes, because wake-ups may be spurious. A
//! thread that changes the word must wake the sleeping threads. In `tests/models`, a module of the
//! same name that is based on the locks of loom replaces this one. Source: futex(2); U. Drepper,
//! "Futexes Are Tricky".

use rustix::thread::futex::{self, Flags, Timespec};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// If `word` has the value `value`, sleeps until another thread calls [`wake`]; otherwise returns
/// at once. May return spuriously.
pub fn wait(word: &AtomicU32, value: u32) {
    // Whatever the reason for the return, the caller reads the word again.
    let _ = futex::wait(word, Flags::PRIVATE, value, None);
}

/// If `word` has the value `value`, sleeps until another thread calls [`wake`], but for at most
/// `limit`; otherwise returns at once. May return spuriously.
pub fn wait_for(word: &AtomicU32, value: u32, limit: Duration) {
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // Whatever the reason for the return, the caller reads the word again.
    let _ = futex::wait(word, Flags::PRIVATE, value, Some(&limit));
}

/// Wakes at most `most` threads that sleep on `word`.
pub fn wake(word: &AtomicU32, most: u32) {
    let _ = futex::wake(word, Flags::PRIVATE, most.min(i32::MAX as u32));
}

/// If the upper 32 bits of `word` have the value `value`, sleeps until another thread calls
/// [`wake_upper`]; otherwise returns at once. May return spuriously.
pub fn wait_upper(word: &AtomicU64, value: u32) {
    // Miri treats the kernel's read of one half as an access of the program, which may not mix
    // access sizes. So no thread sleeps under Miri.
    if cfg!(miri) {
        return std::thread::yield_now();
    }
    wait(upper(word), value);
}

/// Wakes at most `most` threads that sleep in [`wait_upper`] on `word`.
pub fn wake_upper(word: &AtomicU64, most: u32) {
    wake(upper(word), most);
}

/// Returns a reference to the upper 32 bits of `word`, to pass to the kernel. No code of this
/// process accesses these bits separately.
fn upper(word: &AtomicU64) -> &AtomicU32 {
    let halves = word.as_ptr().cast::<AtomicU32>();
    let half = halves.wrapping_add(usize::from(cfg!(target_endian = "little")));
    // SAFETY: one of the two halves of a word that outlives the reference; both are aligned.
    unsafe { &*half }
}

#[cfg(test)]
#[path = "tests/futex.rs"]
mod tests;
