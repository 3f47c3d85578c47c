//! Modules: code that the driver loads for one device, and the kernels of that code. A kernel
//! belongs to the primary context of the device.
//!
//! In reading order:
//! - `source`: compiles CUDA C++ or loads the result from the cache
//! - `nvrtc_sys`: declarations of nvrtc.h
//! - `nvrtc`: the runtime compiler
//! - `includes`: header files that the compiler reads
//! - `ptx`: parameters of the kernels in PTX
//! - `image`: validation of binaries
//! - `module_load`: loading code into the driver

mod image;
mod includes;
mod module_load;
pub mod nvrtc;
#[rustfmt::skip]
pub mod nvrtc_sys;
mod ptx;
mod source;

use super::driver::CudaDriver;
use super::symbols::*;
use crate::abi::word::*;
use crate::backend::driver::{self, Driver as _, Stream};
use crate::error::{Result, fail};
use crate::runtime::component::{KernelQuery, ModuleLaunch, Source};
use crate::runtime::enums::describe;
use crate::sys::memory::buf::Addr;
use ptx::Entries;
use std::ffi::CString;
use std::ptr;
use std::sync::Arc;

/// Upper bound on the number of parameters of a kernel. It limits the loop that queries the
/// parameters.
const MOST_PARAMETERS: usize = 4096;

/// Module that the driver loaded for one device.
pub struct CudaModule {
    driver: Arc<CudaDriver>,
    device: i32,
    module: Addr,
    /// Parameter sizes in bytes of the module's kernels, parsed from PTX without calls to the
    /// driver.
    entries: Entries,
}

/// Kernel of a loaded module.
pub struct CudaKernel {
    function: Addr,
    context: Addr,
    /// Device for which the kernel was compiled.
    device: i32,
}

impl driver::Module<CudaDriver> for CudaModule {
    type Kernel = CudaKernel;

    fn compile(
        driver: &Arc<CudaDriver>,
        device: i32,
        source: &Source,
        log: &mut String,
    ) -> Result<Self> {
        let card = driver.card(device)?;
        let attribute = |what| driver.attribute(card, what);
        let capability = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10
            + attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
        let version = driver.version;
        let mut options = Vec::new();
        let (code, entries) = match source.language {
            0 | DTL_LANGUAGE_CUDA => {
                let image = source::compile(source, capability, version, log)?;
                (image.code, image.entries)
            }
            DTL_LANGUAGE_PTX => {
                options = module_load::options(&source.options)?;
                source.refuse_files("PTX")?;
                image::check_text(source.bytes())?;
                (source.terminated().to_vec(), ptx::entries(source.bytes()))
            }
            DTL_LANGUAGE_BINARY => {
                if let Some(option) = source.options.first() {
                    let option = option.to_string_lossy();
                    return fail!(
                        DTL_ERROR_INVALID_ARGUMENT,
                        "option \"{option}\": a binary is compiled already, it takes none"
                    );
                }
                source.refuse_files("a binary")?;
                image::check(source.bytes())?;
                (source.bytes().to_vec(), Entries::new())
            }
            other => {
                return fail!(
                    DTL_ERROR_NOT_SUPPORTED,
                    "backend cuda does not compile language {}: give it DTL_LANGUAGE_CUDA, \
                     DTL_LANGUAGE_PTX, \
                     DTL_LANGUAGE_BINARY (a cubin or fatbin), or 0 with dtl_kernel.h",
                    describe(other)
                );
            }
        };
        let _inside = driver.enter(device)?;
        let loader = module_load::LoadOptions { cuda: driver.cuda, capability, version };
        let module = loader.load(&code, &options, log)?;
        Ok(CudaModule { driver: Arc::clone(driver), device, module, entries })
    }

    fn unload(self) -> Result<()> {
        let _inside = self.driver.enter(self.device)?;
        let cuda = self.driver.cuda;
        // SAFETY: this object owns the module and unloads it once.
        cuda.check_release(unsafe { (cuda.cuModuleUnload)(self.module.ptr()) }, "cuModuleUnload")
    }

    fn kernel(&self, wanted: KernelQuery<'_>) -> Result<(CudaKernel, Option<Vec<u64>>)> {
        let _inside = self.driver.enter(self.device)?;
        let function = self.find(wanted.name)?;
        let sizes = self.sizes(function)?.or_else(|| self.entries.get(wanted.name).cloned());
        if sizes.is_none() && wanted.signature.is_none() {
            // Unknown sizes are an error: the driver reads as many bytes of each argument as the
            // kernel's parameter has.
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "signature is NULL, and the sizes of the arguments of '{}' are not known: drivers \
                 before CUDA 12.4 do not tell them of a binary; pass the signature",
                wanted.name
            );
        }
        self.allow_shared(function);
        let context = self.driver.context(self.device)?;
        Ok((CudaKernel { function, context, device: self.device }, sizes))
    }
}

