//! Host memory: aligned allocation, page locking, and a search for unmapped pages.
//!
//! Open state of the library. Every call reads it first, in a page that a fork wipes.
//!
//! `fork` copies the calling thread alone, so the child's copy of the state of worker threads,
//! sockets and shared memory does not describe the child. The kernel zeroes this page in the child
//! (MADV_WIPEONFORK, Linux 4.14), so the child detects the fork at its first call, with no handler.
//!
//! Address ranges that only ever contain ordinary host memory: the program image (text, data, bss),
//! the brk heap, and the calling thread's stack. No driver maps device memory there while the
//! program uses the range.
//!
//! A caller that would query a driver about each pointer checks these ranges first. A negative
//! answer means "unknown": mmapped malloc blocks, the other malloc arenas and mapped files come and
//! go, and a driver may map device memory at their former addresses. So such ranges are not cached.

use crate::sys::memory::buf::{Addr, Region};
use std::alloc::Layout;
use std::cell::Cell;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::{
    OnceLock,
    atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering},
};

fn layout(size: u64, align: u64) -> Option<Layout> {
    Layout::from_size_align(usize::try_from(size).ok()?, usize::try_from(align).ok()?).ok()
}

/// Allocates `size` (> 0) bytes aligned to `align` (a power of two); `None` if out of memory.
pub fn alloc(size: u64, align: u64) -> Option<Addr> {
    let layout = layout(size, align).filter(|layout| layout.size() > 0)?;
    // SAFETY: the layout's size is not 0.
    let pointer = unsafe { std::alloc::alloc(layout) };
    (!pointer.is_null()).then(|| Addr::new(pointer.cast()))
}

/// Frees a block that [`alloc`] returned for an equal size and alignment.
pub fn free(addr: Addr, size: u64, align: u64) {
    if let Some(layout) = layout(size, align) {
        // SAFETY: the caller's records pair each address with the layout it was allocated with.
        unsafe { std::alloc::dealloc(addr.ptr().cast(), layout) }
    }
}

/// Returns the number of bytes of a page, the unit of mappings.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// Locks pages in memory. Returns the system's error text as `Err`.
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

/// Returns the first address of a range at which nothing is mapped, or `None` if all is mapped.
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

/// Number of bytes below the top of the main thread's stack that count as stack. That stack grows;
/// Linux leaves at least 128 MiB below its top free of other mappings.
const MAIN_STACK: usize = 8 << 20;

/// Ranges that are fixed for the life of the process.
struct Process {
    image: Range<usize>,
    /// First byte of the brk heap; `usize::MAX` = unknown.
    heap: usize,
}

static PROCESS: OnceLock<Process> = OnceLock::new();

thread_local! {
    /// First byte and end of the calling thread's stack; (0, 0) = not determined yet.
    static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Determines the ranges of the process. Reads /proc/self/stat, so call it outside the data path.
pub fn find_host_ranges() {
    PROCESS.get_or_init(|| Process { image: image(), heap: heap_start().unwrap_or(usize::MAX) });
}

/// Returns true if the whole range, which is in use now, is certain to be host memory.
pub fn is_in_host_ranges(region: Region) -> bool {
    let Some(process) = PROCESS.get() else { return false };
    let (first, end) = (region.addr().get(), region.addr().get().saturating_add(region.len()));
    let is_in = |low: usize, high: usize| first >= low && end <= high;
    let (low, high) = stack();
    is_in(low, high)
        || is_in(process.image.start, process.image.end)
        || (first >= process.heap && end <= heap_end())
}

/// Returns the current end of the brk heap. The C library cannot lower it below a block that is in
/// use, so the result stays valid for the buffer that is checked.
fn heap_end() -> usize {
    // SAFETY: an increment of 0 changes nothing; the C library returns a word that it caches.
    unsafe { libc::sbrk(0) }.addr()
}

/// Returns field 47 of /proc/self/stat, counted from 1: the start of the brk heap. Field 2 is the
/// program's name in parentheses, which may contain spaces and parentheses itself.
fn heap_start() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, after_name) = text.rsplit_once(')')?;
    let start = after_name.split_whitespace().nth(47 - 3)?.parse().ok()?;
    (start != 0).then_some(start)
}

/// Returns the range from the lowest to the highest loaded segment of the program.
fn image() -> Range<usize> {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, out: *mut c_void) -> i32 {
        // SAFETY: the loader passes a description that is valid during this call.
        let info = unsafe { &*info };
        // SAFETY: the description holds address and number of the headers, which stay mapped with
        // the object.
        let headers =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        // SAFETY: `out` is `image` below; no other code accesses it while dl_iterate_phdr runs.
        let out = unsafe { &mut *out.cast::<Range<usize>>() };
        for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
            let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
            out.start = out.start.min(start);
            out.end = out.end.max(start.saturating_add(header.p_memsz as usize));
        }
        1 // the program is the first object: stop
    }
    let mut image = Range { start: usize::MAX, end: 0 }; // empty
    // SAFETY: `first` does not unwind, and uses the pointer as the range that it is. The range
    // outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut image).cast()) };
    image
}

/// Returns the first byte and the end of the calling thread's stack.
fn stack() -> (usize, usize) {
    let known = STACK.get();
    if known != (0, 0) {
        return known;
    }
    let found = find_stack().unwrap_or((1, 1)); // an empty range
    STACK.set(found);
    found
}

/// Queries the C library, once per thread. For the main thread glibc reads /proc/self/maps.
#[cold]
fn find_stack() -> Option<(usize, usize)> {
    // SAFETY: the struct is plain data, for which all-zero is a value.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    // SAFETY: takes no arguments and cannot fail.
    let thread = unsafe { libc::pthread_self() };
    // SAFETY: the thread is the calling one; `attributes` is writable.
    if unsafe { libc::pthread_getattr_np(thread, &raw mut attributes) } != 0 {
        return None;
    }
    let (mut low, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: pthread_getattr_np initialised the attributes; both outputs are writable.
    let code =
        unsafe { libc::pthread_attr_getstack(&raw const attributes, &raw mut low, &raw mut size) };
    // SAFETY: pthread_getattr_np initialised the attributes; they are destroyed once.
    unsafe { libc::pthread_attr_destroy(&raw mut attributes) };
    let high = low.addr().checked_add(size).filter(|_| code == 0)?;
    let is_main = rustix::thread::gettid() == rustix::process::getpid();
    let low = if is_main { low.addr().max(high.saturating_sub(MAIN_STACK)) } else { low.addr() };
    Some((low, high))
}

#[cfg(test)]
#[path = "tests/host_ranges.rs"]
mod host_ranges_tests;
