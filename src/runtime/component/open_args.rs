//! What a transport is opened with.

use crate::abi::status::{DTL_ERROR_UNAVAILABLE, dtl_status_t};
use crate::error::{Error, Result, status_name};
use crate::sys::memory::buf::Addr;
use std::ffi::CString;
use std::sync::Arc;

/// Time limit of the ranks' wait for each other at the start; a description may set a shorter one.
pub const BOOTSTRAP_NS: u64 = 30_000_000_000;

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

/// Allgather of a record per rank, on all ranks or on none: a failure of any rank is everybody's. A
/// rank's own failure counts before the exchange's, and that before another rank's, of which
/// `elsewhere` makes the error. All ranks pass records of one length, also those that have failed.
pub fn all_or_none<T>(
    over: &dyn Exchange,
    mine: Result<T>,
    record: &[u64],
    elsewhere: impl FnOnce(i32, dtl_status_t) -> Error,
) -> Result<(T, Vec<u64>)> {
    let status = mine.as_ref().err().map_or(0, |error| u64::from(error.status() as u32));
    let all = over.allgather(&[&[status], record].concat());
    let mine = mine?;
    let all = all?;
    let each = || all.chunks_exact(1 + record.len());
    let status = |words: &[u64]| words.first().map_or(0, |status| *status as u32 as i32);
    if let Some((rank, status)) = (0..).zip(each().map(status)).find(|(_, status)| *status != 0) {
        return Err(elsewhere(rank, status));
    }
    Ok((mine, each().flat_map(|words| words.iter().skip(1)).copied().collect()))
}

/// Makes the error of a rank that has failed elsewhere. `what`: "could not do something".
#[must_use]
pub fn failed_elsewhere(rank: i32, status: dtl_status_t, what: &str) -> Error {
    let name = status_name(status).to_string_lossy();
    let text = format!("rank {rank} {what} ({name}); see its own output");
    Error::new(DTL_ERROR_UNAVAILABLE, text)
}

impl OpenArgs {
    /// Returns rank and size, from the caller or else from the launcher.
    #[must_use]
    pub fn rank_size(&self) -> Option<(i32, i32)> {
        self.named.or(self.launched)
    }
}
