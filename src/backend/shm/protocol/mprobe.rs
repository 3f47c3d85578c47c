//! Probe and matched probe: a probe returns the status of a message before it is received; a
//! matched probe also reserves the message for one later receive.
//!
//! The sender can cancel a rendezvous message until the receive of the message starts, even after a
//! matched probe. If the sender has canceled the message, the receive completes with CANCELED. So a
//! sender can cancel the message after a timeout, even if the receiver has probed the message and
//! never receives it.

use super::engine::{Arrival, Engine, Receive, ShmOperation, done, index_of, rank_of};
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::*;
use crate::error::{Result, fail};
use crate::runtime::component::{Completion, Matched, OpId, Selector};
use crate::sys::memory::buf::Region;

impl Engine {
    /// Returns the status of the message that a receive with selector `select` would match now;
    /// `None` if there is no such message. Drops rendezvous requests that were canceled.
    pub(crate) fn probe(&mut self, select: Selector) -> Result<Option<Completion>> {
        if select.source != DTL_ANY_SOURCE {
            self.rank_of(select.source)?;
        }
        loop {
            let Some(message) = self.matcher.peek(&select) else {
                return match self.gone(select.source) {
                    Some(rank) => fail!(
                        DTL_ERROR_RANK_FAILURE,
                        "no message is there and none can come: rank {rank} has died or left"
                    ),
                    None => Ok(None),
                };
            };
            let source = index_of(message.source);
            let size = match &message.what {
                Arrival::Copied(copy) => copy.region().len() as u64,
                Arrival::Own(send) => self.size_of(*send),
                Arrival::Offered(offer, _) => {
                    let consumer = self.peers.consumer(source);
                    if !consumer.is_some_and(|consumer| consumer.offers.is_open(offer.claim)) {
                        // A claim that is refused returns to the sender of the canceled request.
                        self.matcher.take_unexpected(&select).map(|message| self.claim(&message));
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

    /// Drops all canceled rendezvous requests from rank `source` and releases their state words,
    /// which that rank needs for new requests.
    pub(crate) fn drop_all_withdrawn(&mut self, source: usize) {
        let Some(consumer) = self.peers.consumer(source) else { return };
        let from = rank_of(source);
        self.matcher.retain_unexpected(from, |what| match what {
            Arrival::Offered(offer, _) => !consumer.offers.release_withdrawn(offer.claim),
            _ => true,
        });
        self.operations.cancel_taken(from, |what| match what {
            Arrival::Offered(offer, _) => consumer.offers.release_withdrawn(offer.claim),
            _ => false,
        });
    }

    /// Removes the message that a receive with selector `select` would match now and reserves that
    /// message for one receive; `None` if there is no such message.
    pub(crate) fn take(&mut self, select: Selector) -> Result<Option<Matched>> {
        let Some(done) = self.probe(select)? else { return Ok(None) };
        self.operations.take(&mut self.matcher, &select, done).map(Some)
    }

    /// Starts the receive of `message`, which a matched probe has matched; the ID of the receive is
    /// `message`.
    pub(crate) fn receive_matched(&mut self, message: OpId, into: Region) -> Result<OpId> {
        let receive = Receive { into, source: DTL_ANY_SOURCE, taken: None, by: None };
        let Some(taken) = self.operations.start_matched(message, receive)? else {
            return Ok(message);
        };
        let source = index_of(taken.source);
        if matches!(taken.what, Arrival::Offered(..)) && !self.peers.is_present(source) {
            self.finish_failed(message, source);
        } else if !self.claim(&taken) {
            self.operations.finish(message, done(source, DTL_ERROR_CANCELED, taken.match_bits, 0));
        } else {
            self.give(message, taken);
        }
        Ok(message)
    }
}
