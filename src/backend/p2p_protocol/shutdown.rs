//! Closing of a transport: sends pending frames of completed sends, ends the frame receives, then
//! closes the raw transport (`Wire`). The first two steps have a timeout each.

use super::FRAME_WORD;
use super::engine::{Control, Engine, PeerLink, rank_of};
use super::frame::FrameKind;
use crate::backend::p2p::P2pEngine;
use crate::error::{Error, Result};
use crate::runtime::component::OpId;
use crate::sys::memory::buf::Region;
use crate::sys::sync::wait::{self, Backoff, Deadline};

/// Maximum time to wait for pending frames and replies, in nanoseconds. The wait is limited,
/// because a peer that is computing does not read frames.
const FLUSH_NS: u64 = 5_000_000_000;
/// Maximum time, in nanoseconds, to wait until the receives posted for frames have ended.
const RECEIVES_NS: u64 = 1_000_000_000;

impl Engine {
    /// Closes the windows, sends pending frames, cancels the receives posted for frames and closes
    /// the `Wire`. Then leaks the frames of operations that are still pending, because the `Wire`
    /// may access them as long as the process runs.
    pub(super) fn close(mut self) -> Result<()> {
        // Fails in a thread that may not call the wire: then the wire ends its operations itself.
        while let Some(&(number, _)) = self.windows.last() {
            drop(self.close_window(number));
        }
        drop(self.flush());
        drop(self.end_receives());
        let closed = self.wire.close();
        let flying = self.links.values_mut().flat_map(|link| link.in_flight.drain(..));
        flying.chain(self.incoming.drain(..)).for_each(std::mem::forget);
        self.payloads.drain(..).for_each(std::mem::forget);
        closed
    }

    /// Closes a `Wire` on which this rank cannot receive. First sends a Leave frame (this rank
    /// failed to open its transport) to the other ranks, which may have opened their transports and
    /// must not wait for this rank.
    pub(super) fn give_up(mut self, error: &Error) {
        for rank in 0..self.links.ranks() {
            if self.is_other(rank) {
                self.queue_answer(rank, Control::Tell(FrameKind::Leave, 0));
            }
        }
        let _ = wait::poll(Deadline::after(FLUSH_NS), || match self.broken {
            None => self.write_on().map(|()| self.listed.is_empty().then_some(())),
            Some(_) => Ok(Some(())),
        });
        // Nothing more is to be written, and no receive is posted again.
        self.break_down(error.status(), None);
        drop(self.close());
    }

    /// Returns true if sends or payloads are in flight. Canceled rendezvous requests count if
    /// closing does not notify peers: a receiver that has answered such a request with Clear (clear
    /// to send) would otherwise wait forever for the payload.
    fn has_work(&self) -> bool {
        let waits = !self.wire.notifies_on_close();
        let is_busy = |link: &PeerLink| link.has_work() || waits && link.withdrawn > 0;
        !self.payloads.is_empty() || self.links.values().any(is_busy)
    }

    fn flush(&mut self) -> Result<()> {
        let flushed = wait::poll(Deadline::after(FLUSH_NS), || {
            if self.broken.is_some() || !self.has_work() {
                return Ok(Some(()));
            }
            self.progress().map(|()| None)
        });
        flushed.map(drop)
    }

    /// Cancels the receives posted for frames. If the `Wire` cannot cancel receives, completes each
    /// with a message that this rank sends to itself.
    fn end_receives(&mut self) -> Result<()> {
        let (deadline, mut backoff) = (Deadline::after(RECEIVES_NS), Backoff::new());
        let can_cancel = self.wire.can_cancel();
        if can_cancel {
            for (op, _) in &self.incoming {
                self.wire.cancel(*op)?;
            }
        }
        let mut own: Option<OpId> = None;
        let mut unread = 0;
        while (!self.incoming.is_empty() || own.is_some()) && !deadline.passed() {
            if !can_cancel && own.is_none() && unread == 0 {
                // An error means that there is no room or the wire has failed; then the deadline
                // ends the loop.
                own = self.wire.isend(Region::EMPTY, rank_of(self.rank), FRAME_WORD).ok();
                unread = usize::from(own.is_some());
            }
            if let Some(op) = own {
                if self.wire.test(op)?.is_some() {
                    own = None;
                }
            }
            let Some(&(op, _)) = self.incoming.front() else {
                backoff.pause();
                continue;
            };
            match self.wire.test(op)? {
                Some(done) => {
                    self.incoming.pop_front();
                    unread -=
                        usize::from(!can_cancel && unread > 0 && done.source == rank_of(self.rank));
                    backoff = Backoff::new();
                }
                None => backoff.pause(),
            }
        }
        Ok(())
    }
}
