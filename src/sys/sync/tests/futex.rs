//! Tests of `futex`.

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
