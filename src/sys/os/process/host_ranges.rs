//! Address ranges that only ever contain ordinary host memory: the program image (text, data, bss),
//! the brk heap, and the calling thread's stack. No driver maps device memory there while the
//! program uses the range.
//!
//! A caller that would query a driver about each pointer checks these ranges first. A negative
//! answer means "unknown": mmapped malloc blocks, the other malloc arenas and mapped files come and
//! go, and a driver may map device memory at their former addresses. So such ranges are not cached.

use crate::sys::memory::buf::Region;
use std::cell::Cell;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::OnceLock;

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
pub fn prepare() {
    PROCESS.get_or_init(|| Process { image: image(), heap: heap_start().unwrap_or(usize::MAX) });
}

/// Returns true if the whole range, which is in use now, is certain to be host memory.
pub fn contain(region: Region) -> bool {
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
    let is_main = super::thread_id() == super::own_pid();
    let low = if is_main { low.addr().max(high.saturating_sub(MAIN_STACK)) } else { low.addr() };
    Some((low, high))
}

#[cfg(test)]
#[path = "tests/host_ranges.rs"]
mod tests;
