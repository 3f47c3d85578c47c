//! The driver and its devices: primary contexts, and streams of each device for the library's own
//! copies. Each is created at its first use.
//!
//! The primary context is the one that CUDA's runtime interface uses too, so memory and streams of
//! this library and of programs and libraries above that interface go together. A call makes the
//! context current in its thread and leaves the thread as it was.

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

/// The oldest version whose functions are all of the list's required ones, as cuDriverGetVersion
/// counts.
const OLDEST: i32 = 11_000;

static LIBRARY: VendorLib<Functions> = VendorLib::new(Names {
    name: "CUDA",
    part: "driver",
    soname: "libcuda.so.1",
    variable: "DTL_CUDA_LIBRARY",
    wanted: "NVIDIA's driver library (libcuda.so.1)",
    advice: "install NVIDIA's driver, or name its libcuda.so.1 with DTL_CUDA_LIBRARY",
});

/// The driver in this process.
pub struct CudaDriver {
    /// Its functions.
    pub(super) cuda: &'static Functions,
    /// Which of those that this process has had.
    generation: u64,
    /// Its devices, in its order.
    pub(super) cards: Vec<Card>,
    /// Page-locked buffers for messages.
    pub(super) staging: Buffers,
}

/// A device.
pub struct Card {
    /// Its `CUdevice`.
    pub(super) id: CUdevice,
    /// Its name.
    pub(super) name: String,
    context: TryOnce<Addr>,
    /// Streams for work that callers wait for, by their use.
    own: [TryOnce<Addr>; 2],
    pool: TryOnce<Option<Addr>>,
    /// Words for streams that wait for the host.
    pub(super) words: Mutex<Words>,
}

/// What the library's own streams of a device are for: nobody waits for a copy to get memory.
#[derive(Clone, Copy)]
pub(super) enum Use {
    /// Copies and fills.
    Copies,
    /// Taking memory of a pool and giving it back.
    Memory,
}

/// While it lives, a context is the calling thread's current one.
pub(super) struct ContextGuard {
    cuda: &'static Functions,
    pushed: bool,
}

/// Makes a context current in the calling thread.
#[inline]
pub(super) fn enter(cuda: &'static Functions, context: Addr) -> Result<ContextGuard> {
    let mut current = ptr::null_mut();
    // SAFETY: room for a context.
    let code = unsafe { (cuda.cuCtxGetCurrent)(&raw mut current) };
    if code == CUDA_SUCCESS && current == context.ptr() {
        return Ok(ContextGuard { cuda, pushed: false });
    }
    // SAFETY: a context that its owner keeps meanwhile.
    cuda.check(unsafe { (cuda.cuCtxPushCurrent_v2)(context.ptr()) }, "cuCtxPushCurrent")?;
    Ok(ContextGuard { cuda, pushed: true })
}

impl Drop for ContextGuard {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = ptr::null_mut();
            // SAFETY: room for the context that was pushed last, which is ours.
            let _ = unsafe { (self.cuda.cuCtxPopCurrent_v2)(&raw mut popped) };
        }
    }
}

impl driver::Driver for CudaDriver {
    const NAME: &'static CStr = c"cuda";
    /// Made for one vendor's devices: before everything else.
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
        // SAFETY: room for an int; may be called before cuInit.
        let code = unsafe { (cuda.cuDriverGetVersion)(&raw mut version) };
        cuda.check(code, "cuDriverGetVersion").map_err(|error| error.text().to_owned())?;
        if version < OLDEST {
            let (major, minor) = (version / 1000, version % 1000 / 10);
            return Err(format!(
                "the CUDA driver is one of CUDA {major}.{minor}, and 11.0 or newer is needed: \
                 update the driver"
            ));
        }
        // SAFETY: takes no pointers.
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
    /// A device's primary context, retained at its first use.
    pub(super) fn context(&self, device: i32) -> Result<Addr> {
        let card = self.card(device)?;
        let retain = || {
            let mut context = ptr::null_mut();
            // SAFETY: a device of the driver and room for its context.
            let code = unsafe { (self.cuda.cuDevicePrimaryCtxRetain)(&raw mut context, card.id) };
            self.cuda.check(code, "cuDevicePrimaryCtxRetain").map(|()| Addr::new(context))
        };
        card.context.get_or_make(retain).copied()
    }

    /// Makes a device's primary context current.
    #[inline]
    pub(super) fn enter(&self, device: i32) -> Result<ContextGuard> {
        enter(self.cuda, self.context(device)?)
    }

    /// Makes the primary context of some device current, preferably one that is retained already.
    pub(super) fn enter_any(&self) -> Option<ContextGuard> {
        let made = self.cards.iter().position(|card| card.context.get().is_some());
        self.enter(made.unwrap_or(0) as i32).ok()
    }

    /// The library's own stream on a device, whose context is current; created at its first use.
    pub(super) fn own_stream(&self, device: i32, purpose: Use) -> Result<Addr> {
        let stream = self.card(device)?.own_stream(purpose);
        stream.get_or_make(|| new_stream(self.cuda)).copied()
    }

