//! Windows: memory that peers' devices read and write without involving the target rank.
//!
//! Data is transferred directly if the local memory is registered, or if a put is small enough to
//! be inline; all other data is copied through send slots (registered buffers). An operation
//! completes when the peer's device has acknowledged all of it, so a flush sends nothing to the
//! target. Accumulate operations on elements of 8 bytes are in `atomics`; the library executes all
//! others with active messages.

use super::atomic_op::{AtomicKind, ELEMENT};
use super::engine::{RdmaEngine, RdmaWindow};
use super::operation::{OneSided, RdmaOperation, RmaDirection};
use crate::abi::word::dtl_dtype_t;
use crate::backend::op_table::index_of;
use crate::backend::p2p_protocol::{Begin, WireWindows};
use crate::backend::rdma::endpoint::qp_state::OnCompletion;
use crate::backend::rdma::memory::reg_cache::{self, Registered};
use crate::backend::rdma::protocol::eager_slots::{RAILS, SLOT};
use crate::backend::rdma::verbs::functions::ATOMIC_NONE;
use crate::backend::rdma::verbs::qp::{MrRange, Remote, WorkRequest};
use crate::error::{Result, fail};
use crate::runtime::component::{OpId, RmaOp, Swap, TargetRange};
use crate::sys::compute::elements;
use crate::sys::memory::buf::{Addr, Region};
use crate::sys::sync::wait::{Backoff, Deadline};

/// Number of words of a window key: the address of the memory, and one remote key (rkey) per rail,
/// two keys per word.
const KEY: usize = 1 + RAILS / 2;
/// Maximum time, in nanoseconds, that a closing window waits for its operations.
const CLOSE_NS: u64 = 5_000_000_000;

fn handle(number: usize) -> Addr {
    Addr::new(std::ptr::without_provenance_mut(number))
}

impl RdmaEngine {
    pub(crate) fn window(&self, window: Addr) -> Result<&RdmaWindow> {
        match self.windows.iter().find(|known| known.number == window.get()) {
            Some(window) => Ok(window),
            None => fail!(DTL_ERROR_INTERNAL, "no window {} is open", window.get()),
        }
    }

    /// Returns the rank and the remote memory of the target range `spot`.
    pub(crate) fn place(&self, window: Addr, spot: TargetRange) -> Result<(usize, Remote)> {
        let target = index_of(spot.target);
        match self.window(window)?.remotes.get(target).copied().flatten() {
            Some(place) => Ok((target, Remote { addr: place.addr + spot.offset as u64, ..place })),
            None => fail!(DTL_ERROR_INTERNAL, "the memory of rank {target} is not known"),
        }
    }

    fn copy(
        &mut self,
        window: Addr,
        local: Region,
        spot: TargetRange,
        path: RmaDirection,
    ) -> Result<OpId> {
        let (target, place) = self.place(window, spot)?;
        if target == self.rank {
            let there = self.window(window)?.memory.part(spot.offset, spot.len);
            match path {
                RmaDirection::Put => there.copy_from(local),
                RmaDirection::Get => local.copy_from(there),
            }
            return Ok(OpId::COMPLETED);
        }
        self.reach(target)?;
        let hold = self.cache.get(local);
        let window = window.get();
        let one_sided = OneSided { target, window, place, local, path, begun: 0, parts: 0, hold };
        let op = self.operations.add(RdmaOperation::OneSided(one_sided))?;
        self.start_more(op);
        Ok(op)
    }

    /// Posts the transfers of a put or get; returns true if all of them have been posted.
    pub(crate) fn start_copies(&mut self, op: OpId) -> Result<bool> {
        let longest = self.longest(0);
        let Some(RdmaOperation::OneSided(one)) = self.operations.get_mut(op) else {
            return Ok(true);
        };
        let Some(peer) = self.peers.get_mut(one.target) else { return Ok(true) };
        while one.begun < one.local.len() {
            let rest = one.local.part(one.begun, usize::MAX);
            let to = Remote { addr: one.place.addr + one.begun as u64, ..one.place };
            let is_put = one.path == RmaDirection::Put;
            let direct = match &one.hold {
                Some(hold) => Some((rest.part(0, longest), hold.lkey(0))),
                // A work request carries a few bytes inline, so they may be in unregistered memory.
                None if is_put && rest.len() <= peer.inline() => Some((rest, 0)),
                None => None,
            };
            let (region, has_started) = match direct {
                Some((region, lkey)) => {
                    let work = if is_put { WorkRequest::Write(to) } else { WorkRequest::Read(to) };
                    let local = MrRange { region, lkey, is_device: false };
                    (region, peer.start(0, (work, local), OnCompletion::Part(op))?)
                }
                None => {
                    let region = rest.part(0, SLOT);
                    (region, peer.start_with_slot(region, one.path, to, op)?)
                }
            };
            if !has_started {
                return Ok(false);
            }
            one.begun += region.len();
            one.parts += 1;
        }
        Ok(true)
    }
}

