//! Time per message of the large messages from a rank.
//!
//! A message that is alone takes from its first to its last byte. The messages of a burst overlap
//! or follow each other, so none of them has a time of its own: the first one waits for the sender,
//! and messages that advance in turn end close together. Their time is the average over several. It
//! counts the messages that this rank has sent to the other one in the meantime, too. Else a method
//! would seem fast with which the messages of one direction wait for those of the other.

use super::copy_choice::CopyMethod;

/// Number of messages over which the time of the messages of a burst is averaged, if no other one
/// is in progress then. If messages overlap, the average is over the burst, up to `WINDOW`.
pub(super) const AVERAGED: u32 = 8;
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

/// Maximum number of bytes of large messages to a rank after its last large message if messages are
/// taken to travel in both directions: a large window.
const EXCHANGED: usize = 16 << 20;

/// Number of bits of the number of a large message.
const NUMBER_BITS: u32 = 14;
/// Positions of the fields of `LargeHeader` in a word of a record. `size` is in the bits below.
const RECEIVED_BIT: u32 = 32;
const NUMBER_BIT: u32 = RECEIVED_BIT + NUMBER_BITS;
const METHOD_BIT: u32 = NUMBER_BIT + NUMBER_BITS;

/// Word that a rank sends with a large message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LargeHeader {
    /// Number of bytes, or number of fragments that follow without a clear to send.
    pub(crate) size: u32,
    pub(crate) method: CopyMethod,
    /// Number of the message among the large messages from its sender to its receiver.
    number: u16,
    /// Number of the last message from its receiver that its sender had received before.
    received: u16,
}

impl LargeHeader {
    pub(crate) fn of(word: u64) -> LargeHeader {
        let number_at = |bit| (word >> bit) as u16 & number_of(u16::MAX);
        LargeHeader {
            size: word as u32,
            method: CopyMethod::of(word >> METHOD_BIT),
            number: number_at(NUMBER_BIT),
            received: number_at(RECEIVED_BIT),
        }
    }

    fn word(self) -> u64 {
        u64::from(self.size)
            | u64::from(self.received) << RECEIVED_BIT
            | u64::from(self.number) << NUMBER_BIT
            | (self.method as u64) << METHOD_BIT
    }
}

/// Returns the number of the message that is the `count`th one: numbers wrap around.
fn number_of(count: u16) -> u16 {
    count % (1 << NUMBER_BITS)
}

/// State of whether large messages travel in both directions between this rank and another one.
/// Each rank numbers its large messages to the other one. Each message has its number and that of
/// the last message that its sender had received before. If that is not the last one that this rank
/// has sent, both were sent at the same time.
#[derive(Default)]
pub(crate) struct Exchange {
    is_on: bool,
    /// Number of the last large message to the other rank, and of the last one that has arrived
    /// from it.
    sent: u16,
    arrived: u16,
    /// Value of `arrived` when the last transfer from the other rank ended.
    received: u16,
    /// Number of bytes of large messages to the other rank since its last one.
    bytes: usize,
    /// Time at which the start of the last large message began; 0 if it is not known or a message
    /// has arrived since.
    started_ns: u64,
    /// Time that the start took this rank.
    start_ns: u64,
}

impl Exchange {
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns the number of the next large message to the other rank.
    pub(crate) fn next(&self) -> u16 {
        number_of(self.sent + 1)
    }

    /// Returns the number of the last message that has arrived from the other rank.
    pub(crate) fn arrived(&self) -> u16 {
        self.arrived
    }

    /// Returns the number of the next message from the other rank.
    pub(crate) fn next_arrival(&self) -> u16 {
        number_of(self.arrived + 1)
    }

    /// Returns the word that the next large message to the other rank has.
    pub(crate) fn announce(&self, size: u32, method: CopyMethod) -> u64 {
        LargeHeader { size, method, number: self.next(), received: self.received }.word()
    }

    /// Records that a large message from the other rank arrives. `has_sends` is true if messages to
    /// that rank are in progress.
    pub(crate) fn arrive(&mut self, message: LargeHeader, has_sends: bool) {
        self.arrived = message.number;
        self.is_on = has_sends || message.received != self.sent;
        self.bytes = 0;
    }

    /// Records that a transfer from the other rank has ended.
    pub(crate) fn receive(&mut self) {
        self.received = self.arrived;
    }

    /// Records that a large message of `len` bytes to the other rank has been started. That began
    /// at `started_ns` and took `ns` nanoseconds; both are 0 if it was not measured.
    pub(crate) fn send(&mut self, len: usize, (started_ns, ns): (u64, u64)) {
        self.sent = self.next();
        self.bytes = self.bytes.saturating_add(len);
        self.is_on &= self.bytes <= EXCHANGED;
        (self.started_ns, self.start_ns) = (started_ns, ns);
    }

    /// Returns when this rank has started the message of its own that a message which arrives now
    /// crosses, and how long that took; both are 0 if there is none.
    pub(crate) fn take_start(&mut self) -> (u64, u64) {
        let started_ns = std::mem::take(&mut self.started_ns);
        if self.is_on && started_ns > 0 { (started_ns, self.start_ns) } else { (0, 0) }
    }
}

/// A transfer that has ended.
pub(crate) struct TransferEnd {
    pub(crate) method: CopyMethod,
    /// Argument of [`TransferTimes::begin`].
    pub(crate) begun_ns: u64,
    /// True if another receive from the rank is posted.
    pub(crate) is_awaited: bool,
}

impl TransferTimes {
    /// Returns true if the next transfer is to be timed: `is_sample` of the first message of a
    /// burst. In a burst that does not end, some messages by their `number` decide, too.
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

    /// Records that a transfer has ended without its last bytes.
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
        let TransferEnd { method, begun_ns, is_awaited } = *ended;
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

#[cfg(test)]
#[path = "tests/transfer_times.rs"]
mod tests;
