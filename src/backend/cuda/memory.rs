//! Memory: DEVICE from a pool of the driver's where the device has them, MANAGED, and PINNED of the
//! host.
//!
//! The pool is stream-ordered, an allocation here is not: it is taken on a stream of its own and
//! waited for.

use super::driver::{CudaDriver, Use};
use super::errors::is_lost;
use super::symbols::*;
use super::{Cuda, mem_export};
use crate::abi::devices::device::*;
use crate::abi::word::*;
use crate::backend::driver::{self, Driver as _, room_for, stream_of};
use crate::error::{Error, Result, fail};
use crate::runtime::component::{CopySide, DriverAllocation, Exports, Memory, Token};
use crate::runtime::copy_text;
use crate::runtime::enums::describe;
use crate::sys::memory::buf::{Addr, Region};
use std::sync::Arc;

/// An allocation.
pub(super) type Block = driver::Block<AllocOrigin>;

/// Which call gave an allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AllocOrigin {
    Pool,
    Device,
    Managed,
    Host,
    /// Another process.
    Opened,
    /// The program: host memory that is registered.
    Program,
    /// Allocated or registered by the program's own call of the driver; has the kind of the memory.
    Foreign(dtl_enum_word_t),
}

impl Block {
    /// Whether its pages move.
    pub(super) fn is_managed(&self) -> bool {
        matches!(self.origin, AllocOrigin::Managed | AllocOrigin::Foreign(DTL_MEMORY_MANAGED))
    }

    /// Whether it lies on its device, as far as is known.
    pub(super) fn is_on_device(&self) -> bool {
        let is_ours =
            matches!(self.origin, AllocOrigin::Pool | AllocOrigin::Device | AllocOrigin::Opened);
        is_ours
            || matches!(self.origin, AllocOrigin::Foreign(DTL_MEMORY_DEVICE | DTL_MEMORY_SHARED))
    }
}

impl Cuda {
    /// Describes one side of a copy or fill; `None` = plain host memory.
    pub(super) fn side(&self, place: CopySide) -> Option<Block> {
        let CopySide { region, kind, device } = place;
        let foreign = || Block {
            base: region.addr(),
            size: region.len() as u64,
            device,
            origin: AllocOrigin::Foreign(kind),
        };
        let is_ours = kind != DTL_MEMORY_HOST;
        self.blocks.find(region.addr()).or_else(|| is_ours.then(foreign))
    }

    /// Takes memory on a device, whose context is current.
    fn take(
        &self,
        driver: &CudaDriver,
        device: i32,
        kind: dtl_enum_word_t,
        room: usize,
    ) -> Result<(Addr, AllocOrigin)> {
        let cuda = driver.cuda;
        let (mut number, mut pointer) = (0, std::ptr::null_mut());
        let origin = match kind {
            DTL_MEMORY_DEVICE | DTL_MEMORY_SHARED => {
                // What other processes have too is no pool's: those hand theirs out otherwise.
                if kind == DTL_MEMORY_DEVICE {
                    if let Some(taken) = take_from_pool(driver, device, room)? {
                        return Ok((taken, AllocOrigin::Pool));
                    }
                }
                // SAFETY: room for a device pointer.
                cuda.check(unsafe { (cuda.cuMemAlloc_v2)(&raw mut number, room) }, "cuMemAlloc")?;
                AllocOrigin::Device
            }
            DTL_MEMORY_MANAGED => {
                // SAFETY: room for a device pointer.
                let code = unsafe {
                    (cuda.cuMemAllocManaged)(&raw mut number, room, CU_MEM_ATTACH_GLOBAL)
                };
                cuda.check(code, "cuMemAllocManaged")?;
                AllocOrigin::Managed
            }
            _ => {
                let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
                // SAFETY: room for a pointer.
                let code = unsafe { (cuda.cuMemHostAlloc)(&raw mut pointer, room, flags) };
                cuda.check(code, "cuMemHostAlloc")?;
                return Ok((Addr::new(pointer), AllocOrigin::Host));
            }
        };
        Ok((address(number), origin))
    }

    /// Gives an allocation back.
    pub(super) fn give(&self, addr: Addr) -> Result<()> {
        let driver = self.driver.get()?;
        let block = self.remove_block(addr)?;
        // What could not be given back is still there.
        give_back(&driver, &block).inspect_err(|_| {
            self.blocks.insert(addr, block);
        })
    }

