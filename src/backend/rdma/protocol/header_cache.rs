//! Cache of message headers: match bits are sent once, and later messages with the same match bits
//! carry no header words. So a message whose payload is one packet long fits into one packet, and
//! small messages are shorter.

use crate::backend::p2p_protocol::{FRAME_WORDS, eager_word};

/// Number of entries in the cache, each of which has the match bits of one message header.
const HEADS: usize = 64;

/// Match bits that both sides of a connection have cached. The index of a cache entry is derived
/// from a hash of its match bits. The sender of a message caches the match bits that it sends, and
/// the receiver caches those that it receives, in the same order.
pub(crate) struct HeaderCache {
    sent: [Option<u64>; HEADS],
    received: [Option<u64>; HEADS],
}

impl Default for HeaderCache {
    fn default() -> Self {
        HeaderCache { sent: [None; HEADS], received: [None; HEADS] }
    }
}

impl HeaderCache {
    /// Returns the cache index of the match bits `word`, and true if the peer has cached them
    /// there.
    pub(crate) fn place(&self, word: u64) -> (usize, bool) {
        let place = (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize;
        (place, self.sent.get(place).is_some_and(|known| *known == Some(word)))
    }

    pub(crate) fn tell(&mut self, place: usize, word: u64) {
        self.sent.get_mut(place).into_iter().for_each(|known| *known = Some(word));
    }

    /// Caches the match bits of a received header at index `place` - 1; `place` is 0 if the header
    /// has no match bits to cache.
    pub(crate) fn learn(&mut self, place: u32, head: &[u64; FRAME_WORDS]) {
        let place = (place as usize).wrapping_sub(1);
        if let (Some(known), Some(word)) = (self.received.get_mut(place), eager_word(head)) {
            *known = Some(word);
        }
    }

    pub(crate) fn known(&self, place: usize) -> Option<u64> {
        self.received.get(place).copied().flatten()
    }
}

const _: () = assert!(HEADS == 1 << (64 - 58));

#[cfg(test)]
#[path = "tests/header_cache.rs"]
mod tests;
