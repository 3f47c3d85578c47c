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

/// Locks pages in memory, or says why not.
pub fn lock(addr: Addr, size: u64) -> Result<(), String> {
    // SAFETY: mlock changes no bytes; a range that is not all there is refused.
    if unsafe { libc::mlock(addr.ptr(), size as usize) } == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error().to_string())
}

/// Undoes [`lock`].
pub fn unlock(addr: Addr, size: u64) {
    // SAFETY: as in `lock`.
    let _ = unsafe { libc::munlock(addr.ptr(), size as usize) };
}
