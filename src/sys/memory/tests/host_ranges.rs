//! Tests of `is_in_host_ranges`, which returns true if a region is in an address range that
//! contains only host memory.

use super::*;

static mut GLOBAL: [u8; 64] = [1; 64];

fn region(first: *const u8, len: usize) -> Region {
    Region::allocated(Addr::new(first.cast_mut().cast()), len)
}

#[test]
fn contains_stack_and_image_but_no_mapping() {
    let local = [0u8; 64];
    let mapped = vec![0u8; 64 << 20]; // above malloc's largest mmap threshold
    find_host_ranges();
    assert!(is_in_host_ranges(region(local.as_ptr(), 64)));
    assert!(is_in_host_ranges(region((&raw const GLOBAL).cast(), 64)));
    assert!(!is_in_host_ranges(region(mapped.as_ptr(), 8)));
    assert!(!is_in_host_ranges(region(std::ptr::without_provenance(4096), 8)));
    let other = std::thread::spawn(move || {
        let local = [0u8; 64];
        (is_in_host_ranges(region(local.as_ptr(), 64)), local.as_ptr().addr())
    });
    let (own, of_other) = other.join().expect("joined");
    assert!(
        own && !is_in_host_ranges(region(std::ptr::without_provenance(of_other), 8)),
        "another thread's stack may be unmapped"
    );
}

#[test]
fn heap_ends_at_the_current_break() {
    find_host_ranges();
    let Some(start) = heap_start() else { return };
    assert!(
        is_in_host_ranges(region(std::ptr::without_provenance(start), 1)) == (heap_end() > start)
    );
    assert!(!is_in_host_ranges(region(std::ptr::without_provenance(heap_end()), 1)));
    assert!(!is_in_host_ranges(region(std::ptr::without_provenance(heap_end() - 1), 2)));
}
