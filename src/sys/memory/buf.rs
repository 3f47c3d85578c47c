//! Raw memory as values: addresses, regions, owned scratch memory. All copies between raw pointers
//! that callers pass are made here.
//!
//! A [`Region`] is a guarantee, given once where the region is created from a C pointer: the bytes
//! stay valid until the operation that received them ends. Later accesses use only bounds-checked
//! offsets within the region.
//!
//! Some address ranges only ever contain ordinary host memory: the program image (text, data, bss),
//! the brk heap, and the calling thread's stack. No driver maps device memory there while the
//! program uses the range. Code that queries a driver about pointers checks these ranges first. For
//! an address outside these ranges, the kind of memory is unknown: mmapped malloc blocks, the other
//! malloc arenas and mapped files come and go, and a driver may map device memory at their former
//! addresses. Therefore this module does not record such ranges as host memory.

use std::alloc::Layout;
use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

/// Address that may be passed between threads. It guarantees nothing about the memory at the
/// address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Addr(*mut c_void);

// SAFETY: an address is a number; no function here dereferences it without a contract of its own.
unsafe impl Send for Addr {}
// SAFETY: a shared address can only be copied; a dereference needs a contract of its own.
unsafe impl Sync for Addr {}

impl Addr {
    /// The null address.
    pub const NULL: Addr = Addr(ptr::null_mut());

    /// Creates an address from a pointer.
    pub fn new(pointer: *mut c_void) -> Self {
        Addr(pointer)
    }

    /// Returns the address as a pointer.
    pub fn ptr(self) -> *mut c_void {
        self.0
    }

    /// Returns the address as a number.
    pub fn get(self) -> usize {
        self.0.addr()
    }

    /// Returns true if the address is null.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the region of `bytes` bytes at the address, or `None` if the address is null or
    /// exceeds isize::MAX, or if `bytes` exceeds isize::MAX. The caller must guarantee that the
    /// memory is valid.
    #[inline]
    pub fn some(self, bytes: usize) -> Option<Region> {
        let is_memory =
            self.get().wrapping_sub(1) < isize::MAX as usize && bytes <= isize::MAX as usize;
        is_memory.then_some(Region { addr: self, len: bytes })
    }

    /// Returns the address plus `bytes` bytes.
    pub fn offset(self, bytes: usize) -> Addr {
        Addr(self.0.wrapping_byte_add(bytes))
    }
}

/// The null address.
impl Default for Addr {
    fn default() -> Self {
        Addr::NULL
    }
}

impl std::fmt::Debug for Addr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:p}", self.0)
    }
}

/// Range of bytes whose creator guarantees that they are valid during the operation that receives
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    addr: Addr,
    len: usize,
}

impl Region {
    /// Empty region at the null address.
    pub const EMPTY: Region = Region { addr: Addr::NULL, len: 0 };

    /// Creates a region of `len` bytes at `addr`.
    ///
    /// # Safety
    /// `len` bytes at `addr` must stay valid for reads (and for writes if the operation writes the
    /// region) until the operation that receives the region has ended. No other code may write them
    /// during that time.
    pub unsafe fn new(addr: *mut c_void, len: usize) -> Self {
        Region { addr: Addr::new(addr), len }
    }

    /// Creates a region over allocated memory. The region is valid until the allocation is freed.
    pub fn allocated(addr: Addr, len: usize) -> Self {
        Region { addr, len }
    }

    /// Returns the address of the first byte.
    pub fn addr(self) -> Addr {
        self.addr
    }

    /// Returns the number of bytes.
    pub fn len(self) -> usize {
        self.len
    }

    /// Returns true if the region has no bytes.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns the `len` bytes from `offset` on, clipped to this region.
    pub fn part(self, offset: usize, len: usize) -> Region {
        let offset = offset.min(self.len);
        Region { addr: self.addr.offset(offset), len: len.min(self.len - offset) }
    }

