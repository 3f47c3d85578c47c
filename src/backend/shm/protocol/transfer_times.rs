//! Time per message of the messages from a rank.
//!
//! A large message that is alone takes from its first to its last byte. The messages of a burst
//! overlap or follow each other, so none of them has a time of its own: the first one waits for the
//! sender, and messages that advance in turn end close together. Their time is the average over
//! several. It counts the messages that this rank has sent to the other one in the meantime, too.
//! Otherwise a method that delays the messages of the other direction would seem fast.

use super::copy_choice::MessageSize;
use super::copy_method::CopyMethod;
use crate::backend::shm::memory::ring::{Consumer, ORDINARY, RingRecord};
use crate::sys::sync::wait::now_ns;

/// Number of messages of a burst over which their time is averaged if they do not overlap.
pub(super) const AVERAGED: u32 = 8;
/// Maximum of that number if they overlap.
const WINDOW: u32 = 64;
/// The time between two messages belongs to the second one if it is at most this many times the
/// time from its first to its last byte, and the receiver has waited: a receive was already posted,
/// or this rank has sent no large message in the meantime. After a longer time, the sender was not
/// sending.
const MOST_WAIT: u64 = 3;

/// Begin or end of a transfer.
#[derive(Clone, Copy, Default)]
struct Instant {
    /// 0 if the transfer is not timed.
    ns: u64,
    /// Value of `TransferTimes::sent` at that time.
    sent: u32,
    /// True if no other transfer was in progress.
    is_idle: bool,
}

/// Times of the last transfers from a rank.
#[derive(Default)]
pub(crate) struct TransferTimes {
    /// Number of transfers that have begun and have not ended.
    in_progress: u32,
    /// Time at which the only transfer in progress began, and the time at which this rank had
    /// started a message that it crosses, or 0.
    alone_ns: u64,
    started_ns: u64,
    /// True if the messages of the burst are timed.
    is_timed: bool,
    /// True if another receive was posted when the last transfer ended.
    is_awaited: bool,
    /// Method of the last transfer, and its end.
    method: Option<CopyMethod>,
    last: Instant,
    /// Begin of the messages that are averaged, and their number.
    first: Option<Instant>,
    count: u32,
    /// Number of large messages sent to the rank (wraps around).
    sent: u32,
}

/// A transfer that has ended.
pub(crate) struct TransferEnd {
    /// Number of bytes.
    pub(crate) len: usize,
    pub(crate) method: CopyMethod,
    /// Argument of [`TransferTimes::begin`].
    pub(crate) begun_ns: u64,
    /// True if another receive from the rank is posted.
    pub(crate) is_awaited: bool,
}

impl TransferTimes {
    /// Returns true if the next transfer is to be timed. The `is_sample` of a burst's first message
    /// decides, and that of every 1024th `number`.
    pub(crate) fn is_timed(&mut self, number: u16, is_sample: bool) -> bool {
        if self.in_progress == 0 || number % 1024 == 0 {
            self.is_timed = is_sample;
        }
        self.is_timed
    }

    /// Records that a transfer begins. `begun_ns` is the time when it began, or 0 if it is not
    /// timed. `started_ns` is the time when this rank started a message that it crosses, or 0.
    pub(crate) fn begin(&mut self, begun_ns: u64, started_ns: u64) {
        if self.in_progress == 0 {
            (self.alone_ns, self.started_ns) = (begun_ns, started_ns);
        }
        self.in_progress += 1;
    }

    /// Returns true if the transfer that ends is timed, and no other one is in progress or awaited.
    pub(crate) fn is_last(&self, ended: &TransferEnd) -> bool {
        ended.begun_ns > 0 && self.in_progress == 1 && !ended.is_awaited
    }

    /// Records that a large message has been sent to the rank.
    pub(crate) fn count_sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Records the end of a transfer that has no measured time.
    pub(crate) fn break_off(&mut self) {
        self.in_progress = self.in_progress.saturating_sub(1);
        (self.last, self.first) = (Instant::default(), None);
    }

    /// Records that a transfer has ended. `is_exchange` is true if messages travel in both
    /// directions. `clock` returns the current time in nanoseconds. Returns the time per message
    /// and the number of messages with that time. Returns `None` if the time is not known or is
    /// that of the first messages of a burst that goes on.
    pub(crate) fn end(
        &mut self,
        ended: &TransferEnd,
        is_exchange: bool,
        clock: impl FnOnce() -> u64,
    ) -> Option<(u64, u32)> {
        let TransferEnd { method, begun_ns, is_awaited, .. } = *ended;
        if begun_ns == 0 {
            self.break_off();
            return None;
        }
        self.in_progress = self.in_progress.saturating_sub(1);
        let (now, sent, last) = (clock(), self.sent, self.last);
        let wait = begun_ns.saturating_sub(last.ns);
        let has_waited = self.is_awaited || (last.sent == sent && !is_exchange);
        let is_soon = wait <= MOST_WAIT * now.saturating_sub(begun_ns);
        let follows = last.ns > 0 && (wait == 0 || (has_waited && is_soon));
        if !follows {
            let begin = Instant { ns: begun_ns, sent, is_idle: true };
            (self.first, self.count) = ((self.alone_ns == begun_ns).then_some(begin), 0);
        } else if self.first.is_none() || self.method != Some(method) {
            (self.first, self.count) = (Some(last), 0);
        }
        let is_idle = self.in_progress == 0;
        (self.last, self.method) = (Instant { ns: now, sent, is_idle }, Some(method));
        self.is_awaited = is_awaited;
        let first = self.first?;
        self.count += 1;
        // A part of each transfer in progress at the begin or at the end is copied outside the time
        // between them. With many messages, that part is small.
        let is_known = is_idle && first.is_idle && (self.count >= AVERAGED || !is_awaited);
        if !is_known && self.count < WINDOW {
            return None;
        }
        self.first = None;
        let (time, count) = (now.saturating_sub(first.ns), self.count);
        if follows || count > 1 {
            let messages = count + sent.wrapping_sub(first.sent);
            return Some((time / u64::from(messages), count));
        }
        if last.ns == 0 {
            return None; // whether it follows another message is not known
        }
        // The wait for a message that is sent at the same time belongs to the exchange.
        let wait = begun_ns.saturating_sub(self.started_ns);
        let wait = if self.started_ns > 0 && wait <= MOST_WAIT * time { wait } else { 0 };
        Some(if is_exchange { ((time + wait) / 2, 1) } else { (time, 1) })
    }
}

/// Measurement of the two copies of an eager message.
pub(crate) struct EagerCopy {
    pub(super) size: MessageSize,
    pub(super) method: CopyMethod,
    pub(super) sender_ns: u64,
    pub(super) begun_ns: u64,
}

impl EagerCopy {
    /// Begins the copy of the eager message in `record`, the next record of `consumer`, to its
    /// receive buffer. Returns `None` if its copies are not measured.
    #[inline(always)] // row: shm_send_recv_8
    pub(crate) fn begin(consumer: &Consumer, record: &RingRecord) -> Option<EagerCopy> {
        if record.payload.len() <= ORDINARY { None } else { Self::measured(consumer, record) }
    }

    #[inline(never)]
    fn measured(consumer: &Consumer, record: &RingRecord) -> Option<EagerCopy> {
        let [sender_ns, method] = consumer.copied();
        let (size, method) = (MessageSize::eager(record.payload.len()), CopyMethod::of(method));
        (sender_ns > 0).then(|| EagerCopy { size, method, sender_ns, begun_ns: now_ns() })
    }
}

#[cfg(test)]
#[path = "tests/transfer_times.rs"]
mod tests;
