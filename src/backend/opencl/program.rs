//! Programs: source text, SPIR-V and binaries that the driver compiles for a device.

use super::driver::{Card, ClDriver};
use super::errors::{self, check, created};
use super::kernel::{ClKernel, Instance};
use super::query::{UNKNOWN, text};
use super::source;
use super::symbols::*;
use crate::abi::word::*;
use crate::backend::driver::{self, Driver as _};
use crate::error::{Result, fail};
use crate::runtime::component::{KernelQuery, Source};
use crate::runtime::enums::describe;
use crate::runtime::exec::signature;
use crate::sys::memory::buf::Addr;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::Arc;

/// Compiled OpenCL program.
pub struct Program {
    pub(super) cl: &'static Functions,
    id: Addr,
    /// Index of the device for which the program was compiled.
    pub(super) device: i32,
    /// Native handle of the device for which the program was compiled (`cl_device_id`).
    pub(super) card: Addr,
    /// Maximum `__local` memory of a work-group on the program's device, in bytes.
    pub(super) shared_most: u64,
}

impl driver::Module<ClDriver> for Arc<Program> {
    type Kernel = ClKernel;

    fn compile(
        driver: &Arc<ClDriver>,
        device: i32,
        source: &Source,
        log: &mut String,
    ) -> Result<Self> {
        let card = driver.card(device)?;
        let options = options(source)?;
        let id = match source.language {
            0 | DTL_LANGUAGE_OPENCL => from_text(driver, card, source),
            DTL_LANGUAGE_SPIRV => {
                source.refuse_files("SPIR-V").and_then(|()| from_spirv(driver, card, source))
            }
            DTL_LANGUAGE_BINARY => {
                source.refuse_files("a binary").and_then(|()| from_binary(driver, card, source))
            }
            other => fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "backend opencl does not compile language {}: give it DTL_LANGUAGE_OPENCL, \
                 DTL_LANGUAGE_SPIRV, DTL_LANGUAGE_BINARY, or 0 with dtl_kernel.h",
                describe(other)
            ),
        }?;
        let program = Program {
            cl: driver.cl,
            id,
            device,
            card: card.id,
            shared_most: driver.number(card, CL_DEVICE_LOCAL_MEM_SIZE)?,
        };
        let card_id = card.id.ptr();
        // SAFETY: the program belongs to the device's context, and the options are NUL-terminated.
        // Without a callback the call returns after the compilation.
        let code = unsafe {
            (driver.cl.clBuildProgram)(
                id.ptr(),
                1,
                &raw const card_id,
                options.as_ptr(),
                None,
                ptr::null_mut(),
            )
        };
        log.push_str(&program.log());
        match code {
            CL_BUILD_PROGRAM_FAILURE | CL_INVALID_BUILD_OPTIONS => fail!(
                DTL_ERROR_COMPILE_FAILED,
                "device {} does not compile it (OpenCL says {} ({code}))",
                card.name,
                errors::name(code)
            ),
            _ => check(code, &format!("compiling for device {} (clBuildProgram)", card.name))
                .map(|()| Arc::new(program)),
        }
    }

    /// Does nothing: the kernels own references to the program, and dropping the last reference
    /// releases the program.
    fn unload(self) -> Result<()> {
        Ok(())
    }

    fn kernel(&self, wanted: KernelQuery<'_>) -> Result<(ClKernel, Option<Vec<u64>>)> {
        let pointers = wanted.signature.map(signature::pointers).transpose()?;
        ClKernel::find(self, wanted.name, pointers).map(|(kernel, sizes)| (kernel, Some(sizes)))
    }
}

impl Program {
    fn log(&self) -> String {
        let log = text(|room, out, size| {
            // SAFETY: the program and its device are alive, and `out` is valid for writing `room`
            // bytes.
            unsafe {
                (self.cl.clGetProgramBuildInfo)(
                    self.id.ptr(),
                    self.card.ptr(),
                    CL_PROGRAM_BUILD_LOG,
                    room,
                    out,
                    size,
                )
            }
        });
        log.unwrap_or_default()
    }

