//! Tests of `levels`.

use super::*;

#[test]
fn ranks_are_sorted_by_node() {
    let levels = Levels::new(3, [5, 7, 5, 7, 2].into_iter()).unwrap();
    assert_eq!(levels.by_node().collect::<Vec<_>>(), [0, 2, 1, 3, 4]);
    assert_eq!((levels.count(), levels.own(), levels.before(2)), (3, 1, 4));
    assert_eq!(
        (levels.leader(3), levels.leader(0), levels.is_leader(3), levels.is_leader(2)),
        (1, 0, true, false)
    );
    assert!(!levels.is_ordered && !levels.is_even());
    let levels = Levels::new(0, [1, 1, 0, 0].into_iter()).unwrap();
    assert!(levels.is_ordered && levels.is_even());
    assert!(Levels::new(0, [1, 1, 1].into_iter()).is_none(), "one node");
    assert!(Levels::new(0, [1, 0, 2].into_iter()).is_none(), "a node for each");
    assert!(!Levels::new(0, [1, 0, 1].into_iter()).unwrap().is_ordered);
}
