//! Collectives on device memory by a collective library without messages and host memory. Such a
//! kind is opened over another communicator, which bootstraps it and carries all other operations.

use crate::abi::handle::dtl_backend_t;
use crate::error::Result;
use crate::runtime::comm::coll::CollArgs;

/// Bootstrap id that rank 0 creates and all ranks receive, so that they can connect.
pub type BootstrapId = [u64; 16];

/// Factory of device communicators of a backend.
pub trait DeviceComms: Send + Sync {
    /// Prepares this rank's part on the thread's current device, without contacting another rank.
    fn prepare(&self) -> Result<Box<dyn DeviceComm>>;
}

/// One rank's part of a device communicator. Several threads may call the methods at once. Only
/// `give_up`, for a moment, and `leave` block.
pub trait DeviceComm: Send + Sync {
    /// Creates another part on the same device, for a communicator derived from this communicator.
    fn another(&self) -> Result<Box<dyn DeviceComm>>;
    /// Creates the bootstrap id. Called on rank 0 after all ranks have prepared their parts.
    fn invitation(&self) -> Result<BootstrapId>;
    /// Starts to connect to the other ranks.
    fn meet(&self, invitation: &BootstrapId, rank: i32, size: i32) -> Result<()>;
    /// Returns true if this rank is connected to all others; after a failure `give_up` is called.
    fn has_met(&self) -> Result<bool>;
    /// Returns the backend and the device whose memory the communicator accepts.
    fn device(&self) -> (dtl_backend_t, i32);
    /// Returns the reason why the communicator does not execute this collective; `None` if it does.
    /// The decision depends only on arguments that are equal on all ranks. The caller has checked
    /// the regions, and not all of them are empty.
    fn refuses(&self, args: &CollArgs) -> Option<String>;
    /// Starts a collective, ordered after all earlier ones, and returns its number for `test`.
    fn start(&self, args: &CollArgs) -> Result<u64>;
    /// Returns true if the operation `started` is complete. Once an operation has failed, all
    /// incomplete operations fail.
    fn test(&self, started: u64) -> Result<bool>;
    /// Aborts the running operations of this rank: after the return no operation accesses a buffer.
    /// No operation can be started afterwards.
    fn give_up(&self);
    /// Disconnects from the other ranks, within a limited time. The ranks may be threads of one
    /// process, so each thread calls this in its own destroy, and no thread calls it for another
    /// rank in a drop. No operation can be started afterwards.
    fn leave(&self);
    /// Returns a human-readable description of the data path.
    fn describe(&self) -> String;
}
