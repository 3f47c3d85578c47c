//! Nonblocking execution of a schedule (the steps of a collective) on a communicator.

use super::{Advance, Pending, Schedule};
use crate::abi::status::*;
use crate::error::{Result, fail};
use crate::runtime::comm::Comm;
use crate::runtime::comm::coll::schedule_builder::Step;
use crate::runtime::comm::p2p::op_handle::OpHandle;
use crate::runtime::comm::shared_transport::Class;
use crate::runtime::component::{Completion, RecvReduction, SendMode};
use crate::runtime::types::{Kernel, Reduction};
use crate::sys::memory::buf::Region;

/// Returns the reduction of a message that is received into `data` if the step `next` reduces the
/// message.
fn reduction_of(kernel: Kernel, data: Region, next: Step) -> Option<RecvReduction> {
    let (into, left, right) = match next {
        Step::Reduce { into, from } => (into, into, from),
        Step::ReduceToRight { left, right } => (right, left, right),
        _ => return None,
    };
    let (is_left, replaces_other) = (data == left, data != into);
    let other = if is_left { right } else { left };
    let reduction = RecvReduction { kernel, other, is_left, replaces_other };
    (data == left || data == right).then_some(reduction)
}

impl Schedule {
    /// Advances the schedule as far as possible without blocking.
    pub(crate) fn advance(&mut self, comm: &Comm, tag: i32) -> Result<Advance> {
        let mut moved = false;
        while self.at < self.steps.len() {
            if !self.is_started {
                self.start(comm, tag)?;
                self.is_started = true;
            }
            moved |= self.poll_with(comm, |started, _| comm.poll(started))?;
            if !self.pending.is_empty() {
                return Ok(if moved { Advance::Moved } else { Advance::Waiting });
            }
            self.finish_round();
        }
        Ok(Advance::Done)
    }

    pub(super) fn round_steps(&self) -> impl Iterator<Item = Step> {
        let steps = self.steps.iter().skip(self.at).copied();
        steps.take_while(|step| !matches!(step, Step::Round))
    }

    fn start(&mut self, comm: &Comm, tag: i32) -> Result<()> {
        let round = self.at..self.at + self.round_steps().count();
        let kernel = self.reduction.as_ref().and_then(Reduction::kernel);
        for index in round.clone() {
            // Receives are posted first: a message that finds its receive posted is not buffered.
            let Some(&Step::Recv { from: peer, data }) = self.steps.get(index) else { continue };
            let next = kernel.zip(self.steps.get(index + 1));
            let by = next.and_then(|(kernel, next)| reduction_of(kernel, data, *next));
            let reducing = by.and_then(|by| comm.start_recv_reduce(data, peer, tag, by));
            // The transport does the work of the next step.
            if let (Some(_), Some(step)) = (&reducing, self.steps.get_mut(index + 1)) {
                *step = Step::Copy { into: Region::EMPTY, from: Region::EMPTY };
            }
            let started =
                reducing.unwrap_or_else(|| comm.start_recv(Class::Collective, data, peer, tag))?;
            self.pending.push(Pending { started, peer, expected: Some(data.len()) });
        }
        for index in round {
            let Some(&Step::Send { to: peer, data }) = self.steps.get(index) else { continue };
            let started =
                comm.start_send(Class::Collective, data, peer, tag, SendMode::Standard)?;
            self.pending.push(Pending { started, peer, expected: None });
        }
        Ok(())
    }

    /// Polls each operation in flight by calling `ask`, and removes the completed operations from
    /// the list `pending`. Returns true if at least one operation was complete.
    pub(crate) fn poll_with(
        &mut self,
        comm: &Comm,
        ask: impl Fn(OpHandle, i32) -> Result<Option<Completion>>,
    ) -> Result<bool> {
        let before = self.pending.len();
        for index in (0..before).rev() {
            let Some(pending) = self.pending.get(index) else { continue };
            let Some(mut done) = ask(pending.started, pending.peer)? else { continue };
            let pending = self.pending.swap_remove(index);
            check_size(&done, pending.expected, pending.peer)?;
            let what = if pending.expected.is_some() { "receive from" } else { "send to" };
            comm.check_done(&mut done, what, pending.peer)?;
        }
        Ok(self.pending.len() < before)
    }

    pub(super) fn finish_round(&mut self) {
        let mut count = 0;
        for step in self.round_steps() {
            count += 1;
            match (step, &self.reduction) {
                (Step::Reduce { into, from }, Some(by)) => by.apply(into, from),
                (Step::ReduceToRight { left, right }, Some(by)) => by.apply_to_right(left, right),
                (Step::Copy { into, from }, _) => into.copy_from(from),
                _ => {}
            }
        }
        self.at += count + 1;
        self.is_started = false;
    }

    /// Cancels all operations in flight, so that nothing accesses the caller's buffers any more. An
    /// operation that the transport cannot cancel stays in the list `pending`, so the scratch
    /// memory remains in use.
    pub(crate) fn abandon(&mut self, comm: &Comm) {
        self.pending.retain(|pending| match pending.started {
            OpHandle::Op(op) => comm.link.cancel(op).is_err(),
            _ => false,
        });
        self.at = self.steps.len();
    }

    /// Completes those operations of this schedule whose peers have destroyed the communicator.
    /// Fails if one of these operations has failed or can no longer complete.
    pub(crate) fn end_with_left(&mut self, comm: &Comm) -> Result<()> {
        let ask = |started, peer| match comm.has_left(peer) {
            true => comm.poll_peer(started, peer),
            false => Ok(None),
        };
        self.poll_with(comm, ask).map(drop)
    }
}

fn check_size(done: &Completion, expected: Option<usize>, peer: i32) -> Result<()> {
    let arrived = [DTL_SUCCESS, DTL_ERROR_TRUNCATED].contains(&done.status);
    match expected {
        Some(expected) if arrived && done.size != expected as u64 => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "rank {peer} sent {} bytes where this rank expects {expected}: do all ranks pass the \
             same count to the same collective?",
            done.size
        ),
        _ => Ok(()),
    }
}
