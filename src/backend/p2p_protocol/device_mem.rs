//! Device memory over a wire that moves it. A message has host memory, which the engine reads and
//! writes like that of any other message, and a shadow (`HostShadow`), which is passed only to the
//! wire, with the message's payload.
//!
//! A shadow belongs to the operation's waiter. A wire that has its payload keeps a reference.

use super::P2pTransport;
use super::engine::Engine;
use super::frame::INLINE;
use crate::error::Result;
use crate::runtime::component::{DeviceMemory, Direct, Hold, HostShadow, OpId, Selector, SendMode};
use crate::sys::memory::buf::Region;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

/// Registration state of an allocation with a wire.
pub enum DeviceMapping {
    /// The wire's device can access the allocation.
    Yes(Hold),
    /// The wire's device cannot access the allocation, now or later.
    No,
    /// Not registered yet; the wire registers a dma-buf of the allocation, or only its address.
    New {
        /// True if the wire needs a dma-buf.
        by_dmabuf: bool,
    },
}

/// Additional methods of a wire that moves device memory. If the wire needs the bytes of a payload
/// in host memory, it requests them through the payload's shadow ([`HostShadow::want`]), and
/// continues once they are there.
pub trait WireDevices {
    /// Returns the registration state of an allocation.
    fn find(&mut self, memory: &DeviceMemory<'_>) -> DeviceMapping;
    /// Registers an allocation, by its dma-buf (or the reason why there is none) if the wire
    /// requested a dma-buf.
    fn add(
        &mut self,
        memory: &DeviceMemory<'_>,
        by: Option<Result<(OwnedFd, u64)>>,
    ) -> Option<Hold>;
    /// Returns the reason why the wire registers no more allocations, if it does not.
    fn refusal(&self) -> Option<String>;
    /// Starts a send like [`super::Wire::isend`]. `host` is host memory as long as the payload;
    /// `twin` is the shadow of the message whose beginning the payload is.
    fn isend(&mut self, host: Region, twin: &Arc<HostShadow>, dest: i32, word: u64)
    -> Result<OpId>;
    /// Starts a receive like [`super::Wire::irecv`], into `host` and its shadow `twin`.
    fn irecv(
        &mut self,
        host: Region,
        twin: &Arc<HostShadow>,
        source: i32,
        word: u64,
    ) -> Result<OpId>;
}

/// Shadows of messages, by operation; the operations' waiters own them.
pub(super) type HostShadows = Vec<(OpId, Weak<HostShadow>)>;

impl Direct for P2pTransport {
    fn above(&self) -> usize {
        INLINE
    }

    fn hold(&self, memory: &DeviceMemory<'_>) -> Result<Option<Hold>> {
        let by_dmabuf = match self.with(|engine| Ok(devices(engine).map(|of| of.find(memory))))? {
            Some(DeviceMapping::Yes(hold)) => return Ok(Some(hold)),
            Some(DeviceMapping::New { by_dmabuf }) => by_dmabuf,
            Some(DeviceMapping::No) | None => return Ok(None),
        };
        // The engine's lock is not held, because the backend may be the program's.
        let by = by_dmabuf.then(|| (memory.export)());
        self.with(|engine| Ok(devices(engine).and_then(|of| of.add(memory, by))))
    }

    fn refusal(&self) -> Option<String> {
        self.with(|engine| Ok(devices(engine).and_then(|of| of.refusal()))).ok().flatten()
    }

    fn isend(
        &self,
        host: Region,
        twin: &Arc<HostShadow>,
        dest: i32,
        word: u64,
        mode: SendMode,
    ) -> Result<OpId> {
        self.with(|engine| {
            let op = engine.isend(host, dest, word, mode)?;
            engine.add_shadow(op, twin);
            Ok(op)
        })
    }

    fn irecv(&self, host: Region, twin: &Arc<HostShadow>, select: Selector) -> Result<OpId> {
        self.with(|engine| {
            let op = engine.irecv(host, select)?;
            engine.add_shadow(op, twin);
            Ok(op)
        })
    }
}

fn devices(engine: &mut Engine) -> Option<&mut dyn WireDevices> {
    engine.wire.devices()
}

impl Engine {
    /// Attaches the shadow to an operation before any progress: the payload is started by the next
    /// call of `progress` at the earliest.
    fn add_shadow(&mut self, op: OpId, twin: &Arc<HostShadow>) {
        self.twins.retain(|(_, twin)| twin.strong_count() > 0);
        self.twins.push((op, Arc::downgrade(twin)));
    }

    pub(super) fn shadow_of(&self, op: OpId) -> Option<Arc<HostShadow>> {
        let (_, twin) = self.twins.iter().find(|(of, _)| *of == op)?;
        Weak::upgrade(twin)
    }
}
