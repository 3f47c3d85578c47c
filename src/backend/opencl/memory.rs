//! Memory that the host and devices share by pointer (OpenCL's SVM): the only kind of a device's
//! that a pointer can name.
//!
//! DEVICE is coarse-grained: for devices, and for the library's copies and fills. MANAGED is
//! fine-grained: the host reads and writes it, too, whenever no device does. PINNED is the host's,
//! made by the driver (a buffer that stays mapped), which can copy from and to it without a detour.

use super::OpenCl;
use super::driver::{Card, Driver};
use super::symbols::*;
use crate::abi::device::*;
use crate::abi::word::*;
use crate::error::{Result, fail};
use crate::runtime::backend::Memory;
use crate::runtime::copy_text;
use crate::runtime::enums::describe;
use crate::sys::buf::{Addr, Region};
use std::sync::Arc;

/// The largest alignment that OpenCL knows; it is that of every allocation.
const ALIGNMENT: u64 = 128;

/// An allocation, found by its first byte.
#[derive(Clone, Copy)]
pub(super) struct Block {
    /// What the driver gave.
    base: Addr,
    /// Bytes from the first that the caller sees.
    size: u64,
    /// The device that it was taken on.
    pub(super) device: i32,
    platform: usize,
    /// Pinned memory's `cl_mem`; null: shared memory.
    buffer: Addr,
}

impl Block {
    /// Whether it is the host's.
    pub(super) fn is_pinned(&self) -> bool {
        !self.buffer.is_null()
    }
}

impl OpenCl {
    /// Describes shared virtual memory that the program allocated itself.
    pub(super) fn foreign(&self, region: Region, device: i32) -> Option<Block> {
        let platform = self.driver.known()?.card(device).ok()?.platform;
        let (base, size) = (region.addr(), region.len() as u64);
        Some(Block { base, size, device, platform, buffer: Addr::NULL })
    }

    /// The allocation that an address lies in.
    pub(super) fn block(&self, addr: Addr) -> Option<Block> {
        let blocks = self.blocks.read();
        let (first, block) = blocks.range(..=addr.get()).next_back()?;
        (((addr.get() - first) as u64) < block.size).then_some(*block)
    }
}

/// The flags of clSVMAlloc for a kind on a device.
fn flags(card: &Card, kind: dtl_enum_word_t) -> Result<Bits> {
    if kind != DTL_MEMORY_DEVICE && kind != DTL_MEMORY_MANAGED {
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "backend opencl has no memory kind {}: use DEVICE, MANAGED or PINNED (plain memory of \
             the host is backend host's)",
            describe(kind)
        );
    }
    let has = |bit: i64| card.sharing & bit as u64 != 0;
    if !has(CL_DEVICE_SVM_COARSE_GRAIN_BUFFER) {
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "device {} has no shared virtual memory (SVM, OpenCL 2.0), so no pointer can name its \
             memory: use another \
             device or driver, or backend host",
            card.name
        );
    }
    if kind == DTL_MEMORY_DEVICE {
        return Ok(CL_MEM_READ_WRITE as Bits);
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
    Ok((CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER | atomics) as Bits)
}

impl Memory for Arc<OpenCl> {
    fn alloc(&self, kind: dtl_enum_word_t, size: u64, align: u64) -> Result<Addr> {
        let driver = self.driver.get()?;
        let device = self.current(&driver);
        let card = driver.card(device)?;
        if kind == DTL_MEMORY_PINNED {
            return self.alloc_pinned(&driver, device, size, align);
        }
        let flags = flags(card, kind)?;
        let Some(alloc) = driver.cl.clSVMAlloc else {
            return fail!(DTL_ERROR_NOT_SUPPORTED, "the OpenCL loader has no clSVMAlloc");
        };
        // Beyond what OpenCL aligns to, there is room to align in.
        let room = if align > ALIGNMENT { size.saturating_add(align) } else { size };
        let context = driver.context(card.platform)?;
        // SAFETY: a context, one of whose devices has shared memory of this kind.
        let base = unsafe { alloc(context.ptr(), flags, room as usize, ALIGNMENT as Uint) };
        if base.is_null() {
            return no_memory(&driver, card, size, align);
        }
        let platform = card.platform;
        let block = Block { base: Addr::new(base), size, device, platform, buffer: Addr::NULL };
        Ok(self.keep(block, align))
    }

