//! Plugin "opencl3": the devices of one OpenCL platform as a backend, with the crates dtl-binding
//! and opencl3. Memory is shared virtual memory, which pointers can name. Beside it, the built-in
//! backend "opencl" has all platforms, streams of the program, and copies of rows by the device.

mod exec;
mod module;

use dtl_binding::{Error, Result, driver::*, plugin, sys};
use opencl3::command_queue::{CL_QUEUE_PROFILING_ENABLE, CommandQueue};
use opencl3::error_codes::{ClError, error_text};
use opencl3::types::CL_NON_BLOCKING;
use opencl3::{context::Context, device::*, event::Event, memory::*, platform::get_platforms};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::{cell::Cell, collections::HashMap, ffi::c_void, ptr};

plugin!("opencl3", load);

fn load(loader: &mut Loader) -> Result {
    // Chosen by its name only: the built-in backend has the same devices.
    let table = Table::new(OpenCl::default()).priority(i32::MIN);
    loader.register("opencl3", table.devices().allocator().stream_transfers().events().modules())
}

thread_local! {
    /// Device that this thread has selected.
    static CURRENT: Cell<i32> = const { Cell::new(0) };
}

/// Largest alignment of any OpenCL C type, in bytes.
const ALIGNMENT: usize = 128;

/// The backend. The platform is searched at the first use.
#[derive(Default)]
struct OpenCl {
    platform: OnceLock<Result<Platform>>,
    /// Addresses from clSVMAlloc, by the aligned addresses of the allocations.
    blocks: Mutex<HashMap<usize, usize>>,
}

/// A platform: a driver of OpenCL.
struct Platform {
    devices: Vec<Device>,
    /// Context of all devices.
    context: Context,
    /// Queue for copies that the calling thread waits for.
    copies: CommandQueue,
}

impl OpenCl {
    fn platform(&self) -> Result<&Platform> {
        self.platform.get_or_init(find).as_ref().map_err(Error::clone)
    }

    fn device(&self, device: i32) -> Result<Device> {
        let devices = &self.platform()?.devices;
        let found = usize::try_from(device).ok().and_then(|index| devices.get(index)).copied();
        found.ok_or_else(|| invalid(format!("device {device}: there are {}", devices.len())))
    }
}

/// Finds the first platform that has devices, with a GPU if there is one.
fn find() -> Result<Platform> {
    let platforms = get_platforms().named("clGetPlatformIDs")?;
    let ids = [CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_ALL].iter().find_map(|kind| {
        platforms.iter().filter_map(|one| one.get_devices(*kind).ok()).find(|ids| !ids.is_empty())
    });
    let none = || Error::new(sys::DTL_ERROR_UNAVAILABLE, "no OpenCL platform has a device");
    let ids = ids.ok_or_else(none)?;
    let context = Context::from_devices(&ids, &[], None, ptr::null_mut()).named("a context")?;
    let devices: Vec<_> = ids.into_iter().map(Device::new).collect();
    let copies = queue(&context, *devices.first().ok_or_else(none)?)?;
    Ok(Platform { devices, context, copies })
}

fn queue(context: &Context, device: Device) -> Result<CommandQueue> {
    let (id, profiling) = (device.id(), CL_QUEUE_PROFILING_ENABLE);
    // SAFETY: the device belongs to the context.
    unsafe { CommandQueue::create_with_properties(context, id, profiling, 0) }.named("a queue")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(sys::DTL_ERROR_INVALID_ARGUMENT, text)
}

/// Conversion of the results of opencl3.
trait Named<T> {
    /// Names the operation in the text of an error.
    fn named(self, what: &str) -> Result<T>;
}

impl<T, E: Into<ClError>> Named<T> for std::result::Result<T, E> {
    fn named(self, what: &str) -> Result<T> {
        self.map_err(|error| {
            let ClError(code) = error.into();
            let status = match code {
                -4 | -6 | -61 => sys::DTL_ERROR_OUT_OF_MEMORY, // no memory, CL_INVALID_BUFFER_SIZE
                -11 | -43 => sys::DTL_ERROR_COMPILE_FAILED,    // CL_BUILD_PROGRAM_FAILURE, options
                -46 => sys::DTL_ERROR_NOT_FOUND,               // CL_INVALID_KERNEL_NAME
                -63 | -55..=-49 => sys::DTL_ERROR_INVALID_ARGUMENT, // arguments and sizes of a launch
                _ => sys::DTL_ERROR_OPENCL,
            };
            Error::new(status, format!("{what}: {} ({code})", error_text(code)))
        })
    }
}

impl Driver for OpenCl {
    const UNAVAILABLE: Option<fn(&Self) -> Result<Option<String>>> =
        Some(|this| Ok(this.platform().err().map(|error| error.text)));
}

impl Devices for OpenCl {
    fn count(&self) -> Result<i32> {
        Ok(self.platform()?.devices.len() as i32)
    }

    fn set_current(&self, device: i32) -> Result {
        self.device(device)?;
        CURRENT.set(device);
        Ok(())
    }

    fn current(&self) -> Result<i32> {
        Ok(CURRENT.get())
    }

    const INFO: Option<fn(&Self, i32, &mut sys::dtl_device_info_t) -> Result> =
        Some(|this, device, out| describe(this.device(device)?, out).named("clGetDeviceInfo"));

    // OpenCL does not report the free memory.
    const MEMORY_INFO: Option<fn(&Self, i32) -> Result<(u64, u64)>> = Some(|this, device| {
        Ok((0, this.device(device)?.global_mem_size().named("clGetDeviceInfo")?))
    });

