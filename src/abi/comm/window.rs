//! One-sided communication: constants, and information about a window.
//! dtl: section(ffi/rma/window)

use std::ffi::{c_char, c_void};

/// Type of dtl_win_lock: other ranks may hold shared locks on the same target at the same time.
/// Equivalent: MPI_LOCK_SHARED.
pub const DTL_LOCK_SHARED: i32 = 1;
/// Type of dtl_win_lock: no other rank holds a lock on the target at the same time. Equivalent:
/// MPI_LOCK_EXCLUSIVE.
pub const DTL_LOCK_EXCLUSIVE: i32 = 2;

/// Properties of one rank's part of a window, filled by dtl_win_info. Start from DTL_WIN_INFO_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_win_info_t {
    /// sizeof(dtl_win_info_t), set by DTL_WIN_INFO_INIT.
    pub struct_size: u32,
    /// Rank of this process in the window, the same as in the communicator of dtl_win_create.
    /// dtl: rank
    pub rank: i32,
    /// Number of ranks.
    pub ranks: i32,
    /// Always 0.
    pub reserved: u32,
    /// Size of the queried part, in bytes.
    pub size_bytes: u64,
    /// Size of one step of a displacement in that part, in bytes.
    pub disp_unit: u64,
    /// First byte of this process' own part. NULL for parts of other ranks and for an empty part.
    /// dtl: borrowed opt len(size_bytes)
    pub base: *mut c_void,
    /// Path by which operations reach the targets, NUL-terminated, for humans. If it begins with
    /// "loads", an operation is complete when its call returns: fetched values are available, and a
    /// flush does not wait.
    pub way: [c_char; 64],
}