    /// Returns the `len` bytes at `offset`, or `None` if they are not all inside this region.
    #[inline]
    pub fn within(self, offset: u64, len: usize) -> Option<Region> {
        let end = offset.checked_add(len as u64)?;
        // An offset inside the region fits an address.
        (end <= self.len as u64).then(|| Region { addr: self.addr.offset(offset as usize), len })
    }

    /// Returns the first `N` 64-bit words of the region. Bytes beyond its end read as 0.
    #[inline]
    pub fn first_words<const N: usize>(self) -> [u64; N] {
        let mut words = [0; N];
        // SAFETY: the array outlives the copy made here.
        let to = unsafe { Region::new(words.as_mut_ptr().cast(), size_of_val(&words)) };
        to.copy_from(self);
        words
    }

    /// Writes words to the beginning of the region, clipped to its length.
    #[inline]
    pub fn put_words(self, words: &[u64]) {
        // SAFETY: the slice outlives the copy made here, which only reads it.
        self.copy_from(unsafe {
            Region::new(words.as_ptr().cast_mut().cast(), size_of_val(words))
        });
    }

    /// Copies bytes from `source`, up to the length of the shorter region. The regions may overlap.
    pub fn copy_from(self, source: Region) {
        let len = self.len.min(source.len);
        if len == 8 {
            // A word, which is moved in one instruction where its size is known.
            // SAFETY: both regions' creators guarantee `len` bytes; copy allows overlap.
            unsafe { ptr::copy(source.addr.0.cast::<u8>(), self.addr.0.cast::<u8>(), 8) }
        } else if len > 0 {
            // SAFETY: both regions' creators guarantee `len` bytes; copy allows overlap.
            unsafe { ptr::copy(source.addr.0.cast::<u8>(), self.addr.0.cast::<u8>(), len) }
        }
    }

    /// Sets every byte of the region to `value`.
    pub fn fill(self, value: u8) {
        if self.len > 0 {
            // SAFETY: the region's creator guarantees `len` writable bytes.
            unsafe { ptr::write_bytes(self.addr.0.cast::<u8>(), value, self.len) }
        }
    }

    /// Performs a nonatomic compare-and-swap: copies `value` to this region if the region equals
    /// `expected`.
    pub fn swap_if(self, expected: Region, value: Region) {
        // SAFETY: the region's creator guarantees its bytes; the caller ensures that nothing writes
        // them now.
        let is = unsafe { self.as_slice() };
        // SAFETY: the creator of `expected` guarantees its bytes; the caller ensures that nothing
        // writes them now.
        let shall = unsafe { expected.as_slice() };
        if is == shall {
            self.copy_from(value);
        }
    }

    /// Returns true if all bytes of the region are bytes of `outer`.
    pub fn is_inside(self, outer: Region) -> bool {
        let (at, first) = (self.addr.get(), outer.addr.get());
        at >= first && at.saturating_add(self.len) <= first.saturating_add(outer.len)
    }

    /// Returns true if the two regions share a byte.
    pub fn overlaps(self, other: Region) -> bool {
        let (a, b) = (self.addr.get(), other.addr.get());
        self.len > 0
            && other.len > 0
            && a < b.saturating_add(other.len)
            && b < a.saturating_add(self.len)
    }

    /// Returns true if the two regions, which must have equal lengths, share no byte.
    #[inline]
    pub fn is_apart(self, other: Region) -> bool {
        let (a, b) = (self.addr.get(), other.addr.get());
        a.abs_diff(b) >= self.len
    }

    /// Returns the bytes of the region as a slice.
    ///
    /// # Safety
    /// No code may write the region during `'a`, and the creator's guarantee must hold for `'a`.
    pub unsafe fn as_slice<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: non-empty, valid by the creator's guarantee, not written by this function's
        // contract.
        unsafe { std::slice::from_raw_parts(self.addr.0.cast::<u8>(), self.len) }
    }
}

/// Scratch memory that the library owns. It is aligned to 64 bytes, except for copies of short
/// regions, which are aligned to 16 bytes.
pub struct Scratch {
    memory: Lines,
    len: usize,
}

