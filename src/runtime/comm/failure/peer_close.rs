//! Members that have destroyed a communicator that other ranks still use.
//!
//! A transport reports a rank that closed the transport. A derived communicator shares its parent's
//! transport, so a rank that destroys a derived communicator sets a flag in its shared-memory
//! mailbox instead (`runtime::component::CollMailbox`). Setting the flag wakes no thread: a waiting
//! call reads the flags of the other ranks only after a long wait. A communicator without mailboxes
//! has no such flags.
//!
//! A rank may find the flag of another rank set before it has received the messages that the other
//! rank sent earlier. Therefore it receives those messages before it acts on the flag
//! (`SharedMemory::catch_up`).

use crate::runtime::comm::Comm;

/// Number of polls of a nonblocking collective between two reads of the flags by which ranks report
/// that they have destroyed the communicator. Frequent reads would cause cache misses, because the
/// flags share a cache line with words that ranks write at the end of each collective.
pub(crate) const LOOK_EVERY: u8 = 64;

impl Comm {
    /// Returns true if `rank` is another member that is known to have destroyed this communicator.
    pub(crate) fn has_left(&self, rank: i32) -> bool {
        rank != self.rank
            && self.mailboxes.as_ref().is_some_and(|mailboxes| mailboxes.mailbox.has_left(rank))
    }

    /// Returns the members that are known to have destroyed this communicator.
    pub(crate) fn left_ranks(&self) -> Vec<i32> {
        (0..self.size).filter(|rank| self.has_left(*rank)).collect()
    }

    /// Returns the number of members that died, closed the transport, or destroyed this
    /// communicator.
    pub(crate) fn gone_count(&self) -> usize {
        let mut gone = self.failed_ranks();
        gone.extend(self.left_ranks());
        gone.sort_unstable();
        gone.dedup();
        gone.len()
    }
}
