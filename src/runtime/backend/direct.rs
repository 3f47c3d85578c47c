//! Messages of device memory that a transport moves as it is, where it can: each has host memory of
//! the same length beside it, which is all that the transport's own code ever reads or writes.

use super::{OpId, Selector, SendMode};
use crate::error::Result;
use crate::sys::memory::buf::Region;
use crate::sys::sync::lock::Mutex;
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What keeps an allocation reachable for a transport: the transport's own.
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

/// Of a transport that moves device memory as it is.
pub trait Direct {
    /// Messages of no more than so many bytes go through the host.
    fn above(&self) -> usize;
    /// Returns what keeps an allocation reachable, made at the first request; `None`: it cannot be
    /// reached.
    fn hold(&self, memory: &DeviceMemory<'_>) -> Result<Option<Hold>>;
    /// Why no allocation can be reached any more, if so.
    fn refusal(&self) -> Option<String>;
    /// As [`super::Transport::start_send`] of the bytes of a twin, whose host memory is `host`.
    fn isend(
        &self,
        host: Region,
        twin: &Arc<Twin>,
        dest: i32,
        word: u64,
        mode: SendMode,
    ) -> Result<OpId>;
    /// As [`super::Transport::start_recv`]; the bytes are in either memory when it is over:
    /// [`Twin::has_landed`].
    fn irecv(&self, host: Region, twin: &Arc<Twin>, select: Selector) -> Result<OpId>;
}

/// The device memory of a message in flight, and where its bytes are. Shared by the transport and
/// who copies them.
pub struct Twin {
    device: Region,
    hold: Hold,
    bytes: Mutex<Bytes>,
}

/// Where the bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bytes {
    /// In the device's memory, if it is a send; nowhere yet, if it is a receive.
    Device,
    /// There, but the transport needs them in the host's.
    Wanted,
    /// In the host's, too.
    Host,
    /// In the device's, and cannot be copied from there.
    Stuck,
    /// A receive's: in the device's, and not in the host's.
    Landed,
}

impl Twin {
    /// Of a message that has not begun.
    #[must_use]
    pub fn new(device: Region, hold: Hold) -> Twin {
        Twin { device, hold, bytes: Mutex::new(Bytes::Device) }
    }

    /// The device's memory.
    #[must_use]
    pub fn device(&self) -> Region {
        self.device
    }

    /// What the transport gave for its allocation.
    #[must_use]
    pub fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Where the bytes are.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        *self.bytes.lock()
    }

    /// The transport: it needs the bytes in the host's memory. What is known already stays.
    pub fn want(&self) {
        let mut bytes = self.bytes.lock();
        if *bytes == Bytes::Device {
            *bytes = Bytes::Wanted;
        }
    }

    /// Who copies: they are in the host's memory now, or never will be.
    pub fn copied(&self, is_well: bool) {
        *self.bytes.lock() = if is_well { Bytes::Host } else { Bytes::Stuck };
    }

    /// Nobody copies any more: what is not in the host's memory never will be.
    pub fn give_up(&self) {
        let mut bytes = self.bytes.lock();
        if matches!(*bytes, Bytes::Device | Bytes::Wanted) {
            *bytes = Bytes::Stuck;
        }
    }

    /// The transport: all that was received is in the device's memory.
    pub fn land(&self) {
        *self.bytes.lock() = Bytes::Landed;
    }

    /// Whether what was received is in the device's memory.
    #[must_use]
    pub fn has_landed(&self) -> bool {
        self.bytes() == Bytes::Landed
    }
}
