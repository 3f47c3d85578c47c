//! Tests of `peer_map`.

use super::*;

#[test]
fn values_are_made_on_demand_and_stay() {
    let mut sparse = PeerMap::<u8>::new(3);
    assert_eq!((sparse.get(2), sparse.get(3), sparse.ranks()), (None, None, 3));
    *sparse.make(2).expect("rank") = 7;
    *sparse.make(0).expect("rank") += 1;
    assert_eq!((sparse.make(2).copied(), sparse.get(0), sparse.get(1)), (Some(7), Some(&1), None));
    assert!(sparse.make(3).is_none() && sparse.get_mut(1).is_none());
    assert_eq!(sparse.values().copied().collect::<Vec<_>>(), [7, 1]);
    assert_eq!(size_of_val(&sparse.places[..]), 3 * BYTES_PER_RANK);
}
