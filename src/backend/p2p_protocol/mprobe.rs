//! Probe and matched probe. A probe returns the status of a message before it is received. A
//! matched probe also reserves the message for one later receive.
//!
//! The sender of a rendezvous message can cancel the message even after a matched probe has
//! reserved it. The receive of the message then completes with CANCELED.

use super::engine::{Arrival, Engine, MessageBytes, Operation, Receive, index_of};
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::*;
use crate::error::{Result, fail};
use crate::runtime::component::{Completion, Matched, OpId, Selector};
use crate::sys::memory::buf::Region;

impl Engine {
    pub(super) fn probe(&mut self, select: Selector) -> Result<Option<Completion>> {
        if select.source != DTL_ANY_SOURCE {
            self.check_rank(select.source)?;
        }
        self.progress()?;
        self.check_working()?;
        if let Some(message) = self.matcher.peek(&select) {
            let size = self.size_of(&message.what);
            return Ok(Some(Completion {
                source: message.source,
                status: DTL_SUCCESS,
                match_bits: message.match_bits,
                size,
            }));
        }
        match self.gone(select.source) {
            Some(rank) => {
                fail!(
                    DTL_ERROR_RANK_FAILURE,
                    "no message is there and none can come: rank {rank} has died"
                )
            }
            None => {
                self.wire.awaits(select.source);
                Ok(None)
            }
        }
    }

    fn size_of(&self, what: &Arrival) -> u64 {
        match what {
            Arrival::Held(MessageBytes::Copied(copy)) => copy.region().len() as u64,
            Arrival::Held(MessageBytes::Framed(_, size)) => *size as u64,
            Arrival::Held(MessageBytes::Lent(lent)) => lent.bytes.len() as u64,
            Arrival::Offered(offer) => offer.size,
            Arrival::Own(send) => match self.operations.get(*send) {
                Some(Operation::Send(send)) => send.data.len() as u64,
                _ => 0,
            },
        }
    }

    pub(super) fn take(&mut self, select: Selector) -> Result<Option<Matched>> {
        let Some(done) = self.probe(select)? else { return Ok(None) };
        self.operations.take(&mut self.matcher, &select, done).map(Some)
    }

    /// Starts the receive of the message that a matched probe has matched; the probe has assigned
    /// the operation ID `message`. The receive keeps this ID.
    pub(super) fn receive_matched(&mut self, message: OpId, into: Region) -> Result<OpId> {
        self.progress()?;
        let receive = Receive { into, source: DTL_ANY_SOURCE, place: None, taken: None };
        let taken = match self.operations.start_matched(message, receive) {
            Ok(Some(taken)) => taken,
            Ok(None) => return Ok(message),
            Err(error) => return self.check_working().and(Err(error)),
        };
        let source = index_of(taken.source);
        if matches!(taken.what, Arrival::Offered(_)) && self.gone(taken.source).is_some() {
            self.finish_failed(message, source, DTL_ERROR_RANK_FAILURE);
        } else {
            self.give(message, taken);
        }
        Ok(message)
    }
}
