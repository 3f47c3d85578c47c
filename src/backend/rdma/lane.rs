//! A queue pair of a peer's, what is under way on it, and how its work requests are named.

use super::queue::Queue;
use super::slots::LANES;
use crate::runtime::backend::OpId;
use crate::sys::buf::Region;
use std::collections::VecDeque;

/// A queue pair and what is under way on it.
pub(super) struct Lane {
    pub(super) queue: Queue,
    /// Which rail it is on.
    pub(super) rail: usize,
    /// Messages that used a receive of the peer's, and how many it has said that it consumed.
    pub(super) sent: u32,
    pub(super) told: u32,
    /// Messages of the peer's that were consumed here, and what it was last told.
    pub(super) consumed: u32,
    pub(super) said: u32,
    /// The number of the last work request.
    pub(super) number: u32,
    pub(super) flying: VecDeque<Flying>,
}

/// A work request that is not known to be over.
pub(super) struct Flying {
    pub(super) number: u32,
    pub(super) what: What,
}

/// What to do when a work request is over.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Nothing,
    /// Nothing either, but it is told when it is over, and all before it with it.
    Mark,
    /// This slot is free again.
    Slot(usize),
    /// A part of this operation is done.
    Part(OpId),
    /// The same, whose bytes were in a slot.
    Sent(OpId, usize),
    /// The same, whose bytes are in a slot now and belong into memory of the program's.
    Got(OpId, usize, Region),
    /// What an element was is in this place.
    Answer(usize),
}

/// The identity of a work request: whose, of which lane, and which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WorkId {
    pub(super) is_receive: bool,
    pub(super) rank: usize,
    pub(super) lane: usize,
    /// A receive's slot, or a send's number.
    pub(super) number: u32,
}

impl WorkId {
    const RECEIVE: u64 = 1 << 63;

    pub(super) fn word(self) -> u64 {
        let kind = if self.is_receive { Self::RECEIVE } else { 0 };
        kind | (self.rank as u64 & 0x07FF_FFFF) << 36
            | (self.lane as u64 & 0xF) << 32
            | u64::from(self.number)
    }

    pub(super) fn of(word: u64) -> Self {
        WorkId {
            is_receive: word & Self::RECEIVE != 0,
            rank: (word >> 36 & 0x07FF_FFFF) as usize,
            lane: (word >> 32 & 0xF) as usize,
            number: word as u32,
        }
    }
}

const _: () = assert!(LANES <= 16);
