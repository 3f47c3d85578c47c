//! The driver and its devices: primary contexts, and a stream of each device for the library's own
//! copies. Everything is asked for when it is first needed.
//!
//! The primary context is the one that CUDA's runtime interface uses too, so memory and streams of
//! this library and of programs and libraries above that interface go together. A call makes the
//! context current in its thread and leaves the thread as it was.

use super::errors::{NO_DEVICE, SUCCESS};
use super::symbols::*;
use crate::backend::vendor_lib::VendorLib;
use crate::error::{Result, fail};
use crate::runtime::settings;
use crate::sys::buf::Addr;
use crate::sys::dl::Module;
use crate::sys::lock::Mutex;
use std::ffi::CStr;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

/// What everybody has who has the driver.
const USUAL_LIBRARY: &str = "libcuda.so.1";
/// The oldest version whose functions are all of the list's required ones, as cuDriverGetVersion
/// counts.
const OLDEST: i32 = 11_000;

static LIBRARY: VendorLib<Functions> = VendorLib::new("CUDA", "driver");

/// The driver in this process.
pub(super) struct Driver {
    /// Its functions.
    pub(super) cuda: &'static Functions,
    /// Which of those that this process has had.
    pub(super) generation: u64,
    /// Its devices, in its order.
    pub(super) cards: Vec<Card>,
}

/// A device.
pub(super) struct Card {
    /// Its `CUdevice`.
    pub(super) id: Device,
    /// Its name.
    pub(super) name: String,
    context: OnceLock<Addr>,
    /// Streams for what callers wait for, by their use.
    own: [OnceLock<Addr>; 2],
    pool: OnceLock<Option<Addr>>,
    making: Mutex<()>,
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
pub(super) struct Inside {
    cuda: &'static Functions,
    pushed: bool,
}

/// Makes a context current in the calling thread.
#[inline]
pub(super) fn enter(cuda: &'static Functions, context: Addr) -> Result<Inside> {
    let mut current = ptr::null_mut();
    // SAFETY: room for a context.
    let code = unsafe { (cuda.cuCtxGetCurrent)(&raw mut current) };
    if code == SUCCESS && current == context.ptr() {
        return Ok(Inside { cuda, pushed: false });
    }
    // SAFETY: a context that its owner keeps meanwhile.
    cuda.check(unsafe { (cuda.cuCtxPushCurrent_v2)(context.ptr()) }, "cuCtxPushCurrent")?;
    Ok(Inside { cuda, pushed: true })
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = ptr::null_mut();
            // SAFETY: room for the context that was pushed last, which is ours.
            let _ = unsafe { (self.cuda.cuCtxPopCurrent_v2)(&raw mut popped) };
        }
    }
}

