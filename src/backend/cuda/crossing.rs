//! Memory that others reach: device memory of other processes (CUDA IPC), of other devices' drivers (dma-buf), and host memory of
//! the program's that devices reach.

use super::Cuda;
use super::driver::Driver;
use super::functions::*;
use super::memory::{Block, From, address};
use crate::error::{Result, fail};
use crate::runtime::backend::{Exports, Extent, Ticket};
use crate::sys::buf::{Addr, Region};
use crate::sys::shared::page_size;

/// Page-locks it, for all devices.
pub(super) fn register(driver: &Driver, region: Region) -> Result<()> {
    let Some(register) = driver.cuda.cuMemHostRegister_v2 else { return absent("cuMemHostRegister_v2") };
    let _inside = driver.enter(0)?;
    let flags = (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) as Uint;
    // SAFETY: memory that the caller keeps until it is unregistered; the driver refuses what is none.
    let code = unsafe { register(region.addr().ptr(), region.len(), flags) };
    driver.cuda.check(code, "registering host memory (cuMemHostRegister)")
}

/// Undoes it.
pub(super) fn unregister(driver: &Driver, region: Region) -> Result<()> {
    let Some(unregister) = driver.cuda.cuMemHostUnregister else { return absent("cuMemHostUnregister") };
    let _inside = driver.enter(0)?;
    // SAFETY: what was registered, once; nothing uses it, as the caller says.
    let code = unsafe { unregister(region.addr().ptr()) };
    driver.cuda.check_release(code, "cuMemHostUnregister")
}

/// A file descriptor of whole pages, and where the range begins in it.
pub(super) fn dmabuf(driver: &Driver, block: Option<Block>, region: Region) -> Result<(i32, u64)> {
    let Some(get) = driver.cuda.cuMemGetHandleForAddressRange else {
        return absent("cuMemGetHandleForAddressRange (CUDA 11.7)");
    };
    let Some(block) = block.filter(Block::is_on_device) else {
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "{:?} is no device memory: a dma-buf is of kind DEVICE",
            region.addr()
        );
    };
    let page = page_size();
    let offset = region.addr().get() % page;
    let (first, len) =
        ((region.addr().get() - offset) as Ptr, (offset + region.len()).next_multiple_of(page));
    let _inside = driver.enter(block.device)?;
    let mut fd: Int = -1;
    let kind = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD as Uint;
    // SAFETY: room for a descriptor; the driver refuses a range that it cannot give.
    let code = unsafe { get((&raw mut fd).cast(), first, len, kind, 0) };
    driver.cuda.check(code, "a dma-buf (cuMemGetHandleForAddressRange)").map(|()| (fd, offset as u64))
}

/// Lets go of what another process has.
pub(super) fn close(driver: &Driver, number: Ptr) -> Result<()> {
    let Some(close) = driver.cuda.cuIpcCloseMemHandle else { return absent("cuIpcCloseMemHandle") };
    // SAFETY: what cuIpcOpenMemHandle gave, closed once; its context is current, nothing uses it.
    driver.cuda.check_release(unsafe { close(number) }, "cuIpcCloseMemHandle")
}

fn absent<T>(function: &str) -> Result<T> {
    fail!(DTL_ERROR_NOT_SUPPORTED, "this driver has no {function}: use a newer one")
}

impl Exports for Cuda {
    fn export(&self, addr: Addr, extent: Extent) -> Result<Ticket> {
        let (driver, block) = (self.driver.get()?, self.block(addr));
        let Some(block) = block.filter(|block| block.from == From::Device) else {
            return fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "memory of kind {:#x} cannot be exported by CUDA: allocate DTL_MEMORY_SHARED",
                extent.kind
            );
        };
        let Some(export) = driver.cuda.cuIpcGetMemHandle else { return absent("cuIpcGetMemHandle") };
        let _inside = driver.enter(block.device)?;
        let mut handle = IpcHandle { bytes: [0; 64] };
        // SAFETY: room for a handle, the first byte of an allocation.
        let code = unsafe { export(&raw mut handle, block.base.get() as Ptr) };
        driver.cuda.check(code, "exporting (cuIpcGetMemHandle)")?;
        let mut ticket = Ticket::default();
        for (word, bytes) in ticket.iter_mut().zip(handle.bytes.chunks_exact(8)) {
            *word = bytes.try_into().map_or(0, u64::from_ne_bytes);
        }
        Ok(ticket)
    }

    fn import(&self, ticket: &Ticket, extent: Extent) -> Result<Addr> {
        let driver = self.driver.get()?;
        let Some(open) = driver.cuda.cuIpcOpenMemHandle_v2 else { return absent("cuIpcOpenMemHandle_v2") };
        let device = self.current(&driver);
        let inside = driver.enter(device)?;
        let mut handle = IpcHandle { bytes: [0; 64] };
        for (bytes, word) in handle.bytes.chunks_exact_mut(8).zip(ticket) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        let mut number = 0;
        // SAFETY: room for a device pointer, a handle that another process' driver wrote.
        let code = unsafe { open(&raw mut number, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as Uint) };
        driver.cuda.check(
            code,
            "opening another process' memory (cuIpcOpenMemHandle; not of this process, on a device that reaches it, and while \
             it is there)",
        )?;
        let base = address(number);
        let mut blocks = self.blocks.write();
        if blocks.contains_key(&base.get()) {
            drop(blocks);
            close(&driver, number)?;
            return fail!(DTL_ERROR_ALREADY_EXISTS, "it is imported here already, at {base:?}: use that");
        }
        blocks.insert(base.get(), Block { base, size: extent.size, device, from: From::Opened });
        drop(blocks);
        drop(inside);
        Ok(base)
    }

    fn close(&self, addr: Addr, _extent: Extent) -> Result<()> {
        self.give(addr)
    }
}
