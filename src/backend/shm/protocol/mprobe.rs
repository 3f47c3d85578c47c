//! Probe and matched probe: returns the status of a message before it is received, or reserves the
//! message for one later receive.
//!
//! The sender can cancel a rendezvous message until its receive starts; the receive then completes
//! with CANCELED. So a sender's timeout holds regardless of what the receiver does with the
//! message.

use super::engine::{Arrival, Engine, Receive, ShmOperation, done};
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::*;
use crate::backend::op_table::Operations;
use crate::backend::shm::memory::segment::PeerState;
use crate::error::{Result, fail};
use crate::runtime::component::{Completion, Matched, OpId, Selector};
use crate::sys::memory::buf::Region;

impl Engine {
    /// Returns the status of the message that a receive with `select` would match now; `None` if
    /// there is none. Drops rendezvous requests that were canceled.
    pub(crate) fn probe(&mut self, select: Selector) -> Result<Option<Completion>> {
        if select.source != DTL_ANY_SOURCE {
            self.rank_of(select.source)?;
        }
        loop {
            let Some(message) = self.matcher.peek(&select) else { return self.nothing(select) };
            let source = usize::try_from(message.source).unwrap_or(0);
            let size = match &message.what {
                Arrival::Copied(copy) => copy.region().len() as u64,
                Arrival::Own(send) => self.size_of(*send),
                Arrival::Offered(offer, _) => {
                    let consumer = self.peers.link(source).and_then(|link| link.consumer.as_ref());
                    if !consumer.is_some_and(|consumer| consumer.offers.is_open(offer.claim)) {
                        self.drop_withdrawn(&select);
                        continue;
                    }
                    offer.size
                }
            };
            return Ok(Some(done(source, DTL_SUCCESS, message.match_bits, size)));
        }
    }

    fn size_of(&self, send: OpId) -> u64 {
        match self.operations.get(send) {
            Some(ShmOperation::Send(send)) => send.data.len() as u64,
            _ => 0,
        }
    }

    /// Drops the canceled request that a receive with `select` would match, and returns its claim
    /// to the sender.
    fn drop_withdrawn(&mut self, select: &Selector) {
        if let Some(message) = self.matcher.take_unexpected(select) {
            self.claim(&message);
        }
    }

    /// Drops all canceled requests of rank `source`, which needs their claims.
    pub(crate) fn drop_all_withdrawn(&mut self, source: usize) {
        let Some(consumer) = self.peers.link(source).and_then(|link| link.consumer.as_ref()) else {
            return;
        };
        let Ok(from) = i32::try_from(source) else { return };
        self.matcher.retain_unexpected(from, |what| match what {
            Arrival::Offered(offer, _) => !consumer.offers.release_withdrawn(offer.claim),
            _ => true,
        });
        cancel_probed(&mut self.operations, from, |what| match what {
            Arrival::Offered(offer, _) => consumer.offers.release_withdrawn(offer.claim),
            _ => false,
        });
    }

    /// Cancels send `id` to this rank itself. Returns false if its receive has started.
    pub(crate) fn cancel_own(&mut self, id: OpId) -> bool {
        let own = self.own();
        let is = |what: &Arrival| matches!(what, Arrival::Own(send) if *send == id);
        let matcher = &mut self.matcher;
        matcher.remove_unexpected(own, is).is_some() || cancel_probed(&mut self.operations, own, is)
    }

    fn nothing<T>(&self, select: Selector) -> Result<Option<T>> {
        match self.gone(select.source) {
            Some(rank) => fail!(
                DTL_ERROR_RANK_FAILURE,
                "no message is there and none can come: rank {rank} has died or left"
            ),
            None => Ok(None),
        }
    }

    /// Removes the message that a receive with `select` would match now and reserves it for one
    /// receive; `None` if there is none.
    pub(crate) fn take(&mut self, select: Selector) -> Result<Option<Matched>> {
        let Some(done) = self.probe(select)? else { return Ok(None) };
        // The slot is allocated first, so that no message is lost if there is no memory.
        let message = self.operations.add(ShmOperation::Done(done))?;
        if let (Some(taken), Some(place)) =
            (self.matcher.take_unexpected(&select), self.operations.get_mut(message))
        {
            *place = ShmOperation::Taken(taken);
        }
        Ok(Some(Matched { message, done }))
    }

    /// Starts the receive of reserved message `message`; the receive has the same ID.
    pub(crate) fn receive_matched(&mut self, message: OpId, into: Region) -> Result<OpId> {
        let place = self.operations.get_mut(message);
        let Some(place @ (ShmOperation::Taken(_) | ShmOperation::Withdrawn(_))) = place else {
            return fail!(
                DTL_ERROR_INVALID_HANDLE,
                "message {:#x} was received or never taken",
                message.0
            );
        };
        let taken = std::mem::replace(
            place,
            ShmOperation::Receive(Receive { into, source: DTL_ANY_SOURCE, taken: None }),
        );
        let taken = match taken {
            ShmOperation::Taken(taken) => taken,
            ShmOperation::Withdrawn(outcome) => {
                self.finish(message, outcome);
                return Ok(message);
            }
            _ => return Ok(message),
        };
        let source = usize::try_from(taken.source).unwrap_or(0);
        let is_gone = self.peers.get(source).is_none_or(|peer| peer.state != PeerState::Present);
        if is_gone && matches!(taken.what, Arrival::Offered(..)) {
            self.finish_failed(message, source);
        } else if !self.claim(&taken) {
            self.finish(message, done(source, DTL_ERROR_CANCELED, taken.match_bits, 0));
        } else {
            self.give(message, taken);
        }
        Ok(message)
    }
}

/// Marks the reserved messages from rank `from` that `is_withdrawn` selects as canceled. Returns
/// true if there were any.
fn cancel_probed(
    operations: &mut Operations<ShmOperation>,
    from: i32,
    is_withdrawn: impl Fn(&Arrival) -> bool,
) -> bool {
    let mut found = false;
    for (_, operation) in operations.iter_mut() {
        let ShmOperation::Taken(taken) = operation else { continue };
        if taken.source == from && is_withdrawn(&taken.what) {
            let source = usize::try_from(from).unwrap_or(0);
            *operation =
                ShmOperation::Withdrawn(done(source, DTL_ERROR_CANCELED, taken.match_bits, 0));
            found = true;
        }
    }
    found
}
