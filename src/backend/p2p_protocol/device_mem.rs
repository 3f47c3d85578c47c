//! Messages in device memory over a raw transport (`Wire`) that accesses such memory. The protocol
//! engine handles such a message like a message in a host buffer of the same size. Only the `Wire`
//! uses the message's `HostShadow`, which identifies the device memory.
//!
//! The code that waits for an operation owns the operation's `HostShadow`. The `Wire` holds another
//! reference to it while it transfers the payload.

use super::P2pTransport;
use super::engine::Engine;
use super::frame::INLINE;
use crate::error::Result;
use crate::runtime::component::{DeviceMemory, Direct, Hold, HostShadow, OpId, Selector, SendMode};
use crate::sys::memory::buf::Region;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

/// State of a device allocation's registration with a raw transport (`Wire`).
pub enum DeviceMapping {
    /// The network device of the `Wire` can access the allocation.
    Yes(Hold),
    /// The network device of the `Wire` cannot access the allocation, now or later.
    No,
    /// Not registered yet. [`WireDevices::add`] registers the allocation by dma-buf or by address.
    New {
        /// True if registration needs a dma-buf.
        by_dmabuf: bool,
    },
}

/// Additional methods of a `Wire` that transfers device memory. If the `Wire` needs a payload in
/// host memory, it requests a copy of the bytes with [`HostShadow::want`] and continues after the
/// bytes have been copied.
pub trait WireDevices {
    /// Returns the registration state of an allocation.
    fn find(&mut self, memory: &DeviceMemory<'_>) -> DeviceMapping;
    /// Registers an allocation. `by` is the dma-buf and the offset of the allocation in it, or the
    /// error from the export; `None` if no dma-buf was requested. Returns `None` if the allocation
    /// cannot be registered.
    fn add(
        &mut self,
        memory: &DeviceMemory<'_>,
        by: Option<Result<(OwnedFd, u64)>>,
    ) -> Option<Hold>;
    /// Returns the reason why no further allocations can be registered; `None` if registration is
    /// still possible.
    fn refusal(&self) -> Option<String>;
    /// Starts a send as [`super::Wire::isend`] does. `shadow` identifies the device memory that
    /// contains the payload; `host` is host memory of the payload's size.
    fn isend(
        &mut self,
        host: Region,
        shadow: &Arc<HostShadow>,
        dest: i32,
        word: u64,
    ) -> Result<OpId>;
    /// Starts a receive as [`super::Wire::irecv`] does. `shadow` identifies the destination in
    /// device memory; `host` is host memory of the same size.
    fn irecv(
        &mut self,
        host: Region,
        shadow: &Arc<HostShadow>,
        source: i32,
        word: u64,
    ) -> Result<OpId>;
}

/// `HostShadow` of each message in device memory, with the ID of the message's operation. The
/// `HostShadow` records whether the bytes are in device or host memory. The code that waits for the
/// operation owns the `HostShadow`.
pub(super) type HostShadows = Vec<(OpId, Weak<HostShadow>)>;

impl Direct for P2pTransport {
    fn above(&self) -> usize {
        INLINE
    }

    fn hold(&self, memory: &DeviceMemory<'_>) -> Result<Option<Hold>> {
        let by_dmabuf =
            match self.engine.with(|engine| Ok(engine.wire.devices().map(|of| of.find(memory))))? {
                Some(DeviceMapping::Yes(hold)) => return Ok(Some(hold)),
                Some(DeviceMapping::New { by_dmabuf }) => by_dmabuf,
                Some(DeviceMapping::No) | None => return Ok(None),
            };
        // The engine's lock is not held, because the backend may be the program's.
        let by = by_dmabuf.then(|| (memory.export)());
        self.engine.with(|engine| Ok(engine.wire.devices().and_then(|of| of.add(memory, by))))
    }

    fn refusal(&self) -> Option<String> {
        self.engine
            .with(|engine| Ok(engine.wire.devices().and_then(|of| of.refusal())))
            .ok()
            .flatten()
    }

    fn isend(
        &self,
        host: Region,
        shadow: &Arc<HostShadow>,
        dest: i32,
        word: u64,
        mode: SendMode,
    ) -> Result<OpId> {
        self.engine.with(|engine| {
            let op = engine.isend(host, dest, word, mode)?;
            engine.add_shadow(op, shadow);
            Ok(op)
        })
    }

    fn irecv(&self, host: Region, shadow: &Arc<HostShadow>, select: Selector) -> Result<OpId> {
        self.engine.with(|engine| {
            let op = engine.irecv(host, select)?;
            engine.add_shadow(op, shadow);
            Ok(op)
        })
    }
}

impl Engine {
    /// Records `shadow`, which identifies the device memory of the message that operation `op`
    /// transfers. The caller must not make progress between the start of the operation and this
    /// call. The payload transfer starts in the next call to `progress` at the earliest.
    fn add_shadow(&mut self, op: OpId, shadow: &Arc<HostShadow>) {
        self.twins.retain(|(_, shadow)| shadow.strong_count() > 0);
        self.twins.push((op, Arc::downgrade(shadow)));
    }

    pub(super) fn shadow_of(&self, op: OpId) -> Option<Arc<HostShadow>> {
        let (_, shadow) = self.twins.iter().find(|(of, _)| *of == op)?;
        Weak::upgrade(shadow)
    }
}
