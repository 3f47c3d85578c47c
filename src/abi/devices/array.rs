//! Arrays, and the structs of DLPack, with which libraries exchange arrays without copying.
//! dtl: section(ffi/memory/array)

use crate::abi::handle::dtl_backend_t;
use crate::abi::word::{dtl_dtype_t, dtl_enum_word_t};
use std::ffi::c_void;

/// Maximum number of dimensions of an array.
pub const DTL_ARRAY_MAX_NDIM: i32 = 64;

/// Flag of `dtl_array_alloc`: every byte is 0.
pub const DTL_ARRAY_ZERO: u64 = 1;
/// Flag in dtl_array_info_t: the array comes from a library that does not allow writes.
pub const DTL_ARRAY_READ_ONLY: u64 = 2;
/// Flag in dtl_array_info_t: the elements are contiguous in C order (the last index varies
/// fastest).
pub const DTL_ARRAY_CONTIGUOUS: u64 = 4;
/// Flag in dtl_array_info_t: the memory belongs to another library (`dtl_array_import`).
pub const DTL_ARRAY_IMPORTED: u64 = 8;

/// Description of an array, see `dtl_array_info`. Start from DTL_ARRAY_INFO_INIT. Its pointers are
/// valid as long as the array.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_array_info_t {
    /// sizeof(dtl_array_info_t), set by DTL_ARRAY_INFO_INIT.
    pub struct_size: u32,
    /// Number of dimensions; 0 = one element.
    pub ndim: i32,
    /// Backend that owns the memory.
    /// dtl: borrowed
    pub backend: dtl_backend_t,
    /// Device on which the memory is.
    pub device: i32,
    /// DTL_DTYPE_... or one from dtl_dtype_create.
    pub dtype: dtl_dtype_t,
    /// DTL_MEMORY_... or a registered kind.
    /// dtl: values(DTL_MEMORY_)
    pub kind: dtl_enum_word_t,
    /// DTL_ARRAY_READ_ONLY, CONTIGUOUS and IMPORTED, ORed.
    /// dtl: flags(DTL_ARRAY_READ_ONLY|DTL_ARRAY_CONTIGUOUS|DTL_ARRAY_IMPORTED)
    pub flags: u64,
    /// First element; NULL if there are no elements.
    /// dtl: borrowed len(size_bytes) opt(count==0)
    pub data: *mut c_void,
    /// `ndim` numbers of elements, one for each dimension.
    /// dtl: borrowed len(ndim)
    pub shape: *const i64,
    /// `ndim` distances in elements (not bytes) from one index of a dimension to the next.
    /// dtl: borrowed len(ndim)
    pub strides: *const i64,
    /// Number of elements.
    pub count: u64,
    /// Bytes from the first element to the end of the last one.
    pub size_bytes: u64,
    /// Number of tensors exported from the array that their consumers have not deleted yet.
    pub export_count: u64,
}

/// Major version of the DLPack structs that are exported, and the only one that is imported.
pub const DTL_DLPACK_MAJOR: u32 = 1;
/// Minor version of the DLPack structs that are exported. Every minor version is imported.
pub const DTL_DLPACK_MINOR: u32 = 0;

/// Flag in dtl_dlpack_versioned_t: the tensor must not be written. Equivalent:
/// DLPACK_FLAG_BITMASK_READ_ONLY.
pub const DTL_DLPACK_READ_ONLY: u64 = 1;

/// Device of a tensor, in the numbers of dlpack.h. Equivalent: DLDevice.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_dlpack_device_t {
    /// 1 = CPU, 2 = CUDA, 3 = page-locked memory of CUDA, 4 = OpenCL, and so on. Equivalent:
    /// DLDeviceType.
    pub device_type: i32,
    /// Number of the device among those of its type.
    pub device_id: i32,
}

/// Type of the elements of a tensor, in the numbers of dlpack.h. Equivalent: DLDataType.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_dlpack_dtype_t {
    /// 0 = signed integer, 1 = unsigned integer, 2 = IEEE 754, 4 = bfloat, 5 = complex, 6 = bool,
    /// and so on. Equivalent: DLDataTypeCode.
    pub code: u8,
    /// Bits per number.
    pub bits: u8,
    /// Numbers per element: 1, or more for vector types.
    pub lanes: u16,
}

/// Array in memory, without ownership. The layout is that of DLTensor: cast the pointer.
/// Equivalent: DLTensor.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_dlpack_tensor_t {
    /// Start of the memory.
    /// dtl: inout len(?) opt(?)
    pub data: *mut c_void,
    /// Device on which the memory is.
    pub device: dtl_dlpack_device_t,
    /// Number of dimensions.
    pub ndim: i32,
    /// Type of the elements.
    pub dtype: dtl_dlpack_dtype_t,
    /// Number of elements of each dimension.
    /// dtl: in len(ndim) opt(ndim==0)
    pub shape: *mut i64,
    /// Distances in elements; NULL = contiguous in C order. The library always sets them.
    /// dtl: in len(ndim) opt
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// Tensor with a deleter; in Python the capsule "dltensor". The layout is that of DLManagedTensor.
/// Equivalent: DLManagedTensor.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_dlpack_managed_t {
    /// The tensor.
    pub tensor: dtl_dlpack_tensor_t,
    /// Private data of the producer.
    /// dtl: opaque
    pub manager_ctx: *mut c_void,
    /// Deletes the tensor: its consumer calls it once with the address of this struct. NULL =
    /// nothing to do.
    /// dtl: opt
    pub deleter: Option<unsafe extern "C" fn(managed: *mut c_void)>,
}

/// Version of a DLPack struct. Equivalent: DLPackVersion.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_dlpack_version_t {
    /// Major version. If it differs, the fields from `flags` on may differ too.
    pub major: u32,
    /// Minor version. A higher one only adds values.
    pub minor: u32,
}

/// Tensor with a deleter, since DLPack 1.0; in Python the capsule "dltensor_versioned". The layout
/// is that of DLManagedTensorVersioned. Equivalent: DLManagedTensorVersioned.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_dlpack_versioned_t {
    /// Version of this struct.
    pub version: dtl_dlpack_version_t,
    /// Private data of the producer.
    /// dtl: opaque
    pub manager_ctx: *mut c_void,
    /// Deletes the tensor: its consumer calls it once with the address of this struct. NULL =
    /// nothing to do.
    /// dtl: opt
    pub deleter: Option<unsafe extern "C" fn(managed: *mut c_void)>,
    /// DTL_DLPACK_READ_ONLY and other flags of dlpack.h, ORed.
    /// dtl: flags(DTL_DLPACK_READ_ONLY)
    pub flags: u64,
    /// The tensor.
    pub tensor: dtl_dlpack_tensor_t,
}
