//! Messages of device memory that a transport moves as it is, where it can: each has host memory of
//! the same length beside it, which is all that the transport's own code ever reads or writes.

use super::{OpId, Selector, SendMode};
use crate::error::Result;
use crate::sys::memory::buf::Region;
use crate::sys::sync::lock::Mutex;
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Object of a transport's that keeps an allocation reachable for it.
pub type Hold = Arc<dyn Any + Send + Sync>;

/// An allocation that the host cannot reach.
pub struct DeviceMemory<'a> {
    /// The backend's name.
    pub backend: &'a str,
    /// All of it.
    pub region: Region,
    /// Its number, which no other allocation ever has.
    pub serial: u64,
    /// Gives a dma-buf of all of it, and where in that it begins. Calls the backend: not to be
    /// called with a lock.
    pub export: &'a dyn Fn() -> Result<(OwnedFd, u64)>,
}

/// Methods of a transport that moves device memory directly.
pub trait Direct {
    /// Messages of no more than so many bytes go through the host.
    fn above(&self) -> usize;
    /// Returns what keeps an allocation reachable, made at the first request; `None`: it cannot be
    /// reached.
    fn hold(&self, memory: &DeviceMemory<'_>) -> Result<Option<Hold>>;
    /// Why no allocation can be reached any more, if so.
    fn refusal(&self) -> Option<String>;
    /// Starts a send of a twin's bytes, without waiting; `host` is the twin's host memory.
    /// Otherwise like [`super::Transport::start_send`].
    fn isend(
        &self,
        host: Region,
        twin: &Arc<HostShadow>,
        dest: i32,
        word: u64,
        mode: SendMode,
    ) -> Result<OpId>;
    /// Starts a receive of a twin's bytes. When it is over they are in one of the two memories, see
    /// [`Twin::has_landed`]. Otherwise like [`super::Transport::start_recv`].
    fn irecv(&self, host: Region, twin: &Arc<HostShadow>, select: Selector) -> Result<OpId>;
}

/// The device memory of a message in flight, and where its bytes are. Shared by the transport and
/// the thread that copies them.
pub struct HostShadow {
    device: Region,
    hold: Hold,
    bytes: Mutex<DataLocation>,
}

/// Where the bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataLocation {
    /// In the device's memory, if it is a send; nowhere yet, if it is a receive.
    Device,
    /// In the device's memory, but the transport needs them in the host's.
    Wanted,
    /// In the host's, too.
    Host,
    /// In the device's, and cannot be copied from there.
    Stuck,
    /// A receive's: in the device's, and not in the host's.
    Landed,
}

impl HostShadow {
    /// Makes the twin of a message that has not begun.
    #[must_use]
    pub fn new(device: Region, hold: Hold) -> HostShadow {
        HostShadow { device, hold, bytes: Mutex::new(DataLocation::Device) }
    }

    /// The device's memory.
    #[must_use]
    pub fn device(&self) -> Region {
        self.device
    }

    /// Returns the transport's hold on the allocation.
    #[must_use]
    pub fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Where the bytes are.
    #[must_use]
    pub fn bytes(&self) -> DataLocation {
        *self.bytes.lock()
    }

    /// Requests the bytes in the host's memory; called by the transport. A later state stays.
    pub fn want(&self) {
        let mut bytes = self.bytes.lock();
        if *bytes == DataLocation::Device {
            *bytes = DataLocation::Wanted;
        }
    }

    /// Records that the bytes are in the host's memory now, or never will be; called by the copying
    /// thread.
    pub fn copied(&self, is_well: bool) {
        *self.bytes.lock() = if is_well { DataLocation::Host } else { DataLocation::Stuck };
    }

    /// Records that no thread copies any more: bytes that are not in the host's memory never will
    /// be.
    pub fn give_up(&self) {
        let mut bytes = self.bytes.lock();
        if matches!(*bytes, DataLocation::Device | DataLocation::Wanted) {
            *bytes = DataLocation::Stuck;
        }
    }

    /// Records that all received bytes are in the device's memory; called by the transport.
    pub fn land(&self) {
        *self.bytes.lock() = DataLocation::Landed;
    }

    /// Returns true if the received bytes are in the device's memory.
    #[must_use]
    pub fn has_landed(&self) -> bool {
        self.bytes() == DataLocation::Landed
    }
}
