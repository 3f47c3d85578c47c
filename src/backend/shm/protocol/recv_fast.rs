//! Receives without an operation: of a program that waits for one short message, with nothing in
//! its way. And what all that goes such a short way, sends too (`engine`), owes to the other ranks.
//!
//! What a round trip of short messages consists of; every other receive is `engine`'s. The order
//! stays: a message is taken straight from its ring only if no receive was posted before that could
//! take it, no message of that rank has been kept, and it is the ring's next.

use super::engine::{Engine, done, fitting};
use crate::backend::shm::memory::ring::RecordKind;
use crate::runtime::component::{Completion, Selector};
use crate::sys::memory::buf::Region;

/// Looks at a ring, with the transport locked: a few hundred nanoseconds, in which other threads of
/// this rank wait and other ranks are not served.
const LOOKS: u32 = 16;

/// Short ways from one to the next on which everything else is moved on first.
const TURN: u32 = 64;

impl Engine {
    /// A short way moves nothing else on. Now and then everything is, so that a stream of short
    /// messages keeps no other rank waiting for ever.
    #[inline]
    pub(in crate::backend::shm) fn progress_others(&mut self) {
        self.short_ways = self.short_ways.wrapping_add(1);
        if self.short_ways % TURN == 0 {
            self.progress();
        }
    }

    /// Receives the next message of the named rank, if it is there or comes soon, and fills `told`.
    /// `None`: it did not come, or needs the general path; nothing has changed.
    #[inline]
    pub(in crate::backend::shm) fn receive_at_once(
        &mut self,
        into: Region,
        select: &Selector,
        told: &mut Completion,
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
            into.copy_across(record.payload);
            let size = record.payload.len() as u64;
            consumer.pop(&record);
            *told = done(source, fitting(size, into), record.key, size);
            return Some(());
        }
        None
    }
}
