//! Fast paths for receives of short messages. A receive without an operation object serves
//! applications that wait for one message while no other operation is pending, as in a ping-pong
//! exchange. Windows of messages are delivered to posted receives by `read_short`. This file also
//! contains `progress_others`, through which fast-path receives and fast-path sends (in `engine`)
//! advance all other operations.
//!
//! All other receives use `engine`. Matching order is preserved: a message is received directly
//! from its ring only if no earlier posted receive could match it, no message from its source is
//! queued, and it is the next record in the ring.

use super::engine::{Engine, ShmOperation, done, fitting, rank_of};
use super::rx::PREFETCH_AFTER;
use super::transfer_times::EagerCopy;
use crate::backend::shm::memory::ring::RecordKind;
use crate::runtime::component::{Completion, OpId, Selector};
use crate::sys::memory::buf::Region;

/// Number of polls of a ring while the transport is locked. These polls take a few hundred
/// nanoseconds, during which other threads of this rank are blocked and other ranks are not served.
const LOOKS: u32 = 16;

/// Number of fast-path messages after which `progress` advances all other operations.
const TURN: u32 = 64;

impl Engine {
    /// Counts a fast-path message, and calls `progress` for every `TURN`-th one: the fast path does
    /// not advance any other operation, so a stream of fast-path messages would starve other ranks.
    pub(crate) fn progress_others(&mut self) {
        self.short_ways = self.short_ways.wrapping_add(1);
        if self.short_ways % TURN == 0 {
            self.progress();
        }
    }

    /// Receives the next message from the rank that `select` names, if the message has arrived or
    /// arrives while this function polls, and fills `completion`. Returns `None`, without consuming
    /// a message, if the message did not arrive or requires the general path in `engine`.
    pub(crate) fn receive_at_once(
        &mut self,
        into: Region,
        select: &Selector,
        completion: &mut Completion,
    ) -> Option<()> {
        let source = usize::try_from(select.source).ok()?;
        self.progress_others();
        if !self.matcher.is_idle(select.source) {
            return None;
        }
        let consumer = self.peers.link_mut(source)?.consumer.as_mut()?;
        for _ in 0..LOOKS {
            let Ok(next) = consumer.peek() else { return None };
            let Some(record) = next else {
                std::hint::spin_loop();
                continue;
            };
            if record.kind != RecordKind::Eager || !select.takes(select.source, record.key) {
                return None;
            }
            let measured = EagerCopy::begin(consumer, &record);
            into.copy_across(record.payload);
            let size = record.payload.len() as u64;
            consumer.pop(&record);
            if let Some(copy) = measured {
                self.end_eager(source, &copy);
            }
            *completion = done(source, fitting(size, into), record.key, size);
            return Some(());
        }
        None
    }

    /// Delivers the next records in the ring of rank `source`, up to `most`, as long as they are
    /// messages in their slots and the first posted receive matches. Returns their number.
    pub(super) fn read_short(&mut self, source: usize, most: usize) -> usize {
        let (from, mut count) = (rank_of(source), 0);
        let Some(posted) = self.matcher.posted_from(from) else { return 0 };
        let Some(consumer) = self.peers.consumer_mut(source) else { return 0 };
        while let Some(receive) = posted.front().filter(|_| count < most) {
            let message = consumer.peek_short();
            let Some((word, data)) = message.filter(|(word, _)| receive.select.takes(from, *word))
            else {
                break;
            };
            if let Some(operation) = self.operations.get_mut(receive.what) {
                operation.deliver(source, word, data, false);
            }
            posted.pop_front();
            consumer.pop_short();
            if count >= PREFETCH_AFTER {
                consumer.will_read();
            }
            count += 1;
        }
        count
    }

    /// Makes progress like `progress`, for a caller that waits for operation `id`. Once `id` is
    /// complete, unexpected messages stay in their ring: the caller may be about to post their
    /// receives, and storing a message takes longer than all other steps of its receive.
    pub(crate) fn progress_for(&mut self, id: OpId) -> bool {
        self.awaited = Some(id);
        let moved = self.progress();
        self.awaited = None;
        moved
    }

    /// Returns true if the operation for which progress is made is complete.
    pub(crate) fn has_awaited(&self) -> bool {
        let awaited = self.awaited.and_then(|id| self.operations.get(id));
        matches!(awaited, Some(ShmOperation::Done(_)))
    }
}
