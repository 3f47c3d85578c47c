//! Collectives on device memory, executed by a collective library that supports neither messages
//! nor host memory. A communicator that uses such a library is opened over another communicator,
//! which exchanges the bootstrap data and executes all other operations.

use super::{NativeCollectives, OpId, Registration};
use crate::abi::handle::dtl_backend_t;
use crate::error::Result;

/// Bootstrap id that rank 0 creates and all ranks receive, so that they can connect.
pub type BootstrapId = [u64; 16];

/// Factory of a backend's device communicators, which execute collectives on device memory.
pub trait DeviceComms: Send + Sync {
    /// Prepares this rank's part of a device communicator on the calling thread's current device,
    /// without contacting another rank.
    fn prepare(&self) -> Result<Box<dyn DeviceComm>>;
}

/// One rank's part of a device communicator. Several threads may call the methods concurrently.
/// Only `give_up` (briefly) and `leave` block. Collectives are executed in the order of the calls
/// that start them.
pub trait DeviceComm: NativeCollectives {
    /// Prepares this rank's part of a communicator derived from this communicator, on the same
    /// device.
    fn another(&self) -> Result<Box<dyn DeviceComm>>;
    /// Creates the bootstrap ID. Called on rank 0 after `prepare` or `another` has succeeded on all
    /// ranks.
    fn invitation(&self) -> Result<BootstrapId>;
    /// Starts connecting to the other ranks, without blocking.
    fn connect(&self, invitation: &BootstrapId, rank: i32, size: i32) -> Result<()>;
    /// Returns true if this rank is connected to all other ranks. If this function fails, the
    /// caller must call `give_up`.
    fn is_connected(&self) -> Result<bool>;
    /// Returns the backend and the device whose memory the communicator accepts.
    fn device(&self) -> (dtl_backend_t, i32);
    /// Returns true if the operation `op` is complete. Once an operation has failed, all incomplete
    /// operations fail.
    fn test(&self, op: OpId) -> Result<bool>;
    /// Returns the interface for registration of buffers in the device's memory; `None` if the
    /// library has none.
    fn registration(&self) -> Option<&dyn Registration>;
    /// Aborts the running operations of this rank: after the call, no operation accesses a buffer.
    /// No operation can be started afterwards.
    fn give_up(&self);
    /// Disconnects from the other ranks, within a limited time. The ranks may be threads of one
    /// process, so each rank's thread must call this function itself when it destroys its
    /// communicator handle. Destructors do not call this function on behalf of another rank. No
    /// operation can be started afterwards.
    fn leave(&self);
    /// Returns a human-readable description of the data path.
    fn describe(&self) -> String;
}
