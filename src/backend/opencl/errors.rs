//! Conversion of OpenCL result codes into names and statuses of the library.

use super::symbols::*;
use crate::abi::status::*;
use crate::backend::symbol_table::constant_names;
use crate::error::{Error, Result};
use crate::sys::memory::buf::Addr;

/// Result codes that OpenCL functions can return to this backend, with their names.
const NAMES: &[(cl_int, &str)] = constant_names! {
    CL_PLATFORM_NOT_FOUND_KHR CL_DEVICE_NOT_FOUND CL_DEVICE_NOT_AVAILABLE
    CL_COMPILER_NOT_AVAILABLE CL_MEM_OBJECT_ALLOCATION_FAILURE CL_OUT_OF_RESOURCES
    CL_OUT_OF_HOST_MEMORY CL_PROFILING_INFO_NOT_AVAILABLE CL_MEM_COPY_OVERLAP
    CL_BUILD_PROGRAM_FAILURE CL_MAP_FAILURE CL_MISALIGNED_SUB_BUFFER_OFFSET
    CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST CL_KERNEL_ARG_INFO_NOT_AVAILABLE
    CL_INVALID_VALUE CL_INVALID_DEVICE_TYPE CL_INVALID_PLATFORM CL_INVALID_DEVICE
    CL_INVALID_CONTEXT CL_INVALID_QUEUE_PROPERTIES CL_INVALID_COMMAND_QUEUE CL_INVALID_MEM_OBJECT
    CL_INVALID_BINARY CL_INVALID_BUILD_OPTIONS CL_INVALID_PROGRAM CL_INVALID_PROGRAM_EXECUTABLE
    CL_INVALID_KERNEL_NAME CL_INVALID_KERNEL_DEFINITION CL_INVALID_KERNEL CL_INVALID_ARG_INDEX
    CL_INVALID_ARG_VALUE CL_INVALID_ARG_SIZE CL_INVALID_KERNEL_ARGS CL_INVALID_WORK_DIMENSION
    CL_INVALID_WORK_GROUP_SIZE CL_INVALID_WORK_ITEM_SIZE CL_INVALID_EVENT_WAIT_LIST
    CL_INVALID_EVENT CL_INVALID_OPERATION CL_INVALID_BUFFER_SIZE CL_INVALID_GLOBAL_WORK_SIZE
};

/// Returns the name of a result code.
pub(super) fn name(code: cl_int) -> &'static str {
    NAMES
        .iter()
        .find(|(known, _)| *known == code)
        .map_or("a code without a name here", |(_, name)| name)
}

/// Converts a result code into a `Result`. `what` names the operation for the error message.
pub fn check(code: cl_int, what: &str) -> Result<()> {
    if code >= 0 { Ok(()) } else { Err(error(code, what)) }
}

/// Returns the object `id` that a clCreate... call returned; if `id` is null, returns the error for
/// `code`.
pub(super) fn created(id: *mut c_void, code: cl_int, what: &str) -> Result<Addr> {
    if id.is_null() { Err(error(code.min(-1), what)) } else { Ok(Addr::new(id)) }
}

/// Returns a function of OpenCL 2.0 or newer; NOT_SUPPORTED if the loader lacks it.
pub(super) fn required<F>(function: Option<F>, name: &str) -> Result<F> {
    function.ok_or_else(|| {
        let text = format!("the OpenCL loader has no {name}: one of OpenCL 2.0 or newer is needed");
        Error::new(DTL_ERROR_NOT_SUPPORTED, text)
    })
}

/// Converts a negative result code into an `Error`. `what` names the operation.
#[cold]
pub fn error(code: cl_int, what: &str) -> Error {
    let status = match code {
        CL_MEM_OBJECT_ALLOCATION_FAILURE | CL_OUT_OF_HOST_MEMORY | CL_INVALID_BUFFER_SIZE => {
            DTL_ERROR_OUT_OF_MEMORY
        }
        CL_DEVICE_NOT_AVAILABLE | CL_COMPILER_NOT_AVAILABLE => DTL_ERROR_UNAVAILABLE,
        CL_INVALID_KERNEL_NAME => DTL_ERROR_NOT_FOUND,
        CL_INVALID_BINARY
        | CL_INVALID_BUILD_OPTIONS
        | CL_INVALID_WORK_ITEM_SIZE..=CL_INVALID_ARG_VALUE
        | CL_INVALID_GLOBAL_WORK_SIZE => DTL_ERROR_INVALID_ARGUMENT,
        _ => DTL_ERROR_OPENCL,
    };
    let advice = match code {
        CL_MEM_OBJECT_ALLOCATION_FAILURE
        | CL_OUT_OF_RESOURCES
        | CL_OUT_OF_HOST_MEMORY
        | CL_INVALID_BUFFER_SIZE => "; free memory of the device, or ask for less at once",
        CL_DEVICE_NOT_AVAILABLE => "; another program has the device, or it was taken away",
        CL_COMPILER_NOT_AVAILABLE => {
            "; this driver compiles nothing: give it a binary, or take another device"
        }
        CL_PROFILING_INFO_NOT_AVAILABLE => {
            "; its command queue was made without CL_QUEUE_PROFILING_ENABLE"
        }
        _ => "",
    };
    Error::new(status, format!("{what}: OpenCL says {} ({code}){advice}", name(code)))
}
