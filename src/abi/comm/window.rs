//! One-sided communication: constants, and information about a window.
//! dtl: section(ffi/rma/window)

use std::ffi::{c_char, c_void};

/// For dtl_win_lock: others may hold shared locks of the same target meanwhile. Equivalent:
/// MPI_LOCK_SHARED.
pub const DTL_LOCK_SHARED: i32 = 1;
/// For dtl_win_lock: nobody else holds a lock of the target meanwhile. Equivalent:
/// MPI_LOCK_EXCLUSIVE.
pub const DTL_LOCK_EXCLUSIVE: i32 = 2;

/// What `dtl_win_info` tells of one rank's part of a window. Start from DTL_WIN_INFO_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_win_info_t {
    /// sizeof(dtl_win_info_t), set by DTL_WIN_INFO_INIT.
    pub struct_size: u32,
    /// This process' rank in the window: that in the communicator it was made of.
    /// dtl: rank
    pub rank: i32,
    /// Number of ranks.
    pub ranks: i32,
    /// 0.
    pub reserved: u32,
    /// Bytes of the queried part.
    pub size_bytes: u64,
    /// Bytes of one step of a displacement there.
    pub disp_unit: u64,
    /// First byte of this process' own part; NULL for other ranks' parts, and if it has no bytes.
    /// dtl: borrowed opt len(size_bytes)
    pub base: *mut c_void,
    /// How operations reach the targets, NUL-terminated; for people. Where it begins with "loads"
    /// an operation is done when its call returns: what it fetches is there, and a flush finds
    /// nothing to wait for.
    pub way: [c_char; 64],
}
