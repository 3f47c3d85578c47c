//! The door of the library: one word that every call reads, in a page that a fork wipes.
//!
//! `fork` copies the calling thread alone: worker threads, sockets and shared memory of the parent
//! are no longer what the child's copy believes. The kernel zeroes this page in the child
//! (MADV_WIPEONFORK, Linux 4.14), so the child notices at its first call, without a handler.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Nothing initialised yet (or a forked child, see [`Gate::state`]).
pub const UNOPENED: u32 = 0;
/// Calls may pass.
pub const OPEN: u32 = 1;
/// The last finalize has run.
pub const CLOSED: u32 = 2;
/// This process is a fork of one that had opened the gate.
pub const FORKED: u32 = 3;

/// See the module's text.
pub struct Gate {
    word: AtomicPtr<AtomicU32>,
}

impl Gate {
    /// A gate that was never opened.
    #[must_use]
    pub const fn new() -> Self {
        Gate { word: AtomicPtr::new(ptr::null_mut()) }
    }

    /// One of the four states.
    #[inline]
    #[must_use]
    pub fn state(&self) -> u32 {
        let word = self.word.load(Ordering::Acquire);
        if word.is_null() {
            return UNOPENED;
        }
        // SAFETY: once set, the pointer is a live page (or leaked box) that is never unmapped.
        let state = unsafe { &*word }.load(Ordering::Acquire);
        if state == UNOPENED { FORKED } else { state }
    }

    /// Sets the state. Returns false if the page could not be had (out of memory).
    #[must_use]
    pub fn set(&self, state: u32) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        if word.is_null() {
            word = new_word();
            if word.is_null() {
                return false;
            }
            // The caller serialises `set`, so a plain store publishes the page.
            self.word.store(word, Ordering::Release);
        }
        // SAFETY: as in `state`.
        unsafe { &*word }.store(state, Ordering::Release);
        true
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

fn new_word() -> *mut AtomicU32 {
    const PAGE: usize = 4096;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nobody's memory.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    // SAFETY: `page` is the mapping just made. On a kernel that does not know the advice the call
    // fails, and a forked child is not recognised; nothing else changes.
    let _ = unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) };
    page.cast()
}
