//! Tests of `version`.

use super::*;

#[test]
fn versions_are_compared_as_versions() {
    for (less, more) in [
        ("3.18.1", "3.20"),
        ("3.9", "3.10"),
        ("1", "1.0.1"),
        ("2.99", "10"),
        ("1.2rc1", "1.3"),
        ("007", "8"),
    ] {
        assert_eq!(
            (compare(less, more), compare(more, less)),
            (Ordering::Less, Ordering::Greater),
            "{less} {more}"
        );
    }
    for (one, other) in
        [("3.20", "3.20.0"), ("1.2.3-rc1", "1.2.3"), ("1.02", "1.2"), ("4.1.5rc2", "4.1.5rc1")]
    {
        assert_eq!(compare(one, other), Ordering::Equal, "{one} {other}");
    }
    let (large, larger) = ("1.99999999999999999999999", "1.100000000000000000000000");
    assert_eq!(compare(large, larger), Ordering::Less);
}

#[test]
fn needs_are_read() {
    let need = Requirement::parse("blas >= 3.20").unwrap();
    assert_eq!(need.to_string(), "blas>=3.20");
    assert!(need.is_met_by("3.20.1") && !need.is_met_by("3.18.1") && !need.is_met_by(""));
    assert!(Requirement::parse("blas").unwrap().is_met_by(""));
    for bad in ["", ">=1", "a>=", "a>=x", "a b", "a>1", "a>=1 2", "auto"] {
        assert!(Requirement::parse(bad).is_err(), "{bad}");
    }
}
