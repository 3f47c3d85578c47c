//! Memory of backend "cuda": device memory, managed memory and page-locked host memory. Device
//! memory (DTL_MEMORY_DEVICE) comes from a memory pool of the driver if the device supports pools.
//!
//! Allocation from the driver's pool is stream-ordered, but the library's allocation calls are not.
//! Therefore an allocation is queued on an internal stream, and the call waits for that stream.

use super::driver::{AllocOrigin, Block, Card, ContextGuard, Cuda, CudaDriver, address};
use super::errors::is_lost;
use super::symbols::*;
use super::{mem_export, staging};
use crate::abi::devices::device::*;
use crate::abi::word::*;
use crate::backend::driver::{Devices as _, Driver as _, room_for, stream_of};
use crate::error::{Error, Result, fail};
use crate::runtime::component::{
    CopySide, DriverAllocation, Exports, Extent, Memory, StagingBuffer, Token,
};
use crate::runtime::device::new_kind_info;
use crate::runtime::enums::describe;
use crate::sys::memory::buf::{Addr, Region};
use std::sync::Arc;

impl Cuda {
    /// Returns a descriptor of the memory at `place`, the source or destination of a copy or fill;
    /// `None` for ordinary host memory, which neither this backend nor the driver has allocated or
    /// registered.
    pub(super) fn side(&self, place: CopySide) -> Option<Block> {
        let CopySide { region, kind, device } = place;
        let foreign = || foreign(region.addr(), region.len() as u64, device, kind);
        let is_ours = kind != DTL_MEMORY_HOST;
        self.blocks.find(region.addr()).or_else(|| is_ours.then(foreign))
    }

    /// Frees the allocation at `addr`. Returns DTL_ERROR_INTERNAL if there is no such allocation.
    pub(super) fn give(&self, addr: Addr) -> Result<()> {
        let driver = self.driver.get()?;
        let block = self.remove_block(addr)?;
        // A block whose free failed is still allocated: return it to the list.
        give_back(&driver, &block).inspect_err(|_| {
            self.blocks.insert(addr, block);
        })
    }
}

/// Returns a descriptor of memory that the application allocated or registered through the driver.
fn foreign(base: Addr, size: u64, device: i32, kind: dtl_enum_word_t) -> Block {
    Block { base, size, device, origin: AllocOrigin::Foreign(kind) }
}

