//! Declarations of nccl.h that are used here.
//!
//! Written by tools/vendor_sys.py: do not edit.

#![allow(missing_docs, reason = "as in the C header")]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "as in C")]

use std::ffi::{c_char, c_int, c_uint, c_void};

pub type cudaStream_t = *mut c_void;
pub type ncclComm_t = *mut c_void;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ncclUniqueId {
    pub internal: [c_char; 128usize],
}
pub type ncclResult_t = c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ncclConfig_v21700 {
    pub size: usize,
    pub magic: c_uint,
    pub version: c_uint,
    pub blocking: c_int,
    pub cgaClusterSize: c_int,
    pub minCTAs: c_int,
    pub maxCTAs: c_int,
    pub netName: *const c_char,
    pub splitShare: c_int,
    pub trafficClass: c_int,
}
pub type ncclConfig_t = ncclConfig_v21700;
pub type ncclRedOp_t = c_uint;
pub type ncclDataType_t = c_uint;
pub const ncclSuccess: ncclResult_t = 0;
pub const ncclUnhandledCudaError: ncclResult_t = 1;
pub const ncclSystemError: ncclResult_t = 2;
pub const ncclInternalError: ncclResult_t = 3;
pub const ncclInvalidArgument: ncclResult_t = 4;
pub const ncclInvalidUsage: ncclResult_t = 5;
pub const ncclRemoteError: ncclResult_t = 6;
pub const ncclInProgress: ncclResult_t = 7;
pub const ncclSum: ncclRedOp_t = 0;
pub const ncclProd: ncclRedOp_t = 1;
pub const ncclMax: ncclRedOp_t = 2;
pub const ncclMin: ncclRedOp_t = 3;
pub const ncclInt8: ncclDataType_t = 0;
pub const ncclUint8: ncclDataType_t = 1;
pub const ncclInt32: ncclDataType_t = 2;
pub const ncclUint32: ncclDataType_t = 3;
pub const ncclInt64: ncclDataType_t = 4;
pub const ncclUint64: ncclDataType_t = 5;
pub const ncclFloat16: ncclDataType_t = 6;
pub const ncclFloat32: ncclDataType_t = 7;
pub const ncclFloat64: ncclDataType_t = 8;
pub const ncclBfloat16: ncclDataType_t = 9;
pub type ncclGetVersion = unsafe extern "C" fn(*mut c_int) -> ncclResult_t;
pub type ncclGetUniqueId = unsafe extern "C" fn(*mut ncclUniqueId) -> ncclResult_t;
pub type ncclCommInitRankConfig = unsafe extern "C" fn(*mut ncclComm_t, c_int, ncclUniqueId, c_int,
    *mut ncclConfig_t) -> ncclResult_t;
pub type ncclCommFinalize = unsafe extern "C" fn(ncclComm_t) -> ncclResult_t;
pub type ncclCommDestroy = unsafe extern "C" fn(ncclComm_t) -> ncclResult_t;
pub type ncclCommAbort = unsafe extern "C" fn(ncclComm_t) -> ncclResult_t;
pub type ncclCommGetAsyncError = unsafe extern "C" fn(ncclComm_t, *mut ncclResult_t)
    -> ncclResult_t;
pub type ncclGetErrorString = unsafe extern "C" fn(ncclResult_t) -> *const c_char;
pub type ncclGroupStart = unsafe extern "C" fn() -> ncclResult_t;
pub type ncclGroupEnd = unsafe extern "C" fn() -> ncclResult_t;
pub type ncclBroadcast = unsafe extern "C" fn(*const c_void, *mut c_void, usize, ncclDataType_t,
    c_int, ncclComm_t, cudaStream_t) -> ncclResult_t;
pub type ncclReduce = unsafe extern "C" fn(*const c_void, *mut c_void, usize, ncclDataType_t,
    ncclRedOp_t, c_int, ncclComm_t, cudaStream_t) -> ncclResult_t;
pub type ncclAllReduce = unsafe extern "C" fn(*const c_void, *mut c_void, usize, ncclDataType_t,
    ncclRedOp_t, ncclComm_t, cudaStream_t) -> ncclResult_t;
pub type ncclReduceScatter = unsafe extern "C" fn(*const c_void, *mut c_void, usize, ncclDataType_t,
    ncclRedOp_t, ncclComm_t, cudaStream_t) -> ncclResult_t;
pub type ncclAllGather = unsafe extern "C" fn(*const c_void, *mut c_void, usize, ncclDataType_t,
    ncclComm_t, cudaStream_t) -> ncclResult_t;
pub type ncclSend = unsafe extern "C" fn(*const c_void, usize, ncclDataType_t, c_int, ncclComm_t,
    cudaStream_t) -> ncclResult_t;
pub type ncclRecv = unsafe extern "C" fn(*mut c_void, usize, ncclDataType_t, c_int, ncclComm_t,
    cudaStream_t) -> ncclResult_t;
pub type ncclGetLastError = unsafe extern "C" fn(ncclComm_t) -> *const c_char;
pub type ncclCommRegister = unsafe extern "C" fn(ncclComm_t, *mut c_void, usize, *mut *mut c_void)
    -> ncclResult_t;
pub type ncclCommDeregister = unsafe extern "C" fn(ncclComm_t, *mut c_void) -> ncclResult_t;
