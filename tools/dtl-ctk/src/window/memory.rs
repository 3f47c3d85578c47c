//! Window memory of one rank. Other ranks change it concurrently, so it is accessed only through
//! raw pointers, never as a slice.

use crate::data::FILLER;
use std::ffi::c_void;
use std::ptr;

/// Number of guard bytes before and after the window memory.
const APRON: usize = 64;

/// Window memory of one rank, allocated by the test program or by the library.
pub(super) struct Memory {
    start: *mut u8,
    size: usize,
    /// Allocation made by the test program, including the guard bytes; `None` if the library has
    /// allocated the window memory.
    own: Option<Vec<u8>>,
}

impl Memory {
    /// Allocates `size` bytes of window memory in the test program, between guard bytes.
    pub(super) fn of_program(size: u64) -> Memory {
        let mut own = vec![FILLER; size as usize + 2 * APRON + 16];
        // Where elements are to be aligned, that is counted from the part's beginning.
        let to_16 = own.as_ptr().align_offset(16).min(15);
        let start = own.as_mut_ptr().wrapping_add(APRON + to_16);
        Memory { start, size: size as usize, own: Some(own) }
    }

    /// Describes memory that the library has allocated. It is valid until the window is destroyed.
    pub(super) fn of_library(start: *mut c_void, size: u64) -> Memory {
        Memory { start: start.cast(), size: size as usize, own: None }
    }

    /// Returns the address to pass to dtl_win_create.
    pub(super) fn base(&self) -> *mut c_void {
        if self.size == 0 { ptr::null_mut() } else { self.start.cast() }
    }

    pub(super) fn store(&self, bytes: &[u8]) {
        if self.size > 0 {
            // SAFETY: so many bytes are this rank's part, and no other rank touches them now: an
            // epoch has ended.
            unsafe {
                ptr::copy_nonoverlapping(bytes.as_ptr(), self.start, self.size.min(bytes.len()))
            }
        }
    }

    pub(super) fn load(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size];
        if self.size > 0 {
            // SAFETY: as in `store`.
            unsafe { ptr::copy_nonoverlapping(self.start, bytes.as_mut_ptr(), self.size) }
        }
        bytes
    }

    /// Returns true if the guard bytes are unchanged. Called after the window is destroyed.
    pub(super) fn is_whole(&self) -> bool {
        let Some(own) = &self.own else { return true };
        let first = self.start.addr() - own.as_ptr().addr();
        let (before, rest) = own.split_at(first);
        before.iter().chain(&rest[self.size..]).all(|byte| *byte == FILLER)
    }
}
