//! Arrays, and DLPack's structs: how libraries hand each other arrays without copying.
//! dtl: section(ffi/memory/array)

use crate::abi::handle::dtl_backend_t;
use crate::abi::word::{dtl_dtype_t, dtl_enum_word_t};
use std::ffi::c_void;

/// Most dimensions of an array.
pub const DTL_ARRAY_MAX_NDIM: i32 = 64;

/// Flag of `dtl_array_alloc`: every byte is 0.
pub const DTL_ARRAY_ZERO: u64 = 1;
/// Told by `dtl_array_info`: it came from a library that does not want it written.
pub const DTL_ARRAY_READ_ONLY: u64 = 2;
/// Told by `dtl_array_info`: its elements lie one after the other, the last dimension's together
/// (C's order).
pub const DTL_ARRAY_CONTIGUOUS: u64 = 4;
/// Told by `dtl_array_info`: its memory is another library's (`dtl_array_import`).
pub const DTL_ARRAY_IMPORTED: u64 = 8;

/// What `dtl_array_info` tells. Start from DTL_ARRAY_INFO_INIT. Its pointers are valid as long as
/// the array.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_array_info_t {
    /// sizeof(dtl_array_info_t), set by DTL_ARRAY_INFO_INIT.
    pub struct_size: u32,
    /// Number of dimensions; 0 = one element.
    pub ndim: i32,
    /// The backend whose memory it is.
    /// dtl: borrowed
    pub backend: dtl_backend_t,
    /// The device that the memory is on.
    pub device: i32,
    /// DTL_DTYPE_... or one of dtl_dtype_create.
    pub dtype: dtl_dtype_t,
    /// DTL_MEMORY_... or a registered kind.
    /// dtl: values(DTL_MEMORY_)
    pub kind: dtl_enum_word_t,
    /// DTL_ARRAY_READ_ONLY, CONTIGUOUS, IMPORTED, ored.
    /// dtl: flags(DTL_ARRAY_READ_ONLY|DTL_ARRAY_CONTIGUOUS|DTL_ARRAY_IMPORTED)
    pub flags: u64,
    /// Its first element; NULL if it has none.
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
    /// Tensors exported from it that their consumers have not given up yet.
    pub export_count: u64,
}

/// The version of DLPack's structs that exports have, and the only major version that is imported.
pub const DTL_DLPACK_MAJOR: u32 = 1;
/// ... its minor part. Others are imported, too.
pub const DTL_DLPACK_MINOR: u32 = 0;

/// In `flags` of a dtl_dlpack_versioned_t: it must not be written. Equivalent:
/// DLPACK_FLAG_BITMASK_READ_ONLY.
pub const DTL_DLPACK_READ_ONLY: u64 = 1;

/// Where a tensor is, in the numbers of dlpack.h. Equivalent: DLDevice.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_dlpack_device_t {
    /// 1 = CPU, 2 = CUDA, 3 = page-locked memory of CUDA, 4 = OpenCL ... Equivalent: DLDeviceType.
    pub device_type: i32,
    /// Number of the device among those of its type.
    pub device_id: i32,
}

/// What elements are, in the numbers of dlpack.h. Equivalent: DLDataType.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_dlpack_dtype_t {
    /// 0 = signed, 1 = unsigned integer, 2 = IEEE 754, 4 = bfloat, 5 = complex, 6 = bool ...
    /// Equivalent: DLDataTypeCode.
    pub code: u8,
    /// Bits of an element.
    pub bits: u8,
    /// Numbers in an element: 1, or more for vector types.
    pub lanes: u16,
}

/// An array as it lies in memory; owns nothing. Equivalent: DLTensor, with the same layout: cast
/// the pointer.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_dlpack_tensor_t {
    /// The memory.
    /// dtl: inout len(?) opt(?)
    pub data: *mut c_void,
    /// Where that is.
    pub device: dtl_dlpack_device_t,
    /// Number of dimensions.
    pub ndim: i32,
    /// What its elements are.
    pub dtype: dtl_dlpack_dtype_t,
    /// Elements of each dimension.
    /// dtl: in len(ndim) opt(ndim==0)
    pub shape: *mut i64,
    /// Distances in elements; NULL = C's order without gaps (the library always gives them).
    /// dtl: in len(ndim) opt
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// A tensor with what gives it up. Equivalent: DLManagedTensor, with the same layout. In Python the
/// capsule "dltensor".
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_dlpack_managed_t {
    /// The tensor.
    pub tensor: dtl_dlpack_tensor_t,
    /// Whatever its producer needs.
    /// dtl: opaque
    pub manager_ctx: *mut c_void,
    /// Gives it up: called once with the struct's own address, by its consumer; NULL = there is
    /// nothing to do.
    /// dtl: opt
    pub deleter: Option<unsafe extern "C" fn(managed: *mut c_void)>,
}

/// DLPack's version. Equivalent: DLPackVersion.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_dlpack_version_t {
    /// Another one: the struct may be different from `flags` on.
    pub major: u32,
    /// Higher ones only add meanings.
    pub minor: u32,
}

/// A tensor with what gives it up, from DLPack 1.0 on. Equivalent: DLManagedTensorVersioned, with
/// the same layout. In Python the capsule "dltensor_versioned".
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_dlpack_versioned_t {
    /// Which struct this is.
    pub version: dtl_dlpack_version_t,
    /// Whatever its producer needs.
    /// dtl: opaque
    pub manager_ctx: *mut c_void,
    /// Gives it up: called once with the struct's own address, by its consumer; NULL = there is
    /// nothing to do.
    /// dtl: opt
    pub deleter: Option<unsafe extern "C" fn(managed: *mut c_void)>,
    /// DTL_DLPACK_READ_ONLY and dlpack.h's others, ored.
    /// dtl: flags(DTL_DLPACK_READ_ONLY)
    pub flags: u64,
    /// The tensor.
    pub tensor: dtl_dlpack_tensor_t,
}
