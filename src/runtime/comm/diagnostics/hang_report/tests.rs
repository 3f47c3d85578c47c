//! Tests of `hang_report`.

use super::*;

#[test]
fn ranges_are_short() {
    assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
    assert_eq!(ranges(&[3]), "3");
}
