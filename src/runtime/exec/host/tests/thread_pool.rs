//! Tests of `thread_pool`.

use super::*;
use std::time::Duration;

fn loop_of(pieces: u64) -> Loop {
    let body = LoopBody::Shared(Arc::new(|_, _| Ok(())));
    let has_failed = AtomicBool::new(false);
    Loop { begin: 5, end: 5 + 3 * pieces, grain: 3, body, has_failed, failure: Mutex::new(None) }
}

#[test]
fn a_worker_that_helps_little_looks_less_often() {
    let mut zeal = Zeal::default();
    let pauses: Vec<_> = (0..8).map(|_| zeal.pauses(false)).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 32, 32], "it found no pieces");
    zeal.measure(&loop_of(8), 2, || std::thread::sleep(Duration::from_micros(1)));
    assert_eq!(zeal.pauses(true), 1, "it helped");
    for _ in 0..SAMPLE {
        zeal.measure(&loop_of(1 << 20), 2, || std::thread::sleep(Duration::from_micros(1)));
    }
    assert_eq!(zeal.pauses(true), 1, "a long loop of short pieces");
    assert_eq!(zeal.pauses(false), 2, "and then nothing");
}

#[test]
fn more_callers_than_places_all_get_their_loops_done() {
    let pool = ThreadPool::new(3);
    let claims: Vec<_> = std::iter::from_fn(|| pool.shared.team.claim()).collect();
    assert_eq!(claims.len(), PLACES);
    let total = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&total);
    let body = LoopBody::Shared(Arc::new(move |from, to| {
        seen.fetch_add((to - from) as usize, Ordering::Relaxed);
        Ok(())
    }));
    pool.run(0, 100, 3, body).unwrap();
    assert_eq!(total.load(Ordering::Relaxed), 100);
    drop(claims);
}

#[test]
fn a_failure_is_kept_over_the_rounds_of_a_very_long_loop() {
    let pool = ThreadPool::new(2);
    let body = LoopBody::Shared(Arc::new(|from, _| {
        if from == 7 { fail!(DTL_ERROR_BUSY, "at seven") } else { Ok(()) }
    }));
    let error = pool.run(0, u64::MAX, 1, body).unwrap_err();
    assert_eq!(error.status(), DTL_ERROR_BUSY);
}
