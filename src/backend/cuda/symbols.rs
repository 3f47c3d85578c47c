//! Function table of the CUDA driver: functions looked up by name in the loaded library.
//!
//! Types and constants are those of NVIDIA's cuda.h: [`super::cuda_sys`], which tools/vendor_sys.py
//! generates. The names are the exported ones: macros of cuda.h add the suffix `_v2`. Functions
//! that CUDA 11.0 exports are required; functions that later versions added are optional. Result
//! codes remain plain integers, because a driver may return a code that no enumeration lists.
//!
//! See [`super::errors`] for the conversion of result codes, and [`super::driver`] for the callers.

use super::cuda_sys as sys;
pub use super::cuda_sys::*;
use crate::backend::symbol_table::function_table;
pub use std::ffi::{c_char, c_int, c_uint, c_void};

function_table! {
    sys;
    required {
        cuInit cuDriverGetVersion cuGetErrorName cuGetErrorString cuDeviceGetCount cuDeviceGet
        cuDeviceGetName cuDeviceTotalMem_v2 cuDeviceGetAttribute cuDeviceGetPCIBusId
        cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2 cuCtxGetCurrent cuCtxPushCurrent_v2
        cuCtxPopCurrent_v2 cuCtxGetDevice cuCtxSynchronize cuMemGetInfo_v2 cuMemAlloc_v2
        cuMemFree_v2 cuMemAllocManaged cuMemHostAlloc cuMemFreeHost cuPointerGetAttributes
        cuMemcpyAsync cuMemcpyPeerAsync cuMemcpy2DAsync_v2 cuMemsetD8Async cuStreamCreate
        cuStreamDestroy_v2 cuStreamSynchronize cuStreamQuery cuStreamWaitEvent cuStreamGetCtx
        cuEventCreate cuEventDestroy_v2 cuEventRecord cuEventQuery cuEventSynchronize
        cuEventElapsedTime cuModuleLoadDataEx cuModuleUnload cuModuleGetFunction
        cuFuncGetAttribute cuFuncSetAttribute cuLaunchKernel
    }
    optional {
        cuMemPoolCreate cuMemPoolDestroy cuMemPoolSetAttribute cuMemPoolTrimTo
        cuMemAllocFromPoolAsync cuMemFreeAsync cuStreamWaitValue32_v2 cuStreamAddCallback
        cuIpcGetMemHandle cuIpcOpenMemHandle_v2 cuIpcCloseMemHandle cuMemHostRegister_v2
        cuMemHostUnregister cuMemPrefetchAsync cuMemGetHandleForAddressRange cuFuncGetParamInfo
        cuCtxGetStreamPriorityRange cuStreamCreateWithPriority
    }
}
