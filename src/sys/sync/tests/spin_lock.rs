//! Tests of `spin_lock`.

use super::*;

#[test]
fn one_thread_at_a_time_has_a_spin_lock() {
    const ROUNDS: u64 = if cfg!(miri) { 50 } else { 10_000 };
    let lock = SpinLock::new(0_u64);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..ROUNDS).for_each(|_| *lock.lock() += 1));
        }
    });
    let held = lock.lock();
    assert_eq!(*held, 4 * ROUNDS);
    assert!((0..2).all(|_| lock.try_lock().is_none()), "an attempt leaves it taken");
    drop(held);
    assert!(lock.try_lock().is_some());
}
