//! Functions of NCCL, resolved by name in the opened libnccl.so.2.
//!
//! Types and constants are those of NVIDIA's nccl.h: [`super::nccl_sys`], which tools/vendor_sys.py
//! generates. Results stay plain integers: a newer library may return codes that no enumeration
//! has.

use super::nccl_sys as sys;
pub use super::nccl_sys::*;
use crate::backend::symbol_table::function_table;
pub use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;

/// First fields of `ncclConfig_t`, as in NCCL 2.14. NCCL reads only the fields that `size` and
/// `version` declare to be present.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "as in nccl.h")]
pub struct Config {
    pub size: usize,
    pub magic: c_uint,
    pub version: c_uint,
    pub blocking: c_int,
    pub unused: c_int,
}

const _: () = assert!(
    offset_of!(Config, size) == offset_of!(ncclConfig_t, size)
        && offset_of!(Config, magic) == offset_of!(ncclConfig_t, magic)
        && offset_of!(Config, version) == offset_of!(ncclConfig_t, version)
        && offset_of!(Config, blocking) == offset_of!(ncclConfig_t, blocking)
);

impl Config {
    /// Configuration of a nonblocking communicator: a long-running call returns `ncclInProgress`
    /// before it is complete.
    pub const NON_BLOCKING: Config = Config {
        size: size_of::<Config>(),
        magic: 0xCAFE_BEEF, // as in NCCL_CONFIG_INITIALIZER
        version: OLDEST as c_uint,
        blocking: 0,
        unused: 0,
    };
}

/// Oldest supported version, as ncclGetVersion encodes it: from this version on, communicators can
/// be aborted while they are being created.
pub const OLDEST: c_int = 2_14_00;
/// First unsupported version, whose interface may differ.
pub const TOO_NEW: c_int = 3_00_00;

function_table! {
    sys;
    required {
        ncclGetVersion ncclGetUniqueId ncclCommInitRankConfig ncclCommFinalize ncclCommDestroy
        ncclCommAbort ncclCommGetAsyncError ncclGetErrorString ncclGroupStart ncclGroupEnd
        ncclBroadcast ncclReduce ncclAllReduce ncclReduceScatter ncclAllGather ncclSend ncclRecv
    }
    optional {
        ncclGetLastError ncclCommRegister ncclCommDeregister
    }
}
