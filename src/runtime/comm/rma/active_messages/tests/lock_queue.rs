//! Tests of `lock_queue`.

use super::*;

fn asker(origin: i32, exclusive: bool) -> LockRequester {
    LockRequester { origin, tag: origin + 1, exclusive }
}

fn granted(locks: &mut Locks) -> Vec<i32> {
    std::iter::from_fn(|| locks.grant()).map(|asker| asker.origin).collect()
}

#[test]
fn shared_together_exclusive_alone_in_order() {
    let mut locks = Locks::default();
    for (origin, exclusive) in [(0, false), (1, false), (2, true), (3, false)] {
        locks.request(asker(origin, exclusive));
    }
    assert_eq!(granted(&mut locks), [0, 1]);
    locks.release(0);
    assert!(granted(&mut locks).is_empty());
    locks.release(1);
    assert_eq!(granted(&mut locks), [2]);
    locks.release(2);
    assert_eq!(granted(&mut locks), [3]);
    assert!(locks.share_if_free(asker(4, false)), "it is shared");
    assert_eq!(locks.in_the_way().count(), 0, "nobody waits");
    locks.request(asker(5, true));
    assert!(!locks.share_if_free(asker(6, false)), "one waits");
    assert_eq!(locks.in_the_way().collect::<Vec<_>>(), [3, 4]);
    [3, 4].into_iter().for_each(|origin| locks.release(origin));
    assert_eq!(granted(&mut locks), [5]);
    assert!(!locks.share_if_free(asker(6, false)), "one has it alone");
    locks.release(5);
    assert!(locks.are_free());
}

#[test]
fn who_gives_up_or_dies_is_in_nobodys_way() {
    let mut locks = Locks::default();
    (0..5).for_each(|origin| locks.request(asker(origin, true)));
    assert_eq!(granted(&mut locks), [0]);
    assert!(locks.forget(1, 2) && !locks.forget(0, 1));
    assert_eq!(granted(&mut locks), [2]);
    locks.bury(&[2, 3]);
    assert_eq!(granted(&mut locks), [4]);
    locks.release(9);
    assert!(granted(&mut locks).is_empty());
    assert!(!locks.are_free());
}
