//! Implementation of the raw transport trait `Wire` over RDMA verbs; `p2p_protocol` adds message
//! matching, probing and cancellation.

use super::engine::RdmaEngine;
use super::operation::RdmaOperation;
use super::protocol::eager_slots::DATA;
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::*;
use crate::backend::op_table::{index_of, rank_of};
use crate::backend::p2p_protocol::{
    DeviceMapping, FRAME_BYTES, FRAME_WORDS, RxFrame, SleepMode, Wire, WireBuffers, WireDevices,
    WireFrames, WireWindows,
};
use crate::backend::rdma::config::Devices;
use crate::backend::rdma::endpoint::connect::busy;
use crate::backend::rdma::endpoint::peer::ConnectStage;
use crate::backend::rdma::endpoint::qp_state::WorkId;
use crate::error::{Result, fail};
use crate::runtime::component::{
    Completion, DeviceBuffer, DeviceMemory, Hold, MemoryExport, MemoryPlace, OpId, Properties,
};
use crate::sys::memory::buf::Region;
use crate::sys::sync::wait::{Backoff, Deadline};
use std::sync::Arc;

/// Maximum time, in nanoseconds, to wait for operations in flight when the transport is closed.
const FLUSH_NS: u64 = 5_000_000_000;

/// Name of the backend whose device memory can be registered by its address, which a kernel module
/// (nvidia_peermem) resolves. The pointers of other backends may not be addresses at all.
const BY_ADDRESS: &str = "cuda";

const _: () = assert!(FRAME_BYTES <= DATA);

impl Wire for RdmaEngine {
    fn properties(&self) -> &Arc<Properties> {
        &self.properties
    }

    fn frames(&mut self) -> Option<&mut dyn WireFrames> {
        Some(self)
    }

    fn isend(&mut self, data: Region, dest: i32, word: u64) -> Result<OpId> {
        self.send_payload((data, None), index_of(dest), word as u32)
    }

    fn irecv(&mut self, data: Region, source: i32, word: u64) -> Result<OpId> {
        self.receive_payload((data, None), index_of(source), word as u32)
    }

    fn test(&mut self, op: OpId) -> Result<Option<Completion>> {
        if op == OpId::COMPLETED {
            return Ok(Some(Completion {
                source: self.properties.rank,
                status: DTL_SUCCESS,
                match_bits: 0,
                size: 0,
            }));
        }
        if let Some(done) = self.outcome(op)? {
            return Ok(Some(done));
        }
        self.progress()?;
        self.outcome(op)
    }

    fn cancel(&mut self, _op: OpId) -> Result<()> {
        // `p2p_protocol` cancels payloads by messages, and frames are not operations.
        Ok(())
    }

    fn doze(&mut self, seen: &mut u64) -> SleepMode {
        self.sleep_mode(seen).unwrap_or(SleepMode::No)
    }

    fn notifies_on_close(&self) -> bool {
        true
    }

    /// Starts failure detection for rank `source`, from which a message is awaited, or for all
    /// ranks if `source` is DTL_ANY_SOURCE.
    fn awaits(&mut self, source: i32) {
        if source == DTL_ANY_SOURCE {
            self.oob.awaits_any(self.happened);
        } else if self.stage(index_of(source)) == ConnectStage::None {
            self.oob.awaits(source);
        }
    }

    fn memory(&self) -> Option<String> {
        Some(self.memory_text())
    }

    fn devices(&mut self) -> Option<&mut dyn WireDevices> {
        if self.config.device_memory == Devices::Staged { None } else { Some(self) }
    }

    fn buffers(&mut self) -> Option<&mut dyn WireBuffers> {
        Some(self)
    }

    fn failure_text(&self) -> Option<String> {
        self.failure.clone()
    }

    fn why_gone(&self, rank: i32) -> Option<String> {
        self.reason_gone(index_of(rank))
    }

    fn windows(&mut self) -> Result<&mut dyn WireWindows, &'static str> {
        Ok(self)
    }

    fn close(&mut self) -> Result<()> {
        let (deadline, mut backoff) = (Deadline::after(FLUSH_NS), Backoff::new());
        while self.is_busy() && !deadline.passed() {
            self.progress()?;
            backoff.pause();
        }
        self.oob.leave();
        crate::runtime::log::debug!("rdma: closed with {}", self.memory_text());
        Ok(())
    }
}

