//! Members that have destroyed a communicator which other ranks still use.
//!
//! A transport reports a rank that closed it. A communicator made from another shares its
//! transport, so the rank that destroys it marks its part of the board instead
//! (`runtime::component::Board`). A mark wakes no thread: calls that wait look at the mark when
//! they have waited for long. A communicator without a board has no such marks.
//!
//! A mark is seen past the messages that its rank has sent before. So a rank that has seen one
//! reads those first (`SharedMemory::catch_up`).

use crate::error::Result;
use crate::runtime::comm::Comm;
use crate::runtime::comm::coll::schedule::Schedule;

/// A request's collective looks at the marks once in so many polls: they share a line with what
/// ranks write at the end of each collective.
const LOOK_EVERY: u8 = 64;

/// Counts the polls between two looks.
#[derive(Default)]
pub(in crate::runtime::comm) struct PollCounter(u8);

impl PollCounter {
    /// Whether this poll is one of those that look.
    pub(in crate::runtime::comm) fn is_turn(&mut self) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0 % LOOK_EVERY == 0
    }
}

impl Comm {
    /// Whether another member is known to have destroyed this communicator.
    pub(in crate::runtime::comm) fn has_left(&self, rank: i32) -> bool {
        rank != self.rank && self.flat.as_ref().is_some_and(|flat| flat.has_left(rank))
    }

    /// Members that are known to have destroyed this communicator.
    pub(in crate::runtime::comm) fn left_ranks(&self) -> Vec<i32> {
        (0..self.size).filter(|rank| self.has_left(*rank)).collect()
    }

    /// Number of members that died, left, or destroyed this communicator.
    pub(in crate::runtime::comm) fn gone_count(&self) -> usize {
        let mut gone = self.failed_ranks();
        gone.extend(self.left_ranks());
        gone.sort_unstable();
        gone.dedup();
        gone.len()
    }
}

impl Schedule {
    /// Ends what waits for ranks that have left; the first of these that has sent nothing for it is
    /// the error.
    pub(in crate::runtime::comm) fn end_with_left(&mut self, comm: &Comm) -> Result<()> {
        let ask = |started, peer| match comm.has_left(peer) {
            true => comm.poll_peer(started, peer),
            false => Ok(None),
        };
        self.poll_with(comm, ask).map(drop)
    }
}
