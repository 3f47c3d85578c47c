//! Arguments for opening a transport, and the out-of-band data exchange between the ranks while
//! they open it.

use crate::abi::status::{DTL_ERROR_UNAVAILABLE, dtl_status_t};
use crate::error::{Error, Result, status_name};
use crate::sys::memory::buf::Addr;
use std::ffi::CString;
use std::sync::Arc;

/// Default bootstrap timeout in nanoseconds: the time that ranks wait for each other when they open
/// a communicator. The communicator description (`dtl_comm_desc_t`) may set a shorter limit.
pub const BOOTSTRAP_NS: u64 = 30_000_000_000;

/// Check that a rank makes at intervals while it waits for the other ranks. Fails if they will not
/// open the communicator.
pub type Watch = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// Arguments for opening a transport. By default, they name no ranks and no job, and the time limit
/// is 0.
#[derive(Clone, Default)]
pub struct OpenArgs {
    /// Flags of the communicator description (`dtl_comm_desc_t`).
    pub flags: u64,
    /// Rank and size that the caller specifies.
    pub named: Option<(i32, i32)>,
    /// Rank and size that the job launcher (for example mpirun) specifies.
    pub launched: Option<(i32, i32)>,
    /// Name of the job, equal on all its ranks; may be empty.
    pub job: CString,
    /// True if no other communicator is ever opened under the job name.
    pub is_only_open: bool,
    /// Time limit of the wait for the other ranks, in nanoseconds.
    pub timeout_ns: u64,
    /// The field that [`Comm::settings_field`](super::Comm::settings_field) names; null if not set.
    pub settings: Addr,
    /// Identifier of the connection that [`Grow::join`](super::Grow::join) has created between the
    /// ranks.
    pub grown: Option<u64>,
    /// Check to make while the transport waits for the other ranks. If it fails, opening fails with
    /// its error. Transports that cannot end the wait ignore it.
    pub watch: Option<Watch>,
    /// True if a time limit or determinism requires the library's own collective algorithms.
    pub own_algorithms: bool,
    /// PCI address of the device that the calling thread selected last; `None` if it has selected
    /// none or the address is unknown.
    pub device_pci: Option<String>,
    /// Out-of-band data exchange over an existing communicator, if the transport bootstraps over
    /// one. Requires a backend that supports this
    /// ([`Comm::bootstraps_over`](super::Comm::bootstraps_over)).
    pub over: Option<Arc<dyn Exchange>>,
}

/// Out-of-band exchange of a few 64-bit words between the ranks while they open a transport.
pub trait Exchange: Send + Sync {
    /// Returns this process' rank.
    fn rank(&self) -> i32;
    /// Returns the number of ranks.
    fn size(&self) -> i32;
    /// Gathers the 64-bit words of all ranks (allgather) and returns them in rank order. All ranks
    /// make their calls in the same order and pass the same number of words. Waits for the other
    /// ranks, at most for the time limit with which the communicator was opened.
    fn allgather(&self, mine: &[u64]) -> Result<Vec<u64>>;
}

/// Gathers the `record` argument of each rank. `mine` is the result of this rank's preceding step:
/// the function fails on all ranks if `mine` is a failure on any rank. Otherwise returns the value
/// of `mine` and the records of all ranks in rank order. A rank's own failure takes precedence over
/// a failure of the exchange, which takes precedence over a failure of another rank. `elsewhere`
/// creates the error for another rank's failure. All ranks, including ranks that failed, pass
/// records of the same length.
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
    /// Returns the rank and the size that the caller specified or, if it specified none, those from
    /// the job launcher.
    pub fn rank_size(&self) -> Option<(i32, i32)> {
        self.named.or(self.launched)
    }
}
