//! Host memory: aligned allocation and page locking.

use super::buf::Addr;
use std::alloc::Layout;

fn layout(size: u64, align: u64) -> Option<Layout> {
    Layout::from_size_align(usize::try_from(size).ok()?, usize::try_from(align).ok()?).ok()
}

/// `size` (> 0) bytes aligned to `align` (a power of two); `None` without memory.
#[must_use]
pub fn alloc(size: u64, align: u64) -> Option<Addr> {
    let layout = layout(size, align).filter(|layout| layout.size() > 0)?;
    // SAFETY: the layout's size is not 0.
    let pointer = unsafe { std::alloc::alloc(layout) };
    (!pointer.is_null()).then(|| Addr::new(pointer.cast()))
}

/// Frees what [`alloc`] gave for the same size and alignment.
pub fn free(addr: Addr, size: u64, align: u64) {
    if let Some(layout) = layout(size, align) {
        // SAFETY: the caller's ledger pairs each address with the layout it was allocated with.
        unsafe { std::alloc::dealloc(addr.ptr().cast(), layout) }
    }
}

/// Bytes of a page: the unit of mappings.
#[must_use]
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// Locks pages in memory. `Err`: the system's reason.
pub fn lock(addr: Addr, size: u64) -> Result<(), String> {
    // SAFETY: mlock changes no bytes; a range that is not all there is refused.
    if unsafe { libc::mlock(addr.ptr(), size as usize) } == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error().to_string())
}

/// Unlocks pages that [`lock`] has locked.
pub fn unlock(addr: Addr, size: u64) {
    // SAFETY: munlock changes no bytes; a range that is not all there is refused.
    let _ = unsafe { libc::munlock(addr.ptr(), size as usize) };
}

/// The first address of a range where nothing is mapped, if there is one.
#[must_use]
pub fn first_hole(addr: Addr, size: u64) -> Option<usize> {
    const PAGES: usize = 1024;
    let page = page_size();
    let first = addr.get() / page * page;
    let end = addr.get().checked_add(usize::try_from(size).ok()?)?;
    let mut seen = [0_u8; PAGES];
    for begin in (first..end).step_by(PAGES * page) {
        let len = (end - begin).min(PAGES * page);
        let at: *mut libc::c_void = std::ptr::without_provenance_mut(begin);
        // SAFETY: mincore accepts any range of whole pages; `seen` has a byte for each of them.
        if unsafe { libc::mincore(at, len, seen.as_mut_ptr()) } != 0 {
            // In this part: page by page.
            let is_hole = |at: &usize| {
                let at: *mut libc::c_void = std::ptr::without_provenance_mut(*at);
                // SAFETY: mincore accepts any whole page; `seen` has a byte for it.
                unsafe { libc::mincore(at, page, seen.as_mut_ptr()) != 0 }
            };
            return (begin..begin + len).step_by(page).find(is_hole).or(Some(begin));
        }
    }
    None
}
