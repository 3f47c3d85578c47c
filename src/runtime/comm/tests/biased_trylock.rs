//! Tests of `biased_trylock`.

use super::*;
use std::sync::atomic::AtomicU64;

#[test]
fn is_refused_while_somebody_has_it() {
    let turn = BiasedTryLock::default();
    let (first, other, none) = (0x100, 0x200, 0);
    for _ in 0..2 {
        let taken = turn.try_take(first).unwrap();
        assert_eq!(
            (taken, turn.try_take(first)),
            (LockWord::First, None),
            "a call within the call"
        );
        turn.give_back(taken);
    }
    let taken = turn.try_take(first).unwrap();
    assert_eq!((turn.try_take(other), turn.try_take(none)), (None, None));
    turn.give_back(taken);
    for mark in [other, none, first, other] {
        let taken = turn.try_take(mark).unwrap();
        assert!([first, other, none].iter().all(|mark| turn.try_take(*mark).is_none()));
        assert_eq!([first, other].map(|asks| turn.is_of(asks)), [mark == first, mark == other]);
        turn.give_back(taken);
    }
}

#[test]
fn who_has_no_mark_is_never_the_first() {
    let turn = BiasedTryLock::default();
    let taken = turn.try_take(0).unwrap();
    assert_eq!((taken, turn.try_take(0)), (LockWord::Shared, None));
    turn.give_back(taken);
    assert_eq!(turn.try_take(0x100), Some(LockWord::Shared));
}

#[test]
fn two_threads_never_have_it_at_the_same_time() {
    epoch::prepare();
    let rounds = if cfg!(miri) { 20 } else { 200 };
    for _ in 0..rounds {
        let (turn, within, had) = (BiasedTryLock::default(), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let _record = epoch::enter();
                    let mark = epoch::thread_mark();
                    for _ in 0..rounds {
                        if let Some(taken) = turn.try_take(mark) {
                            assert_eq!(within.fetch_add(1, Ordering::Relaxed), 0);
                            within.fetch_sub(1, Ordering::Relaxed);
                            had.fetch_add(1, Ordering::Relaxed);
                            turn.give_back(taken);
                        }
                    }
                });
            }
        });
        assert!(had.load(Ordering::Relaxed) > 0);
    }
}
