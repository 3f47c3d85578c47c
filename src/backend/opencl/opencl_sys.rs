//! Declarations of CL/cl_ext.h that are used here.
//!
//! Written by tools/vendor_sys.py: do not edit.

#![allow(missing_docs, reason = "as in the C header")]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "as in C")]

use std::ffi::{c_char, c_uchar, c_void};

pub type cl_int = i32;
pub type cl_uint = u32;
pub type cl_ulong = u64;
pub type cl_platform_id = *mut c_void;
pub type cl_device_id = *mut c_void;
pub type cl_context = *mut c_void;
pub type cl_command_queue = *mut c_void;
pub type cl_mem = *mut c_void;
pub type cl_program = *mut c_void;
pub type cl_kernel = *mut c_void;
pub type cl_event = *mut c_void;
pub type cl_context_properties = isize;
pub const CL_DEVICE_NOT_FOUND: i32 = -1;
pub const CL_DEVICE_NOT_AVAILABLE: i32 = -2;
pub const CL_COMPILER_NOT_AVAILABLE: i32 = -3;
pub const CL_MEM_OBJECT_ALLOCATION_FAILURE: i32 = -4;
pub const CL_OUT_OF_RESOURCES: i32 = -5;
pub const CL_OUT_OF_HOST_MEMORY: i32 = -6;
pub const CL_PROFILING_INFO_NOT_AVAILABLE: i32 = -7;
pub const CL_MEM_COPY_OVERLAP: i32 = -8;
pub const CL_BUILD_PROGRAM_FAILURE: i32 = -11;
pub const CL_MAP_FAILURE: i32 = -12;
pub const CL_MISALIGNED_SUB_BUFFER_OFFSET: i32 = -13;
pub const CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST: i32 = -14;
pub const CL_KERNEL_ARG_INFO_NOT_AVAILABLE: i32 = -19;
pub const CL_INVALID_VALUE: i32 = -30;
pub const CL_INVALID_DEVICE_TYPE: i32 = -31;
pub const CL_INVALID_PLATFORM: i32 = -32;
pub const CL_INVALID_DEVICE: i32 = -33;
pub const CL_INVALID_CONTEXT: i32 = -34;
pub const CL_INVALID_QUEUE_PROPERTIES: i32 = -35;
pub const CL_INVALID_COMMAND_QUEUE: i32 = -36;
pub const CL_INVALID_MEM_OBJECT: i32 = -38;
pub const CL_INVALID_BINARY: i32 = -42;
pub const CL_INVALID_BUILD_OPTIONS: i32 = -43;
pub const CL_INVALID_PROGRAM: i32 = -44;
pub const CL_INVALID_PROGRAM_EXECUTABLE: i32 = -45;
pub const CL_INVALID_KERNEL_NAME: i32 = -46;
pub const CL_INVALID_KERNEL_DEFINITION: i32 = -47;
pub const CL_INVALID_KERNEL: i32 = -48;
pub const CL_INVALID_ARG_INDEX: i32 = -49;
pub const CL_INVALID_ARG_VALUE: i32 = -50;
pub const CL_INVALID_ARG_SIZE: i32 = -51;
pub const CL_INVALID_KERNEL_ARGS: i32 = -52;
pub const CL_INVALID_WORK_DIMENSION: i32 = -53;
pub const CL_INVALID_WORK_GROUP_SIZE: i32 = -54;
pub const CL_INVALID_WORK_ITEM_SIZE: i32 = -55;
pub const CL_INVALID_EVENT_WAIT_LIST: i32 = -57;
pub const CL_INVALID_EVENT: i32 = -58;
pub const CL_INVALID_OPERATION: i32 = -59;
pub const CL_INVALID_BUFFER_SIZE: i32 = -61;
pub const CL_INVALID_GLOBAL_WORK_SIZE: i32 = -63;
pub const CL_FALSE: u32 = 0;
pub const CL_TRUE: u32 = 1;
pub const CL_PLATFORM_NAME: u32 = 2306;
pub const CL_DEVICE_TYPE_CPU: u32 = 2;
pub const CL_DEVICE_TYPE_GPU: u32 = 4;
pub const CL_DEVICE_TYPE_ALL: u32 = 4294967295;
pub const CL_DEVICE_TYPE: u32 = 4096;
pub const CL_DEVICE_MAX_COMPUTE_UNITS: u32 = 4098;
pub const CL_DEVICE_MAX_WORK_GROUP_SIZE: u32 = 4100;
pub const CL_DEVICE_MAX_WORK_ITEM_SIZES: u32 = 4101;
pub const CL_DEVICE_MAX_MEM_ALLOC_SIZE: u32 = 4112;
pub const CL_DEVICE_GLOBAL_MEM_SIZE: u32 = 4127;
pub const CL_DEVICE_LOCAL_MEM_SIZE: u32 = 4131;
pub const CL_DEVICE_NAME: u32 = 4139;
pub const CL_DEVICE_EXTENSIONS: u32 = 4144;
pub const CL_DEVICE_SVM_CAPABILITIES: u32 = 4179;
pub const CL_DEVICE_IL_VERSION: u32 = 4187;
pub const CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE: u32 = 1;
pub const CL_QUEUE_PROFILING_ENABLE: u32 = 2;
pub const CL_CONTEXT_PLATFORM: u32 = 4228;
pub const CL_DEVICE_SVM_COARSE_GRAIN_BUFFER: u32 = 1;
pub const CL_DEVICE_SVM_FINE_GRAIN_BUFFER: u32 = 2;
pub const CL_DEVICE_SVM_ATOMICS: u32 = 8;
pub const CL_QUEUE_CONTEXT: u32 = 4240;
pub const CL_QUEUE_DEVICE: u32 = 4241;
pub const CL_QUEUE_PROPERTIES: u32 = 4243;
pub const CL_MEM_READ_WRITE: u32 = 1;
pub const CL_MEM_ALLOC_HOST_PTR: u32 = 16;
pub const CL_MEM_SVM_FINE_GRAIN_BUFFER: u32 = 1024;
pub const CL_MEM_SVM_ATOMICS: u32 = 2048;
pub const CL_MAP_READ: u32 = 1;
pub const CL_MAP_WRITE: u32 = 2;
pub const CL_PROGRAM_BUILD_LOG: u32 = 4483;
pub const CL_KERNEL_NUM_ARGS: u32 = 4497;
pub const CL_KERNEL_ARG_ADDRESS_QUALIFIER: u32 = 4502;
pub const CL_KERNEL_ARG_ACCESS_QUALIFIER: u32 = 4503;
pub const CL_KERNEL_ARG_TYPE_NAME: u32 = 4504;
pub const CL_KERNEL_ARG_ADDRESS_LOCAL: u32 = 4508;
pub const CL_KERNEL_ARG_ADDRESS_PRIVATE: u32 = 4510;
pub const CL_KERNEL_ARG_ACCESS_NONE: u32 = 4515;
pub const CL_KERNEL_WORK_GROUP_SIZE: u32 = 4528;
pub const CL_KERNEL_LOCAL_MEM_SIZE: u32 = 4530;
pub const CL_EVENT_COMMAND_EXECUTION_STATUS: u32 = 4563;
pub const CL_COMPLETE: u32 = 0;
pub const CL_PROFILING_COMMAND_END: u32 = 4739;
pub const CL_PLATFORM_NOT_FOUND_KHR: i32 = -1001;
pub const CL_QUEUE_PRIORITY_KHR: u32 = 4246;
pub const CL_QUEUE_PRIORITY_HIGH_KHR: u32 = 1;
pub const CL_QUEUE_PRIORITY_LOW_KHR: u32 = 4;
pub type clGetPlatformIDs = unsafe extern "C" fn(cl_uint, *mut cl_platform_id, *mut cl_uint)
    -> cl_int;
