//! State and size of a communicator in one word, because every message reads both.

use std::sync::atomic::{AtomicU32, Ordering};

/// State of a communicator: open, closed (destroyed by this rank), or revoked by a rank that
/// shrinks it. Waiting calls end early unless the state is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum CommState {
    Open = 0,
    Closed = 1 << 31,
    Revoked = 1 << 31 | 1 << 30,
}

/// Size of the communicator in the low 30 bits and its state in the high bits. As an `i32` the word
/// is negative unless the communicator is open.
pub(crate) struct StateWord(AtomicU32);

const SIZE: u32 = (1 << 30) - 1;

impl StateWord {
    /// Creates the state word of an open communicator of `size` ranks.
    pub(crate) fn new(size: i32) -> Self {
        StateWord(AtomicU32::new(size as u32 & SIZE))
    }

    /// Returns true if `rank` (nonnegative) is below the size and the communicator is open.
    pub(crate) fn admits(&self, rank: i32) -> bool {
        rank < self.0.load(Ordering::Relaxed) as i32
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) & !SIZE == CommState::Open as u32
    }

    pub(crate) fn state(&self) -> CommState {
        match self.0.load(Ordering::Acquire) & !SIZE {
            0 => CommState::Open,
            state if state == CommState::Closed as u32 => CommState::Closed,
            _ => CommState::Revoked,
        }
    }

    pub(crate) fn set(&self, state: CommState) {
        let size = self.0.load(Ordering::Relaxed) & SIZE;
        self.0.store(size | state as u32, Ordering::Release);
    }

    /// Revokes the communicator if it is open.
    pub(crate) fn revoke(&self) {
        let size = self.0.load(Ordering::Relaxed) & SIZE;
        let revoked = size | CommState::Revoked as u32;
        let _before = self.0.compare_exchange(size, revoked, Ordering::AcqRel, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "tests/comm_state.rs"]
mod tests;
