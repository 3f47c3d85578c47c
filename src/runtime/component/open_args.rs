//! Arguments of opening a transport, and the out-of-band exchange of the ranks during the open.

use crate::abi::status::{DTL_ERROR_UNAVAILABLE, dtl_status_t};
use crate::error::{Error, Result, status_name};
use crate::sys::memory::buf::Addr;
use std::ffi::CString;
use std::sync::Arc;

/// Default bootstrap timeout in nanoseconds: the time that ranks wait for each other when they open
/// a communicator. A description may set a shorter limit.
pub const BOOTSTRAP_NS: u64 = 30_000_000_000;

/// Arguments with which a transport is opened.
pub struct OpenArgs {
    /// Flags of the communicator description.
    pub flags: u32,
    /// Rank and size that the caller specifies.
    pub named: Option<(i32, i32)>,
    /// Rank and size that the launcher specifies.
    pub launched: Option<(i32, i32)>,
    /// Name of the job, equal on all its ranks; may be empty.
    pub job: CString,
    /// True if no other communicator is ever opened under the job name.
    pub is_only_open: bool,
    /// Time limit of the wait for the other ranks, in nanoseconds.
    pub timeout_ns: u64,
    /// Foreign pointer for a registered backend.
    pub native: Addr,
    /// True if a time limit or determinism requires the library's own collective algorithms.
    pub own_algorithms: bool,
    /// Ranks of the existing communicator over which the transport is opened, for a kind that can
    /// bootstrap over a communicator ([`Comm::bootstraps_over`](super::Comm::bootstraps_over)).
    pub over: Option<Arc<dyn Exchange>>,
}

/// Out-of-band exchange of a few words between ranks during a collective open.
pub trait Exchange: Send + Sync {
    /// Returns this process' rank.
    fn rank(&self) -> i32;
    /// Returns the number of ranks.
    fn size(&self) -> i32;
    /// Gathers and returns the words of all ranks in rank order (allgather). All ranks call this in
    /// the same order and with the same number of words. Waits for the other ranks, at most for the
    /// time limit with which the communicator was opened.
    fn allgather(&self, mine: &[u64]) -> Result<Vec<u64>>;
}

/// Gathers a record of each rank; succeeds on all ranks or fails on all ranks. Returns the value of
/// `mine` and the records of all ranks in rank order. A rank's own failure takes precedence over a
/// failure of the exchange, and that over another rank's failure, for which `elsewhere` creates the
/// error. All ranks pass records of one length, including ranks that failed.
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

/// Creates the error that reports a failure of another rank. `what` completes the sentence "rank N
/// ...", for example "could not do something".
pub fn failed_elsewhere(rank: i32, status: dtl_status_t, what: &str) -> Error {
    let name = status_name(status).to_string_lossy();
    let text = format!("rank {rank} {what} ({name}); see its own output");
    Error::new(DTL_ERROR_UNAVAILABLE, text)
}

impl OpenArgs {
    /// Returns the rank and the size that the caller specified, or else those of the launcher.
    pub fn rank_size(&self) -> Option<(i32, i32)> {
        self.named.or(self.launched)
    }
}
