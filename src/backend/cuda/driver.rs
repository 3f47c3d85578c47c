//! CUDA driver and its devices: the primary contexts of the devices, and the internal streams for
//! copies and allocations. Each context and each internal stream is created at its first use.
//!
//! The CUDA runtime API uses the primary context too, so memory and streams are interchangeable
//! between this library and programs and libraries that use the CUDA runtime API. A call to this
//! library makes the context current in the calling thread and restores the previous context before
//! it returns.

use super::symbols::*;
use crate::abi::word::*;
use crate::backend::driver::{self, DeviceBackend, Driver as _};
use crate::backend::staging_pool::StagingPool;
use crate::backend::try_once::TryOnce;
use crate::error::Result;
use crate::from_c::text_in;
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::Mutex;
use std::ptr;
use std::sync::Arc;

/// Backend "cuda".
pub type Cuda = DeviceBackend<CudaDriver>;

/// Initialized CUDA driver of this process.
pub struct CudaDriver {
    /// Function table of the driver library.
    pub(super) cuda: &'static Functions,
    /// Version of the driver as cuDriverGetVersion encodes it, such as 12040.
    pub(super) version: i32,
    /// Devices, in the order of the driver's ordinals.
    pub(super) cards: Vec<Card>,
    /// Cache of page-locked host buffers through which messages are staged.
    pub(super) staging: Arc<StagingPool>,
}

/// CUDA device.
pub struct Card {
    /// Driver handle of the device (`CUdevice`).
    pub(super) id: CUdevice,
    /// Name of the device.
    pub(super) name: String,
    pub(super) context: TryOnce<Addr>,
    /// Internal stream for the copies and fills of synchronous calls.
    pub(super) copies: TryOnce<Addr>,
    /// Internal stream for allocations from the memory pool and their release. It is separate from
    /// `copies` so that an allocation never waits for a copy.
    pub(super) allocations: TryOnce<Addr>,
    pub(super) pool: TryOnce<Option<Addr>>,
    /// Words in page-locked memory. A stream waits on such a word (cuStreamWaitValue32) while the
    /// host executes work that is ordered in this stream.
    pub(super) words: Mutex<Words>,
}

/// Page-locked memory of the words on which the streams of one device wait. The memory is kept
/// until the driver object is dropped, because freeing page-locked memory waits for all streams.
#[derive(Default)]
pub(super) struct Words {
    pub(super) pages: Vec<Addr>,
    pub(super) unused: Vec<Addr>,
}

/// Descriptor of an allocation of backend "cuda".
pub(super) type Block = driver::Block<AllocOrigin>;

/// Origin of an allocation, which determines the driver call that frees the allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AllocOrigin {
    Pool,
    Device,
    Managed,
    Host,
    /// Device memory imported from another process.
    Opened,
    /// Host memory of the application, registered with the driver by this backend.
    Program,
    /// Memory that the application allocated or registered through the driver; the value is its
    /// memory kind (DTL_MEMORY_*).
    Foreign(dtl_enum_word_t),
}

impl Block {
    /// Returns true if the allocation is managed memory, whose pages migrate.
    pub(super) fn is_managed(&self) -> bool {
        matches!(self.origin, AllocOrigin::Managed | AllocOrigin::Foreign(DTL_MEMORY_MANAGED))
    }

    /// Returns true if the allocation is known to reside on its device.
    pub(super) fn is_on_device(&self) -> bool {
        let is_ours =
            matches!(self.origin, AllocOrigin::Pool | AllocOrigin::Device | AllocOrigin::Opened);
        is_ours
            || matches!(self.origin, AllocOrigin::Foreign(DTL_MEMORY_DEVICE | DTL_MEMORY_SHARED))
    }
}

/// Guard during whose lifetime a context is current in the calling thread. Dropping the guard pops
/// the context if `enter` pushed it.
pub(super) struct ContextGuard {
    cuda: &'static Functions,
    pushed: bool,
}

/// Makes `context` current in the calling thread until the returned guard is dropped.
pub(super) fn enter(cuda: &'static Functions, context: Addr) -> Result<ContextGuard> {
    let mut current = ptr::null_mut();
    // SAFETY: `current` is valid for writing a context handle.
    let code = unsafe { (cuda.cuCtxGetCurrent)(&raw mut current) };
    if code == CUDA_SUCCESS && current == context.ptr() {
        return Ok(ContextGuard { cuda, pushed: false });
    }
    // SAFETY: the owner of `context` keeps the context alive while it is pushed.
    cuda.check(unsafe { (cuda.cuCtxPushCurrent_v2)(context.ptr()) }, "cuCtxPushCurrent")?;
    Ok(ContextGuard { cuda, pushed: true })
}

impl Drop for ContextGuard {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = ptr::null_mut();
            // SAFETY: `popped` is valid for writing a context handle. The context pushed last is
            // the one that `enter` pushed.
            let _ = unsafe { (self.cuda.cuCtxPopCurrent_v2)(&raw mut popped) };
        }
    }
}

