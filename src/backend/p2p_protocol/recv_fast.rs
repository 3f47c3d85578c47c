//! Receives without an operation, over a wire that keeps memory for frames: of a program that waits
//! for one message, with nothing in its way, which is what a round trip of short messages consists
//! of.
//!
//! The order stays: a message is taken straight from the wire only if no receive was posted before
//! that could take it, and no message of that rank has been kept.

use super::engine::{Engine, done, fitting, index_of};
use super::frame::{FrameKind, HEADER, Header};
use super::{RxFrame, Wire};
use crate::abi::status::DTL_SUCCESS;
use crate::error::Result;
use crate::runtime::component::{Completion, Selector};
use crate::sys::memory::buf::Region;

/// Rounds in which the wire looks for what has come, with the engine locked: a microsecond or two,
/// about as long as an answer takes to come.
const ROUNDS: u32 = 32;

/// Returns how many over this wire: a rank without a processor of its own yields to others instead.
pub(super) fn rounds(wire: &mut dyn Wire) -> u32 {
    match (wire.frames().is_some(), wire.properties().is_oversubscribed) {
        (false, _) => 0,
        (true, Some(false)) => ROUNDS,
        (true, _) => 1,
    }
}

impl Engine {
    /// Receives the next message of the named rank, if it is there or comes soon, and fills `told`.
    /// False: it did not come, or other work is to be moved on; nothing was started.
    #[inline]
    pub(super) fn receive_at_once(
        &mut self,
        into: Region,
        select: &Selector,
        told: &mut Completion,
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
            *told =
                done(index_of(lent.source), fitting(header.size, into), header.word, header.size);
            return Ok(true);
        }
        Ok(false)
    }

    /// Whether nothing is under way but what the wire does by itself, and nothing is there or
    /// posted that comes before the next message of a rank.
    fn is_free_for(&self, source: i32) -> bool {
        let is_quiet =
            self.listed.is_empty() && self.payloads.is_empty() && self.windows.is_empty();
        let is_well = self.broken.is_none() && self.dying.is_empty();
        let rank = index_of(source);
        let is_other = rank < self.links.ranks() && rank != self.rank && !self.is_dead(rank);
        is_quiet && is_well && is_other && self.matcher.is_idle(source)
    }
}

/// The header of a frame that is a message which this receive takes.
#[inline]
fn wanted(lent: &RxFrame, select: &Selector) -> Option<Header> {
    if lent.status != DTL_SUCCESS || lent.source != select.source {
        return None;
    }
    let header = Header::of(lent.head, (HEADER + lent.bytes.len()) as u64)?;
    (header.kind == FrameKind::Eager && select.takes(lent.source, header.word)).then_some(header)
}
