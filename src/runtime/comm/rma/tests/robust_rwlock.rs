//! Tests of `robust_rwlock`.

use super::*;

fn fresh(ranks: usize) -> Vec<AtomicU64> {
    (0..words(ranks)).map(|_| AtomicU64::new(0)).collect()
}

#[test]
fn many_share_or_one_writes() {
    let words = fresh(130);
    let lock = SharedLock::new(&words).expect("words");
    assert!(lock.try_shared(0, true) && lock.try_shared(129, true));
    assert!(!lock.try_exclusive(5, false));
    let in_the_way = |exclusive| -> Vec<usize> {
        (0..130).filter(|rank| lock.is_in_the_way(*rank, exclusive)).collect()
    };
    assert_eq!((in_the_way(true), in_the_way(false)), (vec![0, 129], vec![]));
    lock.leave(0);
    assert_eq!(in_the_way(true), [129]);
    lock.leave_shared(129);
    assert!(in_the_way(true).is_empty());
    assert!(
        lock.try_exclusive(5, false) && !lock.try_exclusive(6, false) && !lock.try_shared(7, true)
    );
    assert_eq!((in_the_way(true), in_the_way(false)), (vec![5, 7], vec![5]));
    lock.leave_line(7);
    assert_eq!(in_the_way(true), [5]);
    lock.leave(5);
    assert!(lock.try_shared(7, true));
    assert!(SharedLock::new(&words[..3]).is_none(), "too few words");
}

#[test]
fn wishes_are_minded_for_a_while() {
    let words = fresh(4);
    let lock = SharedLock::new(&words).expect("words");
    assert!(lock.try_shared(0, true));
    assert!(lock.wish(1) && !lock.wish(2));
    assert!(!lock.try_shared(3, true), "1 wishes to write");
    assert!(lock.try_shared(3, false), "who has waited long shares");
    assert!(lock.try_shared(2, true), "and took the wish away");
    [0, 2, 3].into_iter().for_each(|rank| lock.leave_shared(rank));
    assert!(lock.wish(1));
    assert!(lock.try_exclusive(1, false), "its wish has come true");
    lock.leave_exclusive();
    assert!(lock.try_shared(0, true));
}

#[test]
fn who_writes_again_and_again_gives_way() {
    let words = fresh(0);
    let lock = SharedLock::new(&words).expect("words");
    assert!(lock.try_exclusive(0, true));
    assert!(lock.wish(1));
    lock.leave_exclusive();
    assert!(!lock.try_exclusive(0, true) && lock.try_exclusive(1, false), "1 waits");
    lock.leave_exclusive();
    assert!(lock.try_exclusive(0, true), "its wish has come true");
    assert!(lock.wish(2));
    lock.leave_exclusive();
    assert!(lock.try_exclusive(1, false), "who has waited long takes it");
    lock.leave_exclusive();
    assert!(lock.try_exclusive(0, true), "and took the wish away");
}

#[test]
fn locks_of_the_dead_are_taken_over() {
    let words = fresh(100);
    let lock = SharedLock::new(&words).expect("words");
    let dead = |rank: usize| rank >= 90;
    assert!(!lock.take_over(0, true, dead), "nobody has it");
    assert!(lock.try_exclusive(90, false) && !lock.try_shared(1, true));
    assert!(!lock.take_over(1, false, |_| false), "it lives");
    assert!(lock.take_over(1, false, dead) && lock.is_in_the_way(1, true));
    assert!(lock.try_shared(91, true) && !lock.take_over(0, true, dead), "1 lives");
    lock.leave(1);
    assert!(lock.take_over(0, true, dead) && !lock.take_over(2, true, dead));
    lock.leave(0);
    assert!(lock.try_exclusive(2, false), "nothing of the dead is left");
}

#[test]
fn what_is_written_alone_is_seen() {
    const ROUNDS: u64 = if cfg!(miri) { 30 } else { 2000 };
    let words = fresh(6);
    // Relaxed loads and stores: only the lock orders them and keeps increments from being lost.
    let data = &[AtomicU64::new(0), AtomicU64::new(0)];
    let both = || [data[0].load(Relaxed), data[1].load(Relaxed)];
    let take = |mut attempt: Box<dyn FnMut() -> bool + '_>| {
        while !attempt() {
            std::thread::yield_now()
        }
    };
    std::thread::scope(|scope| {
        for rank in 0..6 {
            let words = &words;
            scope.spawn(move || {
                let lock = SharedLock::new(words).expect("words");
                for _ in 0..ROUNDS {
                    if rank < 2 {
                        take(Box::new(|| lock.try_exclusive(rank, false)));
                        data.iter()
                            .zip(both())
                            .for_each(|(word, was)| word.store(was + 1, Relaxed));
                        lock.leave_exclusive();
                    } else {
                        take(Box::new(|| lock.try_shared(rank, false)));
                        let [first, second] = both();
                        assert_eq!(first, second);
                        lock.leave_shared(rank);
                    }
                }
            });
        }
    });
    assert_eq!(both(), [2 * ROUNDS; 2]);
    assert!(words.iter().all(|word| word.load(Relaxed) == 0));
}
