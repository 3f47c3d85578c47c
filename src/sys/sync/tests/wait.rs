//! Tests of `wait`: how long waiting threads spin.

use super::*;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::thread::scope;

/// Waits until `word` is `value`, and adds 1.
fn answer(word: &AtomicU64, value: u64, limit: &SpinLimit) {
    let mut backoff = Backoff::new();
    while word.load(Ordering::Acquire) != value {
        backoff.pause_on(limit, |_, _| false);
    }
    word.store(value + 1, Ordering::Release);
}

/// Rounds of a conversation of two threads on one processor.
const ROUNDS: u64 = 200;

/// Returns how many waits of such a conversation began with the limit for a shared processor.
fn waits_with_short_limit() -> u64 {
    let (word, limit) = (AtomicU64::new(0), SpinLimit::new(Some(false)));
    let shared = AtomicU64::new(0);
    let run = |first: u64| {
        let all = sched_getaffinity(None).expect("processors");
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).expect("a processor"));
        sched_setaffinity(None, &one).expect("a processor of this process");
        for round in 0..ROUNDS {
            answer(&word, 2 * round + first, &limit);
            let is_shared = limit.polls.load(Ordering::Relaxed) == OVERSUBSCRIBED_SPINS;
            shared.fetch_add(u64::from(is_shared), Ordering::Relaxed);
        }
    };
    scope(|threads| (0..2).for_each(|first| drop(threads.spawn(move || run(first)))));
    shared.into_inner()
}

/// Two threads on one processor answer each other. A wait that spins delays the answer until it
/// yields. Other load on the processor reduces the number of waits with the short limit, so the
/// test repeats; without the limit that follows the yields, there is none.
#[test]
fn threads_that_share_a_processor_yield_at_once() {
    assert!((0..20).any(|_| waits_with_short_limit() > ROUNDS / 20), "the limit stays long");
}

#[test]
fn the_limit_follows_the_time_of_a_yield() {
    let limit = SpinLimit::new(Some(false));
    let wait = |ns: u64| {
        limit.yield_with(|| std::thread::sleep(Duration::from_nanos(ns)));
        limit.polls.load(Ordering::Relaxed)
    };
    let begin = now_ns();
    let found = wait(50_000);
    if now_ns() - begin < SHARED_NS.end {
        assert_eq!(found, OVERSUBSCRIBED_SPINS, "another thread waits on this processor");
    }
    assert_eq!(wait(2 * SHARED_NS.end), LONG_SPINS, "another thread does not wait");
    limit.yield_with(|| ());
    assert_eq!(limit.polls.load(Ordering::Relaxed), LONG_SPINS, "no other thread");
    for is_oversubscribed in [Some(true), None] {
        let limit = SpinLimit::new(is_oversubscribed);
        let polls = limit.polls.load(Ordering::Relaxed);
        let mut backoff = Backoff::new();
        (0..2 * SPINS).for_each(|_| backoff.pause_on(&limit, |_, _| false));
        assert_eq!(limit.polls.load(Ordering::Relaxed), polls, "not adapted");
    }
}
