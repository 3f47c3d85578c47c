//! OpenCL's functions, found by name in the loader that was opened; its types and the constants
//! that are used.
//!
//! Types and values are those of Khronos' CL/cl.h; `tests/opencl_constants.rs` has the C compiler
//! compare them. Results stay plain integers: a driver may answer codes that no list knows.
//!
//! Where next: [`super::errors`] for what the results mean, [`super::driver`] for who calls.

pub use crate::backend::symbol_table::Function;
use crate::backend::symbol_table::{constants, function_table};
use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

/// `cl_int`
pub type Int = i32;
/// `cl_int *`
pub type IntOut = *mut i32;
/// `cl_uint`
pub type Uint = u32;
/// `cl_uint *`
pub type UintOut = *mut u32;
/// `cl_bitfield` and what is one: `cl_device_type`, `cl_svm_mem_flags`,
/// `cl_command_queue_properties`
pub type Bits = u64;
/// `size_t`
pub type Size = usize;
/// `size_t *`
pub type SizeOut = *mut usize;
/// `const size_t *`, an array
pub type Sizes = *const usize;
/// `const char *`
pub type Text = *const c_char;
/// `const char **`, `const unsigned char **`
pub type Texts = *const *const c_char;
/// `const void *`
pub type In = *const c_void;
/// `void *`
pub type Out = *mut c_void;
/// `cl_platform_id`, `cl_device_id`, `cl_context`, `cl_command_queue`, `cl_event`: each points to
/// what only the driver knows
pub type Object = *mut c_void;
/// an array of them that is read
pub type Objects = *const Object;
/// an array of them that is written
pub type ObjectsOut = *mut Object;
/// `const cl_context_properties *`
pub type Properties = *const isize;
/// what clCreateContext calls to tell of errors; none is passed
pub type Notify = Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>;
/// what clBuildProgram calls when it is done; none is passed, so it returns then
pub type Built = Option<unsafe extern "C" fn(Object, *mut c_void)>;

const _: () =
    assert!(size_of::<c_int>() == 4 && size_of::<c_uint>() == 4 && size_of::<c_ulong>() == 8);

constants! {
    CL_TRUE = 1;
    CL_FALSE = 0;
    CL_COMPLETE = 0;
    CL_DEVICE_TYPE_CPU = 2;
    CL_DEVICE_TYPE_GPU = 4;
    CL_DEVICE_TYPE_ALL = 0xFFFF_FFFF;
    CL_PLATFORM_NAME = 0x0902;
    CL_DEVICE_TYPE = 0x1000;
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002;
    CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004;
    CL_DEVICE_MAX_WORK_ITEM_SIZES = 0x1005;
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010;
    CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F;
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023;
    CL_DEVICE_NAME = 0x102B;
    CL_DEVICE_SVM_CAPABILITIES = 0x1053;
    CL_DEVICE_IL_VERSION = 0x105B;
    CL_DEVICE_SVM_COARSE_GRAIN_BUFFER = 1;
    CL_DEVICE_SVM_FINE_GRAIN_BUFFER = 2;
    CL_DEVICE_SVM_ATOMICS = 8;
    CL_CONTEXT_PLATFORM = 0x1084;
    CL_QUEUE_CONTEXT = 0x1090;
    CL_QUEUE_DEVICE = 0x1091;
    CL_QUEUE_PROPERTIES = 0x1093;
    CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE = 1;
    CL_QUEUE_PROFILING_ENABLE = 2;
    CL_MEM_READ_WRITE = 1;
    CL_MEM_ALLOC_HOST_PTR = 1 << 4;
    CL_MEM_SVM_FINE_GRAIN_BUFFER = 1 << 10;
    CL_MEM_SVM_ATOMICS = 1 << 11;
    CL_MAP_READ = 1;
    CL_MAP_WRITE = 2;
    CL_PROGRAM_BUILD_LOG = 0x1183;
    CL_KERNEL_NUM_ARGS = 0x1191;
    CL_KERNEL_ARG_ADDRESS_QUALIFIER = 0x1196;
    CL_KERNEL_ARG_ACCESS_QUALIFIER = 0x1197;
    CL_KERNEL_ARG_TYPE_NAME = 0x1198;
    CL_KERNEL_ARG_ADDRESS_LOCAL = 0x119C;
    CL_KERNEL_ARG_ADDRESS_PRIVATE = 0x119E;
    CL_KERNEL_ARG_ACCESS_NONE = 0x11A3;
    CL_KERNEL_WORK_GROUP_SIZE = 0x11B0;
    CL_KERNEL_LOCAL_MEM_SIZE = 0x11B2;
    CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3;
    CL_PROFILING_COMMAND_END = 0x1283;
}

