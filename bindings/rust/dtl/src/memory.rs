//! Memory of a backend, and blocking copies.

use crate::library::KeepOpen;
use crate::{Backend, Buffer, BufferMut, Error, Result, call, sys};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;

/// Memory that a backend has allocated; freed on drop. The library is not finalized by a
/// [`Library`](crate::Library) before that, because finalization would free the memory.
#[derive(Debug)]
pub struct Memory {
    _open: KeepOpen,
    backend: Backend,
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: an address and a size. The library's functions take the memory from any thread, and what
// accesses it directly is unsafe.
unsafe impl Send for Memory {}
// SAFETY: through a shared reference the bytes are only read, by `read`; what writes them takes an
// exclusive one or is unsafe.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn alloc(
        backend: Backend,
        kind: sys::dtl_enum_word_t,
        size: usize,
        alignment: u64,
    ) -> Result<Memory> {
        // Before the allocation: from then on, no finalization frees it.
        let open = KeepOpen::enter("dtl_mem_alloc")?;
        let mut out = ptr::null_mut();
        let (handle, bytes) = (backend.raw(), size as u64);
        // SAFETY: the output is a local.
        unsafe { call!(dtl_mem_alloc(handle, kind, bytes, alignment, &raw mut out)) }?;
        let Some(start) = NonNull::new(out.cast()) else {
            let text = "succeeded without an address".to_owned();
            return Err(Error::argument("dtl_mem_alloc", text));
        };
        Ok(Memory { _open: open, backend, start, size })
    }

    /// Returns the backend from which the memory was allocated.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Returns the address of the first byte.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the address of `len` bytes at `offset`. Fails if the range is not inside the
    /// allocation.
    fn range(&self, call: &'static str, offset: usize, len: usize) -> Result<*mut c_void> {
        if offset.checked_add(len).is_none_or(|end| end > self.size) {
            let text = format!("{len} bytes at {offset}: the allocation has {} bytes", self.size);
            return Err(Error::out_of_bounds(call, text));
        }
        Ok(self.as_ptr().wrapping_add(offset).cast())
    }

    /// Copies a buffer to the allocation, at byte `offset`.
    ///
    /// # Errors
    /// See `dtl_mem_copy`. Also fails if the range is not inside the allocation.
    pub fn write<B: Buffer + ?Sized>(&mut self, offset: usize, from: &B) -> Result {
        let bytes = from.count() * size_of::<B::Element>();
        let into = self.range("dtl_mem_copy", offset, bytes)?;
        // SAFETY: both sides have that many bytes; `self` is borrowed exclusively, and work that
        // uses the memory beside this call was started by an unsafe function.
        unsafe { call!(dtl_mem_copy(into, from.as_ptr().cast(), bytes as u64)) }
    }

    /// Copies from the allocation, at byte `offset`, to a buffer.
    ///
    /// # Errors
    /// See `dtl_mem_copy`. Also fails if the range is not inside the allocation.
    pub fn read<B: BufferMut + ?Sized>(&self, offset: usize, into: &mut B) -> Result {
        let bytes = into.count() * size_of::<B::Element>();
        let from = self.range("dtl_mem_copy", offset, bytes)?;
        // SAFETY: both sides have that many bytes; nothing safe writes the memory during a shared
        // borrow.
        unsafe { call!(dtl_mem_copy(into.as_mut_ptr().cast(), from, bytes as u64)) }
    }

    /// Sets `len` bytes at `offset` to `value`.
    ///
    /// # Errors
    /// See `dtl_mem_fill`. Also fails if the range is not inside the allocation.
    pub fn fill(&mut self, offset: usize, value: u8, len: usize) -> Result {
        let into = self.range("dtl_mem_fill", offset, len)?;
        // SAFETY: as many bytes are inside, and `self` is borrowed exclusively.
        unsafe { call!(dtl_mem_fill(into, value, len as u64)) }
    }

    /// Returns the bytes for reading on the host.
    ///
    /// # Safety
    /// The memory kind must have the flag DTL_MEMORY_HOST_ACCESSIBLE, and every byte of the
    /// allocation must have been initialized. During the borrow, no stream, device or rank may
    /// write to the memory, and the library must not be finalized.
    #[must_use]
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: a live allocation of this size; the rest is the caller's contract.
        unsafe { slice::from_raw_parts(self.as_ptr(), self.size) }
    }

    /// Returns the bytes for writing on the host.
    ///
    /// # Safety
    /// The requirements of [`Memory::bytes`] apply. In addition, nothing else may read the memory
    /// during the borrow.
    #[must_use]
    pub unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: a live allocation of this size; the rest is the caller's contract.
        unsafe { slice::from_raw_parts_mut(self.as_ptr(), self.size) }
    }

    /// Exports `len` bytes of device memory at `offset` as a dma-buf, through which drivers of other
    /// devices access the same memory, for example by `ibv_reg_dmabuf_mr` of RDMA. The descriptor
    /// is closed when it is dropped. What another driver does with it is `unsafe` there, and has to
    /// end before this allocation is freed.
    ///
    /// # Errors
    /// See `dtl_mem_export_dmabuf`: DTL_ERROR_NOT_SUPPORTED if the backend exports no dma-bufs. Also
    /// fails if the range is not inside the allocation.
    pub fn export_dmabuf(&self, offset: usize, len: usize) -> Result<DmaBuf<'_>> {
        let at = self.range("dtl_mem_export_dmabuf", offset, len)?;
        let (mut fd, mut start) = (-1, 0);
        let (out_fd, out_start) = (&raw mut fd, &raw mut start);
        // SAFETY: an address inside the allocation; the outputs are locals.
        unsafe { call!(dtl_mem_export_dmabuf(at, len as u64, out_fd, out_start)) }?;
        // SAFETY: a new descriptor that the caller owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(DmaBuf { fd, offset: start, memory: PhantomData })
    }

    /// Frees the allocation now. Unlike a drop, reports a failure.
    ///
    /// # Errors
    /// See `dtl_mem_free`.
    pub fn free(self) -> Result {
        let this = ManuallyDrop::new(self);
        // SAFETY: the value is not used after this, so that nothing is dropped twice. It keeps the
        // library open until the end of this function.
        let _open = unsafe { ptr::read(&raw const this._open) };
        // SAFETY: the owner gives it up, and work that uses it was started by an unsafe function.
        unsafe { call!(dtl_mem_free(this.backend.raw(), this.as_ptr().cast())) }
    }
}

/// Device memory as a dma-buf, from [`Memory::export_dmabuf`].
#[derive(Debug)]
pub struct DmaBuf<'a> {
    /// Descriptor of the dma-buf.
    pub fd: OwnedFd,
    /// Offset of the memory in the dma-buf, in bytes.
    pub offset: u64,
    memory: PhantomData<&'a Memory>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the owner goes, and work that uses the memory was started by an unsafe function.
        // A drop has nobody to report a failure to; `free` reports it.
        let _ = unsafe { sys::dtl_mem_free(self.backend.raw(), self.as_ptr().cast()) };
    }
}
