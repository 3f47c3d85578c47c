//! Messages from and to device memory, and registration of memory with a transport. If the
//! transport can, it transfers such messages directly, without staging in host memory. Each device
//! buffer has a host shadow: host memory of equal length that represents the device buffer in the
//! transport. The host code of the transport accesses only the host shadow.

use super::{OpId, Selector, SendMode};
use crate::error::Result;
use crate::runtime::memory_place::MemoryPlace;
use crate::sys::memory::buf::Region;
use crate::sys::sync::lock::Mutex;
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Transport-private object that keeps a device memory allocation accessible to the transport.
pub type Hold = Arc<dyn Any + Send + Sync>;

/// dma-buf of an allocation: its file descriptor, and the offset of the allocation in it.
pub type MemoryExport = (OwnedFd, u64);

/// Device memory allocation that the host cannot access.
pub struct DeviceMemory<'a> {
    /// Name of the backend that owns the allocation.
    pub backend: &'a str,
    /// Backend, kind and device of the allocation.
    pub place: MemoryPlace,
    /// Whole address range of the allocation.
    pub region: Region,
    /// Serial number of the allocation, unique during the life of the process.
    pub serial: u64,
    /// Function that exports the whole allocation as a dma-buf. It calls the backend, so the caller
    /// must hold no lock.
    pub export: &'a dyn Fn() -> Result<MemoryExport>,
}

/// Methods of a transport that transfers device memory directly, without staging in host memory.
pub trait Direct {
    /// Returns the size threshold in bytes: messages up to this size are staged through host
    /// memory.
    fn above(&self) -> usize;
    /// Returns the object that keeps `memory` accessible to the transport. The first call for an
    /// allocation creates this object. Returns `None` if the transport cannot access the
    /// allocation. `is_explicit` is true if the program registers the memory: a registration that
    /// has failed is then tried again, and its failure is an error instead of `None`.
    fn hold(&self, memory: &DeviceMemory<'_>, is_explicit: bool) -> Result<Option<Hold>>;
    /// Returns the reason why the transport can no longer access any device memory allocation;
    /// `None` if it still can.
    fn refusal(&self) -> Option<String>;
    /// Starts a nonblocking send of device memory. The bytes are copied to the host buffer of
    /// `data` if the transport requests this ([`HostShadow::want`]). Otherwise behaves like
    /// [`super::Transport::start_send`].
    fn isend(&self, data: DeviceBuffer<'_>, dest: i32, word: u64, mode: SendMode) -> Result<OpId>;
    /// Starts a receive into the device memory or the host buffer of `data`. After completion, the
    /// bytes are in one of the two (see [`HostShadow::has_landed`]). In all other respects, this
    /// function behaves like [`super::Transport::start_recv`].
    fn irecv(&self, data: DeviceBuffer<'_>, select: Selector) -> Result<OpId>;
}

/// Buffer of a message in device memory.
#[derive(Clone, Copy)]
pub struct DeviceBuffer<'a> {
    /// Host buffer of the message's size.
    pub host: Region,
    /// Device memory of the message.
    pub shadow: &'a Arc<HostShadow>,
}

/// Registration of host memory that the program names (`dtl_comm_register`).
pub trait Registration: Send + Sync {
    /// Registers a buffer in host memory, which stays valid until `deregister`. Returns the object
    /// that identifies the registration; `None` if the transport does not need it.
    fn register(&self, buffer: Region, place: MemoryPlace) -> Result<Option<Hold>>;
    /// Ends a registration that `register` has returned.
    fn deregister(&self, hold: Hold) -> Result<()>;
    /// Returns true if an operation in flight uses memory of `buffer`.
    fn is_in_use(&self, buffer: Region) -> bool;
}

/// Device memory of a message in flight, and the current location of the message's bytes. Shared by
/// the transport and the thread that copies the bytes between device and host memory.
pub struct HostShadow {
    /// Device memory of the message.
    pub device: Region,
    /// Object that keeps the allocation accessible to the transport.
    pub hold: Hold,
    bytes: Mutex<DataLocation>,
}

/// Location of the bytes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataLocation {
    /// Send: the bytes are in device memory. Receive: the bytes have not arrived.
    Device,
    /// The bytes are in device memory, and the transport has requested a copy of them in host
    /// memory.
    Wanted,
    /// The bytes are in host memory and in device memory.
    Host,
    /// The bytes are in device memory and cannot be copied to host memory.
    Stuck,
    /// The received bytes are in device memory and not in host memory.
    Landed,
}

impl DeviceBuffer<'_> {
    /// Returns the device memory of the message.
    pub fn device(&self) -> Region {
        self.shadow.device.part(0, self.host.len())
    }
}

impl HostShadow {
    /// Creates the [`HostShadow`] of a message whose transfer has not started yet.
    pub fn new(device: Region, hold: Hold) -> HostShadow {
        HostShadow { device, hold, bytes: Mutex::new(DataLocation::Device) }
    }

    /// Returns the location of the bytes.
    pub fn bytes(&self) -> DataLocation {
        *self.bytes.lock()
    }

    /// Requests that the bytes be copied to host memory. Has no effect unless the location is
    /// [`DataLocation::Device`]. Called by the transport.
    pub fn want(&self) {
        let mut bytes = self.bytes.lock();
        if *bytes == DataLocation::Device {
            *bytes = DataLocation::Wanted;
        }
    }

    /// Records that the bytes have been copied to host memory or, if `is_well` is false, that they
    /// cannot be copied. Called by the copying thread.
    pub fn copied(&self, is_well: bool) {
        *self.bytes.lock() = if is_well { DataLocation::Host } else { DataLocation::Stuck };
    }

    /// Records that the bytes will no longer be copied to host memory. If they have not been copied
    /// yet, they stay in device memory.
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

    /// Returns true if the received bytes are in device memory and not in host memory.
    pub fn has_landed(&self) -> bool {
        self.bytes() == DataLocation::Landed
    }
}