impl WireWindows for RdmaEngine {
    fn create(&mut self, memory: Region) -> Result<(Addr, Vec<u8>)> {
        let registered =
            if memory.is_empty() { None } else { Some(reg_cache::register(&self.rails, memory)?) };
        let [a, b, c, d] = registered.as_ref().map_or([0; RAILS], Registered::rkeys).map(u64::from);
        let words: [u64; KEY] = [memory.addr().get() as u64, a | b << 32, c | d << 32];
        self.last_window += 1;
        let number = self.last_window;
        let remotes = vec![None; self.peers.ranks()];
        self.windows.push(RdmaWindow { number, memory, registered, remotes });
        Ok((handle(number), words.iter().flat_map(|word| word.to_ne_bytes()).collect()))
    }

    fn attach(&mut self, window: Addr, rank: i32, key: &[u64], bytes: usize) -> Result<()> {
        let (Ok(rank), Some(&[addr, keys, _])) = (usize::try_from(rank), key.first_chunk::<KEY>())
        else {
            return fail!(DTL_ERROR_INTERNAL, "a key of {bytes} bytes for rank {rank}");
        };
        let rkey = keys as u32; // of the first rail
        let of = self.windows.iter_mut().find(|known| known.number == window.get());
        if let Some(place) = of.and_then(|of| of.remotes.get_mut(rank)) {
            *place = Some(Remote { addr, rkey });
        }
        Ok(())
    }

    fn destroy(&mut self, window: Addr) -> Result<()> {
        let (deadline, mut backoff) = (Deadline::after(CLOSE_NS), Backoff::new());
        let number = window.get();
        loop {
            let its_target = |(_, operation): (OpId, &mut RdmaOperation)| {
                operation.on_window().filter(|(window, _)| *window == number)
            };
            let busy = self.operations.iter_mut().find_map(its_target);
            let Some((_, target)) = busy else { break };
            if deadline.passed() {
                // The device must not access the buffers of a closed window any more.
                self.fail(target, "an operation on a window that is closed does not end");
            }
            self.progress()?;
            backoff.pause();
        }
        // No call tests the completed operations of a closed window any more.
        let if_over = |(id, operation): (OpId, &mut RdmaOperation)| match operation {
            RdmaOperation::Done(_, window) if *window == Some(number) => Some(id),
            _ => None,
        };
        let over: Vec<OpId> = self.operations.iter_mut().filter_map(if_over).collect();
        over.into_iter().for_each(|id| drop(self.operations.remove(id)));
        self.windows.retain(|known| known.number != number);
        Ok(())
    }

    /// Returns true if network cards execute all atomic operations on elements of `dtype` in this
    /// rank's memory.
    fn has_atomics(&mut self, window: Addr, dtype: dtl_dtype_t) -> Result<bool> {
        let memory = self.window(window)?.memory;
        let is_able = self.rails.first().is_some_and(|rail| {
            let limits = &rail.limits;
            limits.atomic_cap != ATOMIC_NONE
                && limits.max_qp_rd_atom > 0
                && limits.max_qp_init_rd_atom > 0
        });
        let is_aligned = memory.is_empty() || memory.addr().get() % ELEMENT == 0;
        Ok(is_able && is_aligned && elements::dtype_size(dtype) == Some(ELEMENT))
    }

    fn start(&mut self, window: Addr, begin: &Begin) -> Result<OpId> {
        match *begin {
            Begin::Op(to, RmaOp::Put(from)) => self.copy(window, from, to, RmaDirection::Put),
            Begin::Op(from, RmaOp::Get(into)) => self.copy(window, into, from, RmaDirection::Get),
            Begin::Op(to, RmaOp::Accumulate { from, result, by }) => {
                self.begin_atomic(window, to, AtomicKind::of(by.dtype, by.op)?, (from, result))
            }
            Begin::Op(to, RmaOp::CompareAndSwap(Swap { value, expected, result, .. })) => {
                self.begin_atomic(window, to, AtomicKind::Swap(expected), (value, result))
            }
            Begin::Flush(_) => Ok(OpId::COMPLETED),
        }
    }
}
