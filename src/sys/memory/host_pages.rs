//! Pages of host memory: page size, page locking (mlock), and a search for unmapped pages.

use super::buf::Addr;

/// Returns the size of a page in bytes.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// Locks the pages of a range in memory (mlock). On failure, returns the error message of the
/// system.
pub fn lock(addr: Addr, size: u64) -> Result<(), String> {
    // SAFETY: mlock changes no bytes; for a range that is not fully mapped it returns an error.
    if unsafe { libc::mlock(addr.ptr(), size as usize) } == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error().to_string())
}

/// Unlocks pages that [`lock`] has locked.
pub fn unlock(addr: Addr, size: u64) {
    // SAFETY: munlock changes no bytes; for a range that is not fully mapped it returns an error.
    let _ = unsafe { libc::munlock(addr.ptr(), size as usize) };
}

/// Returns the first unmapped address of a range, or `None` if the whole range is mapped.
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
            // The unmapped page is in this part: check page by page.
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
