//! OpenCL loader library (ICD loader) with its platforms, devices and contexts. Each context is
//! created at its first use.
//!
//! Each platform has one context with all its devices, so that memory, copies and waits work across
//! the devices without the host. Devices are numbered in the order GPUs, accelerators, CPUs;
//! devices of one kind are in the loader's order.

use super::errors::{created, error};
use super::memory::Origin;
use super::program::Program;
use super::query::{Pod, UNKNOWN, ids, query, text};
use super::queue::ClQueue;
use super::symbols::*;
use crate::abi::word::*;
use crate::backend::driver::{self, CurrentDevice, Driver as _, Queue as _, Stream};
use crate::backend::try_once::TryOnce;
use crate::backend::vendor_lib::{Names, VendorLib};
use crate::error::{Result, fail};
use crate::runtime::settings;
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::Mutex;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::{Arc, Weak};

static LIBRARY: VendorLib<Functions> = VendorLib::new(Names {
    name: "OpenCL",
    part: "loader",
    soname: "libOpenCL.so.1",
    variable: "DTL_OPENCL_LIBRARY",
    wanted: "an OpenCL loader (libOpenCL.so.1)",
    advice: "install a loader (Debian: ocl-icd-libopencl1) and the device's driver, or name the \
             loader with DTL_OPENCL_LIBRARY",
});

thread_local! {
    /// Index of the device that this thread has selected, preceded by `DeviceBackend::generation`
    /// at the time of the selection. If the library has been initialized again since, the selection
    /// is ignored, because the device list may differ.
    static CHOSEN: Cell<(u64, i32)> = const { Cell::new((0, 0)) };
}

/// Loaded OpenCL library of this process, with its platforms and devices.
pub struct ClDriver {
    /// Function table of the loader.
    pub(super) cl: &'static Functions,
    /// Platforms with at least one device.
    pub(super) platforms: Vec<Platform>,
    /// Devices of all platforms.
    pub(super) devices: Vec<Card>,
    /// Streams, keyed by native command queue. If the application wraps one queue several times, it
    /// gets the same `Stream` each time, so there is one failure state per queue.
    streams: Mutex<BTreeMap<usize, Weak<Stream<ClDriver>>>>,
}

/// OpenCL platform: one vendor's driver.
pub(super) struct Platform {
    id: Addr,
    devices: Vec<Addr>,
    context: TryOnce<Addr>,
}

/// OpenCL device.
pub struct Card {
    /// Native handle of the device (`cl_device_id`).
    pub(super) id: Addr,
    /// Index of the device's platform in the platform list.
    pub(super) platform: usize,
    /// Device kind, DTL_DEVICE_...
    pub(super) kind: dtl_enum_word_t,
    /// Name of the device, with the name of its platform.
    pub(super) name: String,
    /// Shared virtual memory (SVM) capabilities of the device, as CL_DEVICE_SVM_... bits; 0 if the
    /// host and the device cannot share pointers.
    pub(super) sharing: u64,
    /// True if a queue of the device can have a priority (extension cl_khr_priority_hints).
    has_priorities: bool,
    /// Internal queue for copies that the calling thread waits for.
    pub(super) copies: TryOnce<Arc<ClQueue>>,
}

impl driver::Driver for ClDriver {
    const NAME: &'static CStr = c"opencl";
    /// Priority of this backend: higher than those of the host backend and of registered backends,
    /// lower than those of backends for a single vendor's devices.
    const PRIORITY: i32 = 50;
    const CALLBACK_THREAD: &'static str = "dtl-cl-stream";
    /// Largest alignment of any OpenCL C type, in bytes.
    const ALIGNMENT: u64 = 128;
    const CHOSEN: &'static CurrentDevice = &CHOSEN;
    type Card = Card;
    type Queue = ClQueue;
    type Origin = Origin;
    type Module = Arc<Program>;

    fn find() -> Result<Self, String> {
        // SAFETY: the name is that of an OpenCL loader, or the user who named another library
        // vouches for it.
        let cl = unsafe { LIBRARY.load(settings::current().device_library.as_deref()) }?;
        list(cl)
    }

    fn cards(&self) -> &[Card] {
        &self.devices
    }

