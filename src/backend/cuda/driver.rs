//! CUDA driver and its devices: primary contexts, and per device the streams for the library's
//! internal copies. Each context and each stream is created at its first use.
//!
//! The CUDA runtime API uses the primary context too, so memory and streams are interchangeable
//! between this library and programs and libraries that use the CUDA runtime API. A call makes the
//! context current in the calling thread and restores the previous context before it returns.

use super::device::CHOSEN;
use super::memory::AllocOrigin;
use super::modules::CudaModule;
use super::staging::Buffers;
use super::stream::CudaStream;
use super::stream_hold::Words;
use super::symbols::*;
use crate::backend::driver::{self, CurrentDevice, Driver as _, Stream, TryOnce};
use crate::backend::vendor_lib::{Names, VendorLib};
use crate::error::Result;
use crate::runtime::settings;
use crate::sys::memory::buf::Addr;
use crate::sys::os::dl;
use crate::sys::sync::lock::Mutex;
use std::ffi::CStr;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

/// Minimum driver version, encoded like the result of cuDriverGetVersion (11000 = CUDA 11.0). A
/// driver of this version exports every required function of the table.
const OLDEST: i32 = 11_000;

static LIBRARY: VendorLib<Functions> = VendorLib::new(Names {
    name: "CUDA",
    part: "driver",
    soname: "libcuda.so.1",
    variable: "DTL_CUDA_LIBRARY",
    wanted: "NVIDIA's driver library (libcuda.so.1)",
    advice: "install NVIDIA's driver, or name its libcuda.so.1 with DTL_CUDA_LIBRARY",
});

/// Initialized CUDA driver of this process.
pub struct CudaDriver {
    /// Function table of the driver library.
    pub(super) cuda: &'static Functions,
    /// Generation: a number unique to this initialization of the driver.
    generation: u64,
    /// Devices, in the order of the driver's ordinals.
    pub(super) cards: Vec<Card>,
    /// Cache of page-locked buffers for staged messages.
    pub(super) staging: Buffers,
}

/// CUDA device.
pub struct Card {
    /// Driver handle of the device (`CUdevice`).
    pub(super) id: CUdevice,
    /// Name of the device.
    pub(super) name: String,
    context: TryOnce<Addr>,
    /// Internal streams for work that a caller waits for, indexed by `Use`.
    own: [TryOnce<Addr>; 2],
    pool: TryOnce<Option<Addr>>,
    /// Page-locked words whose value held streams wait for while the host works.
    pub(super) words: Mutex<Words>,
}

/// Purpose of an internal stream of a device. The purposes are separate so that an allocation never
/// waits for a copy.
#[derive(Clone, Copy)]
pub(super) enum Use {
    /// Copies and fills.
    Copies,
    /// Allocations from a memory pool and their release.
    Memory,
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

impl driver::Driver for CudaDriver {
    const NAME: &'static CStr = c"cuda";
    /// Highest priority, because this backend is specific to one vendor's devices.
    const PRIORITY: i32 = 100;
    const CALLBACK_THREAD: &'static str = "dtl-cuda-stream";
    const ALIGNMENT: u64 = 256;
    const CHOSEN: &'static CurrentDevice = &CHOSEN;
    type Card = Card;
    type Queue = CudaStream;
    type Origin = AllocOrigin;
    type Module = CudaModule;

    fn find() -> std::result::Result<Self, String> {
        LIBRARY.may_be_called()?;
        let cuda = open()?;
        let generation = LIBRARY.begin();
        let mut version = 0;
        // SAFETY: `version` is valid for writing an int. cuDriverGetVersion may be called before
        // cuInit.
        let code = unsafe { (cuda.cuDriverGetVersion)(&raw mut version) };
        cuda.check(code, "cuDriverGetVersion").map_err(|error| error.text().to_owned())?;
        if version < OLDEST {
            let (major, minor) = (version / 1000, version % 1000 / 10);
            return Err(format!(
                "the CUDA driver is one of CUDA {major}.{minor}, and 11.0 or newer is needed: \
                 update the driver"
            ));
        }
        // SAFETY: cuInit takes no pointers.
        let code = unsafe { (cuda.cuInit)(0) };
        if code == CUDA_ERROR_NO_DEVICE {
            return Err("the CUDA driver finds no device: permissions of /dev/nvidia…, \
                CUDA_VISIBLE_DEVICES, or none is \
                        plugged in"
                .into());
        }
        cuda.check(code, "cuInit").map_err(|error| error.text().to_owned())?;
        let cards = list(cuda).map_err(|error| error.text().to_owned())?;
        if cards.is_empty() {
            return Err("the CUDA driver counts 0 devices".into());
        }
        Ok(CudaDriver { cuda, generation, cards, staging: Buffers::default() })
    }

    fn generation(&self) -> u64 {
        self.generation
    }

    fn cards(&self) -> &[Card] {
        &self.cards
    }

    fn create_stream(self: &Arc<Self>, device: i32) -> Result<Arc<Stream<Self>>> {
        CudaStream::create(self, device).map(Stream::new)
    }

