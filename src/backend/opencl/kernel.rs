//! Kernels of programs, their arguments, and the preparation of launches.
//!
//! A `cl_kernel` stores the arguments that were set last, so two threads cannot share a
//! `cl_kernel`. Each `ClKernel` therefore owns several `cl_kernel` objects. A launch acquires
//! exclusive use of one object and releases it after the launch is queued, because queueing reads
//! the arguments.

use super::driver::ClDriver;
use super::errors::{error, required};
use super::program::Program;
use super::query::{Pod, query, text};
use super::source;
use super::symbols::*;
use crate::abi::status::DTL_ERROR_INVALID_ARGUMENT;
use crate::backend::driver::{self, Command, Stream};
use crate::error::{Error, Result, fail, failure};
use crate::runtime::component::ModuleLaunch;
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::Mutex;
use std::ffi::CString;
use std::ptr;
use std::sync::Arc;

/// Maximum number of unused `cl_kernel` objects that a kernel caches. Concurrent launches beyond
/// this number create and release further objects.
const IDLE: usize = 8;

/// `cl_kernel` object, released when dropped.
pub(super) struct Instance {
    cl: &'static Functions,
    id: Addr,
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: this object owns the kernel and releases it once. The driver retains everything
        // that queued launches need.
        let _ = unsafe { (self.cl.clReleaseKernel)(self.id.ptr()) };
    }
}

impl Instance {
    /// Takes ownership of the `cl_kernel` `id`.
    pub(super) fn new(cl: &'static Functions, id: *mut c_void) -> Self {
        Instance { cl, id: Addr::new(id) }
    }

    fn argument_count(&self) -> Result<cl_uint> {
        let count = query(|room, out| {
            let (what, none) = (CL_KERNEL_NUM_ARGS, ptr::null_mut());
            // SAFETY: the kernel is alive, and `out` is valid for writing `room` bytes.
            unsafe { (self.cl.clGetKernelInfo)(self.id.ptr(), what, room, out, none) }
        });
        count.map_err(|code| error(code, "clGetKernelInfo"))
    }

    /// Queries a work-group property of the kernel on a device.
    fn group_info<T: Pod>(&self, card: Addr, what: cl_uint) -> Result<T> {
        let value = query(|room, out| {
            let (id, card, none) = (self.id.ptr(), card.ptr(), ptr::null_mut());
            // SAFETY: the kernel and its device are alive, and `out` is valid for writing `room`
            // bytes.
            unsafe { (self.cl.clGetKernelWorkGroupInfo)(id, card, what, room, out, none) }
        });
        value.map_err(|code| error(code, "clGetKernelWorkGroupInfo"))
    }

    /// Queries the passing mode and the size in bytes (0 if unknown) of argument `index`. Returns
    /// an error if the driver has no information on the kernel's arguments.
    fn argument(&self, index: cl_uint) -> Result<(Pass, u64)> {
        let place = self.arg_info(index, CL_KERNEL_ARG_ADDRESS_QUALIFIER)?;
        if place == CL_KERNEL_ARG_ADDRESS_LOCAL {
            return Ok((Pass::Shared, POINTER));
        }
        // Images have a "global" qualifier too, but are objects that are passed by value.
        let is_object =
            self.arg_info(index, CL_KERNEL_ARG_ACCESS_QUALIFIER)? != CL_KERNEL_ARG_ACCESS_NONE;
        if place != CL_KERNEL_ARG_ADDRESS_PRIVATE && !is_object {
            return Ok((Pass::Pointer, POINTER));
        }
        let name = text(|room, out, size| {
            let what = CL_KERNEL_ARG_TYPE_NAME;
            // SAFETY: the kernel is alive, `index` is one of its arguments, and `out` is valid for
            // writing `room` bytes.
            unsafe { (self.cl.clGetKernelArgInfo)(self.id.ptr(), index, what, room, out, size) }
        });
        Ok((Pass::Value, source::size_of_type(&name.unwrap_or_default())))
    }

    fn arg_info(&self, index: cl_uint, what: cl_uint) -> Result<cl_uint> {
        let word = query(|room, out| {
            let (id, none) = (self.id.ptr(), ptr::null_mut());
            // SAFETY: the kernel is alive, `index` is one of its arguments, and `out` is valid for
            // writing `room` bytes.
            unsafe { (self.cl.clGetKernelArgInfo)(id, index, what, room, out, none) }
        });
        word.map_err(|code| error(code, "clGetKernelArgInfo"))
    }
}

/// Size of a pointer, in bytes.
const POINTER: u64 = size_of::<usize>() as u64;

/// Passing mode of a kernel argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pass {
    Value,
    /// Shared virtual memory, passed by pointer.
    Pointer,
    /// `__local` memory of the work-group; the launch sets the size of this memory.
    Shared,
}