    fn describe(&self, kind: dtl_enum_word_t, out: &mut dtl_mem_kind_info_t) -> Result<()> {
        let driver = self.driver.get()?;
        let device = self.current(&driver);
        let card = driver.card(device)?;
        check_kind(&driver, device, kind)?;
        out.alignment = CudaDriver::ALIGNMENT;
        out.properties = DTL_MEMORY_DEVICE_ACCESSIBLE | DTL_MEMORY_THREAD_SAFE;
        if kind == DTL_MEMORY_DEVICE {
            copy_text(&mut out.name, "CUDA, device");
            return Ok(());
        }
        if kind == DTL_MEMORY_SHARED {
            out.properties |= DTL_MEMORY_EXPORTABLE;
            copy_text(&mut out.name, "CUDA, device (other processes can open it)");
            return Ok(());
        }
        out.properties |= DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_UNIFIED;
        if driver.attribute(card, CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED) != 0 {
            out.properties |= DTL_MEMORY_ATOMICS;
        }
        let concurrent = driver.attribute(card, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) != 0;
        let name = match kind {
            DTL_MEMORY_PINNED => "CUDA, host (page-locked)",
            _ if concurrent => "CUDA, managed",
            _ => "CUDA, managed (host: only while the device is idle)",
        };
        copy_text(&mut out.name, name);
        Ok(())
    }
}

/// A device pointer as an address. The host may not be able to read there.
pub(super) fn address(number: CUdeviceptr) -> Addr {
    Addr::new(std::ptr::with_exposed_provenance_mut(number as usize))
}

fn check_kind(driver: &CudaDriver, device: i32, kind: dtl_enum_word_t) -> Result<()> {
    let card = driver.card(device)?;
    match kind {
        DTL_MEMORY_DEVICE | DTL_MEMORY_PINNED => Ok(()),
        DTL_MEMORY_SHARED if driver.cuda.cuIpcGetMemHandle.is_some() => Ok(()),
        DTL_MEMORY_MANAGED if driver.attribute(card, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY) != 0 => {
            Ok(())
        }
        DTL_MEMORY_MANAGED => fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "device {device} ({}) has no managed memory: use DEVICE or PINNED",
            card.name
        ),
        _ => fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "backend cuda has no memory kind {}: use DEVICE, MANAGED, PINNED or SHARED (the host's \
             is backend host's)",
            describe(kind)
        ),
    }
}

/// `None`: the device has no pools.
fn take_from_pool(driver: &CudaDriver, device: i32, room: usize) -> Result<Option<Addr>> {
    let Some(pool) = driver.pool(device)? else { return Ok(None) };
    let stream = driver.own_stream(device, Use::Memory)?;
    let Some(taken) = queue_take(driver, pool, stream, room)? else { return Ok(None) };
    let cuda = driver.cuda;
    // SAFETY: the library's own stream.
    let code = unsafe { (cuda.cuStreamSynchronize)(stream.ptr()) };
    cuda.check(code, "an allocation (cuStreamSynchronize)")?;
    Ok(Some(taken))
}

/// In a stream's order, whose context is current.
fn queue_take(driver: &CudaDriver, pool: Addr, stream: Addr, room: usize) -> Result<Option<Addr>> {
    let Some(alloc) = driver.cuda.cuMemAllocFromPoolAsync else { return Ok(None) };
    let mut number = 0;
    // SAFETY: room for a device pointer; the library's own pool, a stream of the device's.
    let code = unsafe { alloc(&raw mut number, room, pool.ptr(), stream.ptr()) };
    driver.cuda.check(code, "cuMemAllocFromPoolAsync").map(|()| Some(address(number)))
}

/// Frees a block's memory; with a lost device it is gone already.
fn give_back(driver: &CudaDriver, block: &Block) -> Result<()> {
    let cuda = driver.cuda;
    let _inside = match driver.enter(block.device) {
        Err(error) if error.status() == crate::abi::status::DTL_ERROR_DEVICE_LOST => return Ok(()),
        inside => inside?,
    };
    let number = block.base.get() as CUdeviceptr;
    let (code, what) = match (block.origin, cuda.cuMemFreeAsync) {
        (AllocOrigin::Pool, Some(free)) => {
            let stream = driver.own_stream(block.device, Use::Memory)?;
            // SAFETY: memory of the pool, given back once; nothing uses it, as the caller
            // guarantees.
            (unsafe { free(number, stream.ptr()) }, "cuMemFreeAsync")
        }
        (AllocOrigin::Opened, _) => return mem_export::close(driver, number),
        (AllocOrigin::Program, _) => return mem_export::unregister(driver, block.base),
        (AllocOrigin::Host, _) => {
            // SAFETY: what cuMemHostAlloc gave, given back once.
            (unsafe { (cuda.cuMemFreeHost)(block.base.ptr()) }, "cuMemFreeHost")
        }
        _ => {
            // SAFETY: what cuMemAlloc or cuMemAllocManaged gave, given back once.
            (unsafe { (cuda.cuMemFree_v2)(number) }, "cuMemFree")
        }
    };
    cuda.check_release(code, what)
}

