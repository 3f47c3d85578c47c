//! Selection of the transport for each message, and any-source receives.
//!
//! A message between ranks of one node uses the node's transport, and any other message uses the
//! transport between nodes. Each transport does its own matching. A receive that names its source
//! is posted on the transport to that source. An any-source receive cannot be posted on both
//! transports, so it is deferred: each call to `progress` probes both transports for a matching
//! message. A receive that could match the same message as an earlier deferred receive is deferred
//! too, so that receives match in posting order. Therefore the candidates for deferred receives are
//! exactly the unexpected messages in the two transports. A message from a rank to itself uses the
//! node's transport.
//!
//! No function in this file except `close` blocks. `transport` protects the router with a lock.

use super::nodes::Nodes;
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::*;
use crate::backend::op_table::{Operations, index_of};
use crate::error::{Result, fail, failure};
use crate::runtime::component::{
    Completion, Dest, Liveness, Matched, OpId, PipelinedSource, Remote, Selector, SendMode,
    Transport,
};
use crate::sys::memory::buf::Region;
use std::sync::Arc;

/// Level of a transport: within the node, or between nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HierLevel {
    Node,
    Across,
}

/// Routes each message to the node's transport or the transport between nodes, and defers receives
/// whose message may arrive on either.
pub(super) struct Router {
    node: Box<dyn Transport>,
    across: Box<dyn Transport>,
    nodes: Nodes,
    operations: Operations<HierOperation>,
    /// Deferred receives, in posting order.
    held: Vec<DeferredReceive>,
    posted: u64,
    /// Transport to be probed first for the next any-source receive; alternates.
    turn: HierLevel,
}

/// Operation in flight.
#[derive(Clone, Copy)]
enum HierOperation {
    /// Operation that the transport at this level executes.
    At(HierLevel, OpId),
    /// Formerly deferred receive: its message has been found, and the transport at `level` receives
    /// the message as operation `op`.
    Found {
        level: HierLevel,
        op: OpId,
        held: DeferredReceive,
        is_withdrawn: bool,
    },
    /// A message that a matched probe of the transport at this level has matched.
    Taken(HierLevel, OpId),
    /// A deferred receive, which has not been posted on either transport.
    Held,
    Done(Completion),
}

/// A receive that has not been posted on either transport yet.
#[derive(Clone, Copy)]
struct DeferredReceive {
    id: OpId,
    /// Position of this receive in the order in which the deferred receives were posted.
    posted: u64,
    select: Selector,
    into: Region,
}

/// Returns true if some message could match both selectors.
fn overlap(a: &Selector, b: &Selector) -> bool {
    let any = a.source == DTL_ANY_SOURCE || b.source == DTL_ANY_SOURCE;
    (any || a.source == b.source) && (a.match_bits ^ b.match_bits) & !(a.ignore | b.ignore) == 0
}

impl Router {
    pub(super) fn new(node: Box<dyn Transport>, across: Box<dyn Transport>, nodes: Nodes) -> Self {
        Router {
            node,
            across,
            nodes,
            operations: Operations::default(),
            held: Vec::with_capacity(64),
            posted: 0,
            turn: HierLevel::Node,
        }
    }

    fn side(&self, level: HierLevel) -> &dyn Transport {
        match level {
            HierLevel::Node => self.node.as_ref(),
            HierLevel::Across => self.across.as_ref(),
        }
    }

    /// Returns the level (within the node or between nodes) of the transport to `rank`, and the
    /// rank's number in that transport.
    pub(super) fn level(&self, rank: i32) -> Result<(HierLevel, i32)> {
        let index = index_of(rank);
        let node = self.nodes.of.get(index).ok_or_else(|| {
            failure!(DTL_ERROR_INVALID_RANK, "rank {rank} is not in 0 … {}", self.across.size() - 1)
        })?;
        let own = usize::try_from(self.across.rank()).ok().and_then(|own| self.nodes.of.get(own));
        match self.nodes.local.get(index) {
            Some(local) if own == Some(node) => Ok((HierLevel::Node, *local)),
            _ => Ok((HierLevel::Across, rank)),
        }
    }

    /// Opens the memory of `rank` for copies by the OS kernel. Returns `None` if `rank` is not on
    /// this node or if the node's transport does not support such copies.
    pub(super) fn remote(&self, rank: i32) -> Option<Result<Arc<dyn Remote>>> {
        match self.level(rank).ok()? {
            (HierLevel::Node, local) => self.node.groups().cross_memory?.remote(local),
            (HierLevel::Across, _) => None,
        }
    }