/// Kernel of a program.
pub struct ClKernel {
    program: Arc<Program>,
    name: CString,
    /// Name for error messages.
    shown: Arc<str>,
    arguments: Vec<Pass>,
    /// Maximum size of the `__local` memory that a launch can request, in bytes: the device's limit
    /// minus the `__local` memory that the kernel's source declares.
    shared_room: u64,
    /// Unused `cl_kernel` objects, at most `IDLE`.
    idle: Mutex<Vec<Instance>>,
}

impl ClKernel {
    /// Finds kernel `name`. Returns the kernel and its argument sizes in bytes. `pointers` marks
    /// the pointer arguments of the caller's signature; `None` if the caller passed no signature.
    pub(super) fn find(
        program: &Arc<Program>,
        name: &str,
        pointers: Option<Vec<bool>>,
    ) -> Result<(Self, Vec<u64>)> {
        let shown = Arc::from(name);
        let name = CString::new(name).unwrap_or_default(); // strings from C contain no NUL
        let first = program.instance(&name)?;
        let count = first.argument_count()?;
        let shared_own: u64 = first.group_info(program.card, CL_KERNEL_LOCAL_MEM_SIZE)?;
        let shared_room = shared_room(program, &shown, shared_own)?;
        let arg_info: Result<Vec<_>> = (0..count).map(|index| first.argument(index)).collect();
        let (arguments, sizes) = match (arg_info, pointers) {
            (Ok(arg_info), pointers) => {
                agree(&shown, &arg_info, &pointers.unwrap_or_default())?;
                arg_info.into_iter().unzip()
            }
            (Err(_), Some(pointers)) => {
                let pass =
                    |is_pointer: &bool| if *is_pointer { Pass::Pointer } else { Pass::Value };
                // The lengths of the two lists may differ: the caller compares the number of sizes.
                (pointers.iter().map(pass).collect(), vec![0; count as usize])
            }
            (Err(why), None) => {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "kernel '{shown}' tells nothing of its arguments ({}): say which are pointers, \
                     by a signature",
                    why.text()
                );
            }
        };
        let kernel = ClKernel {
            program: Arc::clone(program),
            name,
            shown,
            arguments,
            shared_room,
            idle: Mutex::new(vec![first]),
        };
        Ok((kernel, sizes))
    }

    fn take(&self) -> Result<Instance> {
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| self.program.instance(&self.name), Ok)
    }

    fn put(&self, instance: Instance) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE {
            idle.push(instance);
        }
    }

    /// Acquires a `cl_kernel` and sets its arguments for `launch`.
    fn prepare(&self, launch: &ModuleLaunch<'_>) -> Result<BoundKernel<'_>> {
        if launch.args.len() != self.arguments.len() || launch.sizes.len() != self.arguments.len() {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "{} arguments for kernel '{}', which takes {}",
                launch.args.len(),
                self.shown,
                self.arguments.len()
            );
        }
        self.check_shared(launch.shape.shared_bytes)?;
        let ready = BoundKernel { kernel: self, instance: Some(self.take()?) };
        let given = self.arguments.iter().zip(launch.args).zip(launch.sizes).zip(0..);
        for (((pass, arg), size), index) in given {
            let code =
                self.set(ready.id(), index, *pass, *arg, *size, launch.shape.shared_bytes)?;
            if code < 0 {
                return Err(error(code, &format!("argument {index} of kernel '{}'", self.shown)));
            }
        }
        Ok(ready)
    }

    /// Returns an error unless each `__local` argument can have a size of `bytes` bytes. Drivers do
    /// not check this, and some terminate the process.
    fn check_shared(&self, bytes: u32) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let parts = self.arguments.iter().filter(|pass| **pass == Pass::Shared).count() as u64;
        if parts == 0 {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "shared_bytes is {bytes}, and kernel '{}' has no __local argument that it could be",
                self.shown
            );
        }
        if parts * u64::from(bytes) > self.shared_room {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "shared_bytes is {bytes} for each of {parts} __local arguments of kernel '{}', and \
                 device {} has {} bytes for them in a block",
                self.shown,
                self.program.device,
                self.shared_room
            );
        }
        Ok(())
    }

    fn set(
        &self,
        id: Addr,
        index: cl_uint,
        pass: Pass,
        arg: Addr,
        size: u64,
        shared: u32,
    ) -> Result<cl_int> {
        let cl = self.program.cl;
        let (value, bytes) = match pass {
            Pass::Value => (arg.ptr().cast_const(), size as usize),
            Pass::Shared if shared == 0 => {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "argument {index} of kernel '{}' is memory of the block (__local): say how \
                     many bytes in dtl_launch_t.shared_bytes",
                    self.shown
                );
            }
            Pass::Shared => (ptr::null(), shared as usize),
            Pass::Pointer if size != POINTER => {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "argument {index} of kernel '{}' is a pointer and is passed with {size} bytes",
                    self.shown
                );
            }
            Pass::Pointer => {
                // SAFETY: the argument has the size of a pointer; the read permits any alignment.
                let pointer = unsafe { arg.ptr().cast::<*const c_void>().read_unaligned() };
                if !pointer.is_null() {
                    let set = required(cl.clSetKernelArgSVMPointer, "clSetKernelArgSVMPointer")?;
                    // SAFETY: no other thread uses the kernel, `index` is one of its arguments, and
                    // the program vouches for the pointer.
                    return Ok(unsafe { set(id.ptr(), index, pointer) });
                }
                (ptr::null(), POINTER as usize)
            }
        };
        // SAFETY: no other thread uses the kernel, `index` is one of its arguments, and `value` is
        // null or points to the passed number of bytes.
        Ok(unsafe { (cl.clSetKernelArg)(id.ptr(), index, bytes, value) })
    }
}

