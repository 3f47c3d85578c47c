//! Safe wrappers for devices, memory and copies. Allocations are freed on drop, and error statuses
//! are returned as values.

use crate::kit::outcome::{Called, call, output};
use dtl_sys::*;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

/// A backend in the library's registry.
#[derive(Clone, Copy)]
pub(crate) struct Backend {
    pub(crate) handle: dtl_backend_t,
}

/// Returns the NUL-terminated string in a field of fixed size; `None` if it is not valid UTF-8.
pub(crate) fn field(bytes: &[c_char]) -> Option<String> {
    let bytes: Vec<u8> = bytes.iter().map(|byte| *byte as u8).collect();
    CStr::from_bytes_until_nul(&bytes).ok().and_then(|text| text.to_str().ok().map(str::to_owned))
}

impl Backend {
    pub(crate) fn find(name: &str) -> Called<Backend> {
        let name = CString::new(name).unwrap_or_default();
        let handle = output!(DTL_BACKEND_NULL, dtl_backend_get(name.as_ptr()))?;
        Ok(Backend { handle })
    }

    pub(crate) fn info(self) -> Called<dtl_backend_info_t> {
        output!(DTL_BACKEND_INFO_INIT, dtl_backend_info(self.handle))
    }

    /// Queries whether the backend can run here. The inner error is the reason why it cannot.
    pub(crate) fn available(self) -> Called<Result<(), String>> {
        let (mut yes, mut why) = (-1, [0; 512]);
        call!(dtl_backend_is_available(
            self.handle,
            &raw mut yes,
            why.as_mut_ptr(),
            512,
            ptr::null_mut()
        ))?;
        Ok(if yes == 0 { Err(field(&why).unwrap_or_default()) } else { Ok(()) })
    }

    pub(crate) fn supports(self, feature: &str) -> Called<i32> {
        let feature = CString::new(feature).unwrap_or_default();
        output!(-1, dtl_backend_supports(self.handle, feature.as_ptr()))
    }

    pub(crate) fn device_count(self) -> Called<i32> {
        output!(-1, dtl_backend_device_count(self.handle))
    }

    pub(crate) fn set_device(self, device: i32) -> Called {
        call!(dtl_backend_set_device(self.handle, device))
    }

    pub(crate) fn get_device(self) -> Called<i32> {
        output!(-1, dtl_backend_get_device(self.handle))
    }

    pub(crate) fn device_info(self, device: i32) -> Called<dtl_device_info_t> {
        output!(DTL_DEVICE_INFO_INIT, dtl_device_info(self.handle, device))
    }

    /// Returns the free and the total memory in bytes.
    pub(crate) fn device_memory(self, device: i32) -> Called<(u64, u64)> {
        let mut free = u64::MAX;
        let total = output!(u64::MAX, dtl_device_memory_info(self.handle, device, &raw mut free))?;
        Ok((free, total))
    }

    /// Returns the DLPack device type and the DLPack device id of a device.
    pub(crate) fn dlpack(self, device: i32) -> Called<(i32, i32)> {
        let mut kind = -1;
        let id = output!(-1, dtl_backend_dlpack_device(self.handle, device, &raw mut kind))?;
        Ok((kind, id))
    }

    pub(crate) fn device_synchronize(self, device: i32) -> Called {
        call!(dtl_device_wait(self.handle, device, DTL_TIMEOUT_INFINITE))
    }

    pub(crate) fn kind_info(self, kind: u64) -> Called<dtl_mem_kind_info_t> {
        output!(DTL_MEM_KIND_INFO_INIT, dtl_mem_kind_info(self.handle, kind))
    }

    pub(crate) fn stats(self) -> Called<dtl_mem_stats_t> {
        output!(DTL_MEM_STATS_INIT, dtl_mem_stats(self.handle))
    }

    /// Allocates memory that is not freed on drop.
    pub(crate) fn alloc_raw(self, kind: u64, size: u64, alignment: u64) -> Called<*mut u8> {
        let out = output!(UNTOUCHED, dtl_mem_alloc(self.handle, kind, size, alignment))?;
        Ok(out.cast())
    }

    pub(crate) fn free_raw(self, pointer: *mut u8) -> Called {
        call!(dtl_mem_free(self.handle, pointer.cast()))
    }

