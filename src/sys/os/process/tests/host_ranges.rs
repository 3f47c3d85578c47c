//! Tests of `host_ranges`.

use super::*;
use crate::sys::memory::buf::Addr;

static mut GLOBAL: [u8; 64] = [1; 64];

fn region(first: *const u8, len: usize) -> Region {
    Region::allocated(Addr::new(first.cast_mut().cast()), len)
}

#[test]
fn contains_stack_and_image_but_no_mapping() {
    let local = [0u8; 64];
    let mapped = vec![0u8; 64 << 20]; // above malloc's largest mmap threshold
    prepare();
    assert!(contain(region(local.as_ptr(), 64)));
    assert!(contain(region((&raw const GLOBAL).cast(), 64)));
    assert!(!contain(region(mapped.as_ptr(), 8)));
    assert!(!contain(region(std::ptr::without_provenance(4096), 8)));
    let other = std::thread::spawn(move || {
        let local = [0u8; 64];
        (contain(region(local.as_ptr(), 64)), local.as_ptr().addr())
    });
    let (own, of_other) = other.join().expect("joined");
    assert!(
        own && !contain(region(std::ptr::without_provenance(of_other), 8)),
        "another thread's stack may be unmapped"
    );
}

#[test]
fn heap_ends_at_the_current_break() {
    prepare();
    let Some(start) = heap_start() else { return };
    assert!(contain(region(std::ptr::without_provenance(start), 1)) == (heap_end() > start));
    assert!(!contain(region(std::ptr::without_provenance(heap_end()), 1)));
    assert!(!contain(region(std::ptr::without_provenance(heap_end() - 1), 2)));
}