    fn priorities(&self, device: i32) -> Result<(i32, i32)> {
        Ok(if self.card(device)?.has_priorities { (1, -1) } else { (0, 0) })
    }

    fn create_stream(self: &Arc<Self>, device: i32, priority: i32) -> Result<Arc<Stream<Self>>> {
        let stream = Stream::<Self>::new(ClQueue::create(self, device, priority)?);
        let mut streams = self.streams.lock();
        streams.retain(|_, stream| stream.strong_count() > 0);
        streams.insert(stream.queue.native().get(), Arc::downgrade(&stream));
        Ok(stream)
    }

    fn wrap_stream(self: &Arc<Self>, _device: i32, native: Addr) -> Result<Arc<Stream<Self>>> {
        let mut streams = self.streams.lock();
        if let Some(stream) = streams.get(&native.get()).and_then(Weak::upgrade) {
            return Ok(stream);
        }
        let stream = Stream::new(ClQueue::wrap(self, native)?);
        streams.retain(|_, stream| stream.strong_count() > 0);
        streams.insert(native.get(), Arc::downgrade(&stream));
        Ok(stream)
    }
}

impl ClDriver {
    /// Returns the context of the platform with index `platform`, created at its first use.
    pub(super) fn context(&self, platform: usize) -> Result<Addr> {
        let Some(platform) = self.platforms.get(platform) else {
            return fail!(DTL_ERROR_INTERNAL, "no OpenCL platform {platform}");
        };
        let context = platform.context.get_or_make(|| {
            let properties = [CL_CONTEXT_PLATFORM as isize, platform.id.get() as isize, 0];
            let ids: Vec<*mut c_void> = platform.devices.iter().map(|id| id.ptr()).collect();
            let (count, ids, none) = (ids.len() as cl_uint, ids.as_ptr(), std::ptr::null_mut());
            let (properties, mut code) = (properties.as_ptr(), 0);
            // SAFETY: `properties` ends with 0, and `ids` has the passed number of devices of the
            // platform. Both are locals.
            let context = unsafe {
                (self.cl.clCreateContext)(properties, count, ids, None, none, &raw mut code)
            };
            let what = "making a context of all devices of the platform (clCreateContext)";
            created(context, code, what)
        });
        context.copied()
    }

    /// Returns the internal copy queue of `device`, created at its first use.
    pub(super) fn copies(&self, device: i32) -> Result<Arc<ClQueue>> {
        // The queue holds no reference to the driver, because the driver owns the queue.
        let queue = self
            .card(device)?
            .copies
            .get_or_make(|| ClQueue::create(self, device, 0).map(Arc::new));
        queue.cloned()
    }

    /// Queries a numeric property of a device.
    pub(super) fn number<T: Pod>(&self, card: &Card, what: cl_uint) -> Result<T> {
        device_number(self.cl, card.id, what)
    }
}

impl Drop for ClDriver {
    fn drop(&mut self) {
        for card in &mut self.devices {
            drop(card.copies.take()); // before the context is released
        }
        for context in self.platforms.iter_mut().filter_map(|platform| platform.context.take()) {
            // SAFETY: this driver object owns the context and releases it once.
            let _ = unsafe { (self.cl.clReleaseContext)(context.ptr()) };
        }
    }
}

