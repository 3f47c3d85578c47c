//! Tests of `nvrtc`.

use super::*;

#[test]
fn the_newest_that_the_driver_takes_comes_first() {
    assert_eq!(
        candidates(12_040),
        ["libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so", "libnvrtc.so.13"]
    );
    assert_eq!(candidates(13_000).first(), Some(&"libnvrtc.so.13"));
    assert_eq!(
        candidates(11_080),
        ["libnvrtc.so.11.2", "libnvrtc.so", "libnvrtc.so.12", "libnvrtc.so.13"]
    );
}
