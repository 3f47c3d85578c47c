//! Numbers of the large messages between two ranks, and whether they travel in both directions.

use super::copy_method::CopyMethod;

/// Number of bytes, sent without a large message in return, after which messages are taken to
/// travel in one direction: a large window.
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
    /// Number of bytes in a `Long` record; in an `Offer`, number of fragments that precede the CTS.
    pub(crate) size: u32,
    pub(crate) method: CopyMethod,
    /// Number of the message among the large messages from its sender to its receiver.
    number: u16,
    /// Number of the last message that the sender had received from the receiver.
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

/// Whether large messages travel in both directions between this rank and another one. If a message
/// arrives whose sender had not received the last one from this rank, the two cross each other.
#[derive(Default)]
pub(crate) struct Exchange {
    pub(crate) is_on: bool,
    /// Number of the last large message to the other rank, and of the last one that has arrived
    /// from it.
    sent: u16,
    pub(crate) arrived: u16,
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
    /// Returns the number of the next large message to the other rank.
    pub(crate) fn next(&self) -> u16 {
        number_of(self.sent + 1)
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

    /// Records that a large message to the other rank is about to be sent. It crosses one that has
    /// arrived and is not received yet.
    pub(crate) fn prepare(&mut self) {
        self.is_on |= self.arrived != self.received && self.bytes <= EXCHANGED;
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

    /// Returns the start time, and the duration of the start, of the own message that crosses the
    /// one arriving now; both are 0 if there is none.
    pub(crate) fn take_start(&mut self) -> (u64, u64) {
        let started_ns = std::mem::take(&mut self.started_ns);
        if self.is_on && started_ns > 0 { (started_ns, self.start_ns) } else { (0, 0) }
    }
}

#[cfg(test)]
#[path = "tests/exchange.rs"]
mod tests;