    /// Creates a `cl_kernel` for the kernel `name`.
    pub(super) fn instance(&self, name: &CStr) -> Result<Instance> {
        let mut code = 0;
        // SAFETY: the program is alive, and `name` is NUL-terminated.
        let id = unsafe { (self.cl.clCreateKernel)(self.id.ptr(), name.as_ptr(), &raw mut code) };
        let name = name.to_string_lossy();
        if id.is_null() && code == CL_INVALID_KERNEL_NAME {
            return fail!(
                DTL_ERROR_NOT_FOUND,
                "it has no kernel '{name}': write it as DTL_KERNEL({name}, (type, name), …) or \
                 __kernel void {name}(…)"
            );
        }
        created(id, code, &format!("making kernel '{name}' (clCreateKernel)"))?;
        Ok(Instance::new(self.cl, id))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: this object owns the program and releases it once.
        let _ = unsafe { (self.cl.clReleaseProgram)(self.id.ptr()) };
    }
}

/// Joins the compiler options into one string. The library's option comes first; it makes kernel
/// argument information available.
fn options(source: &Source) -> Result<CString> {
    let mut all = b"-cl-kernel-arg-info".to_vec();
    for (option, index) in source.options.iter().zip(0..) {
        let bytes = option.as_bytes();
        if bytes.iter().any(u8::is_ascii_whitespace) {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "option {index} ({option:?}) has a space, at which OpenCL would cut it: give each \
                 word by itself"
            );
        }
        all.push(b' ');
        all.extend_from_slice(bytes);
    }
    Ok(CString::new(all).unwrap_or_default()) // strings from C contain no NUL
}

fn from_text(driver: &ClDriver, card: &Card, source: &Source) -> Result<Addr> {
    let text = source::complete(source.bytes(), &source.name.to_string_lossy(), &source.files)?;
    let (mut first, length, mut code) = (text.as_ptr().cast::<c_char>(), text.len(), 0);
    let context = driver.context(card.platform)?;
    // SAFETY: the context is alive, and `first` points to one text of `length` bytes, which the
    // call copies.
    let id = unsafe {
        (driver.cl.clCreateProgramWithSource)(
            context.ptr(),
            1,
            &raw mut first,
            &raw const length,
            &raw mut code,
        )
    };
    created(id, code, "clCreateProgramWithSource")
}

fn from_spirv(driver: &ClDriver, card: &Card, source: &Source) -> Result<Addr> {
    let taken = text(|room, out, size| {
        // SAFETY: the device is alive, and `out` is valid for writing `room` bytes.
        unsafe { (driver.cl.clGetDeviceInfo)(card.id.ptr(), CL_DEVICE_IL_VERSION, room, out, size) }
    });
    let taken = taken.unwrap_or_else(|| UNKNOWN.into());
    let create = driver.cl.clCreateProgramWithIL.filter(|_| taken.contains("SPIR-V"));
    let Some(create) = create else {
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "device {} takes no SPIR-V (CL_DEVICE_IL_VERSION is \"{taken}\"): give it the text, as \
             DTL_LANGUAGE_OPENCL",
            card.name
        );
    };
    let (bytes, mut code) = (source.bytes(), 0);
    let context = driver.context(card.platform)?;
    // SAFETY: the context is alive, and `bytes` has the passed number of bytes, which the call
    // copies.
    let id = unsafe { create(context.ptr(), bytes.as_ptr().cast(), bytes.len(), &raw mut code) };
    if code == CL_INVALID_VALUE {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "the text is no SPIR-V module that device {} takes (CL_DEVICE_IL_VERSION is \
             \"{taken}\"): clCreateProgramWithIL returned CL_INVALID_VALUE (-30)",
            card.name
        );
    }
    created(id, code, "clCreateProgramWithIL")
}

fn from_binary(driver: &ClDriver, card: &Card, source: &Source) -> Result<Addr> {
    let (bytes, device) = (source.bytes(), card.id.ptr());
    let (mut first, length, mut code) = (bytes.as_ptr(), bytes.len(), 0);
    let context = driver.context(card.platform)?;
    // SAFETY: the context is alive and contains the device. `first` points to `length` bytes, which
    // the call copies. The array for status codes of each device is null, which is permitted.
    let id = unsafe {
        (driver.cl.clCreateProgramWithBinary)(
            context.ptr(),
            1,
            &raw const device,
            &raw const length,
            &raw mut first,
            ptr::null_mut(),
            &raw mut code,
        )
    };
    created(id, code, "taking a binary (clCreateProgramWithBinary)")
}
