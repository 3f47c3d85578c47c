//! DLPack: tensors exported to and imported from other libraries, and the meaning of its numbers.
//!
//! A tensor is passed as a pointer to a struct that contains the function that releases it.
//! `runtime::array` tracks who owns the memory of the tensor.

use super::buf::Addr;
use crate::abi::devices::array::*;
use crate::abi::word::*;
use crate::sys::handles::epoch;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// DLDeviceType of memory that the host reads.
pub const CPU: i32 = 1;
const CUDA: i32 = 2;
const CUDA_HOST: i32 = 3;
const OPENCL: i32 = 4;
const ROCM: i32 = 10;
const ROCM_HOST: i32 = 11;
const CUDA_MANAGED: i32 = 13;

/// Number and name of each DLDeviceType.
const DEVICES: [(i32, &str); 16] = [
    (CPU, "kDLCPU"),
    (CUDA, "kDLCUDA"),
    (CUDA_HOST, "kDLCUDAHost"),
    (OPENCL, "kDLOpenCL"),
    (7, "kDLVulkan"),
    (8, "kDLMetal"),
    (9, "kDLVPI"),
    (ROCM, "kDLROCM"),
    (ROCM_HOST, "kDLROCMHost"),
    (12, "kDLExtDev"),
    (CUDA_MANAGED, "kDLCUDAManaged"),
    (14, "kDLOneAPI"),
    (15, "kDLWebGPU"),
    (16, "kDLHexagon"),
    (17, "kDLMAIA"),
    (18, "kDLTrn"),
];

/// Number, code and bits of the common dtypes. An import returns the first match.
const DTYPES: [(dtl_dtype_t, u8, u8); 16] = [
    (DTL_DTYPE_INT8, 0, 8),
    (DTL_DTYPE_INT16, 0, 16),
    (DTL_DTYPE_INT32, 0, 32),
    (DTL_DTYPE_INT64, 0, 64),
    (DTL_DTYPE_UINT8, 1, 8),
    (DTL_DTYPE_BYTE, 1, 8),
    (DTL_DTYPE_UINT16, 1, 16),
    (DTL_DTYPE_UINT32, 1, 32),
    (DTL_DTYPE_UINT64, 1, 64),
    (DTL_DTYPE_FLOAT16, 2, 16),
    (DTL_DTYPE_FLOAT32, 2, 32),
    (DTL_DTYPE_FLOAT64, 2, 64),
    (DTL_DTYPE_BFLOAT16, 4, 16),
    (DTL_DTYPE_COMPLEX64, 5, 64),
    (DTL_DTYPE_COMPLEX128, 5, 128),
    (DTL_DTYPE_BOOL, 6, 8),
];

/// Returns true if pointers name the memory of such devices. (A cl_mem names OpenCL memory.)
pub fn has_pointers(device_type: i32) -> bool {
    device_type != OPENCL
}

/// Returns the name and number of a device type, for texts.
pub fn device_name(kind: i32) -> String {
    match DEVICES.iter().find(|(number, _)| *number == kind) {
        Some((_, name)) => format!("{name} ({kind})"),
        None => format!("device type {kind}"),
    }
}

/// Returns the description of an element type, for texts.
pub fn dtype_text(dtype: dtl_dlpack_dtype_t) -> String {
    format!("code {}, {} bits, {} lanes", dtype.code, dtype.bits, dtype.lanes)
}

/// Returns the DLPack type of a dtype, or `None` if it has none.
pub fn dtype_of(dtype: dtl_dtype_t) -> Option<dtl_dlpack_dtype_t> {
    let (_, code, bits) = *DTYPES.iter().find(|(number, ..)| *number == dtype)?;
    Some(dtl_dlpack_dtype_t { code, bits, lanes: 1 })
}

/// Returns the dtype of a DLPack type, or `None` if there is none.
pub fn dtype_from(dtype: dtl_dlpack_dtype_t) -> Option<dtl_dtype_t> {
    let is_it = |(_, code, bits): &&(dtl_dtype_t, u8, u8)| {
        (*code, *bits, 1) == (dtype.code, dtype.bits, dtype.lanes)
    };
    DTYPES.iter().find(is_it).map(|found| found.0)
}

/// Returns the DLPack device of memory of a kind, on a device whose DLPack device is `device`.
pub fn placed(device: dtl_dlpack_device_t, kind: dtl_enum_word_t) -> dtl_dlpack_device_t {
    let special = match (device.device_type, kind) {
        (CUDA, DTL_MEMORY_PINNED) => CUDA_HOST,
        (CUDA, DTL_MEMORY_MANAGED) => CUDA_MANAGED,
        (ROCM, DTL_MEMORY_PINNED) => ROCM_HOST,
        _ => return device,
    };
    dtl_dlpack_device_t { device_type: special, device_id: 0 }
}

/// Location of a tensor's memory in the terms of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorLocation {
    /// DLDeviceType of the device that the memory belongs to.
    pub device_type: i32,
    /// True if the memory belongs to one device, false if to all devices of the type.
    pub is_of_one: bool,
    /// Kind of the memory.
    pub kind: dtl_enum_word_t,
}

/// Returns the location of a DLDeviceType's memory in backend terms (inverse of [`placed`]).
pub fn placed_by(device_type: i32) -> TensorLocation {
    let (device_type, is_of_one, kind) = match device_type {
        CPU => (CPU, true, DTL_MEMORY_HOST),
        CUDA_HOST => (CUDA, false, DTL_MEMORY_PINNED),
        CUDA_MANAGED => (CUDA, false, DTL_MEMORY_MANAGED),
        ROCM_HOST => (ROCM, false, DTL_MEMORY_PINNED),
        other => (other, true, DTL_MEMORY_DEVICE),
    };
    TensorLocation { device_type, is_of_one, kind }
}

