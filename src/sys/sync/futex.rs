//! Sleeping until another thread of this process changes a word: the kernel's futex.
//!
//! No more than that: a sleeper must check the word again when it wakes up (wake-ups may be
//! spurious), and a thread that changes the word must wake the sleepers. `tests/models` has a
//! module of the same name over loom's locks. Source: futex(2); U. Drepper, "Futexes Are Tricky".

use rustix::thread::futex::{self, Flags, Timespec};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// Sleeps if the word is `value`, until it is woken.
pub fn wait(word: &AtomicU32, value: u32) {
    // Whichever way it returns, the caller reads the word again.
    let _ = futex::wait(word, Flags::PRIVATE, value, None);
}

/// Sleeps if the word is `value`, until it is woken, for `limit` at most.
pub fn wait_for(word: &AtomicU32, value: u32, limit: Duration) {
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // Whichever way it returns, the caller reads the word again.
    let _ = futex::wait(word, Flags::PRIVATE, value, Some(&limit));
}

/// Wakes at most `most` threads that sleep on the word.
pub fn wake(word: &AtomicU32, most: u32) {
    let _ = futex::wake(word, Flags::PRIVATE, most.min(i32::MAX as u32));
}

/// Sleeps if the upper half of the word is `value`, until it is woken.
pub fn wait_upper(word: &AtomicU64, value: u32) {
    // Miri takes the kernel's look at one half for the program's, which may not mix sizes. So
    // nobody sleeps there.
    if cfg!(miri) {
        return std::thread::yield_now();
    }
    wait(upper(word), value);
}

/// Wakes at most `most` threads that sleep on the upper half of the word.
pub fn wake_upper(word: &AtomicU64, most: u32) {
    wake(upper(word), most);
}

/// The half for the kernel: nothing in this process accesses it by itself.
fn upper(word: &AtomicU64) -> &AtomicU32 {
    let halves = word.as_ptr().cast::<AtomicU32>();
    let half = halves.wrapping_add(usize::from(cfg!(target_endian = "little")));
    // SAFETY: one of the two halves of a word that outlives the reference; both are aligned.
    unsafe { &*half }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_changed_word_does_not_sleep() {
        wait(&AtomicU32::new(7), 8);
        wait_upper(&AtomicU64::new(7 << 32 | 5), 5);
        wait_for(&AtomicU32::new(7), 8, Duration::MAX);
    }

    #[test]
    fn a_sleep_with_a_limit_ends() {
        wait_for(&AtomicU32::new(7), 7, Duration::from_millis(2));
    }

    #[test]
    fn a_sleeper_is_woken() {
        static WORD: AtomicU64 = AtomicU64::new(3 << 32);
        let sleeper = std::thread::spawn(|| {
            while WORD.load(Ordering::Acquire) >> 32 == 3 {
                wait_upper(&WORD, 3);
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(5));
        WORD.store(4 << 32, Ordering::Release);
        wake_upper(&WORD, 1);
        sleeper.join().unwrap();
    }
}
