//! Wire over RDMA verbs, on which `p2p_protocol` builds complete communication.

use super::engine::{PendingFrame, RdmaEngine};
use super::operation::RdmaOperation;
use super::protocol::eager_slots::DATA;
use crate::abi::status::*;
use crate::backend::p2p_protocol::{
    DeviceMapping, FRAME_BYTES, FRAME_WORDS, RxFrame, SleepMode, Wire, WireDevices, WireFrames,
    WireWindows,
};
use crate::backend::rdma::config::Devices;
use crate::backend::rdma::endpoint::connect::{busy, index};
use crate::backend::rdma::endpoint::peer::ConnectStage;
use crate::backend::rdma::endpoint::qp_state::WorkId;
use crate::error::{Result, fail};
use crate::runtime::component::{Completion, DeviceMemory, Hold, HostShadow, OpId, Properties};
use crate::sys::{
    memory::buf::Region,
    sync::wait::{Backoff, Deadline},
};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Identifier of an operation that completed immediately.
pub(crate) const COMPLETED: OpId = OpId(u64::MAX);
/// Maximum time, in nanoseconds, that closing waits for operations in flight.
const FLUSH_NS: u64 = 5_000_000_000;

/// Backend whose addresses a kernel module (nvidia_peermem) resolves. Handles of other backends may
/// not be addresses at all.
const BY_ADDRESS: &str = "cuda";

/// Wire over RDMA verbs, on which `p2p_protocol` builds complete communication.
pub(crate) struct RdmaWire {
    pub(crate) properties: Arc<Properties>,
    /// State of the communicator; `None` once it is closed.
    pub(crate) state: Option<RdmaEngine>,
}

impl RdmaWire {
    pub(crate) fn with<T>(&mut self, act: impl FnOnce(&mut RdmaEngine) -> Result<T>) -> Result<T> {
        match &mut self.state {
            Some(state) => act(state),
            None => fail!(DTL_ERROR_INVALID_STATE, "the communicator is closed"),
        }
    }

    pub(crate) fn send(
        &mut self,
        data: Region,
        shadow: Option<&Arc<HostShadow>>,
        dest: i32,
        word: u64,
    ) -> Result<OpId> {
        self.with(|state| {
            state.reach(index(dest))?;
            state.send_payload(data, shadow, index(dest), word as u32)
        })
    }

    pub(crate) fn receive(
        &mut self,
        into: Region,
        shadow: Option<&Arc<HostShadow>>,
        source: i32,
        word: u64,
    ) -> Result<OpId> {
        self.with(|state| {
            state.reach(index(source))?;
            state.receive_payload(into, shadow, index(source), word as u32)
        })
    }
}

const _: () = assert!(FRAME_BYTES <= DATA);

fn rank_of(rank: usize) -> i32 {
    i32::try_from(rank).unwrap_or(i32::MAX)
}

impl Wire for RdmaWire {
    fn properties(&self) -> &Arc<Properties> {
        &self.properties
    }

    fn frames(&mut self) -> Option<&mut dyn WireFrames> {
        Some(self)
    }

    fn isend(&mut self, data: Region, dest: i32, word: u64) -> Result<OpId> {
        self.send(data, None, dest, word)
    }

    fn irecv(&mut self, data: Region, source: i32, word: u64) -> Result<OpId> {
        self.receive(data, None, source, word)
    }

    fn test(&mut self, op: OpId) -> Result<Option<Completion>> {
        if op == COMPLETED {
            return Ok(Some(Completion {
                source: self.properties.rank,
                status: DTL_SUCCESS,
                match_bits: 0,
                size: 0,
            }));
        }
        self.with(|state| {
            if let Some(done) = state.outcome(op)? {
                return Ok(Some(done));
            }
            state.progress()?;
            state.outcome(op)
        })
    }

    fn can_cancel(&self) -> bool {
        true
    }

    fn cancel(&mut self, _op: OpId) -> Result<()> {
        // `p2p_protocol` cancels payloads by messages, and frames are not operations.
        Ok(())
    }

    fn doze(&mut self, seen: &mut u64) -> SleepMode {
        self.with(|state| state.doze(seen)).unwrap_or(SleepMode::No)
    }

    fn notifies_on_close(&self) -> bool {
        true
    }

    fn awaits(&mut self, source: i32) {
        if let Some(state) = &mut self.state {
            state.awaits(source);
        }
    }

    fn memory(&self) -> Option<String> {
        self.state.as_ref().map(RdmaEngine::memory)
    }

    fn devices(&mut self) -> Option<&mut dyn WireDevices> {
        let state = self.state.as_ref()?;
        if state.config.device_memory == Devices::Staged { None } else { Some(self) }
    }

    fn failure_text(&self) -> Option<String> {
        self.state.as_ref().and_then(|state| state.failure.clone())
    }

    fn why_gone(&self, rank: i32) -> Option<String> {
        self.state.as_ref().and_then(|state| state.why_gone(index(rank)))
    }

