//! What a transport is opened with.

use crate::error::Result;
use crate::sys::memory::buf::Addr;
use std::ffi::CString;
use std::sync::Arc;

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
    /// Whether only the library's own algorithms will do: they keep time limits, or are
    /// deterministic.
    pub own_algorithms: bool,
    /// The ranks of the communicator that it is opened over, for a kind whose ranks can meet there
    /// ([`Comm::meets_over`](super::Comm::meets_over)).
    pub over: Option<Arc<dyn Exchange>>,
}

/// Out-of-band exchange of a few words between ranks while they open something.
pub trait Exchange: Send + Sync {
    /// This process' rank.
    fn rank(&self) -> i32;
    /// Number of ranks.
    fn size(&self) -> i32;
    /// Allgather: returns the words of all ranks, in the order of ranks. All ranks call it, in the
    /// same order and with the same number of words. Waits for the others, within the time limit
    /// that the communicator was opened with.
    fn allgather(&self, mine: &[u64]) -> Result<Vec<u64>>;
}

impl OpenArgs {
    /// Returns rank and size, from the caller or else from the launcher.
    #[must_use]
    pub fn rank_size(&self) -> Option<(i32, i32)> {
        self.named.or(self.launched)
    }
}
