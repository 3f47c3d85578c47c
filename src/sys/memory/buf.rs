//! Raw memory as values: addresses, regions, owned scratch. The one place that copies bytes for
//! callers that pass plain pointers.
//!
//! A [`Region`] is a promise made once, where it is built from a C pointer: the bytes stay valid
//! until the operation that received them ends. Everything after that is checked arithmetic.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

/// An address that may move between threads. It guarantees nothing about the memory there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Addr(*mut c_void);

// SAFETY: an address is a number; nothing here dereferences it without a contract of its own.
unsafe impl Send for Addr {}
// SAFETY: a shared address can only be copied; a dereference needs a contract of its own.
unsafe impl Sync for Addr {}

impl Addr {
    /// The null address.
    pub const NULL: Addr = Addr(ptr::null_mut());

    /// Wraps a pointer.
    #[must_use]
    pub fn new(pointer: *mut c_void) -> Self {
        Addr(pointer)
    }

    /// The pointer.
    #[must_use]
    pub fn ptr(self) -> *mut c_void {
        self.0
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> usize {
        self.0.addr()
    }

    /// Whether it is null.
    #[must_use]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// So many bytes there, if the address is one that memory can have; what is there is its
    /// giver's contract.
    #[must_use]
    #[inline]
    pub fn some(self, bytes: usize) -> Option<Region> {
        let is_memory =
            self.get().wrapping_sub(1) < isize::MAX as usize && bytes <= isize::MAX as usize;
        is_memory.then_some(Region { addr: self, len: bytes })
    }

    /// The address `bytes` further on.
    #[must_use]
    pub fn offset(self, bytes: usize) -> Addr {
        Addr(self.0.wrapping_byte_add(bytes))
    }
}

impl std::fmt::Debug for Addr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:p}", self.0)
    }
}

/// Bytes from which on the processor's string instruction is as fast as a loop or faster, near and
/// far.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const STRING_FROM: usize = 4096;

/// A range of bytes that its maker promised to keep valid while the operation it was given to runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    addr: Addr,
    len: usize,
}

impl Region {
    /// No bytes.
    pub const EMPTY: Region = Region { addr: Addr::NULL, len: 0 };

    /// A region over foreign memory.
    ///
    /// # Safety
    /// `len` bytes at `addr` must stay valid for reads (and for writes if the operation writes it)
    /// until the operation that receives the region has ended; nobody else writes them meanwhile.
    #[must_use]
    pub unsafe fn new(addr: *mut c_void, len: usize) -> Self {
        Region { addr: Addr::new(addr), len }
    }

    /// An allocation that a memory component gave, for as long as its owner keeps it.
    #[must_use]
    pub fn allocated(addr: Addr, len: usize) -> Self {
        Region { addr, len }
    }

