//! Time per message of the large messages from a rank.
//!
//! A message that is alone takes from its first to its last byte. The messages of a burst overlap
//! or follow each other, so none of them has a time of its own: the first one waits for the sender,
//! and messages that advance in turn end close together. Their time is the average over the last
//! ones. It counts the messages that this rank has sent to the other one in the meantime, too. Else
//! a method would seem fast with which the messages of one direction wait for those of the other.

use super::copy_choice::CopyMethod;

/// Number of messages over which the time of the messages of a burst is averaged.
const AVERAGED: usize = 4;
/// If a receive was already posted, the time between two messages belongs to the second one if it
/// is at most this many times the time from its first to its last byte. After a longer time, the
/// sender was not sending.
const MOST_WAIT: u64 = 3;

/// End of a transfer.
#[derive(Clone, Copy, Default)]
struct End {
    ns: u64,
    /// Value of `TransferTimes::sent` at that time.
    sent: u64,
}

/// Ends of the last timed transfers from a rank.
#[derive(Default)]
pub(crate) struct TransferTimes {
    /// Number of transfers that have begun and have not ended.
    in_progress: u32,
    /// Time at which the only transfer in progress began.
    alone_ns: u64,
    /// The first `count` elements are the ends of the last transfers of the burst, the latest
    /// first. The last one may be the begin of the burst.
    ends: [End; AVERAGED],
    count: usize,
    /// Number of large messages sent to the rank (wraps around).
    sent: u64,
    /// Method of these transfers.
    method: Option<CopyMethod>,
    /// True if another receive was posted when the last of them ended.
    is_awaited: bool,
}

/// Maximum number of bytes of large messages to a rank after its last large message if messages are
/// taken to travel in both directions: a large window.
const EXCHANGED: usize = 16 << 20;

/// State of whether large messages travel in both directions between this rank and another one.
#[derive(Default)]
pub(crate) struct Exchange {
    is_on: bool,
    /// Number of bytes of large messages to the other rank since its last one.
    sent: usize,
}

impl Exchange {
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Records that a large message from the other rank begins. `has_sends` is true if messages to
    /// that rank are in progress.
    pub(crate) fn receive(&mut self, has_sends: bool) {
        *self = Exchange { is_on: has_sends, sent: 0 };
    }

    /// Records a message of `len` bytes to the other rank. Returns true if messages travel in both
    /// directions.
    pub(crate) fn send(&mut self, len: usize) -> bool {
        self.sent = self.sent.saturating_add(len);
        self.is_on &= self.sent <= EXCHANGED;
        self.is_on
    }
}

/// A transfer that has ended.
pub(crate) struct TransferEnd {
    pub(crate) method: CopyMethod,
    /// Result of [`TransferTimes::begin`].
    pub(crate) begun_ns: u64,
    /// True if another receive from the rank is posted.
    pub(crate) is_awaited: bool,
}

impl TransferTimes {
    /// Returns the number of transfers in progress.
    pub(crate) fn in_progress(&self) -> u32 {
        self.in_progress
    }

    /// Records that a transfer begins. `now` is the current time in nanoseconds, or 0 if the
    /// transfer is not timed.
    pub(crate) fn begin(&mut self, now: u64) {
        if self.in_progress == 0 {
            self.alone_ns = now;
        }
        self.in_progress += 1;
    }

    /// Records that a large message has been sent to the rank.
    pub(crate) fn count_sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Records that a transfer has ended without its last bytes.
    pub(crate) fn break_off(&mut self) {
        self.in_progress = self.in_progress.saturating_sub(1);
        self.count = 0;
    }

    /// Records that a transfer has ended. `clock` returns the current time in nanoseconds. Returns
    /// the time per message, and true if the message was alone. Returns `None` if the time is not
    /// known or is that of the first messages of a burst that goes on.
    pub(crate) fn end(
        &mut self,
        ended: &TransferEnd,
        clock: impl FnOnce() -> u64,
    ) -> Option<(u64, bool)> {
        self.in_progress = self.in_progress.saturating_sub(1);
        let TransferEnd { method, begun_ns, is_awaited } = *ended;
        if begun_ns == 0 {
            self.count = 0;
            return None;
        }
        let now = clock();
        let sent = self.sent;
        let wait = begun_ns.saturating_sub(self.ends[0].ns);
        let follows = self.count > 0
            && (wait == 0 || (self.is_awaited && wait <= MOST_WAIT * now.saturating_sub(begun_ns)));
        let is_first = !follows && self.alone_ns == begun_ns;
        if is_first {
            (self.ends[0], self.count) = (End { ns: begun_ns, sent }, 1);
        } else if !follows {
            self.count = 0;
        } else if self.method != Some(method) {
            self.count = 1;
        }
        let oldest = self.count.checked_sub(1).and_then(|at| self.ends.get(at)).copied();
        let received = self.count as u64;
        let is_over = self.in_progress == 0 && !is_awaited;
        let is_known = self.count == AVERAGED || is_over;
        self.ends.rotate_right(1);
        self.ends[0] = End { ns: now, sent };
        self.count = (self.count + 1).min(AVERAGED);
        (self.method, self.is_awaited) = (Some(method), is_awaited);
        let oldest = oldest.filter(|_| is_known)?;
        let messages = received + sent.wrapping_sub(oldest.sent);
        Some((now.saturating_sub(oldest.ns) / messages, is_first && is_over))
    }
}

#[cfg(test)]
#[path = "tests/transfer_times.rs"]
mod tests;
