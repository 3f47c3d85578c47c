//! Parts of the address space that only ever hold ordinary memory of the host: the program's own image (code, data, bss), the
//! heap that grows with brk, and the calling thread's stack. No driver maps a device's memory there while the program uses it.
//!
//! Whoever would ask a driver about each pointer asks here first. "No" means "not known": large blocks of malloc, the heaps of
//! its other arenas and mapped files come and go, and a driver may map a device's memory where they were. So nothing is
//! remembered of those.

use crate::sys::buf::Region;
use std::cell::Cell;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::OnceLock;

/// Of the main thread's stack, which grows: the part below its top where Linux maps nothing else.
const MAIN_STACK: usize = 8 << 20;

/// What stays where it is for as long as the process runs.
struct Process {
    image: Range<usize>,
    /// The first byte of the heap; `usize::MAX` = not known.
    heap: usize,
}

static PROCESS: OnceLock<Process> = OnceLock::new();

thread_local! {
    /// The calling thread's stack; empty = not looked at yet.
    static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Finds out what [`hold`] compares with: reads a file of /proc.
pub fn prepare() {
    PROCESS.get_or_init(|| Process { image: image(), heap: heap_start().unwrap_or(usize::MAX) });
}

/// Whether all of a range, which the program uses now, is certain to be the host's.
#[must_use]
pub fn hold(region: Region) -> bool {
    let Some(process) = PROCESS.get() else { return false };
    let (first, end) = (region.addr().get(), region.addr().get().saturating_add(region.len()));
    let is_in = |low: usize, high: usize| first >= low && end <= high;
    let (low, high) = stack();
    is_in(low, high)
        || is_in(process.image.start, process.image.end)
        || (first >= process.heap && end <= heap_end())
}

/// Where the heap ends now. What is in use below cannot be given back meanwhile, so the answer holds for that.
fn heap_end() -> usize {
    // SAFETY: an increment of 0 changes nothing; the C library answers with a word that it keeps.
    unsafe { libc::sbrk(0) }.addr()
}

/// Field 47 of /proc/self/stat, counted from 1; the second is a name in parentheses that may have anything in it.
fn heap_start() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, after_name) = text.rsplit_once(')')?;
    let start = after_name.split_whitespace().nth(47 - 3)?.parse().ok()?;
    (start != 0).then_some(start)
}

/// From the lowest segment of the program to the highest.
fn image() -> Range<usize> {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, out: *mut c_void) -> i32 {
        // SAFETY: the loader hands in a description that is valid during this call.
        let info = unsafe { &*info };
        // SAFETY: as many headers as the description says, valid as it is.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        // SAFETY: the range below, which nobody else uses while dl_iterate_phdr runs.
        let out = unsafe { &mut *out.cast::<Range<usize>>() };
        for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
            let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
            out.start = out.start.min(start);
            out.end = out.end.max(start.saturating_add(header.p_memsz as usize));
        }
        1 // the program comes first: no more
    }
    let mut image = usize::MAX..0;
    // SAFETY: `first` does not unwind and takes the range for what it is, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut image).cast()) };
    image
}

/// The calling thread's stack.
fn stack() -> (usize, usize) {
    let known = STACK.get();
    if known != (0, 0) {
        return known;
    }
    let found = find_stack().unwrap_or((1, 1)); // nothing lies there
    STACK.set(found);
    found
}

/// Asks the C library, once for each thread. For the main thread it reads /proc/self/maps.
#[cold]
fn find_stack() -> Option<(usize, usize)> {
    // SAFETY: all-zero is a value of this plain struct, which is written before it is read.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    // SAFETY: the calling thread, and room for its attributes.
    if unsafe { libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) } != 0 {
        return None;
    }
    let (mut low, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: attributes that were filled in, and room for two words.
    let code = unsafe { libc::pthread_attr_getstack(&raw const attributes, &raw mut low, &raw mut size) };
    // SAFETY: attributes that were filled in, given up once.
    unsafe { libc::pthread_attr_destroy(&raw mut attributes) };
    let high = low.addr().checked_add(size).filter(|_| code == 0)?;
    let is_main = super::thread_id() == super::own_pid();
    let low = if is_main { low.addr().max(high.saturating_sub(MAIN_STACK)) } else { low.addr() };
    Some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::buf::Addr;

    static mut GLOBAL: [u8; 64] = [1; 64];

    fn region(first: *const u8, len: usize) -> Region {
        Region::allocated(Addr::new(first.cast_mut().cast()), len)
    }

    #[test]
    fn stacks_and_the_image_are_known_and_mappings_are_not() {
        let local = [0u8; 64];
        let mapped = vec![0u8; 64 << 20]; // beyond what malloc takes from the heap
        prepare();
        assert!(hold(region(local.as_ptr(), 64)));
        assert!(hold(region((&raw const GLOBAL).cast(), 64)));
        assert!(!hold(region(mapped.as_ptr(), 8)));
        assert!(!hold(region(std::ptr::without_provenance(4096), 8)));
        let other = std::thread::spawn(move || {
            let local = [0u8; 64];
            (hold(region(local.as_ptr(), 64)), local.as_ptr().addr())
        });
        let (own, of_other) = other.join().expect("joined");
        assert!(
            own && !hold(region(std::ptr::without_provenance(of_other), 8)),
            "stacks of other threads may go"
        );
    }

    #[test]
    fn the_heap_ends_where_it_ends_now() {
        prepare();
        let Some(start) = heap_start() else { return };
        assert!(hold(region(std::ptr::without_provenance(start), 1)) == (heap_end() > start));
        assert!(!hold(region(std::ptr::without_provenance(heap_end()), 1)));
        assert!(!hold(region(std::ptr::without_provenance(heap_end() - 1), 2)));
    }
}