    fn wrap_stream(self: &Arc<Self>, device: i32, native: Addr) -> Result<Arc<Stream<Self>>> {
        CudaStream::wrap(self, device, native).map(Stream::new)
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

    /// Makes the primary context of a device current, preferably a context that is already
    /// retained. Returns `None` if no context can be made current.
    pub(super) fn enter_any(&self) -> Option<ContextGuard> {
        let made = self.cards.iter().position(|card| card.context.get().is_some());
        self.enter(made.unwrap_or(0) as i32).ok()
    }

    /// Returns an internal stream of a device, created at its first use. The caller must have made
    /// the device's context current.
    pub(super) fn own_stream(&self, device: i32, purpose: Use) -> Result<Addr> {
        let stream = self.card(device)?.own_stream(purpose);
        stream.get_or_make(|| new_stream(self.cuda)).copied()
    }

    /// Returns an internal stream of a device; `None` if the stream has not been created.
    pub(super) fn own_stream_so_far(&self, device: i32, purpose: Use) -> Result<Option<Addr>> {
        Ok(self.card(device)?.own_stream(purpose).get().copied())
    }

    /// Returns the memory pool of a device, created at its first use; `None` if the device does not
    /// support pools. The caller must have made the device's context current.
    pub(super) fn pool(&self, device: i32) -> Result<Option<Addr>> {
        let card = self.card(device)?;
        card.pool.get_or_make(|| new_pool(self, card)).copied()
    }

    /// Returns the memory pool of a device; `None` if the device has no pool so far.
    pub(super) fn pool_so_far(&self, device: i32) -> Option<Addr> {
        self.card(device).ok()?.pool.get().copied().flatten()
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

impl Card {
    fn own_stream(&self, purpose: Use) -> &TryOnce<Addr> {
        let [copies, memory] = &self.own;
        match purpose {
            Use::Copies => copies,
            Use::Memory => memory,
        }
    }
}

impl Drop for CudaDriver {
    fn drop(&mut self) {
        self.staging.trim(self);
        for card in &mut self.cards {
            let Some(context) = card.context.take() else { continue };
            if let Ok(inside) = enter(self.cuda, context) {
                for stream in card.own.iter_mut().filter_map(TryOnce::take) {
                    // SAFETY: this driver object owns the stream and destroys it once.
                    let _ = unsafe { (self.cuda.cuStreamDestroy_v2)(stream.ptr()) };
                }
                if let (Some(pool), Some(destroy)) =
                    (card.pool.take().flatten(), self.cuda.cuMemPoolDestroy)
                {
                    // SAFETY: this driver object owns the pool and destroys it once.
                    let _ = unsafe { destroy(pool.ptr()) };
                }
                card.words.get_mut().free(self.cuda);
                drop(inside);
            }
            // SAFETY: `context` retained the primary context once, and this call releases it once.
            let _ = unsafe { (self.cuda.cuDevicePrimaryCtxRelease_v2)(card.id) };
        }
    }
}

/// Creates a stream in the current context that does not synchronize with the legacy default
/// stream.
pub(super) fn new_stream(cuda: &Functions) -> Result<Addr> {
    let mut stream = ptr::null_mut();
    // SAFETY: `stream` is valid for writing a stream handle.
    let code = unsafe { (cuda.cuStreamCreate)(&raw mut stream, CU_STREAM_NON_BLOCKING) };
    cuda.check(code, "cuStreamCreate").map(|()| Addr::new(stream))
}

/// Creates the library's memory pool of a device; `None` if the device or driver does not support
/// pools. The pool caches all freed memory. The library does not use the device's default pool,
/// because the application may tune that pool.
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

/// Returns true if the application has loaded and initialized the driver. The query neither loads
/// nor initializes the driver: after cuInit, forked children cannot use CUDA, and an application
/// may load the driver long before it initializes it.
pub(super) fn is_in_use() -> bool {
    let named = settings::current().driver_library;
    let name = LIBRARY.file(named.as_deref());
    if LIBRARY.may_be_called().is_err() || dl::SharedObject::loaded(Path::new(name)).is_none() {
        return false;
    }
    let Ok(cuda) = open() else { return false };
    let mut current = ptr::null_mut();
    // SAFETY: `current` is writable; before cuInit the call returns an error code.
    unsafe { (cuda.cuCtxGetCurrent)(&raw mut current) == CUDA_SUCCESS }
}

fn open() -> std::result::Result<&'static Functions, String> {
    // SAFETY: the name is that of CUDA's driver library, or the user who named another library
    // vouches for it.
    unsafe { LIBRARY.open_named(settings::current().driver_library.as_deref()) }
}

fn list(cuda: &'static Functions) -> Result<Vec<Card>> {
    let mut count = 0;
    // SAFETY: `count` is valid for writing an int.
    cuda.check(unsafe { (cuda.cuDeviceGetCount)(&raw mut count) }, "cuDeviceGetCount")?;
    let mut cards = Vec::new();
    for ordinal in 0..count {
        let mut id = 0;
        // SAFETY: `id` is valid for writing a device handle.
        cuda.check(unsafe { (cuda.cuDeviceGet)(&raw mut id, ordinal) }, "cuDeviceGet")?;
        let name = text::<128>(|room, out| {
            // SAFETY: `id` is a device of the driver, and `out` is valid for writing `room` bytes.
            unsafe { (cuda.cuDeviceGetName)(out, room, id) }
        });
        let (context, own, pool, words) = Default::default();
        cards.push(Card { id, name, context, own, pool, words });
    }
    Ok(cards)
}

/// Queries a string of at most `ROOM` bytes, including the NUL, by calling `ask`. Returns an empty
/// string if the query fails.
pub(super) fn text<const ROOM: usize>(ask: impl Fn(c_int, *mut c_char) -> CUresult) -> String {
    let mut bytes = [0u8; ROOM];
    if ask(ROOM as c_int, bytes.as_mut_ptr().cast()) != CUDA_SUCCESS {
        return String::new();
    }
    CStr::from_bytes_until_nul(&bytes)
        .map(|text| text.to_string_lossy().into_owned())
        .unwrap_or_default()
}