    fn windows(&mut self) -> std::result::Result<&mut dyn WireWindows, &'static str> {
        Ok(self)
    }

    fn close(&mut self) -> Result<()> {
        let Some(mut state) = self.state.take() else { return Ok(()) };
        let (deadline, mut backoff) = (Deadline::after(FLUSH_NS), Backoff::new());
        while state.is_busy() && !deadline.passed() {
            state.progress()?;
            backoff.pause();
        }
        state.oob.leave();
        crate::runtime::log::debug!("rdma: closed with {}", state.memory());
        Ok(())
    }
}

impl WireFrames for RdmaWire {
    fn send(&mut self, head: &[u64; FRAME_WORDS], payload: Region, dest: i32) -> Result<()> {
        self.with(|state| {
            let dest = index(dest);
            state.reach(dest)?;
            match state.peers.get_mut(dest).map(|peer| peer.send_frame(dest, head, payload)) {
                Some(Ok(true)) => Ok(()),
                Some(Ok(false)) | None => Err(busy()),
                Some(Err(error)) => {
                    state.fail_here(dest, error);
                    Err(busy())
                }
            }
        })
    }

    fn next(&mut self, looks: bool) -> Result<Option<RxFrame>> {
        self.with(|state| {
            if looks && state.arrived.is_empty() {
                state.progress()?;
            }
            if let Some(PendingFrame { source, slot, head, bytes }) = state.arrived.pop_front() {
                let id = WorkId { is_receive: true, rank: source, lane: 0, number: slot }.word();
                return Ok(Some(RxFrame {
                    source: rank_of(source),
                    status: DTL_SUCCESS,
                    head,
                    bytes,
                    id,
                }));
            }
            Ok(state.lost.pop_front().map(|rank| RxFrame {
                source: rank_of(rank),
                status: DTL_ERROR_RANK_FAILURE,
                head: [0; FRAME_WORDS],
                bytes: Region::EMPTY,
                id: 0,
            }))
        })
    }

    fn give_back(&mut self, lent: &RxFrame) {
        if let Some(state) = &mut self.state {
            state.consumed(WorkId::of(lent.id));
        }
    }
}

impl Drop for RdmaWire {
    fn drop(&mut self) {
        drop(self.close());
    }
}

impl RdmaEngine {
    fn outcome(&mut self, op: OpId) -> Result<Option<Completion>> {
        match self.operations.get(op) {
            None => {
                fail!(DTL_ERROR_INTERNAL, "operation {:#x} of the wire is over or never was", op.0)
            }
            Some(&RdmaOperation::Done(done, _)) => {
                self.operations.remove(op);
                Ok(Some(done))
            }
            Some(_) => Ok(None),
        }
    }

    /// Returns true if data that this rank has sent is still in flight.
    fn is_busy(&mut self) -> bool {
        let mut is_busy = !self.unfinished.is_empty();
        for rank in 0..self.peers.ranks() {
            let Some(peer) =
                self.peers.get_mut(rank).filter(|peer| peer.stage != ConnectStage::Gone)
            else {
                continue;
            };
            match peer.is_busy(rank) {
                Ok(busy) => is_busy |= busy,
                Err(error) => self.fail_here(rank, error),
            }
        }
        is_busy
    }
}

impl WireDevices for RdmaWire {
    fn find(&mut self, memory: &DeviceMemory<'_>) -> DeviceMapping {
        let Some(state) = &self.state else { return DeviceMapping::No };
        let by_dmabuf = state.config.device_memory == Devices::Dmabuf;
        match state.cache.devices.find(memory.serial) {
            Some(Some(registered)) => DeviceMapping::Yes(registered),
            Some(None) => DeviceMapping::No,
            None if memory.region.len() as u64 > state.config.cache_bytes => DeviceMapping::No,
            None if by_dmabuf || memory.backend == BY_ADDRESS => DeviceMapping::New { by_dmabuf },
            None => DeviceMapping::No,
        }
    }

    fn add(
        &mut self,
        memory: &DeviceMemory<'_>,
        by: Option<Result<(OwnedFd, u64)>>,
    ) -> Option<Hold> {
        let cache = &mut self.state.as_mut()?.cache;
        // Another thread's message may have registered the allocation meanwhile.
        if let Some(known) = cache.devices.find(memory.serial) {
            return known.map(|registered| registered as Hold);
        }
        match by.transpose() {
            Ok(by) => cache.add_device(memory, by.as_ref()).map(|registered| registered as Hold),
            Err(error) => {
                cache.has_no_dmabuf(memory, &error);
                None
            }
        }
    }

    fn refusal(&self) -> Option<String> {
        self.state.as_ref().and_then(|state| state.cache.devices.refusal())
    }

    fn isend(
        &mut self,
        host: Region,
        shadow: &Arc<HostShadow>,
        dest: i32,
        word: u64,
    ) -> Result<OpId> {
        self.send(host, Some(shadow), dest, word)
    }

    fn irecv(
        &mut self,
        host: Region,
        shadow: &Arc<HostShadow>,
        source: i32,
        word: u64,
    ) -> Result<OpId> {
        self.receive(host, Some(shadow), source, word)
    }
}
