//! Extensible enumerations: their numbers, and the attributes of templates and instances.
//! dtl: section(ffi/library/enums)

use std::ffi::c_char;

/// An enumeration: memory kinds, schedules and so on. Built-in ones are below 256, those of
/// `dtl_enum_create` from 256 on. It lives as long as the process, as its members and their
/// instances do: over dtl_finalize, too.
///
///   Memory           Host Device Pinned Managed Shared
///   Device           CPU GPU Accelerator None
///   Schedule         Sequential Multicore Device
///   Language         C CUDA OpenCL PTX SPIRV Binary
///   Instrumentation  None Timer Events Counters Spans
///   Operation        Alloc Copy Launch Compile
///   Feature          device memory transfer exec modules comm streams async shared_memory
///
/// and in each of them the template Undefined, of value 65535, with the field "text". Dtypes and
/// reduction operations are numbers of their own, which programs add to with `dtl_dtype_create` and
/// `dtl_op_create`.
///
/// A member's *value* is the 16 bits in its word: 1 to 65534. In a built-in enumeration those below
/// 256 are given by this library and by automatic registration only, so that a value which a
/// backend has chosen stays its own in every later version; choose one from 256 on and write its
/// word into your code as DTL_EV_WORD(DTL_ENUM_MEMORY, 301).
pub type dtl_enum_t = u32;

/// Kinds of memory: DTL_MEMORY_....
pub const DTL_ENUM_MEMORY: dtl_enum_t = 1;
/// Kinds of devices: DTL_DEVICE_....
pub const DTL_ENUM_DEVICE: dtl_enum_t = 2;
/// How a loop or a kernel is spread: DTL_SCHEDULE_....
pub const DTL_ENUM_SCHEDULE: dtl_enum_t = 3;
/// Languages of source and binaries: DTL_LANGUAGE_....
pub const DTL_ENUM_LANGUAGE: dtl_enum_t = 4;
/// How something is measured: DTL_INSTRUMENTATION_....
pub const DTL_ENUM_INSTRUMENTATION: dtl_enum_t = 5;
/// Operations of a backend: DTL_OPERATION_....
pub const DTL_ENUM_OPERATION: dtl_enum_t = 6;
/// What a backend may have: DTL_FEATURE_....
pub const DTL_ENUM_FEATURE: dtl_enum_t = 7;

/// Flag of `dtl_enum_create`: with a template Undefined, so that unknown names can be kept.
pub const DTL_ENUM_WITH_UNDEFINED: u64 = 1;
/// Flag of `dtl_ev_from_json`: an unknown name becomes an instance of Undefined, which keeps the
/// text.
pub const DTL_EV_TOLERANT: u64 = 1;

/// An attribute that is 0 or 1 (everything but 0 counts as 1); in `integer`.
pub const DTL_ATTR_BOOL: u32 = 1;
/// An int64_t; in `integer`, as its bits.
pub const DTL_ATTR_I64: u32 = 2;
/// A uint64_t; in `integer`.
pub const DTL_ATTR_U64: u32 = 3;
/// A double; in `real`. -0 is taken as 0 and every NaN as the same one.
pub const DTL_ATTR_F64: u32 = 4;
/// A text, UTF-8 with NUL; in `text`.
pub const DTL_ATTR_STR: u32 = 5;
/// A word of any enumeration; in `integer`.
pub const DTL_ATTR_ENUM: u32 = 6;

/// Flag of a template's field: it has no default, so each instance gives a value.
pub const DTL_ATTR_REQUIRED: u64 = 1;

/// A field of a template with its default, or an attribute of an instance with its value. An
/// element of arrays: it never grows. Made by dtl_attr_i64("block_size", 128) and its like, at the
/// end of this file.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_attr_t {
    /// Syntax as a member's name; not "type". Copied where it is passed in; lives for ever where it
    /// is given out.
    /// dtl: lives(forever)
    pub name: *const c_char,
    /// DTL_ATTR_BOOL ... DTL_ATTR_ENUM; of an attribute the same as of its field: nothing is
    /// converted.
    /// dtl: values(DTL_ATTR_BOOL|DTL_ATTR_I64|DTL_ATTR_U64|DTL_ATTR_F64|DTL_ATTR_STR|DTL_ATTR_ENUM)
    pub kind: u32,
    /// Must be 0.
    pub reserved: u32,
    /// The value of BOOL, I64, U64, ENUM; else 0.
    pub integer: u64,
    /// The value of F64; else 0.
    pub real: f64,
    /// The value of STR; else NULL. Copied, or lives for ever, as `name`.
    /// dtl: opt(kind!=DTL_ATTR_STR||(flags&DTL_ATTR_REQUIRED)!=0) lives(forever)
    pub text: *const c_char,
    /// DTL_ATTR_REQUIRED of a template's field; 0 of an attribute.
    /// dtl: flags(DTL_ATTR_REQUIRED)
    pub flags: u64,
}
