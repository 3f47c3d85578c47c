//! Declarations of cuda.h that are used here.
//!
//! Written by tools/vendor_sys.py: do not edit.

#![allow(missing_docs, reason = "as in the C header")]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "as in C")]

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

pub type cuuint32_t = u32;
pub type CUdeviceptr = c_ulonglong;
pub type CUdevice = c_int;
pub type CUcontext = *mut c_void;
pub type CUmodule = *mut c_void;
pub type CUfunction = *mut c_void;
pub type CUarray = *mut c_void;
pub type CUevent = *mut c_void;
pub type CUstream = *mut c_void;
pub type CUmemoryPool = *mut c_void;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct CUipcMemHandle {
    pub reserved: [c_char; 64usize],
}
pub type CUstreamCallback = Option<unsafe extern "C" fn(hStream: CUstream, status: CUresult,
    userData: *mut c_void)>;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct CUDA_MEMCPY2D {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcMemoryType: CUmemorytype,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub srcPitch: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstMemoryType: CUmemorytype,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub dstPitch: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct CUmemLocation {
    pub type_: CUmemLocationType,
    pub id: c_int,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct CUmemPoolProps {
    pub allocType: CUmemAllocationType,
    pub handleTypes: CUmemAllocationHandleType,
    pub location: CUmemLocation,
    pub win32SecurityAttributes: *mut c_void,
    pub maxSize: usize,
    pub usage: c_ushort,
    pub reserved: [c_uchar; 54usize],
}
pub type CUipcMem_flags = c_uint;
pub type CUmemAttach_flags = c_uint;
pub type CUstream_flags = c_uint;
pub type CUevent_flags = c_uint;
pub type CUstreamWaitValue_flags = c_uint;
pub type CUdevice_attribute = c_uint;
pub type CUpointer_attribute = c_uint;
pub type CUfunction_attribute = c_uint;
pub type CUmemorytype = c_uint;
pub type CUjit_option = c_uint;
pub type CUresult = c_uint;
pub type CUmemAllocationHandleType = c_uint;
pub type CUmemLocationType = c_uint;
pub type CUmemAllocationType = c_uint;
pub type CUmemRangeHandleType = c_uint;
pub type CUmemPool_attribute = c_uint;
pub const CU_MEMHOSTALLOC_PORTABLE: u32 = 1;
pub const CU_MEMHOSTALLOC_DEVICEMAP: u32 = 2;
pub const CU_MEMHOSTREGISTER_PORTABLE: u32 = 1;
pub const CU_MEMHOSTREGISTER_DEVICEMAP: u32 = 2;
pub const CU_DEVICE_CPU: i32 = -1;
pub const CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS: CUipcMem_flags = 1;
pub const CU_MEM_ATTACH_GLOBAL: CUmemAttach_flags = 1;
pub const CU_STREAM_NON_BLOCKING: CUstream_flags = 1;
pub const CU_EVENT_DEFAULT: CUevent_flags = 0;
pub const CU_EVENT_DISABLE_TIMING: CUevent_flags = 2;
pub const CU_STREAM_WAIT_VALUE_GEQ: CUstreamWaitValue_flags = 0;
pub const CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: CUdevice_attribute = 1;
pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: CUdevice_attribute = 2;
pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: CUdevice_attribute = 5;
pub const CU_DEVICE_ATTRIBUTE_MAX_PITCH: CUdevice_attribute = 11;
pub const CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: CUdevice_attribute = 16;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: CUdevice_attribute = 75;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: CUdevice_attribute = 76;
pub const CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY: CUdevice_attribute = 83;
pub const CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED: CUdevice_attribute = 86;
pub const CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: CUdevice_attribute = 89;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: CUdevice_attribute = 97;
pub const CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: CUdevice_attribute = 115;
pub const CU_POINTER_ATTRIBUTE_MEMORY_TYPE: CUpointer_attribute = 2;
pub const CU_POINTER_ATTRIBUTE_IS_MANAGED: CUpointer_attribute = 8;
pub const CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: CUpointer_attribute = 9;
pub const CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: CUpointer_attribute = 11;
pub const CU_POINTER_ATTRIBUTE_RANGE_SIZE: CUpointer_attribute = 12;
pub const CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: CUfunction_attribute = 1;
pub const CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: CUfunction_attribute = 8;
pub const CU_MEMORYTYPE_HOST: CUmemorytype = 1;
pub const CU_MEMORYTYPE_DEVICE: CUmemorytype = 2;
pub const CU_MEMORYTYPE_UNIFIED: CUmemorytype = 4;
pub const CU_JIT_MAX_REGISTERS: CUjit_option = 0;
pub const CU_JIT_INFO_LOG_BUFFER: CUjit_option = 3;
pub const CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: CUjit_option = 4;
pub const CU_JIT_ERROR_LOG_BUFFER: CUjit_option = 5;
pub const CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: CUjit_option = 6;
pub const CU_JIT_OPTIMIZATION_LEVEL: CUjit_option = 7;
pub const CU_JIT_GENERATE_DEBUG_INFO: CUjit_option = 11;
pub const CU_JIT_GENERATE_LINE_INFO: CUjit_option = 13;
pub const CUDA_SUCCESS: CUresult = 0;
pub const CUDA_ERROR_INVALID_VALUE: CUresult = 1;
pub const CUDA_ERROR_OUT_OF_MEMORY: CUresult = 2;
pub const CUDA_ERROR_NOT_INITIALIZED: CUresult = 3;
pub const CUDA_ERROR_DEINITIALIZED: CUresult = 4;
pub const CUDA_ERROR_STUB_LIBRARY: CUresult = 34;
pub const CUDA_ERROR_DEVICE_UNAVAILABLE: CUresult = 46;
pub const CUDA_ERROR_NO_DEVICE: CUresult = 100;
pub const CUDA_ERROR_INVALID_IMAGE: CUresult = 200;
pub const CUDA_ERROR_INVALID_CONTEXT: CUresult = 201;
pub const CUDA_ERROR_NO_BINARY_FOR_GPU: CUresult = 209;
pub const CUDA_ERROR_ECC_UNCORRECTABLE: CUresult = 214;
pub const CUDA_ERROR_INVALID_PTX: CUresult = 218;
pub const CUDA_ERROR_NVLINK_UNCORRECTABLE: CUresult = 220;
pub const CUDA_ERROR_JIT_COMPILER_NOT_FOUND: CUresult = 221;
pub const CUDA_ERROR_UNSUPPORTED_PTX_VERSION: CUresult = 222;
pub const CUDA_ERROR_JIT_COMPILATION_DISABLED: CUresult = 223;
pub const CUDA_ERROR_CONTAINED: CUresult = 226;
pub const CUDA_ERROR_INVALID_SOURCE: CUresult = 300;
pub const CUDA_ERROR_INVALID_HANDLE: CUresult = 400;
pub const CUDA_ERROR_NOT_FOUND: CUresult = 500;
pub const CUDA_ERROR_NOT_READY: CUresult = 600;
pub const CUDA_ERROR_ILLEGAL_ADDRESS: CUresult = 700;
pub const CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: CUresult = 701;
pub const CUDA_ERROR_LAUNCH_TIMEOUT: CUresult = 702;
pub const CUDA_ERROR_CONTEXT_IS_DESTROYED: CUresult = 709;
pub const CUDA_ERROR_ASSERT: CUresult = 710;
pub const CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: CUresult = 712;
pub const CUDA_ERROR_HARDWARE_STACK_ERROR: CUresult = 714;
pub const CUDA_ERROR_ILLEGAL_INSTRUCTION: CUresult = 715;
pub const CUDA_ERROR_MISALIGNED_ADDRESS: CUresult = 716;
pub const CUDA_ERROR_INVALID_ADDRESS_SPACE: CUresult = 717;
pub const CUDA_ERROR_INVALID_PC: CUresult = 718;
pub const CUDA_ERROR_LAUNCH_FAILED: CUresult = 719;
pub const CUDA_ERROR_TENSOR_MEMORY_LEAK: CUresult = 721;
pub const CUDA_ERROR_NOT_SUPPORTED: CUresult = 801;
pub const CUDA_ERROR_SYSTEM_NOT_READY: CUresult = 802;
pub const CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: CUresult = 803;
pub const CUDA_ERROR_MPS_CLIENT_TERMINATED: CUresult = 810;
pub const CUDA_ERROR_EXTERNAL_DEVICE: CUresult = 911;
pub const CU_MEM_HANDLE_TYPE_NONE: CUmemAllocationHandleType = 0;
pub const CU_MEM_LOCATION_TYPE_DEVICE: CUmemLocationType = 1;
pub const CU_MEM_ALLOCATION_TYPE_PINNED: CUmemAllocationType = 1;
pub const CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD: CUmemRangeHandleType = 1;
pub const CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: CUmemPool_attribute = 4;
pub type cuInit = unsafe extern "C" fn(c_uint) -> CUresult;
pub type cuDriverGetVersion = unsafe extern "C" fn(*mut c_int) -> CUresult;
pub type cuGetErrorName = unsafe extern "C" fn(CUresult, *mut *const c_char) -> CUresult;
pub type cuGetErrorString = unsafe extern "C" fn(CUresult, *mut *const c_char) -> CUresult;
pub type cuDeviceGetCount = unsafe extern "C" fn(*mut c_int) -> CUresult;
pub type cuDeviceGet = unsafe extern "C" fn(*mut CUdevice, c_int) -> CUresult;
pub type cuDeviceGetName = unsafe extern "C" fn(*mut c_char, c_int, CUdevice) -> CUresult;
pub type cuDeviceTotalMem_v2 = unsafe extern "C" fn(*mut usize, CUdevice) -> CUresult;
pub type cuDeviceGetAttribute = unsafe extern "C" fn(*mut c_int, CUdevice_attribute, CUdevice)
    -> CUresult;
pub type cuDeviceGetPCIBusId = unsafe extern "C" fn(*mut c_char, c_int, CUdevice) -> CUresult;
pub type cuDevicePrimaryCtxRetain = unsafe extern "C" fn(*mut CUcontext, CUdevice) -> CUresult;
pub type cuDevicePrimaryCtxRelease_v2 = unsafe extern "C" fn(CUdevice) -> CUresult;
pub type cuCtxGetCurrent = unsafe extern "C" fn(*mut CUcontext) -> CUresult;
pub type cuCtxPushCurrent_v2 = unsafe extern "C" fn(CUcontext) -> CUresult;
pub type cuCtxPopCurrent_v2 = unsafe extern "C" fn(*mut CUcontext) -> CUresult;
pub type cuCtxGetDevice = unsafe extern "C" fn(*mut CUdevice) -> CUresult;
pub type cuCtxSynchronize = unsafe extern "C" fn() -> CUresult;
pub type cuMemGetInfo_v2 = unsafe extern "C" fn(*mut usize, *mut usize) -> CUresult;
pub type cuMemAlloc_v2 = unsafe extern "C" fn(*mut CUdeviceptr, usize) -> CUresult;
pub type cuMemFree_v2 = unsafe extern "C" fn(CUdeviceptr) -> CUresult;
pub type cuMemAllocManaged = unsafe extern "C" fn(*mut CUdeviceptr, usize, c_uint) -> CUresult;
pub type cuMemHostAlloc = unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> CUresult;
pub type cuMemFreeHost = unsafe extern "C" fn(*mut c_void) -> CUresult;
pub type cuPointerGetAttributes = unsafe extern "C" fn(c_uint, *mut CUpointer_attribute,
    *mut *mut c_void, CUdeviceptr) -> CUresult;
pub type cuMemcpyAsync = unsafe extern "C" fn(CUdeviceptr, CUdeviceptr, usize, CUstream)
    -> CUresult;
pub type cuMemcpyPeerAsync = unsafe extern "C" fn(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext,
    usize, CUstream) -> CUresult;
pub type cuMemcpy2DAsync_v2 = unsafe extern "C" fn(*const CUDA_MEMCPY2D, CUstream) -> CUresult;
pub type cuMemsetD8Async = unsafe extern "C" fn(CUdeviceptr, c_uchar, usize, CUstream) -> CUresult;
pub type cuStreamCreate = unsafe extern "C" fn(*mut CUstream, c_uint) -> CUresult;
pub type cuStreamDestroy_v2 = unsafe extern "C" fn(CUstream) -> CUresult;
pub type cuStreamSynchronize = unsafe extern "C" fn(CUstream) -> CUresult;
pub type cuStreamQuery = unsafe extern "C" fn(CUstream) -> CUresult;
pub type cuStreamWaitEvent = unsafe extern "C" fn(CUstream, CUevent, c_uint) -> CUresult;
pub type cuStreamGetCtx = unsafe extern "C" fn(CUstream, *mut CUcontext) -> CUresult;
pub type cuEventCreate = unsafe extern "C" fn(*mut CUevent, c_uint) -> CUresult;
pub type cuEventDestroy_v2 = unsafe extern "C" fn(CUevent) -> CUresult;
pub type cuEventRecord = unsafe extern "C" fn(CUevent, CUstream) -> CUresult;
pub type cuEventQuery = unsafe extern "C" fn(CUevent) -> CUresult;
pub type cuEventSynchronize = unsafe extern "C" fn(CUevent) -> CUresult;
pub type cuEventElapsedTime = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;
pub type cuModuleLoadDataEx = unsafe extern "C" fn(*mut CUmodule, *const c_void, c_uint,
    *mut CUjit_option, *mut *mut c_void) -> CUresult;
pub type cuModuleUnload = unsafe extern "C" fn(CUmodule) -> CUresult;
pub type cuModuleGetFunction = unsafe extern "C" fn(*mut CUfunction, CUmodule, *const c_char)
    -> CUresult;
pub type cuFuncGetAttribute = unsafe extern "C" fn(*mut c_int, CUfunction_attribute, CUfunction)
    -> CUresult;
pub type cuFuncSetAttribute = unsafe extern "C" fn(CUfunction, CUfunction_attribute, c_int)
    -> CUresult;
pub type cuLaunchKernel = unsafe extern "C" fn(CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint,
    c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void) -> CUresult;
pub type cuMemPoolCreate = unsafe extern "C" fn(*mut CUmemoryPool, *const CUmemPoolProps)
    -> CUresult;
pub type cuMemPoolDestroy = unsafe extern "C" fn(CUmemoryPool) -> CUresult;
pub type cuMemPoolSetAttribute = unsafe extern "C" fn(CUmemoryPool, CUmemPool_attribute,
    *mut c_void) -> CUresult;
pub type cuMemPoolTrimTo = unsafe extern "C" fn(CUmemoryPool, usize) -> CUresult;
pub type cuMemAllocFromPoolAsync = unsafe extern "C" fn(*mut CUdeviceptr, usize, CUmemoryPool,
    CUstream) -> CUresult;
pub type cuMemFreeAsync = unsafe extern "C" fn(CUdeviceptr, CUstream) -> CUresult;
pub type cuStreamWaitValue32_v2 = unsafe extern "C" fn(CUstream, CUdeviceptr, cuuint32_t, c_uint)
    -> CUresult;
pub type cuStreamAddCallback = unsafe extern "C" fn(CUstream, CUstreamCallback, *mut c_void, c_uint)
    -> CUresult;
pub type cuIpcGetMemHandle = unsafe extern "C" fn(*mut CUipcMemHandle, CUdeviceptr) -> CUresult;
pub type cuIpcOpenMemHandle_v2 = unsafe extern "C" fn(*mut CUdeviceptr, CUipcMemHandle, c_uint)
    -> CUresult;
pub type cuIpcCloseMemHandle = unsafe extern "C" fn(CUdeviceptr) -> CUresult;
pub type cuMemHostRegister_v2 = unsafe extern "C" fn(*mut c_void, usize, c_uint) -> CUresult;
pub type cuMemHostUnregister = unsafe extern "C" fn(*mut c_void) -> CUresult;
pub type cuMemPrefetchAsync = unsafe extern "C" fn(CUdeviceptr, usize, CUdevice, CUstream)
    -> CUresult;
pub type cuMemGetHandleForAddressRange = unsafe extern "C" fn(*mut c_void, CUdeviceptr, usize,
    CUmemRangeHandleType, c_ulonglong) -> CUresult;
pub type cuFuncGetParamInfo = unsafe extern "C" fn(CUfunction, usize, *mut usize, *mut usize)
    -> CUresult;
pub type cuCtxGetStreamPriorityRange = unsafe extern "C" fn(*mut c_int, *mut c_int) -> CUresult;
pub type cuStreamCreateWithPriority = unsafe extern "C" fn(*mut CUstream, c_uint, c_int)
    -> CUresult;
