//! Tests of `window`.

use super::*;

#[test]
fn the_version_is_read() {
    for (text, major) in
        [("Open MPI v4.1.4, package: Debian", 4), ("Open MPI v5.0.11", 5), ("Open MPI", 0)]
    {
        assert_eq!(major_of(text), major, "{text}");
    }
}
