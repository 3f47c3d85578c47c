//! Tests of `fnv1a`.

#[test]
fn known_values() {
    assert_eq!(super::fnv1a(b""), 0xCBF2_9CE4_8422_2325);
    assert_eq!(super::fnv1a(b"a"), 0xAF63_DC4C_8601_EC8C);
}
