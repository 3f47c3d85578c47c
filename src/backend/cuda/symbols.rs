//! The driver's functions, found by name in the libcuda.so.1 that was opened; its types and the
//! constants that are used.
//!
//! Types and values are those of NVIDIA's cuda.h; `tests/cuda_constants.rs` has the C compiler
//! compare them. The names are those that the driver exports: cuda.h's macros add the `_v2`.
//! Results stay plain integers: a driver may answer codes that no list knows.
//!
//! Where next: [`super::errors`] for what the results mean, [`super::driver`] for who calls.

pub use crate::backend::symbol_table::Function;
use crate::backend::symbol_table::{constants, function_table};
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

/// `CUresult`
pub type Code = c_uint;
/// `int`, and the enumerations that are passed
pub type Int = c_int;
/// `int *`
pub type IntOut = *mut c_int;
/// `CUdevice`
pub type Device = c_int;
/// `CUdevice *`
pub type DeviceOut = *mut c_int;
/// `unsigned int`, `cuuint32_t`
pub type Uint = c_uint;
/// `unsigned int *`, an array of `CUpointer_attribute` or `CUjit_option`
pub type UintOut = *mut c_uint;
/// `unsigned char`
pub type Byte = u8;
/// `float *`
pub type FloatOut = *mut f32;
/// `size_t`
pub type Size = usize;
/// `size_t *`
pub type SizeOut = *mut usize;
/// `unsigned long long`
pub type Long = c_ulonglong;
/// `const void *`
pub type In = *const c_void;
/// `void *`
pub type Out = *mut c_void;
/// `void **`: written by the driver, or an array that it reads
pub type OutOut = *mut *mut c_void;
/// `const char *`
pub type Text = *const c_char;
/// `char *`
pub type TextOut = *mut c_char;
/// `const char **`
pub type Texts = *mut *const c_char;
/// `CUcontext`, `CUstream`, `CUevent`, `CUmodule`, `CUfunction`, `CUmemoryPool`: each points to
/// what only the driver knows
pub type Object = *mut c_void;
/// a pointer to one that is written
pub type ObjectOut = *mut Object;
/// `CUdeviceptr`
pub type Ptr = c_ulonglong;
/// `CUdeviceptr *`
pub type PtrOut = *mut c_ulonglong;
/// `const CUDA_MEMCPY2D *`
pub type RowsIn = *const Rows;
/// `const CUmemPoolProps *`
pub type PoolIn = *const PoolProps;
/// `CUipcMemHandle`, passed by value
pub type Ipc = IpcHandle;
/// `CUipcMemHandle *`
pub type IpcOut = *mut IpcHandle;

/// `CUDA_MEMCPY2D`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "as in cuda.h")]
pub struct Rows {
    pub source_x: Size,
    pub source_y: Size,
    pub source_type: Uint,
    pub source_host: In,
    pub source: Ptr,
    pub source_array: Object,
    pub source_pitch: Size,
    pub target_x: Size,
    pub target_y: Size,
    pub target_type: Uint,
    pub target_host: Out,
    pub target: Ptr,
    pub target_array: Object,
    pub target_pitch: Size,
    pub width: Size,
    pub height: Size,
}

/// `CUmemPoolProps`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "as in cuda.h")]
pub struct PoolProps {
    pub allocation_type: Uint,
    pub handle_types: Uint,
    pub location_type: Uint,
    pub location: Int,
    pub security: Out,
    pub max_size: Size,
    pub usage: u16,
    pub reserved: [u8; 54],
}

/// `CUipcMemHandle`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct IpcHandle {
    /// Only the driver knows what.
    pub bytes: [u8; 64],
}

/// The sizes of those three, for the test.
pub const SIZES: &[(&str, usize)] = &[
    ("CUDA_MEMCPY2D", size_of::<Rows>()),
    ("CUmemPoolProps", size_of::<PoolProps>()),
    ("CUipcMemHandle", size_of::<IpcHandle>()),
];

constants! {
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1;
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2;
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3;
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4;
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5;
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6;
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7;
    CU_DEVICE_ATTRIBUTE_MAX_PITCH = 11;
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16;
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41;
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75;
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76;
    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY = 83;
    CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED = 86;
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS = 89;
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97;
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115;
    CU_STREAM_NON_BLOCKING = 1;
    CU_STREAM_WAIT_VALUE_GEQ = 0;
    CU_EVENT_DEFAULT = 0;
    CU_EVENT_BLOCKING_SYNC = 1;
    CU_EVENT_DISABLE_TIMING = 2;
    CU_MEM_ATTACH_GLOBAL = 1;
    CU_MEMHOSTALLOC_PORTABLE = 1;
    CU_MEMHOSTALLOC_DEVICEMAP = 2;
    CU_MEMHOSTREGISTER_PORTABLE = 1;
    CU_MEMHOSTREGISTER_DEVICEMAP = 2;
    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1;
    CU_DEVICE_CPU = -1;
    CU_MEMORYTYPE_HOST = 1;
    CU_MEMORYTYPE_DEVICE = 2;
    CU_MEMORYTYPE_UNIFIED = 4;
    CU_MEM_ALLOCATION_TYPE_PINNED = 1;
    CU_MEM_HANDLE_TYPE_NONE = 0;
    CU_MEM_LOCATION_TYPE_DEVICE = 1;
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4;
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2;
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8;
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9;
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11;
    CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12;
    CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1;
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0;
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1;
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8;
    CU_JIT_MAX_REGISTERS = 0;
    CU_JIT_INFO_LOG_BUFFER = 3;
    CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4;
    CU_JIT_ERROR_LOG_BUFFER = 5;
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6;
    CU_JIT_OPTIMIZATION_LEVEL = 7;
    CU_JIT_GENERATE_DEBUG_INFO = 11;
    CU_JIT_GENERATE_LINE_INFO = 13;
}

