//! Tests of `large_count`.

use super::*;

#[test]
fn only_what_was_tried_is_used() {
    assert!(is_known_to_work("MPICH Version: 5.0.2") && is_known_to_work("MPICH Version: 12.1"));
    for version in [
        "MPICH Version: 4.3.1",
        "Intel(R) MPI Library 2021.19",
        "CRAY MPICH version 9",
        "MPICH Version: x",
        "",
    ] {
        assert!(!is_known_to_work(version), "{version}");
    }
}