    /// First byte.
    #[must_use]
    pub fn addr(self) -> Addr {
        self.addr
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The part from `offset`, at most `len` bytes; clipped to this region.
    #[must_use]
    pub fn part(self, offset: usize, len: usize) -> Region {
        let offset = offset.min(self.len);
        Region { addr: self.addr.offset(offset), len: len.min(self.len - offset) }
    }

    /// The bytes there, if this region has them all.
    #[must_use]
    #[inline]
    pub fn within(self, offset: u64, len: usize) -> Option<Region> {
        let end = offset.checked_add(len as u64)?;
        // An offset that is inside fits an address.
        (end <= self.len as u64).then(|| Region { addr: self.addr.offset(offset as usize), len })
    }

    /// The words at its beginning; those that it has no bytes for are 0.
    #[inline]
    #[must_use]
    pub fn first_words<const N: usize>(self) -> [u64; N] {
        let mut words = [0; N];
        // SAFETY: the array outlives the copy made here.
        let to = unsafe { Region::new(words.as_mut_ptr().cast(), size_of_val(&words)) };
        to.copy_from(self);
        words
    }

    /// Writes words at its beginning, as many as there is room for.
    #[inline]
    pub fn put_words(self, words: &[u64]) {
        // SAFETY: the slice outlives the copy made here, which only reads it.
        self.copy_from(unsafe {
            Region::new(words.as_ptr().cast_mut().cast(), size_of_val(words))
        });
    }

    /// Copies as many bytes as both have. The regions may overlap.
    pub fn copy_from(self, source: Region) {
        let len = self.len.min(source.len);
        if len == 8 {
            // A word, which is moved in one instruction where its size is known.
            // SAFETY: both regions' makers vouch for `len` bytes; copy allows overlap.
            unsafe { ptr::copy(source.addr.0.cast::<u8>(), self.addr.0.cast::<u8>(), 8) }
        } else if len > 0 {
            // SAFETY: both regions' makers vouch for `len` bytes; copy allows overlap.
            unsafe { ptr::copy(source.addr.0.cast::<u8>(), self.addr.0.cast::<u8>(), len) }
        }
    }

    /// Copies as many bytes as both have, between regions that do not overlap and of which another
    /// core uses one. From some KiB on it uses the string instruction, which does not fetch the
    /// lines that it overwrites: they lie in the other core's cache, and a loop of stores waits for
    /// each (1 MiB between far cores: 34 us, with a loop 130 us).
    #[inline]
    pub fn copy_across(self, source: Region) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.len.min(source.len) >= STRING_FROM && std::is_x86_feature_detected!("ermsb") {
            let len = self.len.min(source.len);
            // SAFETY: both regions' makers vouch for `len` bytes; the direction flag is clear in
            // Rust code.
            unsafe {
                std::arch::asm!(
                    "rep movsb", inout("rcx") len => _, inout("rdi") self.addr.0 => _,
                    inout("rsi") source.addr.0 => _,
                    options(nostack, preserves_flags)
                );
            }
            return;
        }
        self.copy_from(source);
    }

    /// Sets every byte.
    pub fn fill(self, value: u8) {
        if self.len > 0 {
            // SAFETY: the region's maker vouches for `len` writable bytes.
            unsafe { ptr::write_bytes(self.addr.0.cast::<u8>(), value, self.len) }
        }
    }

    /// Takes over `value` if its bytes are those of `expected`.
    pub fn swap_if(self, expected: Region, value: Region) {
        // SAFETY: the region's maker guarantees its bytes; the caller ensures that nobody writes
        // them during the comparison.
        let is = unsafe { self.as_slice() };
        // SAFETY: its maker guarantees the bytes; the caller ensures that nobody writes them now.
        let shall = unsafe { expected.as_slice() };
        if is == shall {
            self.copy_from(value);
        }
    }

    /// Whether the two share a byte.
    #[must_use]
    pub fn overlaps(self, other: Region) -> bool {
        let (a, b) = (self.addr.get(), other.addr.get());
        self.len > 0
            && other.len > 0
            && a < b.saturating_add(other.len)
            && b < a.saturating_add(self.len)
    }

    /// Whether the two, which are equally long, share no byte.
    #[must_use]
    #[inline]
    pub fn is_apart(self, other: Region) -> bool {
        let (a, b) = (self.addr.get(), other.addr.get());
        a.abs_diff(b) >= self.len
    }

    /// The bytes, for reading.
    ///
    /// # Safety
    /// Nobody may write the region while the slice lives, and the maker's promise must hold for
    /// `'a`.
    #[must_use]
    pub unsafe fn as_slice<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: non-empty, valid by the maker's promise, unwritten by this function's contract.
        unsafe { std::slice::from_raw_parts(self.addr.0.cast::<u8>(), self.len) }
    }
}

/// Scratch memory of the library's own, 64-byte aligned unless it is a short copy.
pub struct Scratch {
    memory: Lines,
    len: usize,
}

enum Lines {
    Whole(Vec<MaybeUninit<Line>>),
    /// With the alignment of malloc, which has such memory at hand.
    Quarters(Vec<MaybeUninit<Quarter>>),
}