impl Driver {
    /// Opens the driver and lists its devices; the text says why not.
    pub(super) fn find() -> std::result::Result<Self, String> {
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
        if code == NO_DEVICE {
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
        Ok(Driver { cuda, generation, cards })
    }

    /// A device of the list.
    pub(super) fn card(&self, device: i32) -> Result<&Card> {
        match usize::try_from(device).ok().and_then(|place| self.cards.get(place)) {
            Some(card) => Ok(card),
            None => {
                fail!(DTL_ERROR_OUT_OF_BOUNDS, "device {device}: there are {}", self.cards.len())
            }
        }
    }

    /// A device's primary context, retained at its first use.
    pub(super) fn context(&self, device: i32) -> Result<Addr> {
        let card = self.card(device)?;
        if let Some(context) = card.context.get() {
            return Ok(*context);
        }
        let making = card.making.lock();
        if let Some(context) = card.context.get() {
            return Ok(*context);
        }
        let mut context = ptr::null_mut();
        // SAFETY: a device of the driver's and room for its context.
        let code = unsafe { (self.cuda.cuDevicePrimaryCtxRetain)(&raw mut context, card.id) };
        self.cuda.check(code, "cuDevicePrimaryCtxRetain")?;
        let context = *card.context.get_or_init(|| Addr::new(context));
        drop(making);
        Ok(context)
    }

    /// Makes a device's primary context current.
    #[inline]
    pub(super) fn enter(&self, device: i32) -> Result<Inside> {
        enter(self.cuda, self.context(device)?)
    }

    /// Makes the primary context of some device current, preferably one that is retained already.
    pub(super) fn enter_any(&self) -> Option<Inside> {
        let made = self.cards.iter().position(|card| card.context.get().is_some());
        self.enter(made.unwrap_or(0) as i32).ok()
    }

    /// The library's own stream on a device, whose context is current; made at its first use.
    pub(super) fn own_stream(&self, device: i32, purpose: Use) -> Result<Addr> {
        let card = self.card(device)?;
        let place = card.own_stream(purpose);
        if let Some(stream) = place.get() {
            return Ok(*stream);
        }
        let making = card.making.lock();
        if let Some(stream) = place.get() {
            return Ok(*stream);
        }
        let stream = new_stream(self.cuda)?;
        let stream = *place.get_or_init(|| stream);
        drop(making);
        Ok(stream)
    }

    /// The same if it has been made.
    pub(super) fn own_stream_so_far(&self, device: i32, purpose: Use) -> Result<Option<Addr>> {
        Ok(self.card(device)?.own_stream(purpose).get().copied())
    }

    /// The pool of a device's memory, whose context is current; `None`: it has none.
    pub(super) fn pool(&self, device: i32) -> Result<Option<Addr>> {
        let card = self.card(device)?;
        if let Some(pool) = card.pool.get() {
            return Ok(*pool);
        }
        let making = card.making.lock();
        if let Some(pool) = card.pool.get() {
            return Ok(*pool);
        }
        let pool = new_pool(self, card)?;
        let pool = *card.pool.get_or_init(|| pool);
        drop(making);
        Ok(pool)
    }

    /// The pool if it has been made.
    pub(super) fn pool_so_far(&self, device: i32) -> Option<Addr> {
        self.card(device).ok()?.pool.get().copied().flatten()
    }

    /// A number that a device tells; 0 if it does not know the question.
    pub(super) fn attribute(&self, card: &Card, what: i64) -> i32 {
        let mut value = 0;
        // SAFETY: a device of the driver's and room for an int.
        let code =
            unsafe { (self.cuda.cuDeviceGetAttribute)(&raw mut value, what as Int, card.id) };
        if code == SUCCESS { value } else { 0 }
    }
}

impl Card {
    fn own_stream(&self, purpose: Use) -> &OnceLock<Addr> {
        let [copies, memory] = &self.own;
        match purpose {
            Use::Copies => copies,
            Use::Memory => memory,
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        for card in &mut self.cards {
            let Some(context) = card.context.take() else { continue };
            if let Ok(inside) = enter(self.cuda, context) {
                for stream in card.own.iter_mut().filter_map(OnceLock::take) {
                    // SAFETY: the library's own stream, given up once.
                    let _ = unsafe { (self.cuda.cuStreamDestroy_v2)(stream.ptr()) };
                }
                if let (Some(pool), Some(destroy)) =
                    (card.pool.take().flatten(), self.cuda.cuMemPoolDestroy)
                {
                    // SAFETY: the library's own pool, given up once.
                    let _ = unsafe { destroy(pool.ptr()) };
                }
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
    let code = unsafe { (cuda.cuStreamCreate)(&raw mut stream, CU_STREAM_NON_BLOCKING as Uint) };
    cuda.check(code, "cuStreamCreate").map(|()| Addr::new(stream))
}

/// A pool of the library's own, which keeps what is freed: the device's default one is the
/// program's to tune.
fn new_pool(driver: &Driver, card: &Card) -> Result<Option<Addr>> {
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
    let properties = PoolProps {
        allocation_type: CU_MEM_ALLOCATION_TYPE_PINNED as Uint,
        handle_types: CU_MEM_HANDLE_TYPE_NONE as Uint,
        location_type: CU_MEM_LOCATION_TYPE_DEVICE as Uint,
        location: card.id,
        security: ptr::null_mut(),
        max_size: 0,
        usage: 0,
        reserved: [0; 54],
    };
    let (mut pool, mut keep) = (ptr::null_mut(), u64::MAX);
    // SAFETY: a description in a local, and room for a pool.
    cuda.check(unsafe { create(&raw mut pool, &raw const properties) }, "cuMemPoolCreate")?;
    // SAFETY: a pool, and the 64-bit number that this attribute is.
    let code =
        unsafe { set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as Int, (&raw mut keep).cast()) };
    cuda.check(code, "cuMemPoolSetAttribute").map(|()| Some(Addr::new(pool)))
}

/// Returns true if the program has loaded and initialised the driver. Neither loads nor initialises
/// it: after cuInit, forked children cannot use CUDA, and a program may load the driver long before
/// it initialises it.
pub(super) fn is_in_use() -> bool {
    let named = settings::current().driver_library;
    let name = named.as_deref().unwrap_or(USUAL_LIBRARY);
    if LIBRARY.may_be_called().is_err() || Module::loaded(Path::new(name)).is_none() {
        return false;
    }
    let Ok(cuda) = open() else { return false };
    let mut current = ptr::null_mut();
    // SAFETY: the output is writable; before cuInit the call returns an error code.
    unsafe { (cuda.cuCtxGetCurrent)(&raw mut current) == SUCCESS }
}

fn open() -> std::result::Result<&'static Functions, String> {
    let named = settings::current().driver_library;
    let name = named.as_deref().unwrap_or(USUAL_LIBRARY);
    // SAFETY: functions of that one library, which is NVIDIA's driver or what the user says is one.
    let resolve = |find: &dyn Fn(&CStr) -> Option<Addr>| unsafe { Functions::resolve(find) };
    // SAFETY: CUDA's driver, by its name or because the user says so.
    let opened = unsafe { LIBRARY.open(name, &resolve) };
    opened.map_err(|why| match &named {
        Some(name) => format!(
            "DTL_CUDA_LIBRARY={name}: {why}; set it to the path or soname of NVIDIA's driver \
             library (libcuda.so.1), or \
             unset it"
        ),
        None => format!(
            "no CUDA: {why}; install NVIDIA's driver, or name its libcuda.so.1 with \
            DTL_CUDA_LIBRARY"
        ),
    })
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
            // SAFETY: a device of the driver's and room for as many bytes as are said.
            unsafe { (cuda.cuDeviceGetName)(out, room, id) }
        });
        cards.push(Card {
            id,
            name,
            context: OnceLock::new(),
            own: Default::default(),
            pool: OnceLock::new(),
            making: Mutex::new(()),
        });
    }
    Ok(cards)
}

/// A text; what cannot be had is empty.
pub(super) fn text<const ROOM: usize>(ask: impl Fn(Int, TextOut) -> Code) -> String {
    let mut bytes = [0u8; ROOM];
    if ask(ROOM as Int, bytes.as_mut_ptr().cast()) != SUCCESS {
        return String::new();
    }
    CStr::from_bytes_until_nul(&bytes)
        .map(|text| text.to_string_lossy().into_owned())
        .unwrap_or_default()
}