/// Description of a tensor, before it has an owner.
pub struct Tensor {
    /// Address of the first element.
    pub data: Addr,
    /// Device of the memory.
    pub device: dtl_dlpack_device_t,
    /// Type of the elements.
    pub dtype: dtl_dlpack_dtype_t,
    /// Number of elements of each dimension.
    pub shape: Box<[i64]>,
    /// Stride of each dimension, in elements.
    pub strides: Box<[i64]>,
    /// True if the tensor must not be written.
    pub read_only: bool,
}

impl Tensor {
    /// Returns the C struct of the tensor; valid as long as this tensor.
    pub fn face(&self) -> dtl_dlpack_tensor_t {
        face(self.data, self.device, self.dtype, &self.shape, &self.strides)
    }
}

/// Returns the C struct of a tensor; valid as long as `shape` and `strides`, which no code may
/// write meanwhile.
pub fn face(
    data: Addr,
    device: dtl_dlpack_device_t,
    dtype: dtl_dlpack_dtype_t,
    shape: &[i64],
    strides: &[i64],
) -> dtl_dlpack_tensor_t {
    dtl_dlpack_tensor_t {
        data: data.ptr(),
        device,
        ndim: shape.len() as i32,
        dtype,
        shape: shape.as_ptr().cast_mut(),
        strides: strides.as_ptr().cast_mut(),
        byte_offset: 0,
    }
}

/// Function to call once the consumer has released the tensor, on any thread.
pub type Release = Box<dyn FnOnce() + Send>;

/// Tensor exported to a consumer. The C struct is the first field, so both have one address.
#[repr(C)]
struct Lent<M> {
    managed: M,
    tensor: Tensor,
    release: Release,
}

/// Exports a tensor. The consumer uses it until the consumer calls the deleter.
pub fn lend(tensor: Tensor, release: Release) -> *mut dtl_dlpack_versioned_t {
    let managed = dtl_dlpack_versioned_t {
        version: dtl_dlpack_version_t { major: DTL_DLPACK_MAJOR, minor: DTL_DLPACK_MINOR },
        manager_ctx: ptr::null_mut(),
        deleter: Some(delete_versioned),
        flags: if tensor.read_only { DTL_DLPACK_READ_ONLY } else { 0 },
        tensor: tensor.face(),
    };
    Box::into_raw(Box::new(Lent { managed, tensor, release })).cast()
}

/// Exports a tensor in the struct from before DLPack 1.0, which has no read-only flag.
pub fn lend_unversioned(tensor: Tensor, release: Release) -> *mut dtl_dlpack_managed_t {
    let managed = dtl_dlpack_managed_t {
        tensor: tensor.face(),
        manager_ctx: ptr::null_mut(),
        deleter: Some(delete_unversioned),
    };
    Box::into_raw(Box::new(Lent { managed, tensor, release })).cast()
}

unsafe extern "C" fn delete_versioned(managed: *mut c_void) {
    if !managed.is_null() {
        // SAFETY: by the consumer's contract: a pointer from `lend`, passed once.
        give_up(*unsafe { Box::from_raw(managed.cast::<Lent<dtl_dlpack_versioned_t>>()) });
    }
}

unsafe extern "C" fn delete_unversioned(managed: *mut c_void) {
    if !managed.is_null() {
        // SAFETY: by the consumer's contract: a pointer from `lend_unversioned`, passed once.
        give_up(*unsafe { Box::from_raw(managed.cast::<Lent<dtl_dlpack_managed_t>>()) });
    }
}

fn give_up<M>(lent: Lent<M>) {
    let _aside = epoch::aside(); // on any thread of the program
    let Lent { release, tensor, .. } = lent;
    // A deleter cannot report a failure, and no panic may unwind into its caller.
    let _ = catch_unwind(AssertUnwindSafe(release));
    drop(tensor);
}

/// Imported tensor of another library, with its deleter. The tensor is not released unless
/// [`TakenTensor::give_up`] is called.
#[derive(Clone, Copy)]
pub struct TakenTensor {
    managed: Addr,
    deleter: Option<unsafe extern "C" fn(*mut c_void)>,
}

impl TakenTensor {
    /// Creates the owner of the tensor at an address.
    ///
    /// # Safety
    /// `deleter`, called once with `managed` by any thread, releases the tensor; until then it is
    /// valid.
    pub unsafe fn new(
        managed: *mut c_void,
        deleter: Option<unsafe extern "C" fn(*mut c_void)>,
    ) -> Self {
        TakenTensor { managed: Addr::new(managed), deleter }
    }

    /// Returns true if this library exported the tensor.
    pub fn is_own(&self) -> bool {
        let ours: [unsafe extern "C" fn(*mut c_void); 2] = [delete_versioned, delete_unversioned];
        self.deleter.is_some_and(|deleter| ours.iter().any(|own| ptr::fn_addr_eq(*own, deleter)))
    }

    /// Releases the tensor. Call once, on the last copy.
    pub fn give_up(self) {
        if let Some(deleter) = self.deleter {
            // SAFETY: by the contract of `new`; the caller ensures that this is the first release.
            unsafe { deleter(self.managed.ptr()) }
        }
    }
}
