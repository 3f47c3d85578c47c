//! The loader and what it finds: platforms, devices, their contexts. Everything is asked for when
//! it is first needed.
//!
//! One context for each platform with all its devices, so that memory, copies and waits cross
//! between them without the host. Devices are counted GPUs first, then accelerators, then CPUs;
//! among equals as the loader lists them.

use super::errors::{DEVICE_NOT_FOUND, PLATFORM_NOT_FOUND, check, error};
use super::queue::Queue;
use super::symbols::*;
use crate::abi::word::*;
use crate::backend::vendor_lib::VendorLib;
use crate::error::{Result, fail};
use crate::runtime::settings;
use crate::sys::buf::Addr;
use crate::sys::lock::Mutex;
use std::ffi::CStr;
use std::sync::{Arc, OnceLock};

/// What everybody has who has the OpenCL of a Linux machine.
const USUAL_LIBRARY: &str = "libOpenCL.so.1";

static LIBRARY: VendorLib<Functions> = VendorLib::new("OpenCL", "loader");

/// OpenCL in this process.
pub(super) struct Driver {
    /// Its functions.
    pub(super) cl: &'static Functions,
    /// Which of those that this process has had.
    pub(super) generation: u64,
    /// The platforms with at least one device.
    pub(super) platforms: Vec<Platform>,
    /// All devices.
    pub(super) devices: Vec<Card>,
}

/// A platform: a driver's face.
pub(super) struct Platform {
    id: Addr,
    devices: Vec<Addr>,
    context: OnceLock<Addr>,
    making: Mutex<()>,
}

/// A device.
pub(super) struct Card {
    /// Its `cl_device_id`.
    pub(super) id: Addr,
    /// Its platform's place in the list.
    pub(super) platform: usize,
    /// DTL_DEVICE_...
    pub(super) kind: dtl_enum_word_t,
    /// Its name and its platform's.
    pub(super) name: String,
    /// CL_DEVICE_SVM_... bits; 0 = the host and the device share no pointers.
    pub(super) sharing: u64,
    /// The queue of copies that wait.
    copies: OnceLock<Arc<Queue>>,
    making: Mutex<()>,
}

impl Driver {
    /// Opens the loader and lists what there is; the text says why not.
    pub(super) fn find() -> std::result::Result<Self, String> {
        LIBRARY.may_be_called()?;
        let cl = open()?;
        list(cl, LIBRARY.begin())
    }

    /// A device of the list.
    pub(super) fn card(&self, device: i32) -> Result<&Card> {
        match usize::try_from(device).ok().and_then(|place| self.devices.get(place)) {
            Some(card) => Ok(card),
            None => {
                fail!(DTL_ERROR_OUT_OF_BOUNDS, "device {device}: there are {}", self.devices.len())
            }
        }
    }

    /// The context of a platform, made at its first use.
    pub(super) fn context(&self, platform: usize) -> Result<Addr> {
        let Some(platform) = self.platforms.get(platform) else {
            return fail!(DTL_ERROR_INTERNAL, "no OpenCL platform {platform}");
        };
        if let Some(context) = platform.context.get() {
            return Ok(*context);
        }
        let making = platform.making.lock();
        if let Some(context) = platform.context.get() {
            return Ok(*context);
        }
        let properties = [CL_CONTEXT_PLATFORM as isize, platform.id.get() as isize, 0];
        let ids: Vec<Object> = platform.devices.iter().map(|id| id.ptr()).collect();
        let mut code = 0;
        // SAFETY: a list that ends with 0, and as many devices of that platform as are said; all
        // locals.
        let context = unsafe {
            (self.cl.clCreateContext)(
                properties.as_ptr(),
                ids.len() as Uint,
                ids.as_ptr(),
                None,
                std::ptr::null_mut(),
                &raw mut code,
            )
        };
        if context.is_null() {
            return Err(error(
                code.min(-1),
                "making a context of all devices of the platform (clCreateContext)",
            ));
        }
        let context = *platform.context.get_or_init(|| Addr::new(context));
        drop(making);
        Ok(context)
    }

    /// The queue of a device for copies that the caller waits for, made at its first use.
    pub(super) fn copies(self: &Arc<Self>, device: i32) -> Result<Arc<Queue>> {
        let card = self.card(device)?;
        if let Some(queue) = card.copies.get() {
            return Ok(Arc::clone(queue));
        }
        let making = card.making.lock();
        if card.copies.get().is_none() {
            // Without a share of the driver, which has this queue.
            let queue = Queue::create(self, device)?;
            let _ = card.copies.set(Arc::new(queue));
        }
        drop(making);
        match card.copies.get() {
            Some(queue) => Ok(Arc::clone(queue)),
            None => fail!(DTL_ERROR_INTERNAL, "no queue for copies"),
        }
    }

    /// The same if it has been made.
    pub(super) fn copies_so_far(&self, device: i32) -> Result<Option<Arc<Queue>>> {
        Ok(self.card(device)?.copies.get().cloned())
    }

    /// A number that a device tells.
    pub(super) fn number<T: Plain>(&self, card: &Card, what: i64) -> Result<T> {
        device_number(self.cl, card.id, what)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        for card in &mut self.devices {
            drop(card.copies.take()); // before its context
        }
        for context in self.platforms.iter_mut().filter_map(|platform| platform.context.take()) {
            // SAFETY: a context of ours, given up once.
            let _ = unsafe { (self.cl.clReleaseContext)(context.ptr()) };
        }
    }
}