    /// The library's own stream on a device, if it was created.
    pub(super) fn own_stream_so_far(&self, device: i32, purpose: Use) -> Result<Option<Addr>> {
        Ok(self.card(device)?.own_stream(purpose).get().copied())
    }

    /// The pool of a device's memory, whose context is current; `None`: it has none.
    pub(super) fn pool(&self, device: i32) -> Result<Option<Addr>> {
        let card = self.card(device)?;
        card.pool.get_or_make(|| new_pool(self, card)).copied()
    }

    /// The pool, if it was created.
    pub(super) fn pool_so_far(&self, device: i32) -> Option<Addr> {
        self.card(device).ok()?.pool.get().copied().flatten()
    }

    /// Queries a numeric attribute of a device; 0 if the driver does not support the attribute.
    pub(super) fn attribute(&self, card: &Card, what: CUdevice_attribute) -> i32 {
        let mut value = 0;
        // SAFETY: a device of the driver's and room for an int.
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
                    // SAFETY: the library's own stream, given up once.
                    let _ = unsafe { (self.cuda.cuStreamDestroy_v2)(stream.ptr()) };
                }
                if let (Some(pool), Some(destroy)) =
                    (card.pool.take().flatten(), self.cuda.cuMemPoolDestroy)
                {
                    // SAFETY: the library's own pool, given up once.
                    let _ = unsafe { destroy(pool.ptr()) };
                }
                card.words.get_mut().free(self.cuda);
                drop(inside);
            }
            // SAFETY: the share of the primary context that was retained, given up once.
            let _ = unsafe { (self.cuda.cuDevicePrimaryCtxRelease_v2)(card.id) };
        }
    }
}

/// A stream on the current context that does not wait for the legacy default stream.
pub(super) fn new_stream(cuda: &Functions) -> Result<Addr> {
    let mut stream = ptr::null_mut();
    // SAFETY: room for a stream.
    let code = unsafe { (cuda.cuStreamCreate)(&raw mut stream, CU_STREAM_NON_BLOCKING) };
    cuda.check(code, "cuStreamCreate").map(|()| Addr::new(stream))
}

/// A pool of the library's own, which keeps what is freed: the device's default one is the
/// program's to tune.
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
    // SAFETY: a description in a local, and room for a pool.
    cuda.check(unsafe { create(&raw mut pool, &raw const properties) }, "cuMemPoolCreate")?;
    // SAFETY: a pool, and the 64-bit number that this attribute is.
    let code = unsafe { set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (&raw mut keep).cast()) };
    cuda.check(code, "cuMemPoolSetAttribute").map(|()| Some(Addr::new(pool)))
}

/// Returns true if the program has loaded and initialised the driver. Neither loads nor initialises
/// it: after cuInit, forked children cannot use CUDA, and a program may load the driver long before
/// it initialises it.
pub(super) fn is_in_use() -> bool {
    let named = settings::current().driver_library;
    let name = LIBRARY.file(named.as_deref());
    if LIBRARY.may_be_called().is_err() || dl::SharedObject::loaded(Path::new(name)).is_none() {
        return false;
    }
    let Ok(cuda) = open() else { return false };
    let mut current = ptr::null_mut();
    // SAFETY: the output is writable; before cuInit the call returns an error code.
    unsafe { (cuda.cuCtxGetCurrent)(&raw mut current) == CUDA_SUCCESS }
}

fn open() -> std::result::Result<&'static Functions, String> {
    // SAFETY: CUDA's driver by its name, or the user vouches for it.
    unsafe { LIBRARY.open_named(settings::current().driver_library.as_deref()) }
}

fn list(cuda: &'static Functions) -> Result<Vec<Card>> {
    let mut count = 0;
    // SAFETY: room for an int.
    cuda.check(unsafe { (cuda.cuDeviceGetCount)(&raw mut count) }, "cuDeviceGetCount")?;
    let mut cards = Vec::new();
    for ordinal in 0..count {
        let mut id = 0;
        // SAFETY: room for a device.
        cuda.check(unsafe { (cuda.cuDeviceGet)(&raw mut id, ordinal) }, "cuDeviceGet")?;
        let name = text::<128>(|room, out| {
            // SAFETY: a device of the driver's, and room for the number of bytes that is passed.
            unsafe { (cuda.cuDeviceGetName)(out, room, id) }
        });
        let (context, own, pool, words) = Default::default();
        cards.push(Card { id, name, context, own, pool, words });
    }
    Ok(cards)
}

/// A text; what cannot be had is empty.
pub(super) fn text<const ROOM: usize>(ask: impl Fn(c_int, *mut c_char) -> CUresult) -> String {
    let mut bytes = [0u8; ROOM];
    if ask(ROOM as c_int, bytes.as_mut_ptr().cast()) != CUDA_SUCCESS {
        return String::new();
    }
    CStr::from_bytes_until_nul(&bytes)
        .map(|text| text.to_string_lossy().into_owned())
        .unwrap_or_default()
}