impl Memory for Arc<Cuda> {
    fn alloc(&self, kind: dtl_enum_word_t, size: u64, align: u64) -> Result<Addr> {
        let driver = self.driver.get()?;
        let device = self.current(&driver);
        check_kind(&driver, device, kind)?;
        let inside = driver.enter(device)?;
        let room = room_for::<CudaDriver>(size, align);
        let taken = match self.take(&driver, device, kind, room) {
            // What the pool keeps without use may be what is missing.
            Err(error) if is_shortage(&error) && trim(&driver, device) => {
                self.take(&driver, device, kind, room)
            }
            taken => taken,
        };
        drop(inside);
        let (base, origin) = taken.map_err(|error| explain(&driver, device, size, error))?;
        Ok(self.blocks.add(Block { base, size, device, origin }, align))
    }

    fn alloc_async(
        &self,
        stream: Token,
        kind: dtl_enum_word_t,
        size: u64,
        align: u64,
    ) -> Option<Result<Addr>> {
        if kind != DTL_MEMORY_DEVICE {
            return None;
        }
        let queue = stream_of::<CudaDriver>(stream).queue();
        let (driver, device) = (&queue.driver, queue.device);
        let take = || {
            let inside = queue.enter()?;
            let Some(pool) = driver.pool(device)? else { return Ok(None) };
            let taken =
                match queue_take(driver, pool, queue.id, room_for::<CudaDriver>(size, align)) {
                    Err(error) if is_shortage(&error) && trim(driver, device) => {
                        queue_take(driver, pool, queue.id, room_for::<CudaDriver>(size, align))
                    }
                    taken => taken,
                };
            drop(inside);
            taken.map_err(|error| explain(driver, device, size, error))
        };
        take()
            .map(|taken| {
                taken.map(|base| {
                    self.blocks.add(Block { base, size, device, origin: AllocOrigin::Pool }, align)
                })
            })
            .transpose()
    }

    fn free_async(
        &self,
        stream: Token,
        _kind: dtl_enum_word_t,
        addr: Addr,
        _size: u64,
        _align: u64,
    ) -> Option<Result<()>> {
        let queue = stream_of::<CudaDriver>(stream).queue();
        let free = queue.driver.cuda.cuMemFreeAsync?;
        let block = self
            .blocks
            .find(addr)
            .filter(|block| block.origin == AllocOrigin::Pool && block.device == queue.device)?;
        let give = || {
            let _inside = queue.enter()?;
            // Before another thread is given the same address.
            self.blocks.remove(addr);
            // SAFETY: memory of the pool, given back once; commands that are queued later do not
            // use it, as the caller guarantees.
            let code = unsafe { free(block.base.get() as CUdeviceptr, queue.id.ptr()) };
            queue.driver.cuda.check_release(code, "cuMemFreeAsync").inspect_err(|_| {
                self.blocks.insert(addr, block);
            })
        };
        Some(give())
    }

    fn register(&self, region: Region) -> Option<Result<()>> {
        Some(self.register_range(region))
    }

    fn unregister(&self, region: Region) -> Option<Result<()>> {
        Some(self.give(region.addr()))
    }

    fn dmabuf(&self, region: Region) -> Option<Result<(i32, u64)>> {
        let foreign = |DriverAllocation { kind, device, base, size }| Block {
            base,
            size,
            device,
            origin: AllocOrigin::Foreign(kind),
        };
        let make = |driver: Arc<CudaDriver>| {
            let block = self.blocks.find(region.addr());
            let block = match block {
                None => identify(&driver, region.addr())?.map(foreign),
                block => block,
            };
            mem_export::dmabuf(&driver, block, region)
        };
        Some(self.driver.get().and_then(make))
    }

    fn exports(&self) -> Option<&dyn Exports> {
        Some(&**self)
    }

    fn free(&self, _kind: dtl_enum_word_t, addr: Addr, _size: u64, _align: u64) -> Result<()> {
        self.give(addr)
    }