fn open() -> std::result::Result<&'static Functions, String> {
    let named = settings::current().device_library;
    let name = named.as_deref().unwrap_or(USUAL_LIBRARY);
    // SAFETY: functions of that one library, which is an OpenCL loader or what the user says is
    // one.
    let resolve = |find: &dyn Fn(&CStr) -> Option<Addr>| unsafe { Functions::resolve(find) };
    // SAFETY: an OpenCL loader, by its name or because the user says so.
    let opened = unsafe { LIBRARY.open(name, &resolve) };
    opened.map_err(|why| match &named {
        Some(name) => format!(
            "DTL_OPENCL_LIBRARY={name}: {why}; set it to the path or soname of an OpenCL loader \
             (libOpenCL.so.1), or \
             unset it"
        ),
        None => format!(
            "no OpenCL: {why}; install a loader (Debian: ocl-icd-libopencl1) and the device's \
             driver, or name the loader \
             with DTL_OPENCL_LIBRARY"
        ),
    })
}

fn list(cl: &'static Functions, generation: u64) -> std::result::Result<Driver, String> {
    let no_driver = "the OpenCL loader finds no driver (a file *.icd in /etc/OpenCL/vendors names \
        one): install the one of \
                     your device, or PoCL for the CPU (Debian: pocl-opencl-icd)";
    let ids = ids(|room, out, count| {
        // SAFETY: room for as many as are said.
        unsafe { (cl.clGetPlatformIDs)(room, out, count) }
    });
    let ids = match ids {
        Ok(ids) if !ids.is_empty() => ids,
        Ok(_) | Err(PLATFORM_NOT_FOUND) => return Err(no_driver.into()),
        Err(code) => return Err(error(code, "clGetPlatformIDs").text().into()),
    };
    let mut driver = Driver { cl, generation, platforms: Vec::new(), devices: Vec::new() };
    let mut without = Vec::new();
    for id in ids {
        let name = text(|room, out, size| {
            // SAFETY: a platform of the loader's, and room for as many bytes as are said.
            unsafe { (cl.clGetPlatformInfo)(id.ptr(), CL_PLATFORM_NAME as Uint, room, out, size) }
        });
        match devices(cl, id) {
            Ok(devices) if !devices.is_empty() => add(&mut driver, id, &name, devices),
            Ok(_) | Err(DEVICE_NOT_FOUND) => without.push(name),
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
    driver.devices.sort_by_key(|card| rank(card.kind)); // stable
    Ok(driver)
}

fn add(driver: &mut Driver, id: Addr, platform_name: &str, devices: Vec<Addr>) {
    let (cl, platform) = (driver.cl, driver.platforms.len());
    for &device in &devices {
        let name = text(|room, out, size| {
            // SAFETY: a device of the platform's, and room for as many bytes as are said.
            unsafe { (cl.clGetDeviceInfo)(device.ptr(), CL_DEVICE_NAME as Uint, room, out, size) }
        });
        // What a device does not tell it has not.
        let kind = match device_number::<u64>(cl, device, CL_DEVICE_TYPE).unwrap_or(0) as i64 {
            bits if bits & CL_DEVICE_TYPE_GPU != 0 => DTL_DEVICE_GPU,
            bits if bits & CL_DEVICE_TYPE_CPU != 0 => DTL_DEVICE_CPU,
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
            copies: OnceLock::new(),
            making: Mutex::new(()),
        });
    }
    driver.platforms.push(Platform {
        id,
        devices,
        context: OnceLock::new(),
        making: Mutex::new(()),
    });
}

fn devices(cl: &Functions, platform: Addr) -> std::result::Result<Vec<Addr>, Int> {
    ids(|room, out, count| {
        // SAFETY: a platform of the loader's, and room for as many as are said.
        unsafe { (cl.clGetDeviceIDs)(platform.ptr(), CL_DEVICE_TYPE_ALL as Bits, room, out, count) }
    })
}

/// Asks how many there are, then for all of them.
fn ids(ask: impl Fn(Uint, ObjectsOut, UintOut) -> Int) -> std::result::Result<Vec<Addr>, Int> {
    let mut count = 0;
    let code = ask(0, std::ptr::null_mut(), &raw mut count);
    if code < 0 {
        return Err(code);
    }
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut all = vec![std::ptr::null_mut(); count as usize];
    let code = ask(count, all.as_mut_ptr(), std::ptr::null_mut());
    if code < 0 { Err(code) } else { Ok(all.into_iter().map(Addr::new).collect()) }
}

/// What stands for a text that cannot be had.
pub(super) const UNTOLD: &str = "?";

/// A text; what cannot be had is "?".
pub(super) fn text(ask: impl Fn(Size, Out, SizeOut) -> Int) -> String {
    let mut size = 0;
    if ask(0, std::ptr::null_mut(), &raw mut size) < 0 {
        return UNTOLD.into();
    }
    let mut bytes = vec![0u8; size];
    if ask(size, bytes.as_mut_ptr().cast(), std::ptr::null_mut()) < 0 {
        return UNTOLD.into();
    }
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').trim().to_owned()
}

/// What OpenCL answers by bytes: every value of those is one.
pub(super) trait Plain: Default + Copy {}
impl Plain for u32 {}
impl Plain for u64 {}
impl Plain for usize {}
impl Plain for [usize; 3] {}

fn device_number<T: Plain>(cl: &Functions, device: Addr, what: i64) -> Result<T> {
    // More room than needed: a device may have more dimensions than three.
    let mut values = [T::default(); 8];
    let (room, out) = (size_of_val(&values), values.as_mut_ptr().cast());
    // SAFETY: a device of the loader's, and room for as many bytes as are said, of a type without
    // wrong values.
    let code = unsafe {
        (cl.clGetDeviceInfo)(device.ptr(), what as Uint, room, out, std::ptr::null_mut())
    };
    check(code, &format!("clGetDeviceInfo({what:#x})"))?;
    Ok(values.first().copied().unwrap_or_default())
}
