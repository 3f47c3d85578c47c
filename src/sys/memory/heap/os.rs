//! Pages from the operating system and back.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// The page size that addresses and lengths are multiples of here (a multiple of the machine's).
pub(super) const PAGE: usize = 1 << 16;

/// Whether huge pages are requested from the kernel.
static HUGE: AtomicBool = AtomicBool::new(true);

/// Sets whether huge pages are requested from now on.
pub fn use_huge_pages(wanted: bool) {
    HUGE.store(wanted, Ordering::Relaxed);
}

fn reserve(len: usize) -> Option<usize> {
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new pages at an address of the kernel's choice; nothing that exists is touched.
    let at = unsafe { libc::mmap(ptr::null_mut(), len, prot, flags, -1, 0) };
    (at != libc::MAP_FAILED).then(|| at.expose_provenance())
}

/// Gives pages back.
pub(super) fn unmap(at: usize, len: usize) {
    if cfg!(miri) {
        // SAFETY: what `map` gave and that nobody uses any more.
        unsafe { libc::free(ptr::with_exposed_provenance_mut(at)) };
    } else if len > 0 {
        // SAFETY: whole pages that `map` gave and that nobody uses any more.
        let _ = unsafe { libc::munmap(ptr::with_exposed_provenance_mut(at), len) };
    }
}

/// Zeroed pages, `len` a multiple of the page size, aligned to `align`; `None` without memory.
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

/// Allocates zeroed memory from the C library: Miri has no `madvise` and no partial `munmap`.
fn allocate(len: usize, align: usize) -> Option<usize> {
    let mut at = ptr::null_mut();
    // SAFETY: new memory; writes the pointer to it.
    if unsafe { libc::posix_memalign(&raw mut at, align, len) } != 0 {
        return None;
    }
    // SAFETY: so many bytes were given just now.
    unsafe { ptr::write_bytes(at.cast::<u8>(), 0, len) };
    Some(at.expose_provenance())
}

/// Requests huge pages where they fit. This is advice: it has no effect where they are disabled.
pub(super) fn prefer_huge(at: usize, len: usize) {
    if HUGE.load(Ordering::Relaxed) && !cfg!(miri) {
        // SAFETY: advice about pages of ours; their contents stay.
        let _ = unsafe {
            libc::madvise(ptr::with_exposed_provenance_mut(at), len, libc::MADV_HUGEPAGE)
        };
    }
}

/// Keeps the addresses and gives the memory behind them back; it is zero when used again.
pub(super) fn purge(at: usize, len: usize) {
    if cfg!(miri) {
        // SAFETY: memory of ours, as large as `len`, whose contents nobody needs.
        return unsafe { ptr::write_bytes(ptr::with_exposed_provenance_mut::<u8>(at), 0, len) };
    }
    // SAFETY: whole pages of ours whose contents nobody needs.
    let _ =
        unsafe { libc::madvise(ptr::with_exposed_provenance_mut(at), len, libc::MADV_DONTNEED) };
}