pub type clGetPlatformInfo = unsafe extern "C" fn(cl_platform_id, cl_uint, usize, *mut c_void,
    *mut usize) -> cl_int;
pub type clGetDeviceIDs = unsafe extern "C" fn(cl_platform_id, cl_ulong, cl_uint, *mut cl_device_id,
    *mut cl_uint) -> cl_int;
pub type clGetDeviceInfo = unsafe extern "C" fn(cl_device_id, cl_uint, usize, *mut c_void,
    *mut usize) -> cl_int;
pub type clCreateContext = unsafe extern "C" fn(*const cl_context_properties, cl_uint,
    *const cl_device_id, Option<unsafe extern "C" fn(*const c_char, *const c_void, usize,
    *mut c_void)>, *mut c_void, *mut cl_int) -> cl_context;
pub type clReleaseContext = unsafe extern "C" fn(cl_context) -> cl_int;
pub type clCreateCommandQueue = unsafe extern "C" fn(cl_context, cl_device_id, cl_ulong,
    *mut cl_int) -> cl_command_queue;
pub type clRetainCommandQueue = unsafe extern "C" fn(cl_command_queue) -> cl_int;
pub type clReleaseCommandQueue = unsafe extern "C" fn(cl_command_queue) -> cl_int;
pub type clGetCommandQueueInfo = unsafe extern "C" fn(cl_command_queue, cl_uint, usize, *mut c_void,
    *mut usize) -> cl_int;
pub type clFlush = unsafe extern "C" fn(cl_command_queue) -> cl_int;
pub type clFinish = unsafe extern "C" fn(cl_command_queue) -> cl_int;
pub type clWaitForEvents = unsafe extern "C" fn(cl_uint, *const cl_event) -> cl_int;
pub type clGetEventInfo = unsafe extern "C" fn(cl_event, cl_uint, usize, *mut c_void, *mut usize)
    -> cl_int;
