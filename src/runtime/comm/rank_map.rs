//! Mapping between a communicator's ranks and its transport's ranks. The functions on the message
//! path are marked cold, because messages on a communicator of all ranks do not use a mapping.

use crate::runtime::component::Completion;

/// Rank mapping of a communicator whose ranks are not simply all of the transport's ranks in
/// ascending order.
pub(crate) struct Members {
    /// Transport rank of each communicator rank, indexed by communicator rank.
    world_ranks: Vec<i32>,
    /// Communicator rank of each transport rank, indexed by transport rank; -1 if that transport
    /// rank is not a member of the communicator.
    local_ranks: Vec<i32>,
}

impl Members {
    /// Creates the mapping of the transport ranks `outer` on a transport of `size` ranks. Returns
    /// `None` if `outer` consists of all ranks in ascending order, because then no rank has to be
    /// translated.
    pub(crate) fn new(outer: Vec<i32>, size: i32) -> Option<Self> {
        if outer.len() == size.unsigned_abs() as usize && (0..size).eq(outer.iter().copied()) {
            return None;
        }
        let mut inner = vec![-1; size.unsigned_abs() as usize];
        for (rank, member) in (0..).zip(&outer) {
            if let Some(slot) =
                usize::try_from(*member).ok().and_then(|member| inner.get_mut(member))
            {
                *slot = rank;
            }
        }
        Some(Members { world_ranks: outer, local_ranks: inner })
    }

    /// Returns the number of heap bytes of the mapping if `ours` of the `all` transport ranks are
    /// members.
    pub(crate) fn heap_bytes(ours: u64, all: u64) -> u64 {
        (ours + all) * size_of::<i32>() as u64
    }

    /// Converts a communicator rank to the transport's rank. Returns negative ranks
    /// (DTL_ANY_SOURCE, DTL_PROC_NULL) unchanged. Not inlined, because this function is not called
    /// for communicators that contain all of the transport's ranks in the same order.
    #[cold]
    #[inline(never)]
    pub(crate) fn to_world(&self, rank: i32) -> i32 {
        usize::try_from(rank)
            .ok()
            .and_then(|rank| self.world_ranks.get(rank).copied())
            .unwrap_or(rank)
    }

    /// Converts the source of the completion `done` to a communicator rank, in place.
    #[cold]
    #[inline(never)]
    pub(crate) fn localize(&self, done: &mut Completion) {
        done.source = self.to_local(done.source).unwrap_or(done.source);
    }

    /// Converts a transport rank to a communicator rank; `None` if the rank is not a member.
    pub(crate) fn to_local(&self, rank: i32) -> Option<i32> {
        let ours =
            usize::try_from(rank).ok().and_then(|rank| self.local_ranks.get(rank).copied())?;
        (ours >= 0).then_some(ours)
    }
}

#[cfg(test)]
#[path = "tests/rank_map.rs"]
mod tests;
