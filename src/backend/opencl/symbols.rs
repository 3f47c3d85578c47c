//! Function table of the OpenCL loader: functions looked up by name in the loaded library.
//!
//! Types and constants are those of Khronos' CL/cl.h. Their declarations are in
//! [`super::opencl_sys`], which tools/vendor_sys.py generates. Result codes remain plain integers,
//! because a driver may return a code that no enumeration lists.
//!
//! See [`super::errors`] for the conversion of result codes, and [`super::driver`] for the callers.

use super::opencl_sys as sys;
pub use super::opencl_sys::*;
use crate::backend::symbol_table::function_table;
pub use std::ffi::c_void;

function_table! {
    sys;
    required {
        clGetPlatformIDs clGetPlatformInfo clGetDeviceIDs clGetDeviceInfo clCreateContext
        clReleaseContext clCreateCommandQueue clRetainCommandQueue clReleaseCommandQueue
        clGetCommandQueueInfo clFlush clFinish clWaitForEvents clGetEventInfo
        clGetEventProfilingInfo clCreateUserEvent clSetUserEventStatus clReleaseEvent
        clEnqueueMarkerWithWaitList clEnqueueBarrierWithWaitList clCreateBuffer
        clReleaseMemObject clEnqueueMapBuffer clEnqueueUnmapMemObject clCreateProgramWithSource
        clCreateProgramWithBinary clBuildProgram clGetProgramBuildInfo clReleaseProgram
        clCreateKernel clReleaseKernel clGetKernelInfo clGetKernelArgInfo
        clGetKernelWorkGroupInfo clSetKernelArg clEnqueueNDRangeKernel
    }
    optional {
        clSetKernelArgSVMPointer clCreateProgramWithIL clSVMAlloc clSVMFree clEnqueueSVMMemcpy
        clEnqueueSVMMemFill clCreateCommandQueueWithProperties
    }
}