    pub(crate) fn alloc(self, kind: u64, size: u64, alignment: u64) -> Called<Block> {
        let pointer = self.alloc_raw(kind, size, alignment)?;
        Ok(Block { backend: self, pointer, size })
    }

    /// Allocates memory of kind `kind` and copies `contents` to it.
    pub(crate) fn alloc_with(self, kind: u64, contents: &[u8]) -> Called<Block> {
        let block = self.alloc(kind, contents.len() as u64, 0)?;
        block.write(0, contents)?;
        Ok(block)
    }

    /// Allocates device memory and copies `bytes` to it.
    pub(crate) fn to_device(self, bytes: &[u8]) -> Called<Block> {
        let (from, size) = (bytes.as_ptr().cast(), bytes.len() as u64);
        let out = output!(ptr::null_mut(), dtl_mem_to_device(self.handle, from, size))?;
        Ok(Block { backend: self, pointer: out.cast(), size })
    }
}

/// Value to which outputs are preset, to detect outputs that were not written.
pub(crate) const UNTOUCHED: *mut c_void = ptr::without_provenance_mut(0xdead_beef);

/// An allocation; freed when dropped.
pub(crate) struct Block {
    pub(crate) backend: Backend,
    pub(crate) pointer: *mut u8,
    pub(crate) size: u64,
}

// SAFETY: an address range of the library's; calls on it may come from any thread.
unsafe impl Send for Block {}
// SAFETY: as above; tests that use one from several threads use different bytes of it.
unsafe impl Sync for Block {}

impl Block {
    pub(crate) fn address(&self) -> u64 {
        self.pointer.addr() as u64
    }

    pub(crate) fn at(&self, offset: u64) -> *mut c_void {
        self.pointer.wrapping_add(offset as usize).cast()
    }

    /// Copies bytes to an offset of the allocation with the library's copy function.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Called {
        copy(self.at(offset), bytes.as_ptr().cast(), bytes.len() as u64)
    }

    pub(crate) fn read(&self, offset: u64, size: u64) -> Called<Vec<u8>> {
        let mut bytes = vec![0; size as usize];
        copy(bytes.as_mut_ptr().cast(), self.at(offset), size)?;
        Ok(bytes)
    }

    pub(crate) fn all(&self) -> Called<Vec<u8>> {
        self.read(0, self.size)
    }

    pub(crate) fn fill(&self, offset: u64, value: u8, size: u64) -> Called {
        call!(dtl_mem_fill(self.at(offset), value, size))
    }

    /// Returns the bytes of an allocation whose memory kind is accessible to the host.
    pub(crate) fn as_host(&mut self) -> &mut [u8] {
        // SAFETY: a live allocation of that size, which the kind calls host accessible.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.size as usize) }
    }

    /// Frees it now.
    pub(crate) fn free(self) -> Called {
        let (backend, pointer) = (self.backend, self.pointer);
        std::mem::forget(self);
        backend.free_raw(pointer)
    }

    pub(crate) fn query(&self, offset: u64) -> Called<dtl_mem_info_t> {
        let before = dtl_mem_info_t { device: -1, ..DTL_MEM_INFO_INIT };
        output!(before, dtl_mem_query(self.at(offset).cast_const()))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let _ = self.backend.free_raw(self.pointer);
    }
}

pub(crate) fn copy(dst: *mut c_void, src: *const c_void, size: u64) -> Called {
    call!(dtl_mem_copy(dst, src, size))
}

/// Pitched range of memory.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) first: *mut c_void,
    pub(crate) pitch: u64,
}

pub(crate) fn copy_2d(dst: Rows, src: Rows, width: u64, height: u64) -> Called {
    let from = src.first.cast_const();
    call!(dtl_mem_copy_2d(dst.first, dst.pitch, from, src.pitch, width, height))
}

/// Copies a whole block to the host (`dtl_mem_to_host`).
pub(crate) fn to_host(block: &Block) -> Called<Vec<u8>> {
    let mut bytes = vec![0u8; block.size as usize];
    let (from, into) = (block.at(0).cast_const(), bytes.as_mut_ptr().cast());
    call!(dtl_mem_to_host(block.backend.handle, from, into, block.size))?;
    Ok(bytes)
}
