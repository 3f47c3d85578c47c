//! Messages in device memory over a raw transport (`Wire`) that accesses such memory, and
//! registration of the program's buffers. The protocol engine handles such a message like a message
//! in a host buffer of the same size. Only the `Wire` uses the message's `HostShadow`, which
//! identifies the device memory.
//!
//! The code that waits for an operation owns the operation's `HostShadow`. The `Wire` holds another
//! reference to it while it transfers the payload.

use super::engine::{Engine, Operation};
use super::frame::INLINE;
use super::{P2pTransport, SharedEngine, closed};
use crate::backend::p2p::P2pEngine;
use crate::error::Result;
use crate::runtime::component::{
    Dest, DeviceBuffer, DeviceMemory, Direct, Hold, HostShadow, MemoryExport, MemoryPlace, OpId,
    Registration, Selector, SendMode,
};
use crate::runtime::memory::device_only::{self, Watcher};
use crate::sys::memory::buf::Region;
use crate::sys::sync::lock::Mutex;
use std::collections::BTreeSet;
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
    /// Returns the registration state of an allocation. If `is_retry` is true, an earlier failure
    /// to register the allocation is ignored.
    fn find(&mut self, memory: &DeviceMemory<'_>, is_retry: bool) -> Result<DeviceMapping>;
    /// Registers an allocation. `by` is the dma-buf, or the error from the export; `None` if no
    /// dma-buf was requested. After a failure, messages in the allocation are staged.
    fn add(&mut self, memory: &DeviceMemory<'_>, by: Option<Result<MemoryExport>>) -> Result<Hold>;
    /// Returns the reason why no further allocations can be registered; `None` if registration is
    /// still possible.
    fn refusal(&self) -> Option<String>;
    /// Ends the registration of an allocation, which is about to be freed, and discards everything
    /// that the `Wire` stores about it. `serial` is the serial number of the allocation.
    fn freed(&mut self, serial: u64);
    /// Starts a send of a payload in device memory, as [`super::Wire::isend`] does.
    fn isend(&mut self, data: DeviceBuffer<'_>, dest: i32, word: u64) -> Result<OpId>;
    /// Starts a receive into device memory, as [`super::Wire::irecv`] does.
    fn irecv(&mut self, data: DeviceBuffer<'_>, source: i32, word: u64) -> Result<OpId>;
}

/// Additional methods of a `Wire` that registers buffers which the program names.
pub trait WireBuffers {
    /// Registers a buffer in host memory. See [`Registration::register`].
    fn register(&mut self, buffer: Region, place: MemoryPlace) -> Result<Option<Hold>>;
    /// Ends a registration that `register` has returned.
    fn deregister(&mut self, hold: Hold) -> Result<()>;
}

/// Notifies the `Wire` when an allocation is freed that it may have registered. The mutex is
/// innermost: no other lock is acquired while it is held.
pub(super) struct FreeWatcher {
    engine: Weak<Mutex<Option<Engine>>>,
    /// Serial numbers of the allocations.
    serials: Mutex<BTreeSet<u64>>,
}

impl FreeWatcher {
    pub(super) fn new(engine: &SharedEngine) -> Arc<Self> {
        let engine = Arc::downgrade(&engine.0);
        let made = Arc::new(FreeWatcher { engine, serials: Mutex::default() });
        let watcher: Arc<dyn Watcher> = Arc::clone(&made) as Arc<dyn Watcher>;
        device_only::watch(Arc::downgrade(&watcher));
        made
    }
}

impl Watcher for FreeWatcher {
    fn freed(&self, serial: u64) {
        let is_one = self.serials.lock().remove(&serial);
        let Some(engine) = self.engine.upgrade().filter(|_| is_one) else { return };
        let mut engine = engine.lock();
        if let Some(devices) = engine.as_mut().and_then(|engine| engine.wire.devices()) {
            devices.freed(serial);
        }
    }
}

/// `HostShadow` of each message in device memory, with the ID of the message's operation. The
/// `HostShadow` records whether the bytes are in device or host memory. The code that waits for the
/// operation owns the `HostShadow`.
pub(super) type HostShadows = Vec<(OpId, Weak<HostShadow>)>;

impl Direct for P2pTransport {
    fn above(&self) -> usize {
        INLINE
    }

    fn hold(&self, memory: &DeviceMemory<'_>, is_explicit: bool) -> Result<Option<Hold>> {
        let held = self.registered(memory, is_explicit);
        // A message is staged instead; the `Wire` has logged the failure.
        if is_explicit { held } else { Ok(held.unwrap_or_default()) }
    }

    fn refusal(&self) -> Option<String> {
        self.engine
            .with(|engine| Ok(engine.wire.devices().and_then(|of| of.refusal())))
            .ok()
            .flatten()
    }

    fn isend(&self, data: DeviceBuffer<'_>, dest: i32, word: u64, mode: SendMode) -> Result<OpId> {
        self.engine.with(|engine| {
            engine.check_working()?;
            let op = engine.isend(data.host, Dest { rank: dest, word }, mode)?;
            engine.add_shadow(op, data.shadow);
            Ok(op)
        })
    }

    fn irecv(&self, data: DeviceBuffer<'_>, select: Selector) -> Result<OpId> {
        self.engine.with(|engine| {
            let op = engine.irecv(data.host, select, ())?;
            engine.add_shadow(op, data.shadow);
            Ok(op)
        })
    }
}

impl P2pTransport {
    /// Returns the registration of an allocation, and registers it first if it is not registered.
    fn registered(&self, memory: &DeviceMemory<'_>, is_retry: bool) -> Result<Option<Hold>> {
        let found = self.engine.with(|engine| match engine.wire.devices() {
            Some(devices) => devices.find(memory, is_retry),
            None => Ok(DeviceMapping::No),
        });
        let found = match found {
            Ok(DeviceMapping::Yes(hold)) => return Ok(Some(hold)),
            found => found,
        };
        // From here on, the wire stores something about the allocation.
        if let Some(watcher) = &self.devices {
            watcher.serials.lock().insert(memory.serial);
        }
        let DeviceMapping::New { by_dmabuf } = found? else { return Ok(None) };
        // The engine's lock is not held, because the backend may be the program's.
        let by = by_dmabuf.then(|| (memory.export)());
        self.engine
            .with(|engine| engine.wire.devices().ok_or_else(closed)?.add(memory, by).map(Some))
    }
}

impl Registration for P2pTransport {
    fn register(&self, buffer: Region, place: MemoryPlace) -> Result<Option<Hold>> {
        self.engine.with(|engine| {
            engine.wire.buffers().map_or(Ok(None), |buffers| buffers.register(buffer, place))
        })
    }

    fn deregister(&self, hold: Hold) -> Result<()> {
        self.engine
            .with(|engine| engine.wire.buffers().map_or(Ok(()), |buffers| buffers.deregister(hold)))
    }

    fn is_in_use(&self, buffer: Region) -> bool {
        self.engine.with(|engine| Ok(engine.uses(buffer))).unwrap_or(false)
    }
}

impl Engine {
    /// Returns true if an operation in flight uses memory of `buffer`.
    fn uses(&mut self, buffer: Region) -> bool {
        let areas = self.collectives.iter().flat_map(|collective| collective.areas);
        let twins = &self.twins;
        areas.flatten().any(|area| area.overlaps(buffer))
            || self.windows.iter().any(|(_, window)| window.uses(buffer))
            || self.operations.iter_mut().any(|(id, operation)| {
                let data = match operation {
                    Operation::Send(send) => send.data,
                    Operation::Receive(receive) => receive.into,
                    _ => return false,
                };
                let shadow = twins.iter().find(|(of, _)| *of == id);
                let shadow = shadow.and_then(|(_, shadow)| Weak::upgrade(shadow));
                data.overlaps(buffer) || shadow.is_some_and(|shadow| shadow.device.overlaps(buffer))
            })
    }

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