function_table! {
    required {
        clGetPlatformIDs(Uint, ObjectsOut, UintOut) -> Int;
        clGetPlatformInfo(Object, Uint, Size, Out, SizeOut) -> Int;
        clGetDeviceIDs(Object, Bits, Uint, ObjectsOut, UintOut) -> Int;
        clGetDeviceInfo(Object, Uint, Size, Out, SizeOut) -> Int;
        clCreateContext(Properties, Uint, Objects, Notify, Out, IntOut) -> Object;
        clReleaseContext(Object) -> Int;
        clCreateCommandQueue(Object, Object, Bits, IntOut) -> Object;
        clRetainCommandQueue(Object) -> Int;
        clReleaseCommandQueue(Object) -> Int;
        clGetCommandQueueInfo(Object, Uint, Size, Out, SizeOut) -> Int;
        clFlush(Object) -> Int;
        clFinish(Object) -> Int;
        clWaitForEvents(Uint, Objects) -> Int;
        clGetEventInfo(Object, Uint, Size, Out, SizeOut) -> Int;
        clGetEventProfilingInfo(Object, Uint, Size, Out, SizeOut) -> Int;
        clCreateUserEvent(Object, IntOut) -> Object;
        clSetUserEventStatus(Object, Int) -> Int;
        clReleaseEvent(Object) -> Int;
        clEnqueueMarkerWithWaitList(Object, Uint, Objects, ObjectsOut) -> Int;
        clEnqueueBarrierWithWaitList(Object, Uint, Objects, ObjectsOut) -> Int;
        clCreateBuffer(Object, Bits, Size, Out, IntOut) -> Object;
        clReleaseMemObject(Object) -> Int;
        clEnqueueMapBuffer(Object, Object, Uint, Bits, Size, Size, Uint, Objects, ObjectsOut,
            IntOut) -> Out;
        clEnqueueUnmapMemObject(Object, Object, Out, Uint, Objects, ObjectsOut) -> Int;
        clCreateProgramWithSource(Object, Uint, Texts, Sizes, IntOut) -> Object;
        clCreateProgramWithBinary(Object, Uint, Objects, Sizes, Texts, IntOut, IntOut) -> Object;
        clBuildProgram(Object, Uint, Objects, Text, Built, Out) -> Int;
        clGetProgramBuildInfo(Object, Object, Uint, Size, Out, SizeOut) -> Int;
        clReleaseProgram(Object) -> Int;
        clCreateKernel(Object, Text, IntOut) -> Object;
        clReleaseKernel(Object) -> Int;
        clGetKernelInfo(Object, Uint, Size, Out, SizeOut) -> Int;
        clGetKernelArgInfo(Object, Uint, Uint, Size, Out, SizeOut) -> Int;
        clGetKernelWorkGroupInfo(Object, Object, Uint, Size, Out, SizeOut) -> Int;
        clSetKernelArg(Object, Uint, Size, In) -> Int;
        clEnqueueNDRangeKernel(Object, Object, Uint, Sizes, Sizes, Sizes, Uint, Objects,
            ObjectsOut) -> Int;
    }
    optional {
        clSetKernelArgSVMPointer(Object, Uint, In) -> Int;
        clCreateProgramWithIL(Object, In, Size, IntOut) -> Object;
        clSVMAlloc(Object, Bits, Size, Uint) -> Out;
        clSVMFree(Object, Out) -> Empty;
        clEnqueueSVMMemcpy(Object, Uint, Out, In, Size, Uint, Objects, ObjectsOut) -> Int;
        clEnqueueSVMMemFill(Object, Out, In, Size, Size, Uint, Objects, ObjectsOut) -> Int;
    }
}

/// `void`, as a result
pub type Empty = ();