    fn trim(&self) {
        if let Some(driver) = self.driver.known() {
            driver.staging.trim(&driver);
            for device in 0..driver.cards.len() as i32 {
                if driver.pool_so_far(device).is_some() {
                    let inside = driver.enter(device);
                    trim(&driver, device);
                    drop(inside);
                }
            }
        }
    }

    fn can_identify(&self) -> bool {
        self.driver.known().is_some()
    }

    fn identify(&self, addr: Addr) -> Result<Option<DriverAllocation>> {
        self.driver.known().map_or(Ok(None), |driver| identify(&driver, addr))
    }

    fn kind_info(
        &self,
        kind: dtl_enum_word_t,
        out: &mut dtl_mem_kind_info_t,
    ) -> Option<Result<()>> {
        Some(self.describe(kind, out))
    }
}

/// Queries the driver about an address. An unknown address has memory type 0.
///
/// If the context is lost, so is all device memory, and a program must still be able to send from
/// host memory: every address is unknown then. Any other failure is the result.
fn identify(driver: &CudaDriver, addr: Addr) -> Result<Option<DriverAllocation>> {
    let (mut kind, mut managed, mut ordinal): (c_uint, c_uint, c_int) = (0, 0, 0);
    let (mut base, mut size): (CUdeviceptr, usize) = (0, 0);
    let mut names = [
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    ];
    let mut places: [*mut c_void; 5] = [
        (&raw mut kind).cast(),
        (&raw mut managed).cast(),
        (&raw mut ordinal).cast(),
        (&raw mut base).cast(),
        (&raw mut size).cast(),
    ];
    let (count, number) = (names.len() as c_uint, addr.get() as CUdeviceptr);
    let mut ask = || {
        // SAFETY: five names, and for each room for its value; any address may be queried.
        unsafe {
            (driver.cuda.cuPointerGetAttributes)(
                count,
                names.as_mut_ptr(),
                places.as_mut_ptr(),
                number,
            )
        }
    };
    // Addresses are the same in all contexts (unified addressing), so the query needs no context of
    // its own. Retaining a primary context would cost device memory and time.
    let code = match ask() {
        CUDA_ERROR_INVALID_CONTEXT => {
            let Some(_inside) = driver.enter_any() else { return Ok(None) };
            ask()
        }
        code => code,
    };
    if code == CUDA_ERROR_INVALID_VALUE || is_lost(code) {
        return Ok(None);
    }
    driver.cuda.check(code, "cuPointerGetAttributes")?;
    let kind = match kind {
        _ if managed != 0 => DTL_MEMORY_MANAGED,
        CU_MEMORYTYPE_DEVICE => DTL_MEMORY_DEVICE,
        CU_MEMORYTYPE_HOST => DTL_MEMORY_PINNED,
        _ => return Ok(None), // the driver does not know it
    };
    let device = driver.cards.iter().position(|card| card.id == ordinal);
    let found = |device| DriverAllocation {
        kind,
        device: device as i32,
        base: address(base),
        size: size as u64,
    };
    Ok(device.map(found))
}

fn is_shortage(error: &Error) -> bool {
    error.status() == crate::abi::status::DTL_ERROR_OUT_OF_MEMORY
}

/// Gives back what a device's pool keeps without use; its context is current. False: there is no
/// pool.
fn trim(driver: &CudaDriver, device: i32) -> bool {
    let (Some(pool), Some(trim)) = (driver.pool_so_far(device), driver.cuda.cuMemPoolTrimTo) else {
        return false;
    };
    if let Ok(Some(stream)) = driver.own_stream_so_far(device, Use::Memory) {
        // SAFETY: the library's own stream: what was freed on it is free behind this.
        let _ = unsafe { (driver.cuda.cuStreamSynchronize)(stream.ptr()) };
    }
    // SAFETY: the library's own pool.
    let code = unsafe { trim(pool.ptr(), 0) };
    code == CUDA_SUCCESS
}

/// What is known of the device when an allocation fails.
fn explain(driver: &CudaDriver, device: i32, size: u64, error: Error) -> Error {
    if !is_shortage(&error) {
        return error;
    }
    let (mut free, mut total) = (0, 0);
    let _inside = driver.enter(device);
    // SAFETY: room for two sizes.
    let code = unsafe { (driver.cuda.cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
    let known = if code == CUDA_SUCCESS {
        format!(" of {total} bytes {free} are free")
    } else {
        String::new()
    };
    let name = driver.card(device).map_or("?", |card| card.name.as_str());
    error.within(&format!("{size} bytes on device {device} ({name}){known}"))
}
