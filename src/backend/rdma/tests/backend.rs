//! Tests of `backend`.

use super::is_oversubscribed;

#[test]
fn ranks_with_a_processor_each_are_not_oversubscribed() {
    let rank = |node, bits| [node, bits, 0, 0, 0];
    let of = |ranks: &[[u64; 5]]| is_oversubscribed(&rank(7, 0), ranks.iter());
    assert!(!of(&[rank(7, 0b01), rank(7, 0b10), rank(8, 0b01)]), "bound to one each");
    assert!(of(&[rank(7, 0b11), rank(7, 0b11), rank(7, 0b11)]));
    assert!(!of(&[rank(7, 0b11), rank(7, 0b11), rank(9, 0b11)]), "the third is elsewhere");
}
