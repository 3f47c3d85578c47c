//! Extensible enumerations: their numbers, and the attributes of templates and instances.
//! dtl: section(ffi/library/enums)

use std::ffi::c_char;

/// Number of an extensible enumeration: of memory kinds, schedules and so on. Built-in ones are
/// below 256, those from `dtl_enum_create` start at 256. Enumerations, members and their instances
/// exist until the process ends, across dtl_finalize.
///
///   Memory           Host Device Pinned Managed Shared
///   Device           CPU GPU Accelerator None
///   Schedule         Sequential Multicore Device
///   Language         C CUDA OpenCL PTX SPIRV Binary
///   Instrumentation  None Timer Events Counters Spans
///   Operation        Alloc Copy Launch Compile Free Instrument InstrumentData
///   DataInstrumentation  None Save Restore
///   Feature          device memory transfer exec modules comm streams async shared_memory
///
/// Each of them also has the template Undefined, with value 65535 and the field "text". Dtypes and
/// reduction operations are separate numbers, to which programs add with `dtl_dtype_create` and
/// `dtl_op_create`.
///
/// The *value* of a member is bits 47..32 of its word: 1 to 65534. In a built-in enumeration, only
/// this library and automatic registration assign values below 256, so a value that a backend has
/// chosen stays unique in every later version. Choose one from 256 on, and write its word into the
/// code as DTL_EV_WORD(DTL_ENUM_MEMORY, 301).
pub type dtl_enum_t = u32;

/// Kinds of memory: DTL_MEMORY_....
pub const DTL_ENUM_MEMORY: dtl_enum_t = 1;
/// Kinds of devices: DTL_DEVICE_....
pub const DTL_ENUM_DEVICE: dtl_enum_t = 2;
/// Schedules of loops and kernels: DTL_SCHEDULE_....
pub const DTL_ENUM_SCHEDULE: dtl_enum_t = 3;
/// Languages of sources and binaries: DTL_LANGUAGE_....
pub const DTL_ENUM_LANGUAGE: dtl_enum_t = 4;
/// Kinds of measurement: DTL_INSTRUMENTATION_....
pub const DTL_ENUM_INSTRUMENTATION: dtl_enum_t = 5;
/// Operations of a backend: DTL_OPERATION_....
pub const DTL_ENUM_OPERATION: dtl_enum_t = 6;
/// Features of backends: DTL_FEATURE_....
pub const DTL_ENUM_FEATURE: dtl_enum_t = 7;
/// Kinds of data instrumentation: DTL_DATA_INSTRUMENTATION_....
pub const DTL_ENUM_DATA_INSTRUMENTATION: dtl_enum_t = 8;

/// Flag of `dtl_enum_create`: adds the template Undefined, which can represent unknown names.
pub const DTL_ENUM_WITH_UNDEFINED: u64 = 1;
/// Flag of `dtl_ev_from_json`: an unknown name becomes an instance of Undefined that holds the
/// text.
pub const DTL_EV_TOLERANT: u64 = 1;

/// Attribute kind: boolean, in `integer`. Any value other than 0 counts as 1.
pub const DTL_ATTR_BOOL: u32 = 1;
/// Attribute kind: int64_t, as its bit pattern in `integer`.
pub const DTL_ATTR_I64: u32 = 2;
/// Attribute kind: uint64_t, in `integer`.
pub const DTL_ATTR_U64: u32 = 3;
/// Attribute kind: double, in `real`. -0 is stored as 0, and every NaN as the same one.
pub const DTL_ATTR_F64: u32 = 4;
/// Attribute kind: UTF-8 text with NUL, in `text`.
pub const DTL_ATTR_STR: u32 = 5;
/// Attribute kind: word of any enumeration, in `integer`.
pub const DTL_ATTR_ENUM: u32 = 6;

/// Flag of a template's field: it has no default, so each instance must give a value.
pub const DTL_ATTR_REQUIRED: u64 = 1;

/// Field of a template with its default, or attribute of an instance with its value. It is an
/// element of arrays and never grows. dtl_attr_i64("block_size", 128) and similar functions at the
/// end of this file build one.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_attr_t {
    /// Name, with the syntax of a member name, but not "type". Copied on input; valid until the
    /// process ends on output.
    /// dtl: lives(forever)
    pub name: *const c_char,
    /// DTL_ATTR_BOOL to DTL_ATTR_ENUM. An attribute has the kind of its field: nothing is
    /// converted.
    /// dtl: values(DTL_ATTR_BOOL|DTL_ATTR_I64|DTL_ATTR_U64|DTL_ATTR_F64|DTL_ATTR_STR|DTL_ATTR_ENUM)
    pub kind: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Value of kinds BOOL, I64, U64 and ENUM; otherwise 0.
    pub integer: u64,
    /// Value of kind F64; otherwise 0.
    pub real: f64,
    /// Value of kind STR; otherwise NULL. Copied on input; valid until the process ends on output.
    /// dtl: opt(kind!=DTL_ATTR_STR||(flags&DTL_ATTR_REQUIRED)!=0) lives(forever)
    pub text: *const c_char,
    /// DTL_ATTR_REQUIRED or 0 in a template's field; 0 in an attribute.
    /// dtl: flags(DTL_ATTR_REQUIRED)
    pub flags: u64,
}
