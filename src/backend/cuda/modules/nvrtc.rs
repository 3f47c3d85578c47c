//! NVRTC, NVIDIA's compiler of CUDA C++ as a library: found by name when somebody compiles, and a
//! run of it.
//!
//! Types and constants are those of nvrtc.h: [`super::nvrtc_sys`], which tools/vendor_sys.py
//! writes.
//!
//! Where next: [`super::source`] for what is compiled and kept, [`super::modules`] for the callers.

use super::nvrtc_sys as sys;
use super::nvrtc_sys::*;
use crate::abi::status::*;
use crate::backend::symbol_table::function_table;
use crate::backend::vendor_lib::{Names, VendorLib};
use crate::error::{Error, Result, fail};
use crate::runtime::component::SourceFile;
use crate::runtime::settings;
use crate::sys::memory::buf::Addr;
use crate::sys::os::dl;
use crate::sys::sync::clock::now_ns;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
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

/// NVRTC's sonames, by their major version.
const SONAMES: [(i32, &str); 3] =
    [(13, "libnvrtc.so.13"), (12, "libnvrtc.so.12"), (11, "libnvrtc.so.11.2")];
const HEADER_NAME: &CStr = c"dtl_kernel.h";
/// What every source may include.
pub(super) const HEADER_TEXT: &str = include_str!("../../../../include/dtl_kernel.h");

/// The compiler in this process.
pub(super) struct Nvrtc {
    calls: &'static Functions,
    /// Its file.
    pub(super) file: PathBuf,
    /// Its version.
    pub(super) version: (i32, i32),
    /// The architectures that it supports, as numbers such as 90; empty if it does not report them.
    known: Vec<i32>,
}

/// What came out of a run.
pub(super) struct Output {
    /// The text, with its NUL; empty if there is none.
    pub(super) ptx: Vec<u8>,
    /// nvrtcResult for one architecture; empty if none was requested.
    pub(super) cubin: Vec<u8>,
}

impl Nvrtc {
    /// Opens the one that is named, else the newest whose code a driver of this version (such as
    /// 12040) takes.
    pub(super) fn find(driver_version: i32) -> Result<Self> {
        let named = settings::current().compiler.device_compiler;
        let calls = match named.as_deref() {
            // SAFETY: the user vouches for the library.
            named @ Some(_) => unsafe { LIBRARY.open_named(named) },
            None => first_of(&candidates(driver_version)),
        };
        let calls = calls.map_err(|why| Error::new(DTL_ERROR_UNAVAILABLE, why))?;
        let function: *const c_void = calls.nvrtcVersion as *const c_void;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: room for two ints.
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
        // SAFETY: room for an int.
        self.check(unsafe { ask_count(&raw mut count) }, "nvrtcGetNumSupportedArchs")?;
        let mut known = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: room for as many as were counted.
        self.check(unsafe { ask(known.as_mut_ptr()) }, "nvrtcGetSupportedArchs")?;
        Ok(known)
    }

