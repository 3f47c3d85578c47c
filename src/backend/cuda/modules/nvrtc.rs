//! NVRTC, NVIDIA's runtime compiler for CUDA C++. This file loads the library and runs one
//! compilation.
//!
//! Types and constants are those of nvrtc.h: [`super::nvrtc_sys`], which tools/vendor_sys.py
//! generates.
//!
//! See [`super::source`] for compilation and caching, and [`super::modules`] for the callers.

use super::nvrtc_sys as sys;
use super::nvrtc_sys::*;
use crate::abi::status::*;
use crate::backend::symbol_table::function_table;
use crate::backend::vendor_lib::{Names, VendorLib};
use crate::error::{Error, Result, fail};
use crate::from_c::text_at;
use crate::runtime::component::{KERNEL_HEADER, KERNEL_HEADER_NAME, Source};
use crate::runtime::settings;
use crate::sys::{memory::buf::Addr, os::dl, sync::wait::now_ns};
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;

function_table! {
    sys;
    required {
        nvrtcGetErrorString nvrtcVersion nvrtcCreateProgram nvrtcDestroyProgram
        nvrtcCompileProgram nvrtcGetPTXSize nvrtcGetPTX nvrtcGetProgramLogSize nvrtcGetProgramLog
    }
    optional {
        nvrtcGetNumSupportedArchs nvrtcGetSupportedArchs nvrtcGetCUBINSize nvrtcGetCUBIN
        nvrtcSetFlowCallback
    }
}

static LIBRARY: VendorLib<Functions> = VendorLib::new(Names {
    name: "NVRTC",
    part: "library",
    soname: "libnvrtc.so",
    variable: "DTL_NVRTC_LIBRARY",
    wanted: "NVIDIA's NVRTC (libnvrtc.so.12)",
    advice: "install it (Debian: libnvrtc12, PyPI: nvidia-cuda-nvrtc-cu12) where the loader finds \
             it or name it with DTL_NVRTC_LIBRARY; PTX and cubins need none",
});

/// Sonames of the NVRTC library, each with its major version.
const SONAMES: [(i32, &str); 3] =
    [(13, "libnvrtc.so.13"), (12, "libnvrtc.so.12"), (11, "libnvrtc.so.11.2")];

/// Loaded NVRTC library.
pub(super) struct Nvrtc {
    calls: &'static Functions,
    /// Path of the loaded NVRTC library.
    pub(super) file: PathBuf,
    /// Major and minor version of NVRTC.
    pub(super) version: (i32, i32),
    /// Architectures that the compiler supports, as numbers such as 90; empty if the compiler does
    /// not report them.
    known: Vec<i32>,
}

/// Output of one compilation.
pub(super) struct Output {
    /// NUL-terminated PTX; empty if the compiler produced none.
    pub(super) ptx: Vec<u8>,
    /// Cubin for one architecture; empty if the options select no real architecture (sm_XX).
    pub(super) cubin: Vec<u8>,
}

impl Nvrtc {
    /// Opens the NVRTC library that `DTL_NVRTC_LIBRARY` names. If this variable is not set, opens
    /// an installed NVRTC library, preferably the newest one whose code a driver of version
    /// `driver_version` (such as 12040) can load.
    pub(super) fn find(driver_version: i32) -> Result<Self> {
        let named = settings::current().compiler.device_compiler;
        let calls = match named.as_deref() {
            // SAFETY: the user, who named the library, vouches for it.
            named @ Some(_) => unsafe { LIBRARY.open_named(named) },
            None => first_of(&candidates(driver_version)),
        };
        let calls = calls.map_err(|why| Error::new(DTL_ERROR_UNAVAILABLE, why))?;
        let function: *const c_void = calls.nvrtcVersion as *const c_void;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: `major` and `minor` are valid for writing an int.
        let code = unsafe { (calls.nvrtcVersion)(&raw mut major, &raw mut minor) };
        let mut nvrtc = Nvrtc {
            calls,
            file: dl::file_of(Addr::new(function.cast_mut())).unwrap_or_default(),
            version: (major, minor),
            known: Vec::new(),
        };
        nvrtc.check(code, "nvrtcVersion")?;
        nvrtc.known = nvrtc.architectures()?;
        Ok(nvrtc)
    }

