//! Device memory over a wire that moves it: a message has host memory beside it, which the engine
//! reads and writes as any other's, and a twin, which is passed only to the wire, with the
//! message's payload.
//!
//! A twin belongs to who waits for the message. A wire that has its payload keeps a share.

use super::P2pTransport;
use super::engine::Engine;
use super::frame::INLINE;
use crate::error::Result;
use crate::runtime::component::{DeviceMemory, Direct, Hold, HostShadow, OpId, Selector, SendMode};
use crate::sys::memory::buf::Region;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

/// What a wire has of an allocation.
pub enum DeviceMapping {
    /// Its device reaches it.
    Yes(Hold),
    /// It does not, and will not.
    No,
    /// Not registered yet; the wire takes a dma-buf of it, or only its address.
    New {
        /// A dma-buf.
        by_dmabuf: bool,
    },
}

/// Additional methods of a wire that moves device memory. If it needs a payload's bytes in the
/// host's memory, it requests them through the payload's twin ([`Twin::want`]), and goes on when
/// they are there.
pub trait WireDevices {
    /// What is known of an allocation.
    fn find(&mut self, memory: &DeviceMemory<'_>) -> DeviceMapping;
    /// Makes an allocation reachable, by its dma-buf (or why there is none) if it wanted one.
    fn add(
        &mut self,
        memory: &DeviceMemory<'_>,
        by: Option<Result<(OwnedFd, u64)>>,
    ) -> Option<Hold>;
    /// Why none is made reachable any more.
    fn refusal(&self) -> Option<String>;
    /// As [`super::Wire::isend`]: the host's memory, as long as the payload, and the twin of the
    /// message that this is the beginning of.
    fn isend(&mut self, host: Region, twin: &Arc<HostShadow>, dest: i32, word: u64)
    -> Result<OpId>;
    /// As [`super::Wire::irecv`].
    fn irecv(
        &mut self,
        host: Region,
        twin: &Arc<HostShadow>,
        source: i32,
        word: u64,
    ) -> Result<OpId>;
}

/// The twins of messages, which are somebody else's.
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
        // Without the lock, as the backend is the program's, perhaps.
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
    /// Before anything else is done: its payload begins with the next progress at the earliest.
    fn add_shadow(&mut self, op: OpId, twin: &Arc<HostShadow>) {
        self.twins.retain(|(_, twin)| twin.strong_count() > 0);
        self.twins.push((op, Arc::downgrade(twin)));
    }

    pub(super) fn shadow_of(&self, op: OpId) -> Option<Arc<HostShadow>> {
        let (_, twin) = self.twins.iter().find(|(of, _)| *of == op)?;
        Weak::upgrade(twin)
    }
}
