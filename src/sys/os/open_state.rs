//! Open state of the library. Every call reads it first, in a page that a fork wipes.
//!
//! `fork` copies the calling thread alone, so the child's copy of the state of worker threads,
//! sockets and shared memory does not describe the child. The kernel zeroes this page in the child
//! (MADV_WIPEONFORK, Linux 4.14), so the child detects the fork at its first call, with no handler.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// State: nothing is initialised yet (or this is a forked child, see [`OpenState::state`]).
pub const UNOPENED: u32 = 0;
/// State: calls may pass.
pub const OPEN: u32 = 1;
/// State: the last finalize has run.
pub const CLOSED: u32 = 2;
/// State: this process is a fork of a process that had opened the library.
pub const FORKED: u32 = 3;
/// State: calls may pass, and each is recorded in a trace. A state of its own, so that calls
/// without a trace check nothing more.
pub const TRACED: u32 = 4;

/// Content of the page.
struct Page {
    state: AtomicU32,
    /// Pass of the open state; see [`OpenState::pass`].
    pass: AtomicU64,
}

/// State of the library that every call checks first, in a page that the kernel zeroes on fork.
pub struct OpenState {
    page: AtomicPtr<Page>,
}

/// Content of an open state that has no page.
static NEVER: Page = Page { state: AtomicU32::new(UNOPENED), pass: AtomicU64::new(0) };

impl OpenState {
    /// Creates the state of a library that was never opened.
    pub const fn new() -> Self {
        OpenState { page: AtomicPtr::new((&raw const NEVER).cast_mut()) }
    }

    /// Returns the state: one of the constants of this module.
    pub fn state(&self) -> u32 {
        match self.page().state.load(Ordering::Acquire) {
            UNOPENED if self.has_page() => FORKED,
            state => state,
        }
    }

    fn page(&self) -> &Page {
        let page = self.page.load(Ordering::Acquire);
        // SAFETY: a static, or a page that is never unmapped.
        unsafe { &*page }
    }

    fn has_page(&self) -> bool {
        !ptr::eq(self.page.load(Ordering::Acquire), &raw const NEVER)
    }

    /// Returns the pass: a number that the shortest calls compare with a number of their own. Equal
    /// numbers mean that the library is open. 0 means that the library is not open, or that such
    /// calls are not allowed.
    pub fn pass(&self) -> u64 {
        self.page().pass.load(Ordering::Acquire)
    }

    /// Sets the state, without a pass. Returns false if there is no memory for the page.
    pub fn set(&self, state: u32) -> bool {
        self.set_with_pass(state, 0)
    }

    /// Sets the state and the pass. Returns false if there is no memory for the page.
    pub fn set_with_pass(&self, state: u32, pass: u64) -> bool {
        if !self.has_page() {
            let page = new_page();
            if page.is_null() {
                return false;
            }
            // The caller serialises `set`, so a plain store publishes the page.
            self.page.store(page, Ordering::Release);
        }
        let page = self.page();
        // A thread that reads the pass must find the state that the pass stands for: the pass is
        // cleared before the state changes, and set after the change.
        if pass == 0 {
            page.pass.store(0, Ordering::Release);
        }
        page.state.store(state, Ordering::Release);
        page.pass.store(pass, Ordering::Release);
        true
    }
}

impl Default for OpenState {
    fn default() -> Self {
        Self::new()
    }
}

fn new_page() -> *mut Page {
    const PAGE: usize = 4096;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
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
    // SAFETY: `page` is the mapping just made. On a kernel without this advice the call fails, and
    // a forked child is not recognised; nothing else changes.
    let _ = unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) };
    page.cast()
}
