//! Collectives of device memory by what has nothing else: no messages, no host memory. Such a kind
//! is opened over another communicator, which carries the rest and lets the ranks find each other.

use crate::abi::handle::dtl_backend_t;
use crate::error::Result;
use crate::runtime::comm::coll::CollArgs;

/// Bootstrap id: made by rank 0 and passed to all ranks, so that they can connect.
pub type BootstrapId = [u64; 16];

/// Makes them.
pub trait DeviceComms: Send + Sync {
    /// Prepares this rank's part, on the calling thread's current device; it has met no other rank
    /// yet.
    fn prepare(&self) -> Result<Box<dyn DeviceComm>>;
}

/// One rank's part. Called by several threads at once; nothing waits but `give_up`, for a moment,
/// and `leave`.
pub trait DeviceComm: Send + Sync {
    /// Makes another part on the same device, for a communicator made from this one.
    fn another(&self) -> Result<Box<dyn DeviceComm>>;
    /// Makes the invitation. Called on rank 0, once all ranks have prepared their parts.
    fn invitation(&self) -> Result<BootstrapId>;
    /// Begins to meet the other ranks.
    fn meet(&self, invitation: &BootstrapId, rank: i32, size: i32) -> Result<()>;
    /// Returns true if it has met all other ranks. After a failure the caller gives it up.
    fn has_met(&self) -> Result<bool>;
    /// Returns the backend and the device whose memory it takes.
    fn device(&self) -> (dtl_backend_t, i32);
    /// Why it does not run one; decided from what is equal on all ranks. Regions are checked, and
    /// not empty all.
    fn refuses(&self, args: &CollArgs) -> Option<String>;
    /// Starts one, after all that were started before.
    fn start(&self, args: &CollArgs) -> Result<u64>;
    /// Returns true if the operation is over. Once one has failed, all that are not over fail.
    fn test(&self, started: u64) -> Result<bool>;
    /// Ends what runs, here: when it returns, nothing touches a buffer any more. Nothing can be
    /// started afterwards.
    fn give_up(&self);
    /// Takes leave of the other ranks, for a limited time: they may be other threads, so each does
    /// it in its own destroy, and no thread in what it drops for another. Nothing can be started
    /// afterwards.
    fn leave(&self);
    /// How the data moves, for people.
    fn describe(&self) -> String;
}
