//! Reservation of address space that is aligned to more than a page, for a mapping with this
//! alignment.

use crate::sys::memory::buf::Addr;
use std::io;

/// Reserved range of addresses. The kernel places no mapping there, unless a call to mmap requests
/// these addresses with MAP_FIXED.
pub(super) struct VaReservation {
    /// First address of the reservation.
    pub(super) base: Addr,
    len: usize,
}

impl VaReservation {
    /// Reserves `len` bytes of address space that begin at a multiple of `align` bytes. `len` and
    /// `align` are multiples of the page size.
    pub(super) fn new(len: usize, align: usize) -> io::Result<Self> {
        let all =
            len.checked_add(align).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), all, libc::PROT_NONE, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = Addr::new(at);
        let before = at.get().next_multiple_of(align) - at.get();
        let base = at.offset(before);
        // The rest around the reservation is unmapped at once.
        drop(VaReservation { base: at, len: before });
        drop(VaReservation { base: base.offset(len), len: all - before - len });
        Ok(VaReservation { base, len })
    }
}

impl Drop for VaReservation {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: this value's own part of a mapping, which contains no data.
            let _ = unsafe { libc::munmap(self.base.ptr(), self.len) };
        }
    }
}

#[cfg(test)]
#[path = "tests/va_reserve.rs"]
mod tests;
