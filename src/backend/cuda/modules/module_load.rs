//! Loading of PTX and binaries into the driver: options, logs, and the error messages of rejected
//! code.

use super::super::symbols::*;
use crate::abi::status::*;
use crate::error::{Error, Result, fail};
use crate::sys::memory::buf::Addr;
use std::ffi::CString;
use std::ptr;

/// Initial and maximum size of each of the two log buffers, in bytes.
const LOG_BYTES: usize = 16 << 10;
const MOST_LOG_BYTES: usize = 16 << 20;

/// Option of the driver's PTX compiler, with its value.
pub(super) type Choice = (CUjit_option, usize);

/// Translates command-line options of ptxas into options of the driver's PTX compiler.
pub(super) fn options(words: &[CString]) -> Result<Vec<Choice>> {
    let mut choices = Vec::new();
    for word in words {
        let word = word.to_string_lossy();
        let number = |names: [&str; 2]| {
            let rest = names.iter().find_map(|name| word.strip_prefix(*name))?;
            rest.parse::<u32>().ok().map(|number| number as usize)
        };
        if let Some(count) = number(["--maxrregcount=", "-maxrregcount="]) {
            choices.push((CU_JIT_MAX_REGISTERS, count));
        } else if let Some(level) = number(["--opt-level=", "-O"]) {
            choices.push((CU_JIT_OPTIMIZATION_LEVEL, level));
        } else if word == "--device-debug" || word == "-g" {
            choices.push((CU_JIT_GENERATE_DEBUG_INFO, 1));
        } else if word == "--generate-line-info" || word == "-lineinfo" {
            choices.push((CU_JIT_GENERATE_LINE_INFO, 1));
        } else {
            let word = word.into_owned();
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "option \"{word}\": the driver compiles PTX with --maxrregcount=N, --opt-level=N \
                 (-ON), --device-debug (-g) and --generate-line-info (-lineinfo) only"
            );
        }
    }
    Ok(choices)
}

/// Driver into which code is loaded, and the properties of the driver and of the device that
/// determine the error messages.
pub(super) struct LoadOptions {
    /// Function table of the driver.
    pub(super) cuda: &'static Functions,
    /// Compute capability of the device: 10 x major + minor, such as 90.
    pub(super) capability: i32,
    /// Version of the driver, such as 12040.
    pub(super) version: i32,
}

impl LoadOptions {
    /// Loads code into the current context and returns the module. The driver's messages are
    /// appended to `log`.
    pub(super) fn load(&self, code: &[u8], choices: &[Choice], log: &mut String) -> Result<Addr> {
        let mut room = LOG_BYTES;
        loop {
            let (result, module, logs) = self.try_load(code, choices, room);
            // A log that fills its buffer is truncated: load again with larger buffers.
            if logs.iter().any(|log| log.len() + 1 >= room) && room < MOST_LOG_BYTES {
                if result == CUDA_SUCCESS {
                    // SAFETY: this function loaded the module and has not returned it, so nothing
                    // uses the module.
                    let _ = unsafe { (self.cuda.cuModuleUnload)(module.ptr()) };
                }
                room *= 32;
                continue;
            }
            for text in logs.iter().map(|text| String::from_utf8_lossy(text)) {
                if !log.is_empty() && !text.is_empty() && !log.ends_with('\n') {
                    log.push('\n');
                }
                log.push_str(&text);
            }
            return if result == CUDA_SUCCESS { Ok(module) } else { Err(self.refused(result)) };
        }
    }

    fn try_load(
        &self,
        code: &[u8],
        choices: &[Choice],
        room: usize,
    ) -> (CUresult, Addr, [Vec<u8>; 2]) {
        let (mut errors, mut words) = (vec![0u8; room], vec![0u8; room]);
        let mut names = vec![
            CU_JIT_ERROR_LOG_BUFFER,
            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            CU_JIT_INFO_LOG_BUFFER,
            CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        ];
        // The driver takes integer option values in the place of pointers.
        let number = ptr::without_provenance_mut;
        let mut values: Vec<*mut c_void> =
            vec![errors.as_mut_ptr().cast(), number(room), words.as_mut_ptr().cast(), number(room)];
        for (name, value) in choices {
            names.push(*name);
            values.push(number(*value));
        }
        let mut module = ptr::null_mut();
        // SAFETY: `module` is valid for writing a handle. `code` is a binary whose completeness was
        // checked, or NUL-terminated text. `values` is as long as `names`, and each log buffer has
        // the size that is passed.
        let result = unsafe {
            (self.cuda.cuModuleLoadDataEx)(
                &raw mut module,
                code.as_ptr().cast(),
                names.len() as c_uint,
                names.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        let cut = |mut log: Vec<u8>| {
            log.truncate(log.iter().position(|byte| *byte == 0).unwrap_or(log.len()));
            log
        };
        (result, Addr::new(module), [cut(errors), cut(words)])
    }

    fn refused(&self, code: CUresult) -> Error {
        let (cc, version) = (self.capability, self.version);
        let what = "loading the module (cuModuleLoadDataEx)";
        let advice = match code {
            CUDA_ERROR_INVALID_IMAGE | CUDA_ERROR_INVALID_PTX | CUDA_ERROR_INVALID_SOURCE => {
                String::new()
            }
            CUDA_ERROR_NO_BINARY_FOR_GPU => format!(
                "; it has no code for this device, whose compute capability is {}.{}: compile for \
                 that, or give PTX",
                cc / 10,
                cc % 10
            ),
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION => format!(
                "; its PTX is newer than the driver's CUDA {}.{}: update the driver, or compile \
                 with an older NVRTC (DTL_NVRTC_LIBRARY)",
                version / 1000,
                version % 1000 / 10
            ),
            CUDA_ERROR_JIT_COMPILER_NOT_FOUND | CUDA_ERROR_JIT_COMPILATION_DISABLED => {
                let text =
                    format!("{what}: {}; give a cubin for this device", self.cuda.words(code));
                return Error::new(DTL_ERROR_UNAVAILABLE, text);
            }
            code => return self.cuda.error(code, what),
        };
        Error::new(DTL_ERROR_COMPILE_FAILED, format!("{what}: {}{advice}", self.cuda.words(code)))
    }
}

/// Converts the driver's error code for a failed launch into an `Error`.
pub(super) fn not_launched(cuda: &Functions, code: CUresult) -> Error {
    let what = match code {
        CUDA_ERROR_INVALID_VALUE => {
            "launching a kernel (cuLaunchKernel; more shared memory than a block may have?)"
        }
        CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES => {
            "launching a kernel (cuLaunchKernel; a block needs more registers or shared memory \
             than there are: take smaller blocks)"
        }
        _ => "launching a kernel (cuLaunchKernel)",
    };
    cuda.error(code, what)
}

#[cfg(test)]
#[path = "tests/module_load.rs"]
mod tests;