impl driver::Kernel<ClDriver> for ClKernel {
    fn launch(&self, stream: &Stream<ClDriver>, launch: &ModuleLaunch<'_>) -> Result<()> {
        let ready = self.prepare(launch)?; // before the stream's lock: this thread owns the kernel
        stream.enqueue(Command::Launch(Arc::clone(&self.shown)), |queue| {
            queue.launch(&ready, launch.shape.grid, launch.shape.block)
        })
    }
}

/// `cl_kernel` reserved for one launch, with its arguments set.
pub(super) struct BoundKernel<'a> {
    kernel: &'a ClKernel,
    instance: Option<Instance>,
}

impl BoundKernel<'_> {
    /// Returns the `cl_kernel` handle.
    pub(super) fn id(&self) -> Addr {
        self.instance.as_ref().map_or(Addr::NULL, |instance| instance.id)
    }

    /// Converts the error code of a rejected launch into an `Error`. `block` is the requested
    /// work-group size.
    pub(super) fn refused(&self, code: cl_int, block: [u32; 3]) -> Error {
        let what = format!("launching kernel '{}' (clEnqueueNDRangeKernel)", self.kernel.shown);
        if code != CL_INVALID_WORK_GROUP_SIZE {
            return error(code, &what);
        }
        let (instance, card) = (self.instance.as_ref(), self.kernel.program.card);
        let largest = instance.map(|one| one.group_info::<usize>(card, CL_KERNEL_WORK_GROUP_SIZE));
        let most = match largest {
            Some(Ok(most)) => format!("at most {most} threads in a block"),
            _ => "fewer threads in a block".to_owned(),
        };
        let text = format!(
            "{what}: it does not take a block of {block:?}: {most} on this device, or the shape \
             that its source wants \
             (reqd_work_group_size); OpenCL says CL_INVALID_WORK_GROUP_SIZE ({code})"
        );
        Error::new(DTL_ERROR_INVALID_ARGUMENT, text)
    }
}

impl Drop for BoundKernel<'_> {
    fn drop(&mut self) {
        if let Some(instance) = self.instance.take() {
            self.kernel.put(instance);
        }
    }
}

/// Returns the number of bytes of `__local` memory that remain for launches of a kernel whose
/// source declares `own` bytes. Returns an error if `own` exceeds the device's limit: drivers would
/// launch such a kernel and terminate the process.
fn shared_room(program: &Program, kernel: &str, own: u64) -> Result<u64> {
    program.shared_most.checked_sub(own).ok_or_else(|| {
        failure!(
            DTL_ERROR_INVALID_ARGUMENT,
            "kernel '{kernel}' has {own} bytes of __local memory (DTL_SHARED) in its source, and \
             device {} has {} for a block",
            program.device,
            program.shared_most
        )
    })
}

/// Returns an error if the caller's signature and the kernel's source disagree on which arguments
/// are pointers. Only arguments that occur in both are compared.
fn agree(kernel: &str, arg_info: &[(Pass, u64)], pointers: &[bool]) -> Result<()> {
    let differs = arg_info
        .iter()
        .zip(pointers)
        .position(|((pass, _), pointer)| (*pass != Pass::Value) != *pointer);
    let Some(index) = differs else { return Ok(()) };
    let (has, says) = match pointers.get(index) {
        Some(true) => ("is none", "a pointer (p)"),
        _ => ("is one", "no pointer"),
    };
    fail!(
        DTL_ERROR_INVALID_ARGUMENT,
        "the signature says {says} for argument {index} of kernel '{kernel}', which {has} in its \
         source"
    )
}