    /// The option for a device of this compute capability (such as 90): code for it alone, else,
    /// from a compiler that is older than the device, PTX that the driver makes code of.
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
                     capability {}.{}: name an older \
                     one with DTL_NVRTC_LIBRARY",
                    self.file.display(),
                    capability / 10,
                    capability % 10
                );
            };
            format!("--gpu-architecture=compute_{below}")
        };
        Ok(CString::new(option).unwrap_or_default())
    }

    /// Compiles; the compiler's messages are appended to `log` on success and on failure.
    pub(super) fn run(
        &self,
        text: &CStr,
        name: &CStr,
        files: &[SourceFile],
        options: &[CString],
        log: &mut String,
    ) -> Result<Output> {
        let mut program = Program { nvrtc: self, object: ptr::null_mut() };
        let header = CString::new(HEADER_TEXT).unwrap_or_default();
        // Texts from C have no NUL inside.
        let file_names: Vec<CString> =
            files.iter().map(|file| CString::new(file.name.as_str()).unwrap_or_default()).collect();
        let names: Vec<*const c_char> =
            file_names.iter().map(|name| name.as_ptr()).chain([HEADER_NAME.as_ptr()]).collect();
        let headers: Vec<*const c_char> =
            files.iter().map(|file| file.text.as_ptr()).chain([header.as_ptr()]).collect();
        // SAFETY: room for a program, and texts that end with a NUL, as many headers as names.
        let code = unsafe {
            (self.calls.nvrtcCreateProgram)(
                &raw mut program.object,
                text.as_ptr(),
                name.as_ptr(),
                names.len() as c_int,
                headers.as_ptr(),
                names.as_ptr(),
            )
        };
        self.check(code, "nvrtcCreateProgram")?;
        let limit_ns = settings::current().compiler.limit_ns();
        let mut end = now_ns().saturating_add(limit_ns);
        if let Some(ask) = self.calls.nvrtcSetFlowCallback {
            // SAFETY: a live program; the function only reads `end`, which outlives the run.
            let code = unsafe { ask(program.object, Some(is_over), (&raw mut end).cast()) };
            self.check(code, "nvrtcSetFlowCallback")?;
        }
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: a live program and as many texts as the count that is passed.
        let code = unsafe {
            (self.calls.nvrtcCompileProgram)(
                program.object,
                options.len() as c_int,
                options.as_ptr(),
            )
        };
        let said = program.bytes(self.calls.nvrtcGetProgramLogSize, self.calls.nvrtcGetProgramLog);
        log.push_str(String::from_utf8_lossy(&said).trim_end_matches(['\0', '\n']));
        self.check(code, "nvrtcCompileProgram").map_err(|error| match error.status() {
            DTL_ERROR_TIMEOUT => error.within(&format!("after {} ms", limit_ns / 1_000_000)),
            _ => error,
        })?;
        let ptx = program.bytes(self.calls.nvrtcGetPTXSize, self.calls.nvrtcGetPTX);
        let cubin = match (self.calls.nvrtcGetCUBINSize, self.calls.nvrtcGetCUBIN) {
            (Some(size), Some(get)) => program.bytes(size, get),
            _ => Vec::new(),
        };
        // A text of nothing but its NUL is none.
        Ok(Output { ptx: if ptx.len() > 1 { ptx } else { Vec::new() }, cubin })
    }

    fn check(&self, code: nvrtcResult, call: &str) -> Result<()> {
        if code == NVRTC_SUCCESS { Ok(()) } else { Err(self.error(code, call)) }
    }

    fn error(&self, code: nvrtcResult, call: &str) -> Error {
        // SAFETY: takes a number; what comes back is a text that is never freed, or null.
        let name = unsafe { (self.calls.nvrtcGetErrorString)(code) };
        let name = if name.is_null() {
            "a code without a name".into()
        } else {
            // SAFETY: not null, so such a text.
            unsafe { CStr::from_ptr(name) }.to_string_lossy()
        };
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

/// A program of NVRTC's, ended with this.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    object: nvrtcProgram,
}

impl Program<'_> {
    /// Reads an output of the program: `size` returns its size and `get` writes it. Empty if the
    /// compiler has none.
    fn bytes(
        &self,
        size: unsafe extern "C" fn(nvrtcProgram, *mut usize) -> nvrtcResult,
        get: unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> nvrtcResult,
    ) -> Vec<u8> {
        let mut count = 0;
        // SAFETY: a live program and room for a number.
        if unsafe { size(self.object, &raw mut count) } != NVRTC_SUCCESS || count == 0 {
            return Vec::new();
        }
        let mut bytes = vec![0u8; count];
        // SAFETY: a live program and as many bytes as it wants.
        let code = unsafe { get(self.object, bytes.as_mut_ptr().cast()) };
        if code == NVRTC_SUCCESS { bytes } else { Vec::new() }
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if !self.object.is_null() {
            // SAFETY: a program of ours, ended once.
            let _ = unsafe { (self.nvrtc.calls.nvrtcDestroyProgram)(&raw mut self.object) };
        }
    }
}

/// NVRTC's callback, which it calls from any thread; 1 = cancel the compilation.
unsafe extern "C" fn is_over(end: *mut c_void, _: *mut c_void) -> c_int {
    // SAFETY: the number that `run` has handed over with this function; nobody writes to it.
    let end = unsafe { *end.cast::<u64>() };
    c_int::from(now_ns() > end)
}

/// The driver takes code of its own major version and of older ones; a newer compiler's comes last.
fn candidates(driver_version: i32) -> Vec<&'static str> {
    let major = driver_version / 1000;
    let (fit, newer): (Vec<_>, Vec<_>) = SONAMES.iter().partition(|(of, _)| *of <= major);
    let names = |list: Vec<&(i32, &'static str)>| {
        list.into_iter().map(|(_, name)| *name).collect::<Vec<_>>()
    };
    let mut all = names(fit);
    all.push(LIBRARY.file(None));
    all.extend(names(newer).into_iter().rev());
    all
}

fn first_of(names: &[&str]) -> std::result::Result<&'static Functions, String> {
    let mut reasons = Vec::new();
    for name in names {
        // SAFETY: NVRTC by its name.
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
mod tests {
    use super::*;

    #[test]
    fn the_newest_that_the_driver_takes_comes_first() {
        assert_eq!(
            candidates(12_040),
            ["libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so", "libnvrtc.so.13"]
        );
        assert_eq!(candidates(13_000).first(), Some(&"libnvrtc.so.13"));
        assert_eq!(
            candidates(11_080),
            ["libnvrtc.so.11.2", "libnvrtc.so", "libnvrtc.so.12", "libnvrtc.so.13"]
        );
    }
}
