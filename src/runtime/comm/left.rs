//! Members that have destroyed a communicator which other ranks still use.
//!
//! A transport reports a rank that closed it. A communicator made from another shares its transport, so the
//! rank that destroys it marks its part of the board instead (`runtime::backend::Board`). Nobody is woken: calls that
//! wait look at the mark when they have waited for long. A communicator without a board has no such marks.
//!
//! A mark is seen past the messages that its rank has sent before. So whoever has seen one reads those first
//! (`Transport::catch_up`).

use super::Comm;
use super::p2p::Started;
use super::schedule::Schedule;
use crate::abi::comm::DTL_ANY_SOURCE;
use crate::error::{Result, fail};
use crate::runtime::backend::Done;

/// A request's collective looks at the marks once in so many polls: they share a line with what ranks write at
/// the end of each collective.
const LOOK_EVERY: u8 = 64;

/// Counts the polls between two looks.
#[derive(Default)]
pub(super) struct Turns(u8);

impl Turns {
    /// Whether this poll is one of those that look.
    pub(super) fn is_turn(&mut self) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0 % LOOK_EVERY == 0
    }
}

impl Comm {
    /// Whether another member is known to have destroyed this communicator.
    pub(super) fn has_left(&self, rank: i32) -> bool {
        rank != self.rank && self.flat.as_ref().is_some_and(|flat| flat.has_left(rank))
    }

    /// Members that are known to have destroyed this communicator.
    pub(super) fn left_ranks(&self) -> Vec<i32> {
        (0..self.size).filter(|rank| self.has_left(*rank)).collect()
    }

    /// Number of members that died, left, or destroyed this communicator.
    pub(super) fn gone_count(&self) -> usize {
        let mut gone = self.failed_ranks();
        gone.extend(self.left_ranks());
        gone.sort_unstable();
        gone.dedup();
        gone.len()
    }

    /// For a call that has waited for long for an operation with the transport's rank `outer`: ends it if that
    /// rank has left and has sent nothing for it.
    #[cold]
    pub(super) fn poll_if_left(&self, started: Started, outer: i32) -> Result<Option<Done>> {
        let peer = self.members.as_ref().map_or(Some(outer), |members| members.inner(outer));
        match peer.filter(|peer| self.has_left(*peer)) {
            Some(peer) => self.poll_peer(started, peer),
            None => Ok(None),
        }
    }

    /// For a call that has waited for long for a message of a rank, which `look` looks for.
    #[cold]
    pub(super) fn look_if_left<T>(
        &self,
        source: i32,
        look: impl Fn() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        if source == DTL_ANY_SOURCE || !self.has_left(source) {
            return Ok(None);
        }
        self.link.transport.catch_up(self.outer(source));
        match look()? {
            Some(found) => Ok(Some(found)),
            None => fail!(DTL_ERROR_RANK_FAILURE, "no message from rank {source} {}", self.gone_text()),
        }
    }
}

impl Schedule {
    /// Ends what waits for ranks that have left; the first of these that has sent nothing for it is the error.
    #[cold]
    pub(super) fn end_with_left(&mut self, comm: &Comm) -> Result<()> {
        let ask = |started, peer| match comm.has_left(peer) {
            true => comm.poll_peer(started, peer),
            false => Ok(None),
        };
        self.poll_with(comm, ask).map(drop)
    }
}
