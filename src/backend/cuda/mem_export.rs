//! Export of device memory to other processes (CUDA IPC) and to the drivers of other devices
//! (dma-buf), and registration of application memory for access by devices.

use super::driver::{AllocOrigin, Block, Cuda, CudaDriver, address};
use super::symbols::*;
use crate::backend::driver::Driver as _;
use crate::error::{Result, fail, failure};
use crate::runtime::component::{Exports, Extent, Ticket};
use crate::runtime::enums::describe;
use crate::sys::memory::buf::{Addr, Region};
use crate::sys::memory::host_pages::page_size;

impl Cuda {
    /// Page-locks host memory of the application for access by all devices.
    pub(super) fn register_range(&self, region: Region) -> Result<()> {
        let driver = self.driver.get()?;
        let register = required(driver.cuda.cuMemHostRegister_v2, "cuMemHostRegister_v2")?;
        let device = self.current(&driver);
        let _inside = driver.enter(device)?;
        let flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the caller keeps the memory allocated until it is unregistered. The driver
        // rejects a range that is not valid memory.
        let code = unsafe { register(region.addr().ptr(), region.len(), flags) };
        driver.cuda.check(code, "registering host memory (cuMemHostRegister)")?;
        let (base, size) = (region.addr(), region.len() as u64);
        self.blocks.insert(base, Block { base, size, device, origin: AllocOrigin::Program });
        Ok(())
    }
}

/// Unregisters host memory of the application, which unlocks its pages.
pub(super) fn unregister(driver: &CudaDriver, addr: Addr) -> Result<()> {
    let unregister = required(driver.cuda.cuMemHostUnregister, "cuMemHostUnregister")?;
    // SAFETY: the memory was registered and is unregistered once. A context is current, and the
    // caller guarantees that nothing uses the memory.
    driver.cuda.check_release(unsafe { unregister(addr.ptr()) }, "cuMemHostUnregister")
}

/// Exports a range of device memory as a dma-buf. Returns the file descriptor of the dma-buf, which
/// covers whole pages, and the byte offset of the range in the dma-buf.
pub(super) fn dmabuf(
    driver: &CudaDriver,
    block: Option<Block>,
    region: Region,
) -> Result<(i32, u64)> {
    let name = "cuMemGetHandleForAddressRange (CUDA 11.7)";
    let get = required(driver.cuda.cuMemGetHandleForAddressRange, name)?;
    let Some(block) = block.filter(Block::is_on_device) else {
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "{:?} is no device memory: a dma-buf is of kind DEVICE",
            region.addr()
        );
    };
    let page = page_size();
    let offset = region.addr().get() % page;
    let (first, len) = (
        (region.addr().get() - offset) as CUdeviceptr,
        (offset + region.len()).next_multiple_of(page),
    );
    let _inside = driver.enter(block.device)?;
    let mut fd: c_int = -1;
    let kind = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    // SAFETY: `fd` is valid for writing a descriptor. The driver rejects a range that it cannot
    // export.
    let code = unsafe { get((&raw mut fd).cast(), first, len, kind, 0) };
    if code == CUDA_ERROR_INVALID_VALUE && block.origin != AllocOrigin::Device {
        // The driver exports only some ranges of a pool.
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "CUDA gives no dma-buf of this range, which a pool or the program mapped ({}): \
             allocate DTL_MEMORY_SHARED",
            driver.cuda.words(code)
        );
    }
    driver
        .cuda
        .check(code, "a dma-buf (cuMemGetHandleForAddressRange)")
        .map(|()| (fd, offset as u64))
}

/// Unmaps device memory that another process exported.
pub(super) fn close(driver: &CudaDriver, number: CUdeviceptr) -> Result<()> {
    let close = required(driver.cuda.cuIpcCloseMemHandle, "cuIpcCloseMemHandle")?;
    // SAFETY: cuIpcOpenMemHandle returned the address, which is closed once. Its context is
    // current, and nothing uses the memory.
    driver.cuda.check_release(unsafe { close(number) }, "cuIpcCloseMemHandle")
}

/// Returns an optional function of the driver; NOT_SUPPORTED if the driver lacks it.
fn required<F>(function: Option<F>, name: &str) -> Result<F> {
    function.ok_or_else(|| {
        failure!(DTL_ERROR_NOT_SUPPORTED, "this driver has no {name}: use a newer one")
    })
}

impl Exports for Cuda {
    fn export(&self, addr: Addr, extent: Extent) -> Result<Ticket> {
        let (driver, block) = (self.driver.get()?, self.blocks.find(addr));
        let Some(block) = block.filter(|block| block.origin == AllocOrigin::Device) else {
            return fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "memory of kind {} cannot be exported by CUDA: allocate DTL_MEMORY_SHARED",
                describe(extent.kind)
            );
        };
        if extent.align > CudaDriver::ALIGNMENT {
            return fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "memory aligned to {} cannot be exported by CUDA, which aligns it to {} where it \
                 is opened: ask for that or less",
                extent.align,
                CudaDriver::ALIGNMENT
            );
        }
        let export = required(driver.cuda.cuIpcGetMemHandle, "cuIpcGetMemHandle")?;
        let _inside = driver.enter(block.device)?;
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: `handle` is valid for writing, and `block.base` is the first byte of an
        // allocation.
        let code = unsafe { export(&raw mut handle, block.base.get() as CUdeviceptr) };
        driver.cuda.check(code, "exporting (cuIpcGetMemHandle)")?;
        let mut ticket = Ticket::default();
        let bytes = handle.reserved.map(|byte| byte as u8);
        for (word, bytes) in ticket.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.try_into().map_or(0, u64::from_ne_bytes);
        }
        Ok(ticket)
    }

    fn import(&self, ticket: &Ticket, extent: Extent) -> Result<Addr> {
        let driver = self.driver.get()?;
        let open = required(driver.cuda.cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle_v2")?;
        let device = self.current(&driver);
        let _inside = driver.enter(device)?;
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        let bytes = ticket.iter().flat_map(|word| word.to_ne_bytes());
        for (to, byte) in handle.reserved.iter_mut().zip(bytes) {
            *to = byte as c_char;
        }
        let mut number = 0;
        // SAFETY: `number` is valid for writing a device pointer, and the driver of another process
        // wrote the handle.
        let code = unsafe { open(&raw mut number, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) };
        match code {
            CUDA_ERROR_INVALID_CONTEXT => {
                return fail!(
                    DTL_ERROR_NOT_SUPPORTED,
                    "CUDA does not open what this very process exported: use the memory itself \
                     ({})",
                    driver.cuda.words(code)
                );
            }
            CUDA_ERROR_INVALID_HANDLE => {
                return fail!(
                    DTL_ERROR_INVALID_HANDLE,
                    "stale: the exporter has freed it or has ended; free only when all have \
                     imported ({})",
                    driver.cuda.words(code)
                );
            }
            code => driver.cuda.check(
                code,
                "opening another process' memory (cuIpcOpenMemHandle; the device must be the \
                 exporter's, or reach it)",
            )?,
        }
        let base = address(number);
        let block = Block { base, size: extent.size, device, origin: AllocOrigin::Opened };
        if !self.blocks.try_insert(base, block) {
            close(&driver, number)?;
            return fail!(
                DTL_ERROR_ALREADY_EXISTS,
                "it is imported here already, at {base:?}: use that"
            );
        }
        Ok(base)
    }

    fn close(&self, addr: Addr, _extent: Extent) -> Result<()> {
        self.give(addr)
    }
}