function_table! {
    required {
        cuInit(Uint) -> Code;
        cuDriverGetVersion(IntOut) -> Code;
        cuGetErrorName(Code, Texts) -> Code;
        cuGetErrorString(Code, Texts) -> Code;
        cuDeviceGetCount(IntOut) -> Code;
        cuDeviceGet(DeviceOut, Int) -> Code;
        cuDeviceGetName(TextOut, Int, Device) -> Code;
        cuDeviceTotalMem_v2(SizeOut, Device) -> Code;
        cuDeviceGetAttribute(IntOut, Int, Device) -> Code;
        cuDeviceGetPCIBusId(TextOut, Int, Device) -> Code;
        cuDevicePrimaryCtxRetain(ObjectOut, Device) -> Code;
        cuDevicePrimaryCtxRelease_v2(Device) -> Code;
        cuCtxGetCurrent(ObjectOut) -> Code;
        cuCtxPushCurrent_v2(Object) -> Code;
        cuCtxPopCurrent_v2(ObjectOut) -> Code;
        cuCtxGetDevice(DeviceOut) -> Code;
        cuCtxSynchronize() -> Code;
        cuMemGetInfo_v2(SizeOut, SizeOut) -> Code;
        cuMemAlloc_v2(PtrOut, Size) -> Code;
        cuMemFree_v2(Ptr) -> Code;
        cuMemAllocManaged(PtrOut, Size, Uint) -> Code;
        cuMemHostAlloc(OutOut, Size, Uint) -> Code;
        cuMemFreeHost(Out) -> Code;
        cuPointerGetAttributes(Uint, UintOut, OutOut, Ptr) -> Code;
        cuMemcpyAsync(Ptr, Ptr, Size, Object) -> Code;
        cuMemcpyPeerAsync(Ptr, Object, Ptr, Object, Size, Object) -> Code;
        cuMemcpy2DAsync_v2(RowsIn, Object) -> Code;
        cuMemsetD8Async(Ptr, Byte, Size, Object) -> Code;
        cuStreamCreate(ObjectOut, Uint) -> Code;
        cuStreamDestroy_v2(Object) -> Code;
        cuStreamSynchronize(Object) -> Code;
        cuStreamQuery(Object) -> Code;
        cuStreamWaitEvent(Object, Object, Uint) -> Code;
        cuStreamGetCtx(Object, ObjectOut) -> Code;
        cuEventCreate(ObjectOut, Uint) -> Code;
        cuEventDestroy_v2(Object) -> Code;
        cuEventRecord(Object, Object) -> Code;
        cuEventQuery(Object) -> Code;
        cuEventSynchronize(Object) -> Code;
        cuEventElapsedTime(FloatOut, Object, Object) -> Code;
        cuModuleLoadDataEx(ObjectOut, In, Uint, UintOut, OutOut) -> Code;
        cuModuleUnload(Object) -> Code;
        cuModuleGetFunction(ObjectOut, Object, Text) -> Code;
        cuFuncGetAttribute(IntOut, Int, Object) -> Code;
        cuFuncSetAttribute(Object, Int, Int) -> Code;
        cuLaunchKernel(
            Object, Uint, Uint, Uint, Uint, Uint, Uint, Uint, Object, OutOut, OutOut
        ) -> Code;
    }
    optional {
        cuMemPoolCreate(ObjectOut, PoolIn) -> Code;
        cuMemPoolDestroy(Object) -> Code;
        cuMemPoolSetAttribute(Object, Int, Out) -> Code;
        cuMemPoolTrimTo(Object, Size) -> Code;
        cuMemAllocFromPoolAsync(PtrOut, Size, Object, Object) -> Code;
        cuMemFreeAsync(Ptr, Object) -> Code;
        cuStreamWaitValue32_v2(Object, Ptr, Uint, Uint) -> Code;
        cuIpcGetMemHandle(IpcOut, Ptr) -> Code;
        cuIpcOpenMemHandle_v2(PtrOut, Ipc, Uint) -> Code;
        cuIpcCloseMemHandle(Ptr) -> Code;
        cuMemHostRegister_v2(Out, Size, Uint) -> Code;
        cuMemHostUnregister(Out) -> Code;
        cuMemPrefetchAsync(Ptr, Size, Device, Object) -> Code;
        cuMemGetHandleForAddressRange(Out, Ptr, Size, Uint, Long) -> Code;
        cuFuncGetParamInfo(Object, Size, SizeOut, SizeOut) -> Code;
    }
}
