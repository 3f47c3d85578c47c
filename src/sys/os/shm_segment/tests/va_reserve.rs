//! Tests of `va_reserve`.

use super::super::SharedMapping;
use crate::sys::memory::host_pages::page_size;
use std::sync::atomic::Ordering;

#[test]
fn blocks_begin_where_they_are_asked_to_and_cannot_change_their_size() {
    let (page, large) = (page_size(), 4 << 20);
    for align in [1, page, 2 * page, large] {
        let block = SharedMapping::block(c"dtl-test", 3 * page, align).expect("memfd");
        assert_eq!(block.base().get() % align, 0);
        let again = || block.descriptor().expect("file").try_clone_to_owned().expect("dup");
        let file = std::fs::File::from(again());
        assert!(file.set_len(0).is_err() && file.set_len(4 << 20).is_err(), "the size is sealed");
        let other = SharedMapping::block_of(again(), 3 * page, large).expect("the same block");
        assert!(other.base().get() % large == 0 && other.descriptor().is_none());
        assert!(SharedMapping::block_of(again(), 2 * page, 1).is_err(), "another size");
        block.word(8).expect("inside").store(7, Ordering::Release);
        drop(block);
        assert_eq!(other.word(8).expect("inside").load(Ordering::Acquire), 7);
    }
    let growing = SharedMapping::create(page).expect("memfd");
    let fd = growing.descriptor().expect("file").try_clone_to_owned().expect("dup");
    assert!(SharedMapping::block_of(fd, page, 1).is_err(), "it may grow: no block");
}
