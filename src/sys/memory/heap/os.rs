//! System calls that map and unmap pages.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Page size of the allocator in bytes, a multiple of the machine's page size. All addresses and
/// lengths in this file are multiples of it.
pub(super) const PAGE: usize = 1 << 16;

/// True if huge pages are requested from the kernel.
static HUGE: AtomicBool = AtomicBool::new(true);

/// Sets whether later calls to `prefer_huge` advise the kernel to use huge pages.
pub fn use_huge_pages(wanted: bool) {
    HUGE.store(wanted, Ordering::Relaxed);
}

fn reserve(len: usize) -> Option<usize> {
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new pages at an address of the kernel's choice; no existing memory is touched.
    let at = unsafe { libc::mmap(ptr::null_mut(), len, prot, flags, -1, 0) };
    (at != libc::MAP_FAILED).then(|| at.expose_provenance())
}

/// Unmaps the pages of the `len` bytes that begin at the address `at`.
pub(super) fn unmap(at: usize, len: usize) {
    if cfg!(miri) {
        // SAFETY: memory that `map` returned and that no code uses any more.
        unsafe { libc::free(ptr::with_exposed_provenance_mut(at)) };
    } else if len > 0 {
        // SAFETY: whole pages that `map` returned and that no code uses any more.
        let _ = unsafe { libc::munmap(ptr::with_exposed_provenance_mut(at), len) };
    }
}

/// Maps `len` zeroed bytes aligned to `align` bytes and returns the address; `None` if out of
/// memory.
pub(super) fn map(len: usize, align: usize) -> Option<usize> {
    if cfg!(miri) {
        return allocate(len, align);
    }
    let at = reserve(len)?;
    if at % align == 0 {
        return Some(at);
    }
    unmap(at, len);
    let room = len.checked_add(align)?;
    let start = reserve(room)?;
    let at = start.next_multiple_of(align);
    unmap(start, at - start);
    unmap(at + len, start + room - (at + len));
    Some(at)
}

/// Allocates zeroed memory from the C library under Miri, which has no `madvise` and no partial
/// `munmap`.
fn allocate(len: usize, align: usize) -> Option<usize> {
    let mut at = ptr::null_mut();
    // SAFETY: allocates new memory and writes the pointer to it.
    if unsafe { libc::posix_memalign(&raw mut at, align, len) } != 0 {
        return None;
    }
    // SAFETY: the allocation above has `len` bytes.
    unsafe { ptr::write_bytes(at.cast::<u8>(), 0, len) };
    Some(at.expose_provenance())
}

/// Advises the kernel to use huge pages for a range, unless [`use_huge_pages`] has turned that off.
/// The advice has no effect on a system where huge pages are disabled.
pub(super) fn prefer_huge(at: usize, len: usize) {
    if HUGE.load(Ordering::Relaxed) && !cfg!(miri) {
        // SAFETY: advice about pages that this allocator owns; their contents stay.
        let _ = unsafe {
            libc::madvise(ptr::with_exposed_provenance_mut(at), len, libc::MADV_HUGEPAGE)
        };
    }
}

/// Returns the memory of a range to the system but keeps the addresses mapped. The range then reads
/// as zero.
pub(super) fn purge(at: usize, len: usize) {
    if cfg!(miri) {
        // SAFETY: memory that this allocator owns, as large as `len`, with contents not needed.
        return unsafe { ptr::write_bytes(ptr::with_exposed_provenance_mut::<u8>(at), 0, len) };
    }
    // SAFETY: whole pages that this allocator owns, whose contents are not needed.
    let _ =
        unsafe { libc::madvise(ptr::with_exposed_provenance_mut(at), len, libc::MADV_DONTNEED) };
}
