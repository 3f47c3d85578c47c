//! DLPack: tensors lent to other libraries and taken from them, and the meaning of its numbers.
//!
//! A tensor crosses as a pointer to a struct with the function that releases it. `runtime::array`
//! tracks who owns the memory behind it.

use super::buf::Addr;
use crate::abi::devices::array::*;
use crate::abi::word::*;
use crate::sys::handles::epoch;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// DLDeviceType: memory that the host reads.
pub const CPU: i32 = 1;
const CUDA: i32 = 2;
const CUDA_HOST: i32 = 3;
const OPENCL: i32 = 4;
const ROCM: i32 = 10;
const ROCM_HOST: i32 = 11;
const CUDA_MANAGED: i32 = 13;

/// DLDeviceType's names.
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

/// Number, code and bits of the common dtypes. Of two with equal code and bits the first is
/// imported.
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

/// Whether memory of such devices is named by pointers. (OpenCL's is by a cl_mem.)
#[must_use]
pub fn has_pointers(device_type: i32) -> bool {
    device_type != OPENCL
}

/// A type of device in words.
#[must_use]
pub fn device_name(kind: i32) -> String {
    match DEVICES.iter().find(|(number, _)| *number == kind) {
        Some((_, name)) => format!("{name} ({kind})"),
        None => format!("device type {kind}"),
    }
}

/// An element type in words.
#[must_use]
pub fn dtype_text(dtype: dtl_dlpack_dtype_t) -> String {
    format!("code {}, {} bits, {} lanes", dtype.code, dtype.bits, dtype.lanes)
}

/// DLPack's words for a dtype, if it has any.
#[must_use]
pub fn dtype_of(dtype: dtl_dtype_t) -> Option<dtl_dlpack_dtype_t> {
    let (_, code, bits) = *DTYPES.iter().find(|(number, ..)| *number == dtype)?;
    Some(dtl_dlpack_dtype_t { code, bits, lanes: 1 })
}

/// The dtype of DLPack's words, if there is one.
#[must_use]
pub fn dtype_from(dtype: dtl_dlpack_dtype_t) -> Option<dtl_dtype_t> {
    let is_it = |(_, code, bits): &&(dtl_dtype_t, u8, u8)| {
        (*code, *bits, 1) == (dtype.code, dtype.bits, dtype.lanes)
    };
    DTYPES.iter().find(is_it).map(|found| found.0)
}

/// Where memory of a kind is, on a device that DLPack calls `device`.
#[must_use]
pub fn placed(device: dtl_dlpack_device_t, kind: dtl_enum_word_t) -> dtl_dlpack_device_t {
    let special = match (device.device_type, kind) {
        (CUDA, DTL_MEMORY_PINNED) => CUDA_HOST,
        (CUDA, DTL_MEMORY_MANAGED) => CUDA_MANAGED,
        (ROCM, DTL_MEMORY_PINNED) => ROCM_HOST,
        _ => return device,
    };
    dtl_dlpack_device_t { device_type: special, device_id: 0 }
}

/// Memory of a tensor as a backend has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorLocation {
    /// DLDeviceType of the device that it belongs to.
    pub device_type: i32,
    /// Whether it is of one device, and not of all.
    pub is_of_one: bool,
    /// Its kind.
    pub kind: dtl_enum_word_t,
}

/// The other way.
#[must_use]
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
    /// Its first element.
    pub data: Addr,
    /// Where that is.
    pub device: dtl_dlpack_device_t,
    /// Type of its elements.
    pub dtype: dtl_dlpack_dtype_t,
    /// Elements of each dimension.
    pub shape: Box<[i64]>,
    /// Distances in elements.
    pub strides: Box<[i64]>,
    /// Whether it must not be written.
    pub read_only: bool,
}

impl Tensor {
    /// As C sees it; valid as long as this is.
    #[must_use]
    pub fn face(&self) -> dtl_dlpack_tensor_t {
        face(self.data, self.device, self.dtype, &self.shape, &self.strides)
    }
}

/// A tensor as C sees it; valid as long as its shape and strides are, which nobody may write.
#[must_use]
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

/// A tensor at its consumer's. The struct that C sees comes first, so both have one address.
#[repr(C)]
struct Lent<M> {
    managed: M,
    tensor: Tensor,
    release: Release,
}

/// Lends a tensor out. The consumer has it until it calls the deleter.
#[must_use]
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

/// Lends a tensor out in the struct from before DLPack 1.0, which has no read-only flag.
#[must_use]
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
        // SAFETY: the consumer's contract: what `lend` gave, once.
        give_up(*unsafe { Box::from_raw(managed.cast::<Lent<dtl_dlpack_versioned_t>>()) });
    }
}

unsafe extern "C" fn delete_unversioned(managed: *mut c_void) {
    if !managed.is_null() {
        // SAFETY: the consumer's contract: what `lend_unversioned` gave, once.
        give_up(*unsafe { Box::from_raw(managed.cast::<Lent<dtl_dlpack_managed_t>>()) });
    }
}

fn give_up<M>(lent: Lent<M>) {
    let _aside = epoch::aside(); // on any thread of the program
    let Lent { release, tensor, .. } = lent;
    // A deleter has nobody to report to, and nothing may unwind into its caller.
    let _ = catch_unwind(AssertUnwindSafe(release));
    drop(tensor);
}

/// A tensor of another library: what gives it up. Nothing happens unless [`Taken::give_up`] is
/// called.
#[derive(Clone, Copy)]
pub struct TakenTensor {
    managed: Addr,
    deleter: Option<unsafe extern "C" fn(*mut c_void)>,
}

impl TakenTensor {
    /// A tensor at this address.
    ///
    /// # Safety
    /// `deleter`, called once with `managed` by any thread, gives the tensor up; until then its
    /// memory is there.
    #[must_use]
    pub unsafe fn new(
        managed: *mut c_void,
        deleter: Option<unsafe extern "C" fn(*mut c_void)>,
    ) -> Self {
        TakenTensor { managed: Addr::new(managed), deleter }
    }

    /// Whether it was lent by this library.
    #[must_use]
    pub fn is_own(&self) -> bool {
        let ours: [unsafe extern "C" fn(*mut c_void); 2] = [delete_versioned, delete_unversioned];
        self.deleter.is_some_and(|deleter| ours.iter().any(|own| ptr::fn_addr_eq(*own, deleter)))
    }

    /// Releases the tensor. Call once, on the last copy.
    pub fn give_up(self) {
        if let Some(deleter) = self.deleter {
            // SAFETY: by the contract of `new`; the caller sees to it that nobody did it before.
            unsafe { deleter(self.managed.ptr()) }
        }
    }
}
