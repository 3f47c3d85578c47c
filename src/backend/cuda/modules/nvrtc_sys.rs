//! Declarations of nvrtc.h that are used here.
//!
//! Written by tools/vendor_sys.py: do not edit.

#![allow(missing_docs, reason = "as in the C header")]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "as in C")]

use std::ffi::{c_char, c_int, c_uint, c_void};

pub type nvrtcResult = c_uint;
pub type nvrtcProgram = *mut c_void;
pub const NVRTC_SUCCESS: nvrtcResult = 0;
pub const NVRTC_ERROR_OUT_OF_MEMORY: nvrtcResult = 1;
pub const NVRTC_ERROR_BUILTIN_OPERATION_FAILURE: nvrtcResult = 7;
pub const NVRTC_ERROR_CANCELLED: nvrtcResult = 16;
pub type nvrtcGetErrorString = unsafe extern "C" fn(nvrtcResult) -> *const c_char;
pub type nvrtcVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> nvrtcResult;
pub type nvrtcCreateProgram = unsafe extern "C" fn(*mut nvrtcProgram, *const c_char, *const c_char,
    c_int, *const *const c_char, *const *const c_char) -> nvrtcResult;
pub type nvrtcDestroyProgram = unsafe extern "C" fn(*mut nvrtcProgram) -> nvrtcResult;
pub type nvrtcCompileProgram = unsafe extern "C" fn(nvrtcProgram, c_int, *const *const c_char)
    -> nvrtcResult;
pub type nvrtcGetPTXSize = unsafe extern "C" fn(nvrtcProgram, *mut usize) -> nvrtcResult;
pub type nvrtcGetPTX = unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> nvrtcResult;
pub type nvrtcGetProgramLogSize = unsafe extern "C" fn(nvrtcProgram, *mut usize) -> nvrtcResult;
pub type nvrtcGetProgramLog = unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> nvrtcResult;
pub type nvrtcGetNumSupportedArchs = unsafe extern "C" fn(*mut c_int) -> nvrtcResult;
pub type nvrtcGetSupportedArchs = unsafe extern "C" fn(*mut c_int) -> nvrtcResult;
pub type nvrtcGetCUBINSize = unsafe extern "C" fn(nvrtcProgram, *mut usize) -> nvrtcResult;
pub type nvrtcGetCUBIN = unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> nvrtcResult;
pub type nvrtcSetFlowCallback = unsafe extern "C" fn(nvrtcProgram,
    Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int>, *mut c_void) -> nvrtcResult;
