//! Tests of `missing_ranks`.

use super::*;

#[test]
fn absences_are_told_apart_by_their_collective() {
    let absences = Absences::default();
    assert!(absences.of(7).is_empty());
    for (number, outer) in [(7, 2), (8, 1), (7, 0), (7, 2), (HERE, 3), (of_shrink(0), 4)] {
        absences.note(number, outer);
    }
    assert_eq!((absences.of(7), absences.of(8), absences.of(9)), (vec![0, 2], vec![1], vec![]));
    assert_eq!((absences.of(HERE), absences.of(of_shrink(0))), (vec![3], vec![4]));
}
