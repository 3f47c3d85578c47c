//! Cache of message headers: the match word of a message is sent once, and later messages with the
//! same match word carry no header words. So a message whose payload is one packet long fits into
//! one packet, and small messages become smaller.

use crate::backend::p2p_protocol::{FRAME_WORDS, eager_word};

/// Number of match words in the cache.
const HEADS: usize = 64;

/// Match words that both sides of a connection have cached, each at the index derived from its
/// hash. One side records the words it sends, the other those it receives, in the same order.
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
    /// Returns the index of `word`, and whether the peer has the word cached there.
    pub(crate) fn place(&self, word: u64) -> (usize, bool) {
        let place = (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize;
        (place, self.sent.get(place).is_some_and(|known| *known == Some(word)))
    }

    pub(crate) fn tell(&mut self, place: usize, word: u64) {
        self.sent.get_mut(place).into_iter().for_each(|known| *known = Some(word));
    }

    /// Caches the match word of a received header; `place` is its index counted from 1, and 0 means
    /// that the header has no match word.
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