/// Returns device `device`, or an error if the device does not support the memory kind `kind`.
fn check_kind(driver: &CudaDriver, device: i32, kind: dtl_enum_word_t) -> Result<&Card> {
    let card = driver.card(device)?;
    match kind {
        DTL_MEMORY_DEVICE | DTL_MEMORY_PINNED => Ok(card),
        DTL_MEMORY_SHARED if driver.cuda.cuIpcGetMemHandle.is_some() => Ok(card),
        DTL_MEMORY_MANAGED if driver.attribute(card, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY) != 0 => {
            Ok(card)
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

/// Allocates `room` bytes of memory of kind `kind` on a device. Returns the address and the origin
/// of the allocation. The caller must have made the device's context current.
fn take(
    driver: &CudaDriver,
    card: &Card,
    kind: dtl_enum_word_t,
    room: usize,
) -> Result<(Addr, AllocOrigin)> {
    let cuda = driver.cuda;
    let (mut number, mut pointer) = (0, std::ptr::null_mut());
    let (code, what, origin) = match kind {
        DTL_MEMORY_DEVICE | DTL_MEMORY_SHARED => {
            // SHARED memory is not allocated from the pool: pool memory is exported to other
            // processes by another mechanism.
            if kind == DTL_MEMORY_DEVICE {
                if let Some(taken) = take_from_pool(driver, card, room)? {
                    return Ok((taken, AllocOrigin::Pool));
                }
            }
            // SAFETY: `number` is valid for writing a device pointer.
            let code = unsafe { (cuda.cuMemAlloc_v2)(&raw mut number, room) };
            (code, "cuMemAlloc", AllocOrigin::Device)
        }
        DTL_MEMORY_MANAGED => {
            let flags = CU_MEM_ATTACH_GLOBAL;
            // SAFETY: `number` is valid for writing a device pointer.
            let code = unsafe { (cuda.cuMemAllocManaged)(&raw mut number, room, flags) };
            (code, "cuMemAllocManaged", AllocOrigin::Managed)
        }
        _ => {
            let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
            // SAFETY: `pointer` is valid for writing a pointer.
            let code = unsafe { (cuda.cuMemHostAlloc)(&raw mut pointer, room, flags) };
            (code, "cuMemHostAlloc", AllocOrigin::Host)
        }
    };
    cuda.check(code, what)?;
    let base = if origin == AllocOrigin::Host { Addr::new(pointer) } else { address(number) };
    Ok((base, origin))
}

/// Allocates `room` bytes from the device's pool and waits for the allocation. Returns `None` if
/// the device has no pool.
fn take_from_pool(driver: &CudaDriver, card: &Card, room: usize) -> Result<Option<Addr>> {
    let Some(pool) = driver.pool(card)? else { return Ok(None) };
    let stream = driver.own_stream(&card.allocations)?;
    let Some(taken) = queue_take(driver, pool, stream, room)? else { return Ok(None) };
    let cuda = driver.cuda;
    // SAFETY: `stream` is an internal stream of the library, so it is alive.
    let code = unsafe { (cuda.cuStreamSynchronize)(stream.ptr()) };
    cuda.check(code, "an allocation (cuStreamSynchronize)")?;
    Ok(Some(taken))
}

/// Queues an allocation of `room` bytes from `pool` on `stream`. The caller must have made the
/// stream's context current. Returns `None` if the driver does not support stream-ordered
/// allocation.
fn queue_take(driver: &CudaDriver, pool: Addr, stream: Addr, room: usize) -> Result<Option<Addr>> {
    let Some(alloc) = driver.cuda.cuMemAllocFromPoolAsync else { return Ok(None) };
    let mut number = 0;
    // SAFETY: `number` is valid for writing a device pointer. The pool belongs to the library, and
    // the stream belongs to the pool's device.
    let code = unsafe { alloc(&raw mut number, room, pool.ptr(), stream.ptr()) };
    driver.cuda.check(code, "cuMemAllocFromPoolAsync").map(|()| Some(address(number)))
}

/// Frees the memory of an allocation. Succeeds if the device is lost, because the memory of a lost
/// device no longer exists.
fn give_back(driver: &CudaDriver, block: &Block) -> Result<()> {
    let cuda = driver.cuda;
    let _inside = match driver.enter(block.device) {
        Err(error) if error.status() == crate::abi::status::DTL_ERROR_DEVICE_LOST => return Ok(()),
        inside => inside?,
    };
    let number = block.base.get() as CUdeviceptr;
    let (code, what) = match (block.origin, cuda.cuMemFreeAsync) {
        (AllocOrigin::Pool, Some(free)) => {
            let stream = driver.own_stream(&driver.card(block.device)?.allocations)?;
            // SAFETY: the memory comes from the pool and is freed once. The caller guarantees that
            // nothing uses it.
            (unsafe { free(number, stream.ptr()) }, "cuMemFreeAsync")
        }
        (AllocOrigin::Opened, _) => return mem_export::close(driver, number),
        (AllocOrigin::Program, _) => return mem_export::unregister(driver, block.base),
        (AllocOrigin::Host, _) => {
            // SAFETY: cuMemHostAlloc allocated the memory, which is freed once.
            (unsafe { (cuda.cuMemFreeHost)(block.base.ptr()) }, "cuMemFreeHost")
        }
        _ => {
            // SAFETY: cuMemAlloc or cuMemAllocManaged allocated the memory, which is freed once.
            (unsafe { (cuda.cuMemFree_v2)(number) }, "cuMemFree")
        }
    };
    cuda.check_release(code, what)
}

impl Memory for Arc<Cuda> {
    fn alloc(&self, Extent { kind, size, align }: Extent) -> Result<Addr> {
        let driver = self.driver.get()?;
        let device = self.current(&driver);
        let card = check_kind(&driver, device, kind)?;
        let inside = driver.enter(device)?;
        let room = room_for::<CudaDriver>(size, align);
        let take = || take(&driver, card, kind, room);
        let (base, origin) = allocate(&driver, device, size, inside, take)?;
        Ok(self.blocks.add(Block { base, size, device, origin }, align))
    }

    fn alloc_async(&self, stream: Token, extent: Extent) -> Result<Option<Addr>> {
        let Extent { kind, size, align } = extent;
        if kind != DTL_MEMORY_DEVICE {
            return Ok(None);
        }
        let queue = &stream_of::<CudaDriver>(stream).queue;
        let (driver, device) = (&queue.driver, queue.device);
        let inside = queue.enter()?;
        let Some(pool) = driver.pool(driver.card(device)?)? else { return Ok(None) };
        let room = room_for::<CudaDriver>(size, align);
        let take = || queue_take(driver, pool, queue.id, room);
        let block = |base| Block { base, size, device, origin: AllocOrigin::Pool };
        let taken = allocate(driver, device, size, inside, take)?;
        Ok(taken.map(|base| self.blocks.add(block(base), align)))
    }

    fn free_async(&self, stream: Token, addr: Addr, _extent: Extent) -> Result<Option<()>> {
        let queue = &stream_of::<CudaDriver>(stream).queue;
        let is_ours =
            |block: &Block| block.origin == AllocOrigin::Pool && block.device == queue.device;
        let (Some(free), Some(block)) =
            (queue.driver.cuda.cuMemFreeAsync, self.blocks.find(addr).filter(is_ours))
        else {
            return Ok(None);
        };
        let _inside = queue.enter()?;
        // Remove the block first: once the memory is freed, another thread may allocate the
        // same address.
        self.blocks.remove(addr);
        // SAFETY: the memory comes from the pool and is freed once. The caller guarantees that
        // no command queued later uses it.
        let code = unsafe { free(block.base.get() as CUdeviceptr, queue.id.ptr()) };
        let freed = queue.driver.cuda.check_release(code, "cuMemFreeAsync");
        freed.inspect_err(|_| self.blocks.insert(addr, block)).map(Some)
    }

    fn register(&self, region: Region) -> Result<Option<()>> {
        self.register_range(region).map(Some)
    }

    fn unregister(&self, region: Region) -> Result<Option<()>> {
        self.give(region.addr()).map(Some)
    }

    fn dmabuf(&self, region: Region) -> Result<Option<(i32, u64)>> {
        let driver = self.driver.get()?;
        let block = match self.blocks.find(region.addr()) {
            None => identify(&driver, region.addr())?
                .map(|found| foreign(found.base, found.size, found.device, found.kind)),
            block => block,
        };
        mem_export::dmabuf(&driver, block, region).map(Some)
    }

    fn exports(&self) -> Option<&dyn Exports> {
        Some(&**self)
    }

    fn free(&self, addr: Addr, _extent: Extent) -> Result<()> {
        self.give(addr)
    }

    fn lend_host(&self, len: usize) -> Option<Box<dyn StagingBuffer>> {
        staging::lend(&self.driver.known()?, len)
    }

    fn trim(&self) {
        if let Some(driver) = self.driver.known() {
            staging::trim(&driver);
            for (device, card) in (0..).zip(&driver.cards) {
                if card.pool.get().is_some_and(Option::is_some) {
                    let _inside = driver.enter(device);
                    trim(&driver, card);
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

    fn kind_info(&self, kind: dtl_enum_word_t) -> Result<Option<dtl_mem_kind_info_t>> {
        let driver = self.driver.get()?;
        let card = check_kind(&driver, self.current(&driver), kind)?;
        let has = |what| driver.attribute(card, what) != 0;
        let mut unified = DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_UNIFIED;
        if has(CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED) {
            unified |= DTL_MEMORY_ATOMICS;
        }
        let (properties, name) = match kind {
            DTL_MEMORY_DEVICE => (0, "CUDA, device"),
            DTL_MEMORY_SHARED => {
                (DTL_MEMORY_EXPORTABLE, "CUDA, device (other processes can open it)")
            }
            DTL_MEMORY_PINNED => (unified, "CUDA, host (page-locked)"),
            _ if has(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) => (unified, "CUDA, managed"),
            _ => (unified, "CUDA, managed (host: only while the device is idle)"),
        };
        let common = DTL_MEMORY_DEVICE_ACCESSIBLE | DTL_MEMORY_THREAD_SAFE;
        Ok(Some(new_kind_info(common | properties, CudaDriver::ALIGNMENT, name)))
    }
}

/// Queries the driver about the allocation that contains `addr`. Returns `None` if the address does
/// not belong to any allocation known to the driver (memory type 0).
///
/// If a device fault has made the context unusable, the function returns `None` for every address:
/// all device memory is lost too, but a program must still be able to send from host memory. Any
/// other failure is returned as an error.
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
    let (names, places) = (names.as_mut_ptr(), places.as_mut_ptr());
    let ask = || {
        // SAFETY: `names` has five attributes, and `places` has a valid output for each of them.
        // The driver accepts any address.
        unsafe { (driver.cuda.cuPointerGetAttributes)(count, names, places, number) }
    };
    // The query needs no specific context, because unified addressing makes addresses equal in all
    // contexts. Retaining a primary context would cost device memory and time.
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
        _ => return Ok(None), // address unknown to the driver
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

/// Frees the unused memory that the device's pool caches. The caller must have made the device's
/// context current. Returns false if the device has no pool or the driver call fails.
fn trim(driver: &CudaDriver, card: &Card) -> bool {
    let (Some(Some(pool)), Some(trim)) = (card.pool.get(), driver.cuda.cuMemPoolTrimTo) else {
        return false;
    };
    if let Some(stream) = card.allocations.get() {
        // SAFETY: `stream` is an internal stream of the library, so it is alive. After the wait,
        // all memory freed on this stream is unused.
        let _ = unsafe { (driver.cuda.cuStreamSynchronize)(stream.ptr()) };
    }
    // SAFETY: the pool belongs to the library and is alive.
    let code = unsafe { trim(pool.ptr(), 0) };
    code == CUDA_SUCCESS
}

/// Calls `take` to allocate `size` bytes on `device`. If the device has too little memory, trims
/// its pool, which may cache enough unused memory, and calls `take` again. `inside` is the guard of
/// the context that `take` needs.
fn allocate<T>(
    driver: &CudaDriver,
    device: i32,
    size: u64,
    inside: ContextGuard,
    take: impl Fn() -> Result<T>,
) -> Result<T> {
    let card = driver.card(device)?;
    let taken = match take() {
        Err(error) if is_shortage(&error) && trim(driver, card) => take(),
        taken => taken,
    };
    drop(inside);
    taken.map_err(|error| explain(driver, device, size, error))
}

/// If an allocation failed because memory is exhausted, adds the size, the device and the device's
/// free memory to the error message.
fn explain(driver: &CudaDriver, device: i32, size: u64, error: Error) -> Error {
    if !is_shortage(&error) {
        return error;
    }
    let known = match driver.memory_info(device) {
        Ok((free, total)) => format!(" of {total} bytes {free} are free"),
        Err(_) => String::new(),
    };
    let name = driver.card(device).map_or("?", |card| card.name.as_str());
    error.within(&format!("{size} bytes on device {device} ({name}){known}"))
}
