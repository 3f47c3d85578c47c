//! Programs: text, SPIR-V and binaries that the driver compiles for a device.

use super::driver::{Card, ClDriver};
use super::errors::{self, check, error};
use super::kernel::{ClKernel, Instance};
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

/// A compiled program.
pub struct Program {
    pub(super) cl: &'static Functions,
    id: Addr,
    /// The device that it was compiled for ...
    pub(super) device: i32,
    /// ... and its `cl_device_id`.
    pub(super) card: Addr,
    /// Bytes of `__local` memory that a block can have there.
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
                 DTL_LANGUAGE_SPIRV, \
                 DTL_LANGUAGE_BINARY, or 0 with dtl_kernel.h",
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
        // SAFETY: a program of the device's context, that device, options that end with NUL; it
        // returns when it is done.
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

    /// Its kernels have shares of it.
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
        let text = super::driver::text(|room, out, size| {
            // SAFETY: a program, its device, and room for the number of bytes that is passed.
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
        if text == super::driver::UNTOLD { String::new() } else { text }
    }

    /// A `cl_kernel` of a name.
    pub(super) fn instance(&self, name: &CStr) -> Result<Instance> {
        let mut code = 0;
        // SAFETY: a live program, a text that ends with NUL.
        let id = unsafe { (self.cl.clCreateKernel)(self.id.ptr(), name.as_ptr(), &raw mut code) };
        if !id.is_null() {
            return Ok(Instance::new(self.cl, id));
        }
        let name = name.to_string_lossy();
        if code == CL_INVALID_KERNEL_NAME {
            return fail!(
                DTL_ERROR_NOT_FOUND,
                "it has no kernel '{name}': write it as DTL_KERNEL({name}, (type, name), …) or \
                 __kernel void {name}(…)"
            );
        }
        Err(error(code.min(-1), &format!("making kernel '{name}' (clCreateKernel)")))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: a program of ours, given up once.
        let _ = unsafe { (self.cl.clReleaseProgram)(self.id.ptr()) };
    }
}

/// The options as one text. The library's own come first; they make the properties of a kernel's
/// arguments available to queries.
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
    Ok(CString::new(all).unwrap_or_default()) // texts from C have no NUL inside
}

fn created(id: *mut c_void, code: cl_int, what: &str) -> Result<Addr> {
    if id.is_null() { Err(error(code.min(-1), what)) } else { Ok(Addr::new(id)) }
}

fn from_text(driver: &ClDriver, card: &Card, source: &Source) -> Result<Addr> {
    let text = source::complete(source.bytes(), &source.name.to_string_lossy(), &source.files)?;
    let (mut first, length, mut code) = (text.as_ptr().cast::<c_char>(), text.len(), 0);
    let context = driver.context(card.platform)?;
    // SAFETY: a context, one text of that length, which is copied.
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
    let taken = super::driver::text(|room, out, size| {
        // SAFETY: a device, and room for the number of bytes that is passed.
        unsafe { (driver.cl.clGetDeviceInfo)(card.id.ptr(), CL_DEVICE_IL_VERSION, room, out, size) }
    });
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
    // SAFETY: a context, and as many bytes as the size that is passed, which are copied.
    let id = unsafe { create(context.ptr(), bytes.as_ptr().cast(), bytes.len(), &raw mut code) };
    if code == CL_INVALID_VALUE {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "the text is no SPIR-V module that device {} takes (CL_DEVICE_IL_VERSION is \
             \"{taken}\"): \
             clCreateProgramWithIL returned CL_INVALID_VALUE (-30)",
            card.name
        );
    }
    created(id, code, "clCreateProgramWithIL")
}

fn from_binary(driver: &ClDriver, card: &Card, source: &Source) -> Result<Addr> {
    let (bytes, device) = (source.bytes(), card.id.ptr());
    let (mut first, length, mut code) = (bytes.as_ptr(), bytes.len(), 0);
    let context = driver.context(card.platform)?;
    // SAFETY: a context, one of its devices, and as many bytes for it as the size that is passed,
    // which are copied; no room for more codes.
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
