//! Memory shared between processes: a mapping of an anonymous file (memfd). Also memory that only
//! the threads of this process share. Both have the same interface (atomic words and ranges of
//! bytes).
//!
//! The file is created sparse, without pages. A range must be committed (its pages allocated)
//! before it is accessed; otherwise a page that cannot be allocated causes a SIGBUS at the first
//! access instead of an error. The file can be extended by further ranges (`extend`), which each
//! process maps separately (`range`) and whose pages can be released (`discard`).
//!
//! In reading order:
//! - `va_reserve`: reserved address space, for mappings that are aligned to more than a page
//! - `guarded_fd`: descriptors of shared memory, which are closed only if they still refer to their
//!   file

mod guarded_fd;
mod va_reserve;

use super::hwinfo;
use super::process::{self, file_size_limit};
use crate::hints;
use crate::sys::memory::buf::{Addr, Region};
use crate::sys::memory::host_pages::page_size;
use guarded_fd::GuardedFd;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use va_reserve::VaReservation;

/// Mapping of shared memory. A [`SharedWord`] or [`Span`] of the mapping keeps it mapped.
pub struct SharedMapping {
    /// Memory file; `None` if the memory is private to this process or the file is already closed.
    file: Option<Arc<GuardedFd>>,
    /// Offset of the mapping in the file, in bytes.
    start: usize,
    base: Addr,
    len: usize,
}

impl SharedMapping {
    /// Creates and maps a memfd of `len` zero bytes, without allocating pages. The file is sealed:
    /// no process that gets the descriptor can shrink it while others use it. The file can still
    /// grow.
    pub fn create(len: usize) -> io::Result<Arc<Self>> {
        Self::map_file(sealed_file(c"dtl", len, SealFlags::SHRINK)?)
    }

    /// Creates and maps a block: a memfd of `len` zero bytes with allocated pages and a fixed size.
    /// `name` is the name of the mapping in /proc. For `len` and `align` (bytes), see
    /// [`SharedMapping::block_of`].
    pub fn block(name: &CStr, len: usize, align: usize) -> io::Result<Arc<Self>> {
        let file = sealed_file(name, len, BLOCK_SEALS)?;
        allocate_if_free(&file, 0, len)?;
        Self::map(Some(Arc::new(GuardedFd::new(file)?)), 0, 0, len, align)
    }