    fn free(&self, _kind: dtl_enum_word_t, addr: Addr, _size: u64, _align: u64) -> Result<()> {
        let driver = self.driver.get()?;
        let block = self.blocks.write().remove(&addr.get());
        let (Some(block), free) = (block, driver.cl.clSVMFree) else {
            return fail!(DTL_ERROR_INTERNAL, "{addr:?} is no allocation of backend opencl");
        };
        if block.is_pinned() {
            driver.copies(block.device)?.unpin(block.buffer, block.base);
            return Ok(());
        }
        let Some(free) = free else { return Err(super::queue::absent("clSVMFree")) };
        let context = driver.context(block.platform)?;
        // SAFETY: what clSVMAlloc gave in this context, given back once: it is in the list no more.
        unsafe { free(context.ptr(), block.base.ptr()) };
        Ok(())
    }

    fn kind_info(
        &self,
        kind: dtl_enum_word_t,
        out: &mut dtl_mem_kind_info_t,
    ) -> Option<Result<()>> {
        Some(self.describe(kind, out))
    }
}

impl OpenCl {
    fn alloc_pinned(
        &self,
        driver: &Arc<Driver>,
        device: i32,
        size: u64,
        align: u64,
    ) -> Result<Addr> {
        let queue = driver.copies(device)?;
        // OpenCL does not say how a mapped buffer is aligned.
        let align = align.max(ALIGNMENT);
        let room = size.saturating_add(align - 1);
        let (buffer, base) = queue.pinned(room as usize)?;
        Ok(self.keep(Block { base, size, device, platform: queue.platform, buffer }, align))
    }

    /// Takes an allocation into the list; its first byte.
    fn keep(&self, block: Block, align: u64) -> Addr {
        let base = block.base;
        let first = base.offset(base.get().next_multiple_of(align.max(1) as usize) - base.get());
        self.blocks.write().insert(first.get(), block);
        first
    }

    fn describe(&self, kind: dtl_enum_word_t, out: &mut dtl_mem_kind_info_t) -> Result<()> {
        let driver = self.driver.get()?;
        let card = driver.card(self.current(&driver))?;
        out.alignment = ALIGNMENT;
        if kind == DTL_MEMORY_PINNED {
            out.properties = DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_THREAD_SAFE;
            copy_text(
                &mut out.name,
                "OpenCL, a mapped CL_MEM_ALLOC_HOST_PTR buffer: no argument of kernels",
            );
            return Ok(());
        }
        let flags = flags(card, kind)?;
        out.properties = DTL_MEMORY_DEVICE_ACCESSIBLE | DTL_MEMORY_THREAD_SAFE;
        if kind == DTL_MEMORY_DEVICE {
            copy_text(&mut out.name, "OpenCL, coarse-grained shared virtual memory");
            return Ok(());
        }
        out.properties |= DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_UNIFIED;
        if flags & CL_MEM_SVM_ATOMICS as Bits != 0 {
            out.properties |= DTL_MEMORY_ATOMICS;
        }
        copy_text(&mut out.name, "OpenCL, fine-grained shared virtual memory");
        Ok(())
    }
}

/// clSVMAlloc gives no code: what is known is said.
#[cold]
fn no_memory(driver: &Driver, card: &Card, size: u64, align: u64) -> Result<Addr> {
    let most: u64 = driver.number(card, CL_DEVICE_MAX_MEM_ALLOC_SIZE).unwrap_or(0);
    let total: u64 = driver.number(card, CL_DEVICE_GLOBAL_MEM_SIZE).unwrap_or(0);
    fail!(
        DTL_ERROR_OUT_OF_MEMORY,
        "clSVMAlloc gave no {size} bytes aligned to {align} (it tells no code): device {} has \
         {total} bytes and gives \
         {most} at once (CL_DEVICE_MAX_MEM_ALLOC_SIZE)",
        card.name
    )
}
