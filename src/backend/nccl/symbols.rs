//! NCCL's functions, found by name in the libnccl.so.2 that was opened; its types and the constants
//! that are used.
//!
//! Types and values are those of NVIDIA's nccl.h; `tests/nccl_constants.rs` has the C compiler
//! compare them. Results stay plain integers: a newer library may answer codes that no list knows.

pub use crate::backend::symbol_table::Function;
use crate::backend::symbol_table::function_table;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// `ncclResult_t`
pub type Code = c_uint;
/// `ncclResult_t *`
pub type CodeOut = *mut c_uint;
/// `int`
pub type Int = c_int;
/// `int *`
pub type IntOut = *mut c_int;
/// `ncclDataType_t`, `ncclRedOp_t`
pub type Kind = c_uint;
/// `size_t`
pub type Size = usize;
/// `const void *`
pub type In = *const c_void;
/// `void *`
pub type Out = *mut c_void;
/// `const char *`
pub type Text = *const c_char;
/// `ncclComm_t`, `cudaStream_t`: each points to what only the library knows
pub type Object = *mut c_void;
/// a pointer to one that is written
pub type ObjectOut = *mut Object;
/// `ncclUniqueId`, passed by value
pub type Id = UniqueId;
/// `ncclUniqueId *`
pub type IdOut = *mut UniqueId;
/// `ncclConfig_t *`
pub type ConfigIn = *mut Config;

/// `ncclUniqueId`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct UniqueId {
    /// Only the library knows what.
    pub bytes: [u8; 128],
}

/// The beginning of `ncclConfig_t`, as it was in NCCL 2.14, which its size and version tell.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "as in nccl.h")]
pub struct Config {
    pub size: Size,
    pub magic: c_uint,
    pub version: c_uint,
    pub blocking: Int,
    pub unused: Int,
}

impl Config {
    /// Calls return before they are done where that takes long.
    pub const NON_BLOCKING: Config = Config {
        size: size_of::<Config>(),
        magic: 0xCAFE_BEEF,
        version: OLDEST as c_uint,
        blocking: 0,
        unused: 0,
    };
}

/// The oldest version: its communicators can be given up while they are being opened. As
/// ncclGetVersion counts.
pub const OLDEST: Int = 2_14_00;
/// The first that may be another interface.
pub const TOO_NEW: Int = 3_00_00;

/// What is as in nccl.h beside the constants, for the test: C's expression, and our number.
pub const LAYOUT: &[(&str, usize)] = &[
    ("sizeof(ncclUniqueId)", size_of::<UniqueId>()),
    ("offsetof(ncclConfig_t, size)", std::mem::offset_of!(Config, size)),
    ("offsetof(ncclConfig_t, magic)", std::mem::offset_of!(Config, magic)),
    ("offsetof(ncclConfig_t, version)", std::mem::offset_of!(Config, version)),
    ("offsetof(ncclConfig_t, blocking)", std::mem::offset_of!(Config, blocking)),
    ("NCCL_VERSION(2, 14, 0)", OLDEST as usize),
    ("NCCL_VERSION(3, 0, 0)", TOO_NEW as usize),
];

macro_rules! constants {
    ($($name:ident $c:ident = $value:expr;)+) => {
        $(#[doc = concat!("`", stringify!($c), "`")] pub const $name: Kind = $value;)+

        /// The list, for the test.
        pub const CONSTANTS: &[(&str, i64)] = &[$((stringify!($c), $value),)+];
    };
}

constants! {
    INT8 ncclInt8 = 0;
    UINT8 ncclUint8 = 1;
    INT32 ncclInt32 = 2;
    UINT32 ncclUint32 = 3;
    INT64 ncclInt64 = 4;
    UINT64 ncclUint64 = 5;
    FLOAT16 ncclFloat16 = 6;
    FLOAT32 ncclFloat32 = 7;
    FLOAT64 ncclFloat64 = 8;
    BFLOAT16 ncclBfloat16 = 9;
    SUM ncclSum = 0;
    PROD ncclProd = 1;
    MAX ncclMax = 2;
    MIN ncclMin = 3;
}

function_table! {
    required {
        ncclGetVersion(IntOut) -> Code;
        ncclGetUniqueId(IdOut) -> Code;
        ncclCommInitRankConfig(ObjectOut, Int, Id, Int, ConfigIn) -> Code;
        ncclCommFinalize(Object) -> Code;
        ncclCommDestroy(Object) -> Code;
        ncclCommAbort(Object) -> Code;
        ncclCommGetAsyncError(Object, CodeOut) -> Code;
        ncclGetErrorString(Code) -> Text;
        ncclGroupStart() -> Code;
        ncclGroupEnd() -> Code;
        ncclBroadcast(In, Out, Size, Kind, Int, Object, Object) -> Code;
        ncclReduce(In, Out, Size, Kind, Kind, Int, Object, Object) -> Code;
        ncclAllReduce(In, Out, Size, Kind, Kind, Object, Object) -> Code;
        ncclReduceScatter(In, Out, Size, Kind, Kind, Object, Object) -> Code;
        ncclAllGather(In, Out, Size, Kind, Object, Object) -> Code;
        ncclSend(In, Size, Kind, Int, Object, Object) -> Code;
        ncclRecv(Out, Size, Kind, Int, Object, Object) -> Code;
    }
    optional {
        ncclGetLastError(Object) -> Text;
    }
}
