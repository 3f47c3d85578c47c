//! Fast path that receives a message without creating an operation, over a raw transport (`Wire`)
//! that provides frame buffers. It serves an application that waits for one message while nothing
//! else is pending, as in a round trip of short messages.
//!
//! Matching order is preserved: a message is received directly only if no earlier posted receive
//! could match it and no message from its source is queued.

use super::engine::{Engine, done, fitting, index_of};
use super::frame::{FrameKind, HEADER, Header};
use super::{RxFrame, Wire};
use crate::abi::status::DTL_SUCCESS;
use crate::error::Result;
use crate::runtime::component::{Completion, Selector};
use crate::sys::memory::buf::Region;

/// Number of polling rounds while the engine is locked. All rounds together take 1 to 2
/// microseconds, about the latency of a reply.
const ROUNDS: u32 = 32;

/// Returns the number of polling rounds: 0 if the `Wire` has no frame buffers; 1 if ranks share
/// cores or if that is unknown, so that the caller soon yields its core; otherwise `ROUNDS`.
pub(super) fn rounds(wire: &mut dyn Wire) -> u32 {
    match (wire.frames().is_some(), wire.properties().is_oversubscribed) {
        (false, _) => 0,
        (true, Some(false)) => ROUNDS,
        (true, _) => 1,
    }
}

impl Engine {
    /// Receives the next message from the rank in `select`, if the message has arrived or arrives
    /// while this function polls, and fills in `completion`. Returns false, without having started
    /// a receive, if the message did not arrive or other work is pending.
    #[inline]
    pub(super) fn receive_at_once(
        &mut self,
        into: Region,
        select: &Selector,
        completion: &mut Completion,
    ) -> Result<bool> {
        for _ in 0..self.rounds {
            if !self.is_free_for(select.source) {
                break;
            }
            let Some(frames) = self.wire.frames() else { break };
            let Some(lent) = frames.next(true)? else { continue };
            let Some(header) = wanted(&lent, select) else {
                self.take_in(lent);
                continue;
            };
            into.copy_from(lent.bytes);
            self.give_back(&lent);
            *completion =
                done(index_of(lent.source), fitting(header.size, into), header.word, header.size);
            return Ok(true);
        }
        Ok(false)
    }

    /// Returns true if the next message from `source` can be received directly: `source` is a live
    /// rank other than this one, no queued message or posted receive precedes the message, and the
    /// engine has no other work.
    fn is_free_for(&self, source: i32) -> bool {
        let is_quiet =
            self.listed.is_empty() && self.payloads.is_empty() && self.windows.is_empty();
        let is_well = self.broken.is_none() && self.dying.is_empty();
        let rank = index_of(source);
        let is_other = rank < self.links.ranks() && rank != self.rank && !self.is_dead(rank);
        is_quiet && is_well && is_other && self.matcher.is_idle(source)
    }
}

/// Returns the header if the frame is a complete (eager) message that matches `select`, else
/// `None`.
#[inline]
fn wanted(lent: &RxFrame, select: &Selector) -> Option<Header> {
    if lent.status != DTL_SUCCESS || lent.source != select.source {
        return None;
    }
    let header = Header::of(lent.head, (HEADER + lent.bytes.len()) as u64)?;
    (header.kind == FrameKind::Eager && select.takes(lent.source, header.word)).then_some(header)
}
