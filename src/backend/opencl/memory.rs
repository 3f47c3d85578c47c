//! Shared virtual memory (OpenCL SVM), the only device memory that a pointer can address.
//!
//! Memory of kind DEVICE is coarse-grained: only devices and the library's copies and fills access
//! it. MANAGED is fine-grained: the host can also read and write it while no device does. PINNED is
//! host memory that the driver allocates (a buffer that stays mapped), which the driver can copy
//! from and to directly.

use super::OpenCl;
use super::driver::{Card, ClDriver};
use super::errors::required;
use super::symbols::*;
use crate::abi::devices::device::*;
use crate::abi::word::*;
use crate::backend::driver::{self, Driver as _, room_for};
use crate::error::{Result, fail};
use crate::runtime::component::{Extent, Memory};
use crate::runtime::device::new_kind_info;
use crate::runtime::enums::describe;
use crate::sys::memory::buf::Addr;
use std::sync::Arc;

/// `cl_mem` handle of a pinned allocation; `None` for shared virtual memory.
pub(super) type Origin = Option<Addr>;

/// Allocation of backend "opencl".
pub(super) type Block = driver::Block<Origin>;

/// Returns the clSVMAlloc flags for memory kind `kind`; NOT_SUPPORTED if `card` lacks the kind.
fn flags(card: &Card, kind: dtl_enum_word_t) -> Result<cl_ulong> {
    if kind != DTL_MEMORY_DEVICE && kind != DTL_MEMORY_MANAGED {
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "backend opencl has no memory kind {}: use DEVICE, MANAGED or PINNED (plain memory of \
             the host is backend host's)",
            describe(kind)
        );
    }
    let has = |bit: u32| card.sharing & u64::from(bit) != 0;
    if !has(CL_DEVICE_SVM_COARSE_GRAIN_BUFFER) {
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "device {} has no shared virtual memory (SVM, OpenCL 2.0), so no pointer can name its \
             memory: use another device or driver, or backend host",
            card.name
        );
    }
    if kind == DTL_MEMORY_DEVICE {
        return Ok(cl_ulong::from(CL_MEM_READ_WRITE));
    }
    if !has(CL_DEVICE_SVM_FINE_GRAIN_BUFFER) {
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "device {} has no fine-grained shared virtual memory, which kind MANAGED is: use \
             DEVICE and copies",
            card.name
        );
    }
    let atomics = if has(CL_DEVICE_SVM_ATOMICS) { CL_MEM_SVM_ATOMICS } else { 0 };
    Ok(cl_ulong::from(CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER | atomics))
}

impl Memory for Arc<OpenCl> {
    fn alloc(&self, Extent { kind, size, align }: Extent) -> Result<Addr> {
        let driver = self.driver.get()?;
        let device = self.current(&driver);
        let card = driver.card(device)?;
        if kind == DTL_MEMORY_PINNED {
            return self.alloc_pinned(&driver, device, size, align);
        }
        let flags = flags(card, kind)?;
        let alloc = required(driver.cl.clSVMAlloc, "clSVMAlloc")?;
        let room = room_for::<ClDriver>(size, align);
        let context = driver.context(card.platform)?;
        // SAFETY: the context is alive and has a device that supports shared virtual memory of this
        // kind.
        let base = unsafe { alloc(context.ptr(), flags, room, ClDriver::ALIGNMENT as cl_uint) };
        if base.is_null() {
            return no_memory(&driver, card, size, align);
        }
        let block = Block { base: Addr::new(base), size, device, origin: None };
        Ok(self.blocks.add(block, align))
    }

    fn free(&self, addr: Addr, _extent: Extent) -> Result<()> {
        let driver = self.driver.get()?;
        let block = self.remove_block(addr)?;
        if let Some(buffer) = block.origin {
            driver.copies(block.device)?.unpin(buffer, block.base);
            return Ok(());
        }
        let free = required(driver.cl.clSVMFree, "clSVMFree")?;
        let context = driver.context(driver.card(block.device)?.platform)?;
        // SAFETY: clSVMAlloc allocated the memory in this context. It is freed once, because it was
        // removed from the table.
        unsafe { free(context.ptr(), block.base.ptr()) };
        Ok(())
    }

    fn kind_info(&self, kind: dtl_enum_word_t) -> Result<Option<dtl_mem_kind_info_t>> {
        let driver = self.driver.get()?;
        let card = driver.card(self.current(&driver))?;
        let info = |properties, name| {
            let common = DTL_MEMORY_THREAD_SAFE;
            Ok(Some(new_kind_info(common | properties, ClDriver::ALIGNMENT, name)))
        };
        if kind == DTL_MEMORY_PINNED {
            return info(
                DTL_MEMORY_HOST_ACCESSIBLE,
                "OpenCL, a mapped CL_MEM_ALLOC_HOST_PTR buffer: no argument of kernels",
            );
        }
        let flags = flags(card, kind)?;
        let mut properties = DTL_MEMORY_DEVICE_ACCESSIBLE;
        if kind == DTL_MEMORY_DEVICE {
            return info(properties, "OpenCL, coarse-grained shared virtual memory");
        }
        properties |= DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_UNIFIED;
        if flags & cl_ulong::from(CL_MEM_SVM_ATOMICS) != 0 {
            properties |= DTL_MEMORY_ATOMICS;
        }
        info(properties, "OpenCL, fine-grained shared virtual memory")
    }
}

impl OpenCl {
    fn alloc_pinned(
        &self,
        driver: &Arc<ClDriver>,
        device: i32,
        size: u64,
        align: u64,
    ) -> Result<Addr> {
        let queue = driver.copies(device)?;
        // OpenCL does not specify the alignment of a mapped buffer.
        let align = align.max(ClDriver::ALIGNMENT);
        let room = size.saturating_add(align - 1);
        let (buffer, base) = queue.pinned(room as usize)?;
        Ok(self.blocks.add(Block { base, size, device, origin: Some(buffer) }, align))
    }
}

/// Returns an OUT_OF_MEMORY error whose message contains the device's limits, because clSVMAlloc
/// does not return an error code.
fn no_memory(driver: &ClDriver, card: &Card, size: u64, align: u64) -> Result<Addr> {
    let most: u64 = driver.number(card, CL_DEVICE_MAX_MEM_ALLOC_SIZE).unwrap_or(0);
    let total: u64 = driver.number(card, CL_DEVICE_GLOBAL_MEM_SIZE).unwrap_or(0);
    fail!(
        DTL_ERROR_OUT_OF_MEMORY,
        "clSVMAlloc gave no {size} bytes aligned to {align} (it tells no code): device {} has \
         {total} bytes and gives {most} at once (CL_DEVICE_MAX_MEM_ALLOC_SIZE)",
        card.name
    )
}