    /// Converts the source of a completion at level `level` to the rank in this communicator.
    fn outward(&self, level: HierLevel, done: Completion) -> Completion {
        let is_local = level == HierLevel::Node;
        Completion { source: if is_local { self.outer(done.source) } else { done.source }, ..done }
    }

    fn outer(&self, local: i32) -> i32 {
        usize::try_from(local)
            .ok()
            .and_then(|local| self.nodes.mine.get(local))
            .copied()
            .unwrap_or(local)
    }

    /// Starts an operation on a transport by calling `act`. Allocates the entry in the table of
    /// operations first, so that no started operation is lost if memory is exhausted.
    fn start(
        &mut self,
        level: HierLevel,
        act: impl FnOnce(&dyn Transport) -> Result<OpId>,
    ) -> Result<OpId> {
        let id = self.operations.add(HierOperation::Held)?;
        match act(self.side(level)) {
            Ok(OpId::COMPLETED) => {
                self.operations.remove(id);
                return Ok(OpId::COMPLETED);
            }
            Ok(op) => self.set(id, HierOperation::At(level, op)),
            Err(error) => {
                self.operations.remove(id);
                return Err(error);
            }
        }
        Ok(id)
    }

    fn set(&mut self, id: OpId, what: HierOperation) {
        if let Some(operation) = self.operations.get_mut(id) {
            *operation = what;
        }
    }

    pub(super) fn isend(&mut self, data: Region, to: Dest, mode: SendMode) -> Result<OpId> {
        let (level, rank) = self.level(to.rank)?;
        self.start(level, |side| side.isend(data, rank, to.word, mode))
    }

    /// Starts a pipelined send. Returns `None`, without sending, if the transport does not support
    /// a pipelined send of this message.
    pub(super) fn isend_pipelined(
        &mut self,
        data: Region,
        dest: i32,
        word: u64,
        by: &Arc<PipelinedSource>,
    ) -> Result<Option<OpId>> {
        let (level, rank) = self.level(dest)?;
        let id = self.operations.add(HierOperation::Held)?;
        let pipeline = self.side(level).groups().pipeline;
        match pipeline.and_then(|side| side.isend_pipelined(data, rank, word, by)).transpose() {
            Ok(Some(op)) => {
                self.set(id, HierOperation::At(level, op));
                Ok(Some(id))
            }
            refused => {
                self.operations.remove(id);
                refused.map(|_| None)
            }
        }
    }

    pub(super) fn arrived(&self, id: OpId) -> usize {
        match self.operations.get(id) {
            Some(HierOperation::At(level, op)) => {
                self.side(*level).groups().pipeline.map_or(0, |side| side.arrived(*op))
            }
            _ => 0,
        }
    }

    pub(super) fn irecv(&mut self, into: Region, select: Selector) -> Result<OpId> {
        if select.source == DTL_ANY_SOURCE {
            if self.nodes.count == 1 {
                return self.start(HierLevel::Node, |side| side.irecv(into, select));
            }
        } else {
            let (level, source) = self.level(select.source)?;
            if !self.held.iter().any(|held| overlap(&held.select, &select)) {
                return self.start(level, |side| side.irecv(into, Selector { source, ..select }));
            }
        }
        self.held.try_reserve(1).map_err(|_| {
            failure!(DTL_ERROR_OUT_OF_MEMORY, "no memory for one more receive from any source")
        })?;
        let id = self.operations.add(HierOperation::Held)?;
        self.posted += 1;
        self.held.push(DeferredReceive { id, posted: self.posted, select, into });
        self.look_for_held();
        Ok(id)
    }

    // ---- deferred receives ----