    fn architectures(&self) -> Result<Vec<i32>> {
        let (Some(ask_count), Some(ask)) =
            (self.calls.nvrtcGetNumSupportedArchs, self.calls.nvrtcGetSupportedArchs)
        else {
            return Ok(Vec::new());
        };
        let mut count = 0;
        // SAFETY: `count` is valid for writing an int.
        self.check(unsafe { ask_count(&raw mut count) }, "nvrtcGetNumSupportedArchs")?;
        let mut known = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: `known` has as many elements as the library reported.
        self.check(unsafe { ask(known.as_mut_ptr()) }, "nvrtcGetSupportedArchs")?;
        Ok(known)
    }

    /// Returns the architecture option for a device of compute capability `capability` (such as
    /// 90). The option selects code for this device only or, if the compiler is older than the
    /// device, PTX that the driver compiles.
    pub(super) fn architecture(&self, capability: i32) -> Result<CString> {
        let option = if self.known.is_empty() || self.known.contains(&capability) {
            format!("--gpu-architecture=sm_{capability}")
        } else {
            let below = self.known.iter().filter(|known| **known < capability).max();
            let Some(below) = below else {
                let (major, minor) = self.version;
                return fail!(
                    DTL_ERROR_UNAVAILABLE,
                    "NVRTC {major}.{minor} ({}) compiles nothing for a device of compute \
                     capability {}.{}: name an older one with DTL_NVRTC_LIBRARY",
                    self.file.display(),
                    capability / 10,
                    capability % 10
                );
            };
            format!("--gpu-architecture=compute_{below}")
        };
        Ok(CString::new(option).unwrap_or_default())
    }

    /// Compiles `source` with `options`. The compiler's messages are appended to `log` on success
    /// and on failure.
    pub(super) fn run(
        &self,
        source: &Source,
        options: &[CString],
        log: &mut String,
    ) -> Result<Output> {
        let files = &source.files;
        let mut program = Program { nvrtc: self, object: ptr::null_mut() };
        // The conversions do not fail: strings from C contain no NUL.
        let file_names: Vec<CString> =
            files.iter().map(|file| CString::new(file.name.as_str()).unwrap_or_default()).collect();
        let names: Vec<*const c_char> = file_names
            .iter()
            .map(|name| name.as_ptr())
            .chain([KERNEL_HEADER_NAME.as_ptr()])
            .collect();
        let headers: Vec<*const c_char> =
            files.iter().map(|file| file.text.as_ptr()).chain([KERNEL_HEADER.as_ptr()]).collect();
        // SAFETY: `program.object` is valid for writing a handle, all texts are NUL-terminated, and
        // there are as many headers as names.
        let code = unsafe {
            (self.calls.nvrtcCreateProgram)(
                &raw mut program.object,
                source.terminated().as_ptr().cast(),
                source.name.as_ptr(),
                names.len() as c_int,
                headers.as_ptr(),
                names.as_ptr(),
            )
        };
        self.check(code, "nvrtcCreateProgram")?;
        let limit_ns = settings::current().compiler.limit_ns();
        let mut end = now_ns().saturating_add(limit_ns);
        if let Some(ask) = self.calls.nvrtcSetFlowCallback {
            // SAFETY: the program is alive. `is_over` only reads `end`, which outlives the
            // compilation.
            let code = unsafe { ask(program.object, Some(is_over), (&raw mut end).cast()) };
            self.check(code, "nvrtcSetFlowCallback")?;
        }
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let (count, options) = (options.len() as c_int, options.as_ptr());
        // SAFETY: the program is alive, and `options` has as many NUL-terminated texts as the
        // count.
        let code = unsafe { (self.calls.nvrtcCompileProgram)(program.object, count, options) };
        let log_bytes =
            program.bytes(self.calls.nvrtcGetProgramLogSize, self.calls.nvrtcGetProgramLog);
        log.push_str(String::from_utf8_lossy(&log_bytes).trim_end_matches(['\0', '\n']));
        self.check(code, "nvrtcCompileProgram").map_err(|error| match error.status() {
            DTL_ERROR_TIMEOUT => error.within(&format!("after {} ms", limit_ns / 1_000_000)),
            _ => error,
        })?;
        let ptx = program.bytes(self.calls.nvrtcGetPTXSize, self.calls.nvrtcGetPTX);
        let cubin = match (self.calls.nvrtcGetCUBINSize, self.calls.nvrtcGetCUBIN) {
            (Some(size), Some(get)) => program.bytes(size, get),
            _ => Vec::new(),
        };
        // A text that consists of its NUL only is no PTX.
        Ok(Output { ptx: if ptx.len() > 1 { ptx } else { Vec::new() }, cubin })
    }