#[repr(align(16))]
struct Quarter(#[allow(dead_code, reason = "only its size and alignment matter")] [u8; 16]);

#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "only its size and alignment matter")] [u8; 64]);

impl Default for Scratch {
    fn default() -> Self {
        Scratch::empty()
    }
}

impl Scratch {
    /// No bytes.
    #[must_use]
    pub fn empty() -> Self {
        Scratch { memory: Lines::Whole(Vec::new()), len: 0 }
    }

    /// `len` zeroed bytes, or `None` without memory.
    #[must_use]
    pub fn new(len: usize) -> Option<Self> {
        let scratch = Self::unwritten(len)?;
        scratch.region().fill(0);
        Some(scratch)
    }

    /// `len` bytes that are written before anything reads them, or `None` without memory: they cost
    /// no more than their addresses until then.
    #[must_use]
    pub fn unwritten(len: usize) -> Option<Self> {
        Some(Scratch { memory: Lines::Whole(room(len)?), len })
    }

    /// A copy of a region's bytes, aligned as any type of that size.
    #[must_use]
    pub fn copy_of(source: Region) -> Option<Self> {
        let len = source.len();
        // A type's size is a multiple of its alignment.
        let scratch = if len < size_of::<Line>() && len != 2 * size_of::<Quarter>() {
            Scratch { memory: Lines::Quarters(room(len)?), len }
        } else {
            Self::unwritten(len)?
        };
        scratch.region().copy_from(source);
        Some(scratch)
    }

    /// Words, one after the other.
    #[must_use]
    pub fn of_words(words: &[u64]) -> Option<Self> {
        // SAFETY: the slice outlives the copy made here, which only reads it.
        Self::copy_of(unsafe { Region::new(words.as_ptr().cast_mut().cast(), size_of_val(words)) })
    }

    /// Its bytes as words. Call when no operation works on it any more.
    #[must_use]
    pub fn words(&self) -> Vec<u64> {
        // SAFETY: nothing writes it now, by this method's contract; it lives through the call.
        let bytes = unsafe { self.region().as_slice() };
        bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes)).collect()
    }

    /// Writes words at its beginning, as many as there is room for. Call when no operation works on
    /// it.
    pub fn put_words(&mut self, words: &[u64]) {
        self.region().put_words(words);
    }

    /// The words at its beginning; those that it has no room for are 0. Call when no operation
    /// works on it any more.
    #[must_use]
    pub fn first_words<const N: usize>(&self) -> [u64; N] {
        self.region().first_words()
    }

    /// Its bytes. They live as long as the scratch does: keep it until the operation has ended.
    #[must_use]
    pub fn region(&self) -> Region {
        let at = match &self.memory {
            Lines::Whole(lines) => lines.as_ptr().cast_mut().cast(),
            Lines::Quarters(quarters) => quarters.as_ptr().cast_mut().cast(),
        };
        Region { addr: Addr::new(at), len: self.len }
    }
}

/// Memory for `len` bytes, or `None` without.
fn room<T>(len: usize) -> Option<Vec<MaybeUninit<T>>> {
    let count = len.div_ceil(size_of::<T>());
    let mut room = Vec::new();
    room.try_reserve_exact(count).ok()?;
    // SAFETY: there is room for `count` of them, and what is not initialised is a valid
    // MaybeUninit.
    unsafe { room.set_len(count) };
    Some(room)
}

/// Zeroed memory of any alignment that belongs to this object; a null address if it is of no bytes.
pub struct AlignedBlock {
    addr: Addr,
    size: u64,
    align: u64,
}

impl AlignedBlock {
    /// `size` bytes aligned to `align` (a power of two); `None` without memory.
    #[must_use]
    pub fn zeroed(size: u64, align: u64) -> Option<Self> {
        let addr = if size == 0 { Addr::NULL } else { super::host_pages::alloc(size, align)? };
        Region { addr, len: size as usize }.fill(0);
        Some(AlignedBlock { addr, size, align })
    }

    /// Its first byte.
    #[must_use]
    pub fn addr(&self) -> Addr {
        self.addr
    }
}

impl Drop for AlignedBlock {
    fn drop(&mut self) {
        if self.size > 0 {
            super::host_pages::free(self.addr, self.size, self.align);
        }
    }
}
