//! What a transport is opened with.

use crate::sys::buf::Addr;
use std::ffi::CString;

/// What a transport is opened with.
pub struct OpenArgs {
    /// Flags of the description.
    pub flags: u32,
    /// Rank and size that the caller names.
    pub named: Option<(i32, i32)>,
    /// Rank and size that the launcher names.
    pub launched: Option<(i32, i32)>,
    /// The job's name, the same on all its ranks; may be empty.
    pub job: CString,
    /// Whether no other communicator is ever opened under that name.
    pub is_only_open: bool,
    /// How long to wait for the other ranks.
    pub timeout_ns: u64,
    /// Foreign pointer for a registered backend.
    pub native: Addr,
    /// Whether only the library's own algorithms will do: they keep time limits, or are deterministic.
    pub own_algorithms: bool,
}

impl OpenArgs {
    /// Rank and size, whoever names them; the caller wins.
    #[must_use]
    pub fn rank_size(&self) -> Option<(i32, i32)> {
        self.named.or(self.launched)
    }
}
