//! Which ranks of a transport a communicator consists of. The functions that messages call are
//! marked cold: messages of a communicator of all ranks call none.

use crate::runtime::component::Completion;

/// Ranks of a communicator that has not all of the transport's ranks in their order.
pub(in crate::runtime::comm) struct Members {
    /// The transport's rank of each of ours.
    world_ranks: Vec<i32>,
    /// Our rank of each of the transport's; -1 = not a member.
    local_ranks: Vec<i32>,
}

impl Members {
    /// Members of a transport with `size` ranks. `None` if they are all of them in their order:
    /// nothing has to be translated then.
    pub(in crate::runtime::comm) fn new(outer: Vec<i32>, size: i32) -> Option<Self> {
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

    /// Bytes that they take on the heap.
    pub(in crate::runtime::comm) fn heap_bytes(ours: u64, all: u64) -> u64 {
        (ours + all) * size_of::<i32>() as u64
    }

    /// The transport's rank of one of ours; negative ones (DTL_ANY_SOURCE, DTL_PROC_NULL) stay.
    /// (Out of the way of communicators of all ranks.)
    #[cold]
    #[inline(never)]
    pub(in crate::runtime::comm) fn to_world(&self, rank: i32) -> i32 {
        usize::try_from(rank)
            .ok()
            .and_then(|rank| self.world_ranks.get(rank).copied())
            .unwrap_or(rank)
    }

    /// A completion with its source as the communicator counts.
    #[cold]
    #[inline(never)]
    pub(in crate::runtime::comm) fn localize(&self, done: &mut Completion) {
        done.source = self.to_local(done.source).unwrap_or(done.source);
    }

    /// Our rank of one of the transport's.
    pub(in crate::runtime::comm) fn to_local(&self, rank: i32) -> Option<i32> {
        let ours =
            usize::try_from(rank).ok().and_then(|rank| self.local_ranks.get(rank).copied())?;
        (ours >= 0).then_some(ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translates_both_ways() {
        assert!(Members::new(vec![0, 1, 2], 3).is_none());
        let members = Members::new(vec![3, 1], 4).unwrap();
        assert_eq!((members.to_world(0), members.to_world(1), members.to_world(-2)), (3, 1, -2));
        assert_eq!(
            (members.to_local(3), members.to_local(1), members.to_local(0)),
            (Some(0), Some(1), None)
        );
        assert!(Members::new(vec![1, 0], 2).is_some());
    }
}