    /// Returns the message that a receive with the selector `select` would match now, and the level
    /// of the transport on which the message arrived. Returns `None` if no such message has
    /// arrived.
    fn find(&mut self, select: Selector) -> Result<Option<(HierLevel, Completion)>> {
        if select.source != DTL_ANY_SOURCE {
            let (level, source) = self.level(select.source)?;
            let found = self.side(level).probe(Selector { source, ..select })?;
            return Ok(found.map(|done| (level, self.outward(level, done))));
        }
        // The transports alternate, so that a busy transport cannot starve the other.
        let order = match self.turn {
            HierLevel::Node => [HierLevel::Node, HierLevel::Across],
            HierLevel::Across => [HierLevel::Across, HierLevel::Node],
        };
        for level in order {
            match self.side(level).probe(select) {
                Ok(Some(done)) => {
                    self.turn =
                        if level == HierLevel::Node { HierLevel::Across } else { HierLevel::Node };
                    return Ok(Some((level, self.outward(level, done))));
                }
                // The communicator decides what the death of a rank means for a receive from any
                // source.
                Ok(None) => {}
                Err(error) if error.status() == DTL_ERROR_RANK_FAILURE => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Reserves the oldest message with the source and match bits of `found`.
    fn take_found(&self, level: HierLevel, found: &Completion) -> Result<Option<Matched>> {
        let source =
            if level == HierLevel::Node { self.level(found.source)?.1 } else { found.source };
        self.side(level).take(Selector { source, match_bits: found.match_bits, ignore: 0 })
    }

    /// Starts the deferred receives for which a message has arrived.
    fn look_for_held(&mut self) {
        let mut index = 0;
        while let Some(&held) = self.held.get(index) {
            let before = self.held.iter().take(index);
            let is_behind = before.clone().any(|earlier| overlap(&earlier.select, &held.select));
            if held.select.source != DTL_ANY_SOURCE && !is_behind {
                self.post(index, &held);
                continue;
            }
            match self.find(held.select) {
                Ok(None) => index += 1,
                Ok(Some((level, found))) => {
                    // An earlier deferred receive could match this message, which arrived after
                    // that receive was checked. The search continues at the earlier receive,
                    // because an older message for it may exist.
                    match before_of(&self.held, index, &found) {
                        Some(owner) => index = owner,
                        None => index += usize::from(!self.receive(index, &held, level, &found)),
                    }
                }
                Err(error) => self.leave(index, &held, Err(error)),
            }
        }
    }

    /// Posts the deferred receive at `index`. The caller must ensure that no earlier deferred
    /// receive can match the same message.
    fn post(&mut self, index: usize, held: &DeferredReceive) {
        let started = self.level(held.select.source).and_then(|(level, source)| {
            let posted = self.side(level).irecv(held.into, Selector { source, ..held.select });
            posted.map(|op| HierOperation::At(level, op))
        });
        self.leave(index, held, started);
    }

    /// Starts the receive of message `found`. Returns false if the sender has canceled the message.
    fn receive(
        &mut self,
        index: usize,
        held: &DeferredReceive,
        level: HierLevel,
        found: &Completion,
    ) -> bool {
        let Some(matched) = self.take_found(level, found).transpose() else { return false };
        let started = matched.and_then(|matched| {
            let op = self.side(level).receive_matched(matched.message, held.into)?;
            Ok(HierOperation::Found { level, op, held: *held, is_withdrawn: false })
        });
        self.leave(index, held, started);
        true
    }

    /// Removes a receive from the list of deferred receives, because it was started or has failed.
    fn leave(&mut self, index: usize, held: &DeferredReceive, started: Result<HierOperation>) {
        self.held.remove(index);
        let (source, match_bits, size) = (held.select.source, 0, 0);
        let what = started.unwrap_or_else(|error| {
            let status = error.status();
            HierOperation::Done(Completion { source, status, match_bits, size })
        });
        self.set(held.id, what);
    }

    // ---- probing ----

    /// Returns the message that a receive with the selector `select` would match if it were posted
    /// now, or `None` if no such message has arrived.
    fn free_message(&mut self, select: Selector) -> Result<Option<(HierLevel, Completion)>> {
        // Each round except the last starts a deferred receive.
        for _ in 0..=self.held.len() {
            if !self.held.is_empty() {
                self.look_for_held();
            }
            let Some((level, found)) = self.find(select)? else { return Ok(None) };
            if before_of(&self.held, self.held.len(), &found).is_none() {
                return Ok(Some((level, found)));
            }
        }
        Ok(None)
    }

    pub(super) fn probe(&mut self, select: Selector) -> Result<Option<Completion>> {
        self.progress();
        Ok(self.free_message(select)?.map(|(_, found)| found))
    }

    pub(super) fn take(&mut self, select: Selector) -> Result<Option<Matched>> {
        self.progress();
        let Some((level, found)) = self.free_message(select)? else { return Ok(None) };
        let id = self.operations.add(HierOperation::Held)?;
        match self.take_found(level, &found) {
            Ok(Some(matched)) => {
                self.set(id, HierOperation::Taken(level, matched.message));
                Ok(Some(Matched { message: id, done: self.outward(level, matched.done) }))
            }
            nothing => {
                self.operations.remove(id);
                nothing.map(|_| None)
            }
        }
    }

    /// Starts the receive of the matched message `message`. The ID of the message becomes the ID of
    /// the receive.
    pub(super) fn receive_matched(&mut self, message: OpId, into: Region) -> Result<OpId> {
        let Some(&HierOperation::Taken(level, taken)) = self.operations.get(message) else {
            return fail!(
                DTL_ERROR_INVALID_HANDLE,
                "message {:#x} was received or never taken",
                message.0
            );
        };
        let op = self.side(level).receive_matched(taken, into)?;
        self.set(message, HierOperation::At(level, op));
        Ok(message)
    }

    // ---- completion and cancellation ----

    pub(super) fn test(&mut self, id: OpId) -> Result<Option<Completion>> {
        if !self.held.is_empty() {
            self.look_for_held();
        }
        let operation = self.operations.get(id).ok_or_else(|| {
            failure!(DTL_ERROR_INVALID_HANDLE, "operation {:#x} is over or never was", id.0)
        })?;
        let (tested, over) = match *operation {
            HierOperation::Done(done) => (None, Some(done)),
            HierOperation::At(level, op) | HierOperation::Found { level, op, .. } => {
                let over = self.side(level).outcome(op)?;
                (Some(level), over.map(|done| self.outward(level, done)))
            }
            HierOperation::Held | HierOperation::Taken(..) => (None, None),
        };
        let Some(done) = over else {
            self.progress_but(tested);
            return Ok(None);
        };
        match self.operations.get(id) {
            Some(&HierOperation::Found { held, is_withdrawn: false, .. })
                if done.status == DTL_ERROR_CANCELED =>
            {
                self.put_back(held);
                Ok(None)
            }
            _ => {
                self.operations.remove(id);
                Ok(Some(done))
            }
        }
    }

    /// Defers a receive again, at its original position, because the sender canceled its message.
    fn put_back(&mut self, held: DeferredReceive) {
        let place = self.held.partition_point(|other| other.posted < held.posted);
        self.held.insert(place, held);
        self.set(held.id, HierOperation::Held);
    }

    pub(super) fn cancel(&mut self, id: OpId) -> Result<()> {
        match self.operations.get_mut(id) {
            Some(&mut HierOperation::At(level, op)) => self.side(level).cancel(op),
            Some(&mut HierOperation::Found { level, op, ref mut is_withdrawn, .. }) => {
                *is_withdrawn = true;
                self.side(level).cancel(op)
            }
            Some(HierOperation::Held) => {
                self.held.retain(|held| held.id != id);
                let (source, status) = (self.across.rank(), DTL_ERROR_CANCELED);
                let done = Completion { source, status, match_bits: 0, size: 0 };
                self.set(id, HierOperation::Done(done));
                Ok(())
            }
            Some(HierOperation::Taken(..) | HierOperation::Done(_)) | None => Ok(()),
        }
    }

    /// Makes progress on both transports, except on the one at level `tested`, on which the caller
    /// has just tested an operation.
    fn progress_but(&self, tested: Option<HierLevel>) {
        for level in [HierLevel::Node, HierLevel::Across] {
            // With one node, no message uses the transport between nodes.
            if tested != Some(level) && (level == HierLevel::Node || self.nodes.count > 1) {
                self.side(level).progress();
            }
        }
    }

    pub(super) fn progress(&mut self) {
        if !self.held.is_empty() {
            self.look_for_held();
        }
        self.progress_but(None);
    }

    // ---- failures and closing ----

    /// Returns the ranks that at least one of the transports reports as failed or as having left.
    pub(super) fn failed_ranks(&self) -> Vec<i32> {
        let of = |side: &dyn Transport| {
            side.groups().liveness.map_or_else(Vec::new, |side| side.failed_ranks())
        };
        let mut failed = of(self.across.as_ref());
        failed.extend(of(self.node.as_ref()).into_iter().map(|local| self.outer(local)));
        failed.sort_unstable();
        failed.dedup();
        failed
    }

    /// Returns the sum of the numbers of failed ranks that the two transports report. A rank may be
    /// counted twice; the sum is 0 if and only if no rank has failed.
    pub(super) fn failed_count(&self) -> usize {
        [&self.node, &self.across]
            .iter()
            .filter_map(|side| side.groups().liveness)
            .map(Liveness::failed_count)
            .sum()
    }

    pub(super) fn failure_text(&self) -> Option<String> {
        let of = |side: &dyn Transport| side.groups().diagnostics?.failure_text();
        of(self.across.as_ref()).or_else(|| of(self.node.as_ref()))
    }

    /// Closes both transports. The transport between nodes is closed first, because its close may
    /// wait for other nodes.
    pub(super) fn close(self) -> Result<()> {
        let across = self.across.close();
        self.node.close().and(across)
    }
}

/// Returns the index of the first deferred receive before `index` that matches message `found`, if
/// any.
fn before_of(held: &[DeferredReceive], index: usize, found: &Completion) -> Option<usize> {
    held.iter().take(index).position(|held| held.select.takes(found.source, found.match_bits))
}