enum Lines {
    Whole(Vec<MaybeUninit<Line>>),
    /// Elements of 16 bytes for short copies. They need only the alignment of malloc, which often
    /// has such blocks cached.
    Quarters(Vec<MaybeUninit<Quarter>>),
}

#[repr(align(16))]
struct Quarter(#[allow(dead_code, reason = "only its size and alignment matter")] [u8; 16]);

#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "only its size and alignment matter")] [u8; 64]);

/// Scratch memory of 0 bytes.
impl Default for Scratch {
    fn default() -> Self {
        Scratch { memory: Lines::Whole(Vec::new()), len: 0 }
    }
}

impl Scratch {
    /// Allocates `len` zeroed bytes; `None` if out of memory.
    #[inline]
    pub fn new(len: usize) -> Option<Self> {
        let scratch = Self::unwritten(len)?;
        scratch.region().fill(0);
        Some(scratch)
    }

    /// Allocates `len` bytes that must be written before they are read; `None` if out of memory.
    /// Until the bytes are written, they occupy only address space.
    #[inline]
    pub fn unwritten(len: usize) -> Option<Self> {
        Some(Scratch { memory: Lines::Whole(room(len)?), len })
    }

    /// Allocates a copy of a region, aligned for any type that has the size of the region; `None`
    /// if out of memory.
    #[inline]
    pub fn copy_of(source: Region) -> Option<Self> {
        let len = source.len();
        // The size of a type is a multiple of its alignment.
        let scratch = if len < size_of::<Line>() && len != 2 * size_of::<Quarter>() {
            Scratch { memory: Lines::Quarters(room(len)?), len }
        } else {
            Self::unwritten(len)?
        };
        scratch.region().copy_from(source);
        Some(scratch)
    }

    /// Allocates a copy of `words`; `None` if out of memory.
    #[inline]
    pub fn of_words(words: &[u64]) -> Option<Self> {
        // SAFETY: the slice outlives the copy made here, which only reads it.
        Self::copy_of(unsafe { Region::new(words.as_ptr().cast_mut().cast(), size_of_val(words)) })
    }

    /// Returns the bytes as 64-bit words. The caller must ensure that no operation uses the memory
    /// any more.
    #[inline]
    pub fn words(&self) -> Vec<u64> {
        // SAFETY: no code writes it now, by this method's contract; it lives through the call.
        let bytes = unsafe { self.region().as_slice() };
        bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes)).collect()
    }

    /// Returns the bytes as a region. The caller must keep the scratch memory alive until the
    /// operation on the region has ended.
    pub fn region(&self) -> Region {
        let at = match &self.memory {
            Lines::Whole(lines) => lines.as_ptr().cast_mut().cast(),
            Lines::Quarters(quarters) => quarters.as_ptr().cast_mut().cast(),
        };
        Region { addr: Addr::new(at), len: self.len }
    }
}

/// Allocates elements for at least `len` bytes; `None` if out of memory.
#[inline]
fn room<T>(len: usize) -> Option<Vec<MaybeUninit<T>>> {
    let count = len.div_ceil(size_of::<T>());
    let mut room = Vec::new();
    room.try_reserve_exact(count).ok()?;
    // SAFETY: there is room for `count` elements, and uninitialised memory is a valid MaybeUninit.
    unsafe { room.set_len(count) };
    Some(room)
}

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

/// Frees a block that [`alloc`] returned for the same size and alignment.
pub fn free(addr: Addr, size: u64, align: u64) {
    if let Some(layout) = layout(size, align) {
        // SAFETY: the caller's records pair each address with the layout it was allocated with.
        unsafe { std::alloc::dealloc(addr.ptr().cast(), layout) }
    }
}

/// Zeroed memory that this object owns, with the alignment that the caller chooses. The address is
/// null if the size is 0.
pub struct AlignedBlock {
    addr: Addr,
    size: u64,
    align: u64,
}

