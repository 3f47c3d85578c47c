//! What OpenCL's results mean: names, and which status of the library each is.

use super::symbols::Int;
use crate::abi::status::*;
use crate::error::{Error, Result};

/// No platform: the loader has no driver.
pub const PLATFORM_NOT_FOUND: Int = -1001;
/// A platform without a device of the kind asked for.
pub const DEVICE_NOT_FOUND: Int = -1;
/// The compiler found errors in the source ...
pub const BUILD_FAILED: Int = -11;
/// ... in the options.
pub const BAD_OPTIONS: Int = -43;
/// An argument is invalid. From clCreateProgramWithIL: the module is malformed or not supported.
pub const INVALID_VALUE: Int = -30;
/// The program has no kernel of this name.
pub const NO_KERNEL: Int = -46;
/// A block is larger than the kernel takes, or not of the shape that its source wants.
pub const BAD_BLOCK: Int = -54;
/// A wait ended because what was waited for failed.
pub const WAIT_LIST_FAILED: Int = -14;

/// The codes that calls of this backend can answer, by CL/cl.h and CL/cl_ext.h.
pub const NAMES: &[(Int, &str)] = &[
    (-1, "CL_DEVICE_NOT_FOUND"),
    (-2, "CL_DEVICE_NOT_AVAILABLE"),
    (-3, "CL_COMPILER_NOT_AVAILABLE"),
    (-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"),
    (-5, "CL_OUT_OF_RESOURCES"),
    (-6, "CL_OUT_OF_HOST_MEMORY"),
    (-7, "CL_PROFILING_INFO_NOT_AVAILABLE"),
    (-8, "CL_MEM_COPY_OVERLAP"),
    (-11, "CL_BUILD_PROGRAM_FAILURE"),
    (-12, "CL_MAP_FAILURE"),
    (-13, "CL_MISALIGNED_SUB_BUFFER_OFFSET"),
    (-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"),
    (-19, "CL_KERNEL_ARG_INFO_NOT_AVAILABLE"),
    (-30, "CL_INVALID_VALUE"),
    (-31, "CL_INVALID_DEVICE_TYPE"),
    (-32, "CL_INVALID_PLATFORM"),
    (-33, "CL_INVALID_DEVICE"),
    (-34, "CL_INVALID_CONTEXT"),
    (-35, "CL_INVALID_QUEUE_PROPERTIES"),
    (-36, "CL_INVALID_COMMAND_QUEUE"),
    (-38, "CL_INVALID_MEM_OBJECT"),
    (-42, "CL_INVALID_BINARY"),
    (-43, "CL_INVALID_BUILD_OPTIONS"),
    (-44, "CL_INVALID_PROGRAM"),
    (-45, "CL_INVALID_PROGRAM_EXECUTABLE"),
    (-46, "CL_INVALID_KERNEL_NAME"),
    (-47, "CL_INVALID_KERNEL_DEFINITION"),
    (-48, "CL_INVALID_KERNEL"),
    (-49, "CL_INVALID_ARG_INDEX"),
    (-50, "CL_INVALID_ARG_VALUE"),
    (-51, "CL_INVALID_ARG_SIZE"),
    (-52, "CL_INVALID_KERNEL_ARGS"),
    (-53, "CL_INVALID_WORK_DIMENSION"),
    (-54, "CL_INVALID_WORK_GROUP_SIZE"),
    (-55, "CL_INVALID_WORK_ITEM_SIZE"),
    (-57, "CL_INVALID_EVENT_WAIT_LIST"),
    (-58, "CL_INVALID_EVENT"),
    (-59, "CL_INVALID_OPERATION"),
    (-61, "CL_INVALID_BUFFER_SIZE"),
    (-63, "CL_INVALID_GLOBAL_WORK_SIZE"),
];

/// A code's name; the extension's code is not in CL/cl.h.
pub(super) fn name(code: Int) -> &'static str {
    if code == PLATFORM_NOT_FOUND {
        return "CL_PLATFORM_NOT_FOUND_KHR";
    }
    NAMES
        .iter()
        .find(|(known, _)| *known == code)
        .map_or("a code without a name here", |(_, name)| name)
}

/// A result as one of the library's; `what` was done.
#[inline]
pub fn check(code: Int, what: &str) -> Result<()> {
    if code >= 0 { Ok(()) } else { Err(error(code, what)) }
}

/// The error of a (negative) code.
#[cold]
#[must_use]
pub fn error(code: Int, what: &str) -> Error {
    let status = match code {
        -4 | -6 | -61 => DTL_ERROR_OUT_OF_MEMORY,
        -2 | -3 => DTL_ERROR_UNAVAILABLE,
        NO_KERNEL => DTL_ERROR_NOT_FOUND,
        -42 | BAD_OPTIONS | -55..=-50 | -63 => DTL_ERROR_INVALID_ARGUMENT,
        _ => DTL_ERROR_OPENCL,
    };
    let advice = match code {
        -4 | -5 | -6 | -61 => "; free memory of the device, or ask for less at once",
        -2 => "; another program has the device, or it was taken away",
        -3 => "; this driver compiles nothing: give it a binary, or take another device",
        -7 => "; its command queue was made without CL_QUEUE_PROFILING_ENABLE",
        _ => "",
    };
    Error::new(status, format!("{what}: OpenCL says {} ({code}){advice}", name(code)))
}