    /// Maps a block that another process created with [`SharedMapping::block`], at an address that
    /// is a multiple of `align` bytes (a power of two), and closes the descriptor. `len` (bytes) is
    /// a multiple of [`page_size`].
    pub fn block_of(fd: OwnedFd, len: usize, align: usize) -> io::Result<Arc<Self>> {
        let file = Arc::new(GuardedFd::new(File::from(fd))?);
        if !seals(&file).contains(BLOCK_SEALS) || file.metadata()?.len() != len as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no block of that size"));
        }
        let mut mapped = Self::map(Some(file), 0, 0, len, align)?;
        if let Some(memory) = Arc::get_mut(&mut mapped) {
            memory.file = None; // the mapping stays without it
        }
        Ok(mapped)
    }

    /// Maps `len` zeroed bytes of memory that is private to this process and does not count against
    /// the commit limit of the system (MAP_NORESERVE). Pages are allocated at their first use.
    pub fn private(len: usize) -> io::Result<Arc<Self>> {
        Self::map(None, libc::MAP_NORESERVE, 0, len, 1)
    }

    /// Maps `len` zeroed bytes of memory that is private to this process, without MAP_NORESERVE:
    /// the call fails if the kernel could never provide that much memory. Pages are allocated at
    /// their first use.
    pub fn reserved(len: usize) -> io::Result<Arc<Self>> {
        Self::map(None, 0, 0, len, 1)
    }

    /// Maps the whole memfd that another process created with [`SharedMapping::create`]. Fails if
    /// the file is not sealed against shrinking.
    pub fn attach(fd: OwnedFd) -> io::Result<Arc<Self>> {
        let file = File::from(fd);
        if !seals(&file).contains(SealFlags::SHRINK) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its size is not sealed"));
        }
        Self::map_file(file)
    }

    fn map_file(file: File) -> io::Result<Arc<Self>> {
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        Self::map(Some(Arc::new(GuardedFd::new(file)?)), 0, 0, len, 1)
    }

    fn map(
        file: Option<Arc<GuardedFd>>,
        more: i32,
        start: usize,
        len: usize,
        align: usize,
    ) -> io::Result<Arc<Self>> {
        let offset = libc::off_t::try_from(start).map_err(io::Error::other)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (flags, fd) = match &file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | more, -1),
        };
        // Without a larger alignment, the kernel chooses the address, which is page-aligned.
        let room = if align > page_size() { Some(VaReservation::new(len, align)?) } else { None };
        let (at, fixed) =
            room.as_ref().map_or((Addr::NULL, 0), |room| (room.base, libc::MAP_FIXED));
        // SAFETY: a new mapping at an address of the kernel's choice, or in place of reserved
        // addresses that contain no data and belong to this call alone.
        let base = unsafe { libc::mmap(at.ptr(), len, access, flags | fixed, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        std::mem::forget(room);
        Ok(Arc::new(SharedMapping { file, start, base: Addr::new(base), len }))
    }

    /// Returns the length of the mapping in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the address of the first byte of the mapping.
    pub fn base(&self) -> Addr {
        self.base
    }

    /// Returns true if the length of the mapping is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the descriptor of the memfd, to pass to another process; `None` if there is no
    /// memfd.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(|file| file.as_fd())
    }

    /// Allocates the pages of a range of the memfd; existing content is unchanged. Has no effect on
    /// memory without a file. `offset` and `len` are in bytes.
    pub fn commit(&self, offset: usize, len: usize) -> io::Result<()> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        match &self.file {
            Some(file) => allocate(file, PAGES, self.start + offset, len),
            None => Ok(()),
        }
    }

    /// Extends the memfd by a range of `len` bytes at `offset`, allocates its pages, and maps it.
    /// The bytes are zero if no process has used the range before. `offset` must be a multiple of
    /// [`page_size`], and the range must come after the other ranges of the file.
    pub fn extend(&self, offset: usize, len: usize) -> io::Result<Arc<Self>> {
        let file = self.shared_file()?;
        if offset.checked_add(len).is_none_or(|end| end as u64 > file_size_limit()) {
            // Growing past it would be SIGXFSZ, which ends the process.
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        let made = allocate_if_free(file, offset, len)
            .and_then(|()| Self::map(Some(Arc::clone(file)), 0, offset, len, 1));
        if made.is_err() {
            // If punching the hole fails, the memory is not released before the file ends.
            let _ = allocate(file, PUNCH, offset, len);
        }
        made
    }

    /// Reads bytes at an offset of the memfd without mapping them. Pages that are not allocated
    /// remain unallocated.
    pub fn peek(&self, offset: usize, into: &mut [u8]) -> io::Result<()> {
        self.shared_file()?.read_exact_at(into, offset as u64)
    }

    /// Maps a range of the memfd that this or another process created with
    /// [`SharedMapping::extend`].
    pub fn range(&self, offset: usize, len: usize) -> io::Result<Arc<Self>> {
        let file = self.shared_file()?;
        if offset
            .checked_add(len)
            .is_none_or(|end| end as u64 > file.metadata().map_or(0, |data| data.len()))
        {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it ends before that"));
        }
        Self::map(Some(Arc::clone(file)), 0, offset, len, 1)
    }

    /// Releases all pages of the memfd that this mapping covers. The caller must ensure that no
    /// process uses them any more.
    pub fn discard(&self) {
        if let Some(file) = &self.file {
            // If this fails, the pages are released with the file.
            let _ = allocate(file, PUNCH, self.start, self.len);
        }
    }

    fn shared_file(&self) -> io::Result<&Arc<GuardedFd>> {
        self.file.as_ref().ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
    }

    /// Returns the 64-bit word at an offset; `None` if the offset is not a multiple of 8 or the
    /// word is not inside the memory.
    pub fn word(self: &Arc<Self>, offset: usize) -> Option<SharedWord> {
        let inside = offset % 8 == 0 && offset.checked_add(8)? <= self.len;
        let at = NonNull::new(self.base.offset(offset).ptr().cast::<AtomicU64>())?;
        inside.then(|| SharedWord { at, _memory: Arc::clone(self) })
    }

    /// Returns a range of bytes; `None` if `offset` is not a multiple of 8 or the range is not
    /// inside the memory.
    pub fn span(self: &Arc<Self>, offset: usize, len: usize) -> Option<Span> {
        let inside = offset % 8 == 0 && offset.checked_add(len)? <= self.len;
        if !inside {
            return None;
        }
        // SAFETY: the range is mapped as long as the span keeps the memory alive. The protocol of
        // the processes that share the memory defines who may write which part when.
        let region = unsafe { Region::new(self.base.offset(offset).ptr(), len) };
        Some(Span { region, _memory: Arc::clone(self) })
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and words and spans keep the value alive.
        let _ = unsafe { libc::munmap(self.base.ptr(), self.len) };
    }
}

/// Atomic word in shared memory.
pub struct SharedWord {
    at: NonNull<AtomicU64>,
    _memory: Arc<SharedMapping>,
}

// SAFETY: a reference to an atomic may move to another thread; `_memory` keeps it mapped.
unsafe impl Send for SharedWord {}
// SAFETY: threads may share a reference to an atomic; `_memory` keeps it mapped.
unsafe impl Sync for SharedWord {}

impl Deref for SharedWord {
    type Target = AtomicU64;
    fn deref(&self) -> &AtomicU64 {
        // SAFETY: aligned, inside the mapping, kept mapped; zeroed memory is a valid atomic.
        unsafe { self.at.as_ref() }
    }
}

/// Range of bytes in shared memory.
#[derive(Clone)]
pub struct Span {
    region: Region,
    _memory: Arc<SharedMapping>,
}