fn list(cl: &'static Functions) -> Result<ClDriver, String> {
    let no_driver = "the OpenCL loader finds no driver (a file *.icd in /etc/OpenCL/vendors, or in \
        OCL_ICD_VENDORS, names one), or cannot load it (see ldd of the file that the .icd names): \
        install the one of your device, or PoCL for the CPU (Debian: pocl-opencl-icd)";
    let ids = ids(|room, out, count| {
        // SAFETY: `out` is valid for writing `room` entries.
        unsafe { (cl.clGetPlatformIDs)(room, out, count) }
    });
    let ids = match ids {
        Ok(ids) if !ids.is_empty() => ids,
        Ok(_) | Err(CL_PLATFORM_NOT_FOUND_KHR) => return Err(no_driver.into()),
        Err(code) => return Err(error(code, "clGetPlatformIDs").text().into()),
    };
    let mut driver =
        ClDriver { cl, platforms: Vec::new(), devices: Vec::new(), streams: Mutex::default() };
    let mut without = Vec::new();
    for id in ids {
        let name = text(|room, out, size| {
            // SAFETY: `id` is a platform of the loader, and `out` is valid for writing `room`
            // bytes.
            unsafe { (cl.clGetPlatformInfo)(id.ptr(), CL_PLATFORM_NAME, room, out, size) }
        });
        let name = name.unwrap_or_else(|| UNKNOWN.into());
        match devices(cl, id) {
            Ok(devices) if !devices.is_empty() => add(&mut driver, id, &name, devices),
            Ok(_) | Err(CL_DEVICE_NOT_FOUND) => without.push(name),
            Err(code) => without.push(format!("{name} ({})", error(code, "clGetDeviceIDs").text())),
        }
    }
    if driver.devices.is_empty() {
        return Err(format!("no OpenCL platform has a device: {}", without.join(", ")));
    }
    let rank = |kind| match kind {
        DTL_DEVICE_GPU => 0,
        DTL_DEVICE_ACCELERATOR => 1,
        _ => 2,
    };
    driver.devices.sort_by_key(|card| rank(card.kind)); // stable: the loader's order within a kind
    Ok(driver)
}

fn add(driver: &mut ClDriver, id: Addr, platform_name: &str, devices: Vec<Addr>) {
    let (cl, platform) = (driver.cl, driver.platforms.len());
    for &device in &devices {
        let text_of = |what| {
            text(|room, out, size| {
                // SAFETY: `device` is a device of the platform, and `out` is valid for writing
                // `room` bytes.
                unsafe { (cl.clGetDeviceInfo)(device.ptr(), what, room, out, size) }
            })
        };
        let name = text_of(CL_DEVICE_NAME);
        let name = name.as_deref().unwrap_or(UNKNOWN);
        let extensions = text_of(CL_DEVICE_EXTENSIONS).unwrap_or_default();
        // A property that a device does not report counts as absent.
        let kind = match device_number::<u64>(cl, device, CL_DEVICE_TYPE).unwrap_or(0) {
            bits if bits & u64::from(CL_DEVICE_TYPE_GPU) != 0 => DTL_DEVICE_GPU,
            bits if bits & u64::from(CL_DEVICE_TYPE_CPU) != 0 => DTL_DEVICE_CPU,
            _ => DTL_DEVICE_ACCELERATOR,
        };
        let has_calls = cl.clSVMAlloc.is_some()
            && cl.clSVMFree.is_some()
            && cl.clEnqueueSVMMemcpy.is_some()
            && cl.clEnqueueSVMMemFill.is_some();
        let sharing = device_number::<u64>(cl, device, CL_DEVICE_SVM_CAPABILITIES).unwrap_or(0);
        driver.devices.push(Card {
            id: device,
            platform,
            kind,
            name: format!("{name} ({platform_name})"),
            sharing: if has_calls { sharing } else { 0 },
            has_priorities: cl.clCreateCommandQueueWithProperties.is_some()
                && extensions.split_whitespace().any(|name| name == "cl_khr_priority_hints"),
            copies: TryOnce::default(),
        });
    }
    driver.platforms.push(Platform { id, devices, context: TryOnce::default() });
}

fn devices(cl: &Functions, platform: Addr) -> Result<Vec<Addr>, cl_int> {
    ids(|room, out, count| {
        // SAFETY: `platform` is a platform of the loader, and `out` is valid for writing `room`
        // entries.
        unsafe {
            (cl.clGetDeviceIDs)(
                platform.ptr(),
                cl_ulong::from(CL_DEVICE_TYPE_ALL),
                room,
                out,
                count,
            )
        }
    })
}

fn device_number<T: Pod>(cl: &Functions, device: Addr, what: cl_uint) -> Result<T> {
    let value = query(|room, out| {
        // SAFETY: `device` is a device of the loader, and `out` is valid for writing `room` bytes.
        unsafe { (cl.clGetDeviceInfo)(device.ptr(), what, room, out, std::ptr::null_mut()) }
    });
    value.map_err(|code| error(code, &format!("clGetDeviceInfo({what:#x})")))
}