impl WireFrames for RdmaEngine {
    fn send(&mut self, head: &[u64; FRAME_WORDS], payload: Region, dest: i32) -> Result<()> {
        let dest = index_of(dest);
        self.reach(dest)?;
        match self.peers.get_mut(dest).map(|peer| peer.send_frame(head, payload)) {
            Some(Ok(true)) => Ok(()),
            Some(Ok(false)) | None => Err(busy()),
            Some(Err(error)) => {
                self.fail_here(dest, error);
                Err(busy())
            }
        }
    }

    fn next(&mut self, looks: bool) -> Result<Option<RxFrame>> {
        if looks && self.arrived.is_empty() {
            self.progress()?;
        }
        if let Some(frame) = self.arrived.pop_front() {
            return Ok(Some(frame));
        }
        Ok(self.lost.pop_front().map(|rank| RxFrame {
            source: rank_of(rank),
            status: DTL_ERROR_RANK_FAILURE,
            head: [0; FRAME_WORDS],
            bytes: Region::EMPTY,
            id: 0,
        }))
    }

    fn give_back(&mut self, lent: &RxFrame) {
        self.consumed(WorkId::of(lent.id));
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

    /// Returns true if work of this rank is not complete: data in flight, operations with unposted
    /// work requests, or pending rendezvous control records (notes).
    fn is_busy(&mut self) -> bool {
        let mut is_busy = !self.unfinished.is_empty();
        for rank in 0..self.peers.ranks() {
            let Some(peer) =
                self.peers.get_mut(rank).filter(|peer| peer.stage != ConnectStage::Gone)
            else {
                continue;
            };
            match peer.is_busy() {
                Ok(busy) => is_busy |= busy,
                Err(error) => self.fail_here(rank, error),
            }
        }
        is_busy
    }
}

impl WireBuffers for RdmaEngine {
    fn register(&mut self, buffer: Region, _place: MemoryPlace) -> Result<Option<Hold>> {
        self.cache.register_buffer(buffer).map(|registered| Some(registered as Hold))
    }

    fn deregister(&mut self, hold: Hold) -> Result<()> {
        if let Ok(registered) = hold.downcast() {
            self.cache.deregister_buffer(&registered);
        }
        Ok(())
    }
}

impl WireDevices for RdmaEngine {
    fn find(&mut self, memory: &DeviceMemory<'_>, is_retry: bool) -> Result<DeviceMapping> {
        let by_dmabuf = self.config.device_memory == Devices::Dmabuf;
        Ok(match self.cache.devices.find(memory.serial) {
            Some(Some(registered)) => DeviceMapping::Yes(registered),
            Some(None) if !is_retry => DeviceMapping::No,
            _ if memory.region.len() as u64 > self.config.cache_bytes => DeviceMapping::No,
            _ if by_dmabuf || memory.backend == BY_ADDRESS => DeviceMapping::New { by_dmabuf },
            _ => DeviceMapping::No,
        })
    }

    fn add(&mut self, memory: &DeviceMemory<'_>, by: Option<Result<MemoryExport>>) -> Result<Hold> {
        // Another thread's message may have registered the allocation meanwhile.
        if let Some(Some(known)) = self.cache.devices.find(memory.serial) {
            return Ok(known);
        }
        let by = by.transpose().inspect_err(|error| self.cache.has_no_dmabuf(memory, error))?;
        self.cache.add_device(memory, by.as_ref()).map(|registered| registered as Hold)
    }

    fn refusal(&self) -> Option<String> {
        self.cache.devices.refusal.clone()
    }

    fn freed(&mut self, serial: u64) {
        self.cache.devices.freed(serial);
    }

    fn isend(&mut self, data: DeviceBuffer<'_>, dest: i32, word: u64) -> Result<OpId> {
        self.send_payload((data.host, Some(data.shadow)), index_of(dest), word as u32)
    }

    fn irecv(&mut self, data: DeviceBuffer<'_>, source: i32, word: u64) -> Result<OpId> {
        self.receive_payload((data.host, Some(data.shadow)), index_of(source), word as u32)
    }
}
