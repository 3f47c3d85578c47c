//! Tests of `ranks`.

use super::*;

#[test]
fn lists_of_processors() {
    assert_eq!(siblings("0-2,8").collect::<Vec<_>>(), [0, 1, 2, 8]);
    assert_eq!(siblings("").count(), 0);
}
