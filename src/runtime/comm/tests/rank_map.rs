//! Tests of `rank_map`.

use super::*;

#[test]
fn translates_both_ways() {
    assert!(Members::new(vec![0, 1, 2], 3).is_none());
    let members = Members::new(vec![3, 1], 4).unwrap();
    assert_eq!((members.to_world(0), members.to_world(1), members.to_world(-2)), (3, 1, -2));
    assert_eq!(
        (members.to_local(3), members.to_local(1), members.to_local(0)),
        (Some(0), Some(1), None)
    );
    assert!(Members::new(vec![1, 0], 2).is_some());
}
