//! Direct messages of device memory, without staging where the transport can. Each device buffer
//! has a host shadow of equal length, the only memory that the transport's own code accesses.

use super::{OpId, Selector, SendMode};
use crate::error::Result;
use crate::sys::memory::buf::Region;
use crate::sys::sync::lock::Mutex;
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Object of a transport that keeps an allocation reachable for the transport.
pub type Hold = Arc<dyn Any + Send + Sync>;

/// Allocation that the host cannot access.
pub struct DeviceMemory<'a> {
    /// Name of the backend that owns the allocation.
    pub backend: &'a str,
    /// Whole address range of the allocation.
    pub region: Region,
    /// Serial number of the allocation, unique in the process' life.
    pub serial: u64,
    /// Exports the whole allocation as a dma-buf; returns its descriptor and the offset of the
    /// allocation in it. Calls the backend, so it must not be called with a lock held.
    pub export: &'a dyn Fn() -> Result<(OwnedFd, u64)>,
}

/// Methods of a transport that moves device memory directly.
pub trait Direct {
    /// Returns the size threshold in bytes: messages up to this size go through host memory.
    fn above(&self) -> usize;
    /// Returns the object that keeps an allocation reachable, created at the first request; `None`
    /// if the transport cannot reach the allocation.
    fn hold(&self, memory: &DeviceMemory<'_>) -> Result<Option<Hold>>;
    /// Returns the reason why the transport can reach no allocation any more, or `None`.
    fn refusal(&self) -> Option<String>;
    /// Starts a send of the bytes of `shadow`, without waiting; `host` is the host memory of the
    /// shadow. Otherwise like [`super::Transport::start_send`].
    fn isend(
        &self,
        host: Region,
        shadow: &Arc<HostShadow>,
        dest: i32,
        word: u64,
        mode: SendMode,
    ) -> Result<OpId>;
    /// Starts a receive into `shadow`. After completion the bytes are in the host memory or in the
    /// device memory, see [`HostShadow::has_landed`]. Otherwise like
    /// [`super::Transport::start_recv`].
    fn irecv(&self, host: Region, shadow: &Arc<HostShadow>, select: Selector) -> Result<OpId>;
}

/// Device memory of a message in flight, and the location of its bytes. Shared by the transport and
/// the thread that copies the bytes.
pub struct HostShadow {
    /// Device memory of the message.
    pub device: Region,
    /// Object that keeps the allocation reachable for the transport.
    pub hold: Hold,
    bytes: Mutex<DataLocation>,
}

/// Location of the bytes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataLocation {
    /// A send's bytes are in device memory; a receive's bytes have not arrived.
    Device,
    /// The bytes are in device memory, and the transport has requested them in host memory.
    Wanted,
    /// The bytes are in host memory and in device memory.
    Host,
    /// The bytes are in device memory and cannot be copied to host memory.
    Stuck,
    /// The bytes of a receive are in device memory and not in host memory.
    Landed,
}

impl HostShadow {
    /// Creates the shadow of a message that has not started.
    #[must_use]
    pub fn new(device: Region, hold: Hold) -> HostShadow {
        HostShadow { device, hold, bytes: Mutex::new(DataLocation::Device) }
    }

    /// Returns the location of the bytes.
    pub fn bytes(&self) -> DataLocation {
        *self.bytes.lock()
    }

    /// Requests the bytes in host memory; called by the transport. Has no effect in a later state.
    pub fn want(&self) {
        let mut bytes = self.bytes.lock();
        if *bytes == DataLocation::Device {
            *bytes = DataLocation::Wanted;
        }
    }

    /// Records that the bytes have been copied to host memory or, if `is_well` is false, never will
    /// be. Called by the copying thread.
    pub fn copied(&self, is_well: bool) {
        *self.bytes.lock() = if is_well { DataLocation::Host } else { DataLocation::Stuck };
    }

    /// Records that no thread copies any more: bytes not in host memory by now never will be.
    pub fn give_up(&self) {
        let mut bytes = self.bytes.lock();
        if matches!(*bytes, DataLocation::Device | DataLocation::Wanted) {
            *bytes = DataLocation::Stuck;
        }
    }

    /// Records that all received bytes are in device memory; called by the transport.
    pub fn land(&self) {
        *self.bytes.lock() = DataLocation::Landed;
    }

    /// Returns true if the received bytes are in device memory.
    pub fn has_landed(&self) -> bool {
        self.bytes() == DataLocation::Landed
    }
}