    fn check(&self, code: nvrtcResult, call: &str) -> Result<()> {
        if code == NVRTC_SUCCESS { Ok(()) } else { Err(self.error(code, call)) }
    }

    fn error(&self, code: nvrtcResult, call: &str) -> Error {
        // SAFETY: the function takes an integer and returns null or a string that is never freed.
        let name = unsafe { (self.calls.nvrtcGetErrorString)(code) };
        // SAFETY: `name` is null or a string that is never freed.
        let name = unsafe { text_at(name) }.unwrap_or_else(|| "a code without a name".into());
        let (status, advice) = match code {
            NVRTC_ERROR_OUT_OF_MEMORY => (DTL_ERROR_OUT_OF_MEMORY, ""),
            NVRTC_ERROR_BUILTIN_OPERATION_FAILURE => (
                DTL_ERROR_UNAVAILABLE,
                "; its libnvrtc-builtins of the same version must lie beside it, install both anew",
            ),
            NVRTC_ERROR_CANCELLED => (DTL_ERROR_TIMEOUT, "; raise DTL_COMPILE_TIMEOUT"),
            _ => (DTL_ERROR_COMPILE_FAILED, ""),
        };
        let (major, minor) = self.version;
        Error::new(status, format!("{call}: NVRTC {major}.{minor} says {name} ({code}){advice}"))
    }
}

/// NVRTC program object, destroyed on drop.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    object: nvrtcProgram,
}

impl Program<'_> {
    /// Reads one output of the compiled program, such as the PTX. `size` is the NVRTC function that
    /// returns the size of this output, and `get` the one that writes the output. Returns an empty
    /// vector if the compiler has no such output.
    fn bytes(
        &self,
        size: unsafe extern "C" fn(nvrtcProgram, *mut usize) -> nvrtcResult,
        get: unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> nvrtcResult,
    ) -> Vec<u8> {
        let mut count = 0;
        // SAFETY: the program is alive, and `count` is valid for writing a size.
        if unsafe { size(self.object, &raw mut count) } != NVRTC_SUCCESS || count == 0 {
            return Vec::new();
        }
        let mut bytes = vec![0u8; count];
        // SAFETY: the program is alive, and `bytes` has the size that the compiler reported.
        let code = unsafe { get(self.object, bytes.as_mut_ptr().cast()) };
        if code == NVRTC_SUCCESS { bytes } else { Vec::new() }
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if !self.object.is_null() {
            // SAFETY: this object owns the program and destroys it once.
            let _ = unsafe { (self.nvrtc.calls.nvrtcDestroyProgram)(&raw mut self.object) };
        }
    }
}

/// Returns 1 if the deadline at `end` has passed, so that NVRTC cancels the compilation; otherwise
/// returns 0. NVRTC may call this function from any thread.
unsafe extern "C" fn is_over(end: *mut c_void, _: *mut c_void) -> c_int {
    // SAFETY: `end` points to the deadline that `run` registered with this function; no thread
    // writes to it.
    let end = unsafe { *end.cast::<u64>() };
    c_int::from(now_ns() > end)
}

/// Returns the candidate file names of the NVRTC library in order of preference. A driver loads
/// code from compilers of its own major version and of older ones, so compilers with a newer major
/// version come last.
fn candidates(driver_version: i32) -> Vec<&'static str> {
    let major = driver_version / 1000;
    let fit = SONAMES.iter().filter(|(of, _)| *of <= major).map(|(_, name)| *name);
    let newer = SONAMES.iter().rev().filter(|(of, _)| *of > major).map(|(_, name)| *name);
    fit.chain([LIBRARY.file(None)]).chain(newer).collect()
}

fn first_of(names: &[&str]) -> Result<&'static Functions, String> {
    let mut reasons = Vec::new();
    for name in names {
        // SAFETY: the name is that of NVRTC.
        match unsafe { LIBRARY.open(name) } {
            Ok(calls) => return Ok(calls),
            Err(why) => reasons.push(why),
        }
    }
    let why = reasons.first().map_or("", String::as_str);
    let advice = LIBRARY.advice();
    Err(format!("there is no NVRTC, which compiles CUDA C++: {why}; {advice}"))
}

#[cfg(test)]
#[path = "tests/nvrtc.rs"]
mod tests;
