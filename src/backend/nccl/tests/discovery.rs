//! Tests of `discovery`.

#[test]
fn versions_are_told_as_they_are_written() {
    assert_eq!(super::number(22_602), "2.26.2");
    assert_eq!(super::number(2_708), "2.7.8");
    assert_eq!(super::number(30_000), "3.0.0");
}
