//! The operations of a communicator that are in flight.

use super::atomics::Atomic;
use super::cache::Registered;
use super::slots::Note;
use super::window;
use crate::backend::operations::Operations;
use crate::runtime::backend::{Done, OpId, Twin};
use crate::sys::memory::buf::Region;
use std::sync::Arc;

/// An operation in flight.
pub(super) enum Operation {
    Receive(Receive),
    Send(Send),
    OneSided(OneSided),
    Atomic(Atomic),
    /// Over; on this window, if it was on one.
    Done(Done, Option<usize>),
}

/// The receive of a payload.
pub(super) struct Receive {
    pub(super) source: usize,
    pub(super) word: u32,
    /// The host's.
    pub(super) into: Region,
    /// Where devices write: that, or device memory.
    pub(super) place: Region,
    pub(super) twin: Option<Arc<Twin>>,
    /// Bytes that are there, or whose reading has begun.
    pub(super) got: usize,
    /// What is read from the peer, and reads under way.
    pub(super) from: Option<Note>,
    pub(super) parts: u32,
    /// Registered as long as the device may write there.
    pub(super) hold: Option<Arc<Registered>>,
}

/// The send of a payload.
pub(super) struct Send {
    pub(super) dest: usize,
    pub(super) word: u32,
    /// The host's.
    pub(super) data: Region,
    /// Where devices read: that, or device memory.
    pub(super) place: Region,
    pub(super) twin: Option<Arc<Twin>>,
    /// Bytes that were handed on.
    pub(super) begun: usize,
    pub(super) parts: u32,
    pub(super) way: Way,
    pub(super) hold: Option<Arc<Registered>>,
}

/// How a payload goes.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// Through slots.
    Pieces,
    /// Into the peer's memory.
    Write(Note),
    /// The peer reads it.
    Offered,
}

impl Operation {
    /// Ends it.
    pub(super) fn end(&mut self, done: Done) {
        *self = Operation::Done(done, self.on_window().map(|(window, _)| window));
    }

    /// The window that it is on, and the target.
    pub(super) fn on_window(&self) -> Option<(usize, usize)> {
        match self {
            Operation::OneSided(one_sided) => Some((one_sided.window, one_sided.target)),
            Operation::Atomic(atomic) => Some((atomic.window, atomic.target)),
            _ => None,
        }
    }
}

/// A put or get.
pub(super) struct OneSided {
    pub(super) target: usize,
    pub(super) window: usize,
    /// Where it goes to, or comes from.
    pub(super) place: window::Place,
    pub(super) local: Region,
    pub(super) way: window::Way,
    pub(super) begun: usize,
    pub(super) parts: u32,
    pub(super) hold: Option<Arc<Registered>>,
}

/// One part less; whether that was the last.
pub(super) fn part_over(operations: &mut Operations<Operation>, op: OpId) -> bool {
    let parts = match operations.get_mut(op) {
        Some(Operation::Send(send)) => &mut send.parts,
        Some(Operation::Receive(receive)) => &mut receive.parts,
        Some(Operation::OneSided(one_sided)) => &mut one_sided.parts,
        _ => return false,
    };
    *parts = parts.saturating_sub(1);
    *parts == 0
}