pub type clGetEventProfilingInfo = unsafe extern "C" fn(cl_event, cl_uint, usize, *mut c_void,
    *mut usize) -> cl_int;
pub type clCreateUserEvent = unsafe extern "C" fn(cl_context, *mut cl_int) -> cl_event;
pub type clSetUserEventStatus = unsafe extern "C" fn(cl_event, cl_int) -> cl_int;
pub type clReleaseEvent = unsafe extern "C" fn(cl_event) -> cl_int;
pub type clEnqueueMarkerWithWaitList = unsafe extern "C" fn(cl_command_queue, cl_uint,
    *const cl_event, *mut cl_event) -> cl_int;
pub type clEnqueueBarrierWithWaitList = unsafe extern "C" fn(cl_command_queue, cl_uint,
    *const cl_event, *mut cl_event) -> cl_int;
pub type clCreateBuffer = unsafe extern "C" fn(cl_context, cl_ulong, usize, *mut c_void,
    *mut cl_int) -> cl_mem;
pub type clReleaseMemObject = unsafe extern "C" fn(cl_mem) -> cl_int;
pub type clEnqueueMapBuffer = unsafe extern "C" fn(cl_command_queue, cl_mem, cl_uint, cl_ulong,
    usize, usize, cl_uint, *const cl_event, *mut cl_event, *mut cl_int) -> *mut c_void;
pub type clEnqueueUnmapMemObject = unsafe extern "C" fn(cl_command_queue, cl_mem, *mut c_void,
    cl_uint, *const cl_event, *mut cl_event) -> cl_int;
pub type clCreateProgramWithSource = unsafe extern "C" fn(cl_context, cl_uint, *mut *const c_char,
    *const usize, *mut cl_int) -> cl_program;
pub type clCreateProgramWithBinary = unsafe extern "C" fn(cl_context, cl_uint, *const cl_device_id,
    *const usize, *mut *const c_uchar, *mut cl_int, *mut cl_int) -> cl_program;
pub type clBuildProgram = unsafe extern "C" fn(cl_program, cl_uint, *const cl_device_id,
    *const c_char, Option<unsafe extern "C" fn(cl_program, *mut c_void)>, *mut c_void) -> cl_int;
pub type clGetProgramBuildInfo = unsafe extern "C" fn(cl_program, cl_device_id, cl_uint, usize,
    *mut c_void, *mut usize) -> cl_int;
pub type clReleaseProgram = unsafe extern "C" fn(cl_program) -> cl_int;
pub type clCreateKernel = unsafe extern "C" fn(cl_program, *const c_char, *mut cl_int) -> cl_kernel;
pub type clReleaseKernel = unsafe extern "C" fn(cl_kernel) -> cl_int;
pub type clGetKernelInfo = unsafe extern "C" fn(cl_kernel, cl_uint, usize, *mut c_void, *mut usize)
    -> cl_int;
pub type clGetKernelArgInfo = unsafe extern "C" fn(cl_kernel, cl_uint, cl_uint, usize, *mut c_void,
    *mut usize) -> cl_int;
pub type clGetKernelWorkGroupInfo = unsafe extern "C" fn(cl_kernel, cl_device_id, cl_uint, usize,
    *mut c_void, *mut usize) -> cl_int;
pub type clSetKernelArg = unsafe extern "C" fn(cl_kernel, cl_uint, usize, *const c_void) -> cl_int;
pub type clEnqueueNDRangeKernel = unsafe extern "C" fn(cl_command_queue, cl_kernel, cl_uint,
    *const usize, *const usize, *const usize, cl_uint, *const cl_event, *mut cl_event) -> cl_int;
pub type clSetKernelArgSVMPointer = unsafe extern "C" fn(cl_kernel, cl_uint, *const c_void)
    -> cl_int;
pub type clCreateProgramWithIL = unsafe extern "C" fn(cl_context, *const c_void, usize, *mut cl_int)
    -> cl_program;
pub type clSVMAlloc = unsafe extern "C" fn(cl_context, cl_ulong, usize, cl_uint) -> *mut c_void;
pub type clSVMFree = unsafe extern "C" fn(cl_context, *mut c_void);
pub type clEnqueueSVMMemcpy = unsafe extern "C" fn(cl_command_queue, cl_uint, *mut c_void,
    *const c_void, usize, cl_uint, *const cl_event, *mut cl_event) -> cl_int;
pub type clEnqueueSVMMemFill = unsafe extern "C" fn(cl_command_queue, *mut c_void, *const c_void,
    usize, usize, cl_uint, *const cl_event, *mut cl_event) -> cl_int;
pub type clCreateCommandQueueWithProperties = unsafe extern "C" fn(cl_context, cl_device_id,
    *const cl_ulong, *mut cl_int) -> cl_command_queue;