impl CudaModule {
    fn find(&self, name: &str) -> Result<Addr> {
        let (cuda, text) = (self.driver.cuda, CString::new(name).unwrap_or_default());
        let mut function = ptr::null_mut();
        // SAFETY: `function` is valid for writing a function handle, the module is alive, and
        // `text` is NUL-terminated.
        let code = unsafe {
            (cuda.cuModuleGetFunction)(&raw mut function, self.module.ptr(), text.as_ptr())
        };
        if code == CUDA_ERROR_NOT_FOUND {
            let known: Vec<_> = self.entries.keys().take(8).map(String::as_str).collect();
            let known = if known.is_empty() {
                String::new()
            } else {
                format!(" (it has {})", known.join(", "))
            };
            return fail!(
                DTL_ERROR_NOT_FOUND,
                "it has no kernel '{name}'{known}: write it as DTL_KERNEL({name}, …) with \
                 dtl_kernel.h or as extern \"C\" __global__, or give the name as C++ mangles it"
            );
        }
        cuda.check(code, "cuModuleGetFunction").map(|()| Addr::new(function))
    }

    /// Queries the sizes of the kernel's parameters in bytes. Returns `None` if the driver cannot
    /// report them (before CUDA 12.4).
    fn sizes(&self, function: Addr) -> Result<Option<Vec<u64>>> {
        let Some(ask) = self.driver.cuda.cuFuncGetParamInfo else { return Ok(None) };
        let mut sizes = Vec::new();
        while sizes.len() <= MOST_PARAMETERS {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the function is alive, and `offset` and `size` are valid for writing.
            match unsafe { ask(function.ptr(), sizes.len(), &raw mut offset, &raw mut size) } {
                CUDA_SUCCESS => sizes.push(size as u64),
                CUDA_ERROR_INVALID_VALUE => return Ok(Some(sizes)), // past the last parameter
                CUDA_ERROR_NOT_SUPPORTED => return Ok(None),
                code => return Err(self.driver.cuda.error(code, "cuFuncGetParamInfo")),
            }
        }
        fail!(DTL_ERROR_CUDA, "cuFuncGetParamInfo tells of more than {MOST_PARAMETERS} parameters")
    }

    /// Raises the kernel's limit on dynamic shared memory from the default of 48 KiB to the
    /// device's maximum per block. If the device or the driver does not support a higher limit, a
    /// launch that needs more fails.
    fn allow_shared(&self, function: Addr) {
        let cuda = self.driver.cuda;
        let Ok(card) = self.driver.card(self.device) else { return };
        let most =
            self.driver.attribute(card, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
        let (mut own, what) = (0, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
        // SAFETY: the function is alive, and `own` is valid for writing an int.
        let code = unsafe { (cuda.cuFuncGetAttribute)(&raw mut own, what, function.ptr()) };
        if code == CUDA_SUCCESS && most > own {
            let what = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is alive, and the other two arguments are integers.
            let _ = unsafe { (cuda.cuFuncSetAttribute)(function.ptr(), what, most - own) };
        }
    }
}

impl driver::Kernel<CudaDriver> for CudaKernel {
    fn launch(&self, stream: &Stream<CudaDriver>, launch: &ModuleLaunch<'_>) -> Result<()> {
        let queue = &stream.queue;
        if queue.context != self.context {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "the kernel was compiled for device {}, and the stream is of device {} or of a \
                 context of the program's \
                 own: compile for each device, and launch on its primary context's streams",
                self.device,
                queue.device
            );
        }
        let _inside = queue.enter()?;
        let ([gx, gy, gz], [bx, by, bz]) = (launch.shape.grid, launch.shape.block);
        // `Addr` has the layout of a pointer, and the driver only reads the list.
        let args: *mut *mut c_void = launch.args.as_ptr().cast_mut().cast();
        let (stream, nothing) = (queue.id.ptr(), ptr::null_mut());
        // SAFETY: the kernel and the stream are alive and belong to one context. `args` has the
        // address of each argument, and the runtime has compared the argument sizes with those of
        // the kernel's parameters.
        let code = unsafe {
            (queue.driver.cuda.cuLaunchKernel)(
                self.function.ptr(),
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                launch.shape.shared_bytes,
                stream,
                args,
                nothing,
            )
        };
        if code == CUDA_SUCCESS {
            Ok(())
        } else {
            Err(module_load::not_launched(queue.driver.cuda, code))
        }
    }
}
