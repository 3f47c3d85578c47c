//! Conversion between DLPack's device and element type codes and the library's memory kinds and
//! dtypes.

use crate::abi::devices::array::{dtl_dlpack_device_t, dtl_dlpack_dtype_t};
use crate::abi::word::*;

/// DLDeviceType of host memory (kDLCPU).
pub(super) const CPU: i32 = 1;
/// DLDeviceType of memory that is addressed by an object handle, not by a pointer (kDLOpenCL).
const BY_OBJECT: i32 = 4;

/// Number and name of each DLDeviceType, the DLDeviceType of the device that owns the memory, and
/// the kind of the memory.
const DEVICES: [(i32, &str, i32, dtl_enum_word_t); 16] = [
    (CPU, "kDLCPU", CPU, DTL_MEMORY_HOST),
    (2, "kDLCUDA", 2, DTL_MEMORY_DEVICE),
    (3, "kDLCUDAHost", 2, DTL_MEMORY_PINNED),
    (BY_OBJECT, "kDLOpenCL", BY_OBJECT, DTL_MEMORY_DEVICE),
    (7, "kDLVulkan", 7, DTL_MEMORY_DEVICE),
    (8, "kDLMetal", 8, DTL_MEMORY_DEVICE),
    (9, "kDLVPI", 9, DTL_MEMORY_DEVICE),
    (10, "kDLROCM", 10, DTL_MEMORY_DEVICE),
    (11, "kDLROCMHost", 10, DTL_MEMORY_PINNED),
    (12, "kDLExtDev", 12, DTL_MEMORY_DEVICE),
    (13, "kDLCUDAManaged", 2, DTL_MEMORY_MANAGED),
    (14, "kDLOneAPI", 14, DTL_MEMORY_DEVICE),
    (15, "kDLWebGPU", 15, DTL_MEMORY_DEVICE),
    (16, "kDLHexagon", 16, DTL_MEMORY_DEVICE),
    (17, "kDLMAIA", 17, DTL_MEMORY_DEVICE),
    (18, "kDLTrn", 18, DTL_MEMORY_DEVICE),
];

/// Dtype, DLPack type code and number of bits of each dtype that DLPack supports. UINT8 and BYTE
/// have the same DLPack type; an import uses the first of them.
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

/// Returns true if memory of this device type is addressed by pointers. OpenCL memory is not: it is
/// addressed by cl_mem handles.
pub(super) fn has_pointers(device_type: i32) -> bool {
    device_type != BY_OBJECT
}

/// Returns the name and number of a device type, for error messages.
pub(super) fn device_name(kind: i32) -> String {
    match DEVICES.iter().find(|(number, ..)| *number == kind) {
        Some((_, name, ..)) => format!("{name} ({kind})"),
        None => format!("device type {kind}"),
    }
}

/// Returns the description of an element type, for error messages.
pub(super) fn dtype_text(dtype: dtl_dlpack_dtype_t) -> String {
    format!("code {}, {} bits, {} lanes", dtype.code, dtype.bits, dtype.lanes)
}

/// Returns the DLPack type of a dtype, or `None` if it has none.
pub(super) fn dtype_of(dtype: dtl_dtype_t) -> Option<dtl_dlpack_dtype_t> {
    let (_, code, bits) = *DTYPES.iter().find(|(number, ..)| *number == dtype)?;
    Some(dtl_dlpack_dtype_t { code, bits, lanes: 1 })
}

/// Returns the dtype that corresponds to a DLPack type, or `None` if there is no such dtype.
pub(super) fn dtype_from(dtype: dtl_dlpack_dtype_t) -> Option<dtl_dtype_t> {
    let is_it = |(_, code, bits): &&(dtl_dtype_t, u8, u8)| {
        (*code, *bits, 1) == (dtype.code, dtype.bits, dtype.lanes)
    };
    DTYPES.iter().find(is_it).map(|found| found.0)
}

/// Returns the DLPack device of memory of `kind` that belongs to `device`. The result differs from
/// `device` if DLPack has a separate device type for that kind (for example kDLCUDAHost for pinned
/// memory of a kDLCUDA device).
pub(super) fn placed(device: dtl_dlpack_device_t, kind: dtl_enum_word_t) -> dtl_dlpack_device_t {
    let is_it = |(number, _, of, its_kind): &&(i32, &str, i32, dtl_enum_word_t)| {
        (*of, *its_kind) == (device.device_type, kind) && number != of
    };
    match DEVICES.iter().find(is_it) {
        Some((number, ..)) => dtl_dlpack_device_t { device_type: *number, device_id: 0 },
        None => device,
    }
}

/// Device type and memory kind of a tensor's memory, converted from one DLDeviceType.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TensorLocation {
    /// DLDeviceType of the device that the memory belongs to.
    pub(super) device_type: i32,
    /// True if the memory belongs to one device, false if it belongs to all devices of
    /// `device_type`.
    pub(super) is_of_one: bool,
    /// Kind of the memory.
    pub(super) kind: dtl_enum_word_t,
}

/// Returns the device type and the memory kind of memory whose DLDeviceType is `number` (inverse of
/// [`placed`]).
pub(super) fn placed_by(number: i32) -> TensorLocation {
    let known = DEVICES.iter().find(|(it, ..)| *it == number);
    let (device_type, kind) =
        known.map_or((number, DTL_MEMORY_DEVICE), |(_, _, of, kind)| (*of, *kind));
    TensorLocation { device_type, is_of_one: device_type == number, kind }
}
