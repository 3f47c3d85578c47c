//! Modules (compiled source) and the kernels in them.

use crate::handle::owner;
use crate::text::c_string;
use crate::{Device, Result, Stream, call, read_text, sys};
use std::ffi::c_void;
use std::ptr;

/// Source to compile.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Language of the source: DTL_LANGUAGE_..., or 0 for the backend's own language with the
    /// macros of dtl_kernel.h.
    pub language: sys::dtl_enum_word_t,
    /// Source text, or the bytes of a binary.
    pub bytes: &'a [u8],
    /// Compiler options, one command-line argument each.
    pub options: &'a [&'a str],
}

owner! {
    /// Compiled source.
    Module, dtl_module_t, dtl_module_destroy
}

impl Module {
    /// Compiles source code for a device.
    ///
    /// # Errors
    /// See `dtl_module_compile`. After DTL_ERROR_COMPILE_FAILED, [`Module::failure`] returns the
    /// whole log.
    pub fn compile(device: Device, source: &Source) -> Result<Module> {
        const CALL: &str = "dtl_module_compile";
        let options = source.options.iter().map(|option| c_string(CALL, "options", option));
        let options = options.collect::<Result<Vec<_>>>()?;
        let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let desc = sys::dtl_source_t {
            language: source.language,
            text: source.bytes.as_ptr().cast(),
            size_bytes: source.bytes.len() as u64,
            options: options.as_ptr(),
            option_count: options.len() as u32,
            ..sys::DTL_SOURCE_INIT
        };
        let (backend, mut handle) = (device.backend.raw(), sys::DTL_MODULE_NULL);
        // SAFETY: the description and what it points to live through the call; the output is a local.
        unsafe {
            call!(dtl_module_compile(backend, device.index, &raw const desc, &raw mut handle))
        }?;
        Ok(Module::from_raw(handle))
    }

    /// Returns the compiler's log, including warnings.
    ///
    /// # Errors
    /// See `dtl_module_log`.
    pub fn log(&self) -> Result<String> {
        log_of(self.raw())
    }

    /// Returns the compiler's log of the calling thread's latest failed compilation.
    ///
    /// # Errors
    /// See `dtl_module_log`.
    pub fn failure() -> Result<String> {
        log_of(sys::DTL_MODULE_NULL)
    }

    /// Returns a kernel of the module. `signature` has one letter for each argument (see
    /// `dtl_kernel_get`). With `None`, launches are checked only against argument sizes that the
    /// module reports.
    ///
    /// # Errors
    /// See `dtl_kernel_get`.
    pub fn kernel(&self, name: &str, signature: Option<&str>) -> Result<Kernel> {
        const CALL: &str = "dtl_kernel_get";
        let name = c_string(CALL, "name", name)?;
        let signature = signature.map(|text| c_string(CALL, "signature", text)).transpose()?;
        let letters = signature.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let mut handle = sys::DTL_KERNEL_NULL;
        // SAFETY: the texts end with NUL; the output is a local.
        unsafe { call!(dtl_kernel_get(self.raw(), name.as_ptr(), letters, &raw mut handle)) }?;
        Ok(Kernel::from_raw(handle))
    }
}

fn log_of(module: sys::dtl_module_t) -> Result<String> {
    read_text("dtl_module_log", |buf, cap, out_len| {
        // SAFETY: `read_text` passes `cap` writable bytes and a place for the length.
        unsafe { sys::dtl_module_log(module, buf, cap, out_len) }
    })
}

owner! {
    /// Kernel: function that a stream runs over a grid of blocks.
    Kernel, dtl_kernel_t, dtl_kernel_destroy
}

impl Kernel {
    /// Launches the kernel on a stream. The arguments are copied during the call.
    ///
    /// # Errors
    /// See `dtl_kernel_launch`.
    ///
    /// # Safety
    /// The arguments must match the kernel's parameters. Until the stream's work is complete, the
    /// memory that the kernel accesses must stay valid, and no conflicting access may occur.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        shape: &sys::dtl_launch_t,
        arguments: &[&[u8]],
    ) -> Result {
        let values: Vec<*const c_void> = arguments.iter().map(|one| one.as_ptr().cast()).collect();
        let sizes: Vec<u64> = arguments.iter().map(|one| one.len() as u64).collect();
        let (values, sizes, count) = (values.as_ptr(), sizes.as_ptr(), arguments.len() as u64);
        let (stream, shape) = (stream.raw(), ptr::from_ref(shape));
        // SAFETY: `count` addresses and sizes that live through the call; the caller's contract.
        unsafe { call!(dtl_kernel_launch(stream, self.raw(), shape, values, sizes, count)) }
    }
}
