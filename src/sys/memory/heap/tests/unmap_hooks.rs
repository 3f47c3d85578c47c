//! Tests of `unmap_hooks`.

use super::*;

#[test]
fn each_range_is_told_once_and_too_many_are_everything() {
    let watched = watch();
    let mine = 0x7000_0000_0000;
    let is_mine = |range: &Region| {
        range.overlaps(Region::allocated(Addr::new(std::ptr::without_provenance_mut(mine)), 10))
    };
    tell(mine, 4096);
    assert!(watched.is_any());
    assert!(watched.take().iter().any(is_mine));
    assert!(!watched.take().iter().any(is_mine));
    for _ in 0..RANGES + 2 {
        tell(1 << 20, 4096);
    }
    assert!(watched.take().iter().any(is_mine), "everything");
    drop(watched);
    tell(mine, 4096);
}