    const DLPACK: Option<fn(&Self, i32) -> Result<(i32, i32)>> = Some(|this, device| {
        let kind = this.device(device)?.dev_type().named("clGetDeviceInfo")?;
        // kDLCPU and kDLOpenCL.
        Ok((if kind & CL_DEVICE_TYPE_CPU != 0 { 1 } else { 4 }, device))
    });
}

fn describe(device: Device, out: &mut sys::dtl_device_info_t) -> opencl3::Result<()> {
    let small = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
    out.kind = match device.dev_type()? {
        kind if kind & CL_DEVICE_TYPE_GPU != 0 => sys::DTL_DEVICE_GPU,
        kind if kind & CL_DEVICE_TYPE_CPU != 0 => sys::DTL_DEVICE_CPU,
        _ => sys::DTL_DEVICE_ACCELERATOR,
    };
    out.total_bytes = device.global_mem_size()?;
    out.compute_units = device.max_compute_units()?;
    out.max_block_threads = small(device.max_work_group_size()?);
    let sizes = out.max_block.iter_mut().zip(device.max_work_item_sizes()?);
    sizes.for_each(|(most, size)| *most = small(size));
    out.max_grid = [u32::MAX; 3];
    set_text(&mut out.name, &device.name()?);
    Ok(())
}

/// Returns the properties of a kind of memory, and the flags of clSVMAlloc. Pinned memory is
/// fine-grained memory: the driver can copy from and to it directly.
fn memory_kind(device: Device, kind: sys::dtl_enum_word_t) -> Result<(u64, u64)> {
    let host = sys::DTL_MEMORY_HOST_ACCESSIBLE | sys::DTL_MEMORY_UNIFIED;
    let (needed, flags, more) = match kind {
        sys::DTL_MEMORY_DEVICE => (CL_DEVICE_SVM_COARSE_GRAIN_BUFFER, 0, 0),
        sys::DTL_MEMORY_MANAGED | sys::DTL_MEMORY_PINNED => {
            (CL_DEVICE_SVM_FINE_GRAIN_BUFFER, CL_MEM_SVM_FINE_GRAIN_BUFFER, host)
        }
        _ => (u64::MAX, 0, 0),
    };
    if device.svm_mem_capability() & needed != needed {
        return Err(Error::new(sys::DTL_ERROR_NOT_SUPPORTED, "kind: use DEVICE or MANAGED"));
    }
    let properties = sys::DTL_MEMORY_THREAD_SAFE | sys::DTL_MEMORY_DEVICE_ACCESSIBLE | more;
    Ok((properties, CL_MEM_READ_WRITE | flags))
}

// SAFETY: an address is that of clSVMAlloc, with room for the alignment, and stays valid until
// `free`. Kinds with DTL_MEMORY_HOST_ACCESSIBLE are fine-grained memory.
unsafe impl Allocator for OpenCl {
    fn alloc(&self, extent: Extent) -> Result<*mut c_void> {
        let (_, flags) = memory_kind(self.device(CURRENT.get())?, extent.kind)?;
        let context = self.platform()?.context.get();
        let size = extent.size.saturating_add(extent.alignment);
        // SAFETY: the context has a device with shared virtual memory of this kind.
        let base = unsafe { svm_alloc(context, flags, size, ALIGNMENT as u32) }.map_err(|_| {
            let text = format!("clSVMAlloc returned no {size} bytes: free memory, or ask for less");
            Error::new(sys::DTL_ERROR_OUT_OF_MEMORY, text)
        })?;
        let address = base.expose_provenance().next_multiple_of(extent.alignment);
        lock(&self.blocks).insert(address, base.expose_provenance());
        Ok(ptr::with_exposed_provenance_mut(address))
    }

    unsafe fn free(&self, address: *mut c_void, _extent: Extent) -> Result {
        let base = lock(&self.blocks).remove(&address.addr());
        let base = base.ok_or_else(|| invalid(format!("{address:p} is not allocated")))?;
        let (on, base) = (self.platform()?.context.get(), ptr::with_exposed_provenance_mut(base));
        // SAFETY: clSVMAlloc allocated it in this context. It was in the table, so it is freed once.
        unsafe { svm_free(on, base) }.named("clSVMFree")
    }

    const KIND_INFO: Option<fn(&Self, u64, &mut sys::dtl_mem_kind_info_t) -> Result> =
        Some(|this, kind, out| {
            let (properties, flags) = memory_kind(this.device(CURRENT.get())?, kind)?;
            out.properties = properties;
            out.alignment = ALIGNMENT as u64;
            let is_coarse = flags == CL_MEM_READ_WRITE;
            let name = if is_coarse { "coarse-grained SVM" } else { "fine-grained SVM" };
            set_text(&mut out.name, name);
            Ok(())
        });
}

/// Queues a copy. OpenCL finds the devices by the addresses.
fn copy(queue: &CommandQueue, target: &Target<'_>, origin: &Origin<'_>) -> Result<Event> {
    let (to, from) = (target.address(), origin.address());
    // SAFETY: the library reserves both ranges for the copy until it has ended.
    let event = unsafe { queue.enqueue_svm_mem_cpy(CL_NON_BLOCKING, to, from, target.size(), &[]) };
    event.named("clEnqueueSVMMemcpy")
}

impl Transfers for OpenCl {
    fn copy(&self, target: Target<'_>, origin: Origin<'_>) -> Result {
        copy(&self.platform()?.copies, &target, &origin)?.wait().named("a copy")
    }
}

impl StreamTransfers for OpenCl {
    fn copy_async(&self, stream: &Self::Stream, target: Target<'_>, origin: Origin<'_>) -> Result {
        stream.add(|queue| copy(queue, &target, &origin))
    }
}
