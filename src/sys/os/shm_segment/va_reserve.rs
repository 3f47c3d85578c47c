//! Reserved address space, aligned to more than a page, for a mapping with that alignment.

use crate::sys::memory::buf::Addr;
use std::io;

/// Reserved addresses that the kernel assigns to no mapping, until one is placed there.
pub(super) struct VaReservation {
    /// First address of the reservation.
    pub(super) base: Addr,
    len: usize,
}

impl VaReservation {
    /// Reserves `len` bytes from a multiple of `align` on; both are multiples of a page.
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
mod tests {
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
            assert!(
                file.set_len(0).is_err() && file.set_len(4 << 20).is_err(),
                "the size is sealed"
            );
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
}