impl CudaDriver {
    /// Returns the primary context of a device, which is retained at its first use.
    pub(super) fn context(&self, device: i32) -> Result<Addr> {
        let card = self.card(device)?;
        let retain = || {
            let mut context = ptr::null_mut();
            // SAFETY: `card.id` is a device of the driver, and `context` is valid for writing a
            // context handle.
            let code = unsafe { (self.cuda.cuDevicePrimaryCtxRetain)(&raw mut context, card.id) };
            self.cuda.check(code, "cuDevicePrimaryCtxRetain").map(|()| Addr::new(context))
        };
        card.context.get_or_make(retain).copied()
    }

    /// Makes the primary context of `device` current until the returned guard is dropped.
    pub(super) fn enter(&self, device: i32) -> Result<ContextGuard> {
        enter(self.cuda, self.context(device)?)
    }

    /// Makes the primary context of any device current, preferably a context that is already
    /// retained. Returns `None` if no context can be made current.
    pub(super) fn enter_any(&self) -> Option<ContextGuard> {
        let made = self.cards.iter().position(|card| card.context.get().is_some());
        self.enter(made.unwrap_or(0) as i32).ok()
    }

    /// Returns `stream`, an internal stream of a device, which is created at its first use. The
    /// caller must have made the device's context current.
    pub(super) fn own_stream(&self, stream: &TryOnce<Addr>) -> Result<Addr> {
        stream.get_or_make(|| new_stream(self.cuda, 0)).copied()
    }

    /// Returns the memory pool of a device, created at its first use; `None` if the device does not
    /// support pools. The caller must have made the device's context current.
    pub(super) fn pool(&self, card: &Card) -> Result<Option<Addr>> {
        card.pool.get_or_make(|| new_pool(self, card)).copied()
    }

    /// Queries an integer attribute of a device. Returns 0 if the driver does not support the
    /// attribute.
    pub(super) fn attribute(&self, card: &Card, what: CUdevice_attribute) -> i32 {
        let mut value = 0;
        // SAFETY: `card.id` is a device of the driver, and `value` is valid for writing an int.
        let code = unsafe { (self.cuda.cuDeviceGetAttribute)(&raw mut value, what, card.id) };
        if code == CUDA_SUCCESS { value } else { 0 }
    }
}

/// Creates, in the current context, a stream that does not synchronize with the legacy default
/// stream.
pub(super) fn new_stream(cuda: &Functions, priority: i32) -> Result<Addr> {
    let mut stream = ptr::null_mut();
    if let (Some(create), true) = (cuda.cuStreamCreateWithPriority, priority != 0) {
        // SAFETY: `stream` is valid for writing a stream handle.
        let code = unsafe { create(&raw mut stream, CU_STREAM_NON_BLOCKING, priority) };
        return cuda.check(code, "cuStreamCreateWithPriority").map(|()| Addr::new(stream));
    }
    // SAFETY: `stream` is valid for writing a stream handle.
    let code = unsafe { (cuda.cuStreamCreate)(&raw mut stream, CU_STREAM_NON_BLOCKING) };
    cuda.check(code, "cuStreamCreate").map(|()| Addr::new(stream))
}

/// Creates the library's own memory pool for a device; returns `None` if the device or driver does
/// not support pools. The pool caches all freed memory. The library does not use the device's
/// default pool, because the application may tune that pool.
fn new_pool(driver: &CudaDriver, card: &Card) -> Result<Option<Addr>> {
    let cuda = driver.cuda;
    let (Some(create), Some(set), Some(_), Some(_)) = (
        cuda.cuMemPoolCreate,
        cuda.cuMemPoolSetAttribute,
        cuda.cuMemAllocFromPoolAsync,
        cuda.cuMemFreeAsync,
    ) else {
        return Ok(None);
    };
    if driver.attribute(card, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) == 0 {
        return Ok(None);
    }
    let properties = CUmemPoolProps {
        allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: CU_MEM_HANDLE_TYPE_NONE,
        location: CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: card.id },
        win32SecurityAttributes: ptr::null_mut(),
        maxSize: 0,
        usage: 0,
        reserved: [0; 54],
    };
    let (mut pool, mut keep) = (ptr::null_mut(), u64::MAX);
    // SAFETY: `properties` is an initialized local, and `pool` is valid for writing a pool handle.
    cuda.check(unsafe { create(&raw mut pool, &raw const properties) }, "cuMemPoolCreate")?;
    // SAFETY: `pool` is alive, and this attribute has a 64-bit value, as `keep` has.
    let code = unsafe { set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (&raw mut keep).cast()) };
    cuda.check(code, "cuMemPoolSetAttribute").map(|()| Some(Addr::new(pool)))
}

/// Queries a string of at most `ROOM` bytes, including the NUL, by calling `ask`. Returns an empty
/// string if the query fails.
pub(super) fn text<const ROOM: usize>(ask: impl Fn(c_int, *mut c_char) -> CUresult) -> String {
    let mut bytes = [0u8; ROOM];
    if ask(ROOM as c_int, bytes.as_mut_ptr().cast()) != CUDA_SUCCESS {
        return String::new();
    }
    text_in(&bytes)
}

/// Converts a device pointer into an address. The host may be unable to read memory at this
/// address.
pub(super) fn address(number: CUdeviceptr) -> Addr {
    Addr::new(std::ptr::with_exposed_provenance_mut(number as usize))
}