impl Span {
    /// Returns the bytes as a region, which stays mapped as long as the span lives.
    pub fn region(&self) -> Region {
        self.region
    }

    /// Returns the 64-bit word at a byte offset in the span; `None` if the offset is not a multiple
    /// of 8 or the word extends beyond the span.
    pub fn word(&self, offset: usize) -> Option<&AtomicU64> {
        self.words(offset, 1)?.first()
    }

    /// Returns `count` 64-bit words at a byte offset of the span; `None` if the offset is not a
    /// multiple of 8 or the words exceed the span.
    pub fn words(&self, offset: usize, count: usize) -> Option<&[AtomicU64]> {
        let len = count.checked_mul(8)?;
        if offset % 8 != 0 || offset.checked_add(len)? > self.region.len() {
            return None;
        }
        let at = self.region.addr().offset(offset).ptr().cast::<AtomicU64>();
        // SAFETY: aligned (the span starts at a multiple of 8 of a page), all of them inside, kept
        // mapped; zeroed memory is valid atomics.
        Some(unsafe { std::slice::from_raw_parts(at, count) })
    }

    /// Prefetches the cache line at a byte offset for writing, so that the line is transferred from
    /// the cache of another core while this core does other work.
    pub fn will_write(&self, offset: usize) {
        // An explicit instruction, because the compiler's own hint does not mean "to write" for
        // every processor. On a processor that does not support the instruction it has no effect.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if offset < self.region.len() {
            let at = self.region.addr().offset(offset).ptr();
            // SAFETY: a hint, which changes no memory and no register; the address is inside.
            unsafe {
                std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags))
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = offset;
    }

    /// Prefetches the cache line at a byte offset for reading.
    pub fn will_read(&self, offset: usize) {
        hints::prefetch(self.region.addr().offset(offset).ptr());
    }

    /// Returns two 64-bit words at a byte offset of the span, and the `len` bytes after them;
    /// `None` if the offset is not a multiple of 8 or the bytes exceed the span.
    pub fn block(&self, offset: usize, len: usize) -> Option<([&AtomicU64; 2], Region)> {
        if offset % 8 != 0 || offset.checked_add(16)?.checked_add(len)? > self.region.len() {
            return None;
        }
        let at = self.region.addr().offset(offset);
        let words = [at, at.offset(8)].map(|at| at.ptr().cast::<AtomicU64>());
        // SAFETY: aligned, inside (both are, by the test above), kept mapped.
        let words = words.map(|word| unsafe { &*word });
        // SAFETY: part of the span's region: mapped as long as the span, under the span's protocol.
        Some((words, unsafe { Region::new(at.offset(16).ptr(), len) }))
    }
}

/// Seals of a block (see [`SharedMapping::block`]): no process can change its size.
const BLOCK_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Creates an anonymous file (memfd) of `len` zero bytes, without allocating pages, and seals it
/// permanently.
fn sealed_file(name: &CStr, len: usize, seals: SealFlags) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(process::keep_fd(rustix::fs::memfd_create(name, flags)?)?);
    if len as u64 > file_size_limit() {
        // Growing past it would be SIGXFSZ, which ends the process.
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    file.set_len(len as u64)?;
    rustix::fs::fcntl_add_seals(&file, seals | SealFlags::SEAL)?;
    Ok(file)
}

/// Returns the seals of a file; none if the file is not a memfd.
fn seals(file: &File) -> SealFlags {
    rustix::fs::fcntl_get_seals(file).unwrap_or(SealFlags::empty())
}

/// Mode of [`allocate`] that commits the pages of a range.
const PAGES: FallocateFlags = FallocateFlags::empty();
/// Mode of [`allocate`] that punches a hole: the pages of the range are released.
const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// Commits the pages of a range of a file ([`PAGES`]), or releases them ([`PUNCH`]).
fn allocate(file: &File, mode: FallocateFlags, offset: usize, len: usize) -> io::Result<()> {
    let call = || rustix::fs::fallocate(file, mode, offset as u64, len as u64);
    Ok(rustix::io::retry_on_intr(call)?)
}

/// Number of bytes that [`allocate_if_free`] allocates at once (`STEP`), and number of bytes of
/// memory that it leaves free for other processes (`SPARE`).
const STEP: usize = 64 << 20;
const SPARE: usize = 32 << 20;

/// Allocates the pages of a range of a memfd. Fails if the range is larger than the free memory of
/// the machine: the kernel does not limit the size of such a file, and would kill processes when
/// memory runs out. So the pages are allocated `STEP` bytes at a time, each time only if enough
/// memory is free.
fn allocate_if_free(file: &File, offset: usize, len: usize) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        let (free, total) = hwinfo::memory();
        let (left, step) = (len - done, STEP.min(len - done));
        let is_known = total > 0;
        if is_known && ((left as u64) > free || (step + SPARE) as u64 > free) {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        allocate(file, PAGES, offset + done, step)?;
        done += step;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