impl AlignedBlock {
    /// Allocates `size` zeroed bytes aligned to `align` (a power of two); `None` if out of memory.
    pub fn zeroed(size: u64, align: u64) -> Option<Self> {
        let addr = if size == 0 { Addr::NULL } else { alloc(size, align)? };
        Region { addr, len: size as usize }.fill(0);
        Some(AlignedBlock { addr, size, align })
    }

    /// Returns the address of the first byte.
    pub fn addr(&self) -> Addr {
        self.addr
    }
}

impl Drop for AlignedBlock {
    fn drop(&mut self) {
        if self.size > 0 {
            free(self.addr, self.size, self.align);
        }
    }
}

/// Number of bytes below the top of the main thread's stack that count as stack. That stack grows;
/// Linux leaves at least 128 MiB below its top free of other mappings.
const MAIN_STACK: usize = 8 << 20;

/// Boundaries of the program image and of the brk heap that are fixed for the life of the process.
struct Process {
    image: Range<usize>,
    /// First byte of the brk heap; `usize::MAX` = unknown.
    heap: usize,
}

static PROCESS: OnceLock<Process> = OnceLock::new();

thread_local! {
    /// Addresses of the first byte and of the end of the calling thread's stack; (0, 0) until they
    /// are determined.
    static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Determines the address ranges of the program image and of the brk heap for
/// [`is_in_host_ranges`]. Reads /proc/self/stat, so call it outside the data path.
pub fn find_host_ranges() {
    PROCESS.get_or_init(|| Process { image: image(), heap: heap_start().unwrap_or(usize::MAX) });
}

/// Returns true if the whole region is certain to be ordinary host memory. The region must not
/// contain freed memory.
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
/// use, so the result stays valid for a region that is in use.
fn heap_end() -> usize {
    // SAFETY: an increment of 0 changes nothing; the C library returns a word that it caches.
    unsafe { libc::sbrk(0) }.addr()
}

/// Returns field 47 of /proc/self/stat, counted from 1: the start of the brk heap. Field 2 is the
/// program's name in parentheses; the name may itself contain spaces and parentheses.
fn heap_start() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, after_name) = text.rsplit_once(')')?;
    let start = after_name.split_whitespace().nth(47 - 3)?.parse().ok()?;
    (start != 0).then_some(start)
}

/// Returns the address range from the lowest to the highest loaded segment of the executable file.
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

/// Returns the address of the first byte of the calling thread's stack, and the end address.
fn stack() -> (usize, usize) {
    let known = STACK.get();
    if known != (0, 0) {
        return known;
    }
    let found = find_stack().unwrap_or((1, 1)); // an empty range
    STACK.set(found);
    found
}

/// Queries the C library for the address of the first byte of the calling thread's stack and for
/// the end address; `None` if the query fails. The query is slow: for the main thread, glibc reads
/// /proc/self/maps.
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
    // SAFETY: pthread_getattr_np initialized the attributes; both outputs are writable.
    let code =
        unsafe { libc::pthread_attr_getstack(&raw const attributes, &raw mut low, &raw mut size) };
    // SAFETY: pthread_getattr_np initialized the attributes; they are destroyed once.
    unsafe { libc::pthread_attr_destroy(&raw mut attributes) };
    let high = low.addr().checked_add(size).filter(|_| code == 0)?;
    let is_main = rustix::thread::gettid() == rustix::process::getpid();
    let low = if is_main { low.addr().max(high.saturating_sub(MAIN_STACK)) } else { low.addr() };
    Some((low, high))
}

/// Returns the 64-bit FNV-1a hash of `bytes`, which is used to hash names and to detect corrupted
/// data. The hash is equal in every process and every build. The hash is not cryptographic:
/// collisions are easy to construct.
pub fn fnv1a<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    bytes.into_iter().fold(0xCBF2_9CE4_8422_2325, step)
}

#[cfg(test)]
#[path = "tests/fnv.rs"]
mod fnv_tests;
#[cfg(test)]
#[path = "tests/host_ranges.rs"]
mod host_ranges_tests;
