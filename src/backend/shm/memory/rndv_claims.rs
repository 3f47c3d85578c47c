//! Claims: state of rendezvous requests, each of which either its sender cancels or its receiver
//! accepts.
//!
//! Each request that one rank can have open to another has one word. Its transitions are FREE ->
//! OFFERED and OFFERED -> WITHDRAWN by the sender, OFFERED -> TAKEN and WITHDRAWN -> FREE by the
//! receiver. One compare-exchange decides between TAKEN and WITHDRAWN, so the bytes of a canceled
//! message are never read. The Offer record publishes the claim; the answer to the request returns
//! it to the sender.
//!
//! A second word assigns the pieces of an accepted message: the sender claims pieces from the
//! front, and the receiver, if it reads the sender's memory, from the end, until they meet. So the
//! side that is running copies the next piece, and neither side waits for more than the piece that
//! the other is copying. A piece is claimed by a compare-exchange, hence by one side only. Relaxed
//! is sufficient: the receiver initializes the word before it sends the record that clears the
//! sender to send, and the completion of copies is reported by records, too.

use crate::sys::os::shm_segment::Span;
use crate::sys::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sys::sync::{self, AtomicU64, AtomicUpdate};
use std::ops::Range;

/// Maximum number of rendezvous requests that one rank can have open to another; further messages
/// are queued.
const CLAIMS: u16 = sync::size(4096, 1) as u16;
/// Number of claims whose words are committed initially.
const FIRST_CLAIMS: u16 = sync::size(256, 1) as u16;
/// Size of a claim's two words, in bytes.
const PAIR: usize = 16;
/// Size of all claims in bytes. `FIRST_BYTES` is the size of the initially committed claims.
pub(crate) const BYTES: usize = PAIR * CLAIMS as usize;
pub(crate) const FIRST_BYTES: usize = PAIR * FIRST_CLAIMS as usize;

/// Delay between two attempts to commit memory for more claims, in nanoseconds.
const ASK_AGAIN_NS: u64 = 10_000_000;

const FREE: u64 = 0;
const OFFERED: u64 = 1;
const TAKEN: u64 = 2;
const WITHDRAWN: u64 = 3;

fn word(words: &Span, claim: u16) -> Option<&AtomicU64> {
    (claim < CLAIMS).then(|| words.word(PAIR * usize::from(claim)))?
}

fn state(words: &Span, claim: u16) -> u64 {
    word(words, claim).map_or(WITHDRAWN, |word| word.load(Acquire))
}

fn change(words: &Span, claim: u16, from: u64, to: u64) -> bool {
    word(words, claim).is_some_and(|word| word.compare_exchange(from, to, AcqRel, Acquire).is_ok())
}

/// Returns the word with the range of unclaimed pieces: start in the low 32 bits, end in the high
/// 32 bits; `None` if `claim` is out of range.
fn share(words: &Span, claim: u16) -> Option<&AtomicU64> {
    (claim < CLAIMS).then(|| words.word(PAIR * usize::from(claim) + 8))?
}

fn left(word: u64) -> Range<u32> {
    word as u32..(word >> 32) as u32
}

fn word_of(left: &Range<u32>) -> u64 {
    u64::from(left.start) | u64::from(left.end) << 32
}

/// Claims some of the unclaimed pieces; `choose` returns the range that remains unclaimed. Returns
/// the range before and after, or `None` if no piece is left.
fn take_some(
    words: &Span,
    claim: u16,
    choose: impl Fn(&Range<u32>) -> Range<u32>,
) -> Option<(Range<u32>, Range<u32>)> {
    let take = |word| {
        let before = left(word);
        (!before.is_empty()).then(|| word_of(&choose(&before)))
    };
    let before = left(share(words, claim)?.checked_update(Relaxed, Relaxed, take).ok()?);
    let after = choose(&before);
    Some((before, after))
}

/// Sender's side of the claims on the requests to one rank.
pub(crate) struct OwnClaims {
    words: Span,
    /// Free claims. 16-bit indices, because there is a list per peer.
    free: Vec<u16>,
    /// Claims of canceled requests that the receiver has not released yet.
    withdrawn: Vec<u16>,
    /// True if the receiver was requested (Sweep) to release canceled requests.
    is_sweep_requested: bool,
    /// True if the words of all claims are committed.
    is_grown: bool,
    /// Earliest time of the next attempt to commit all words, in nanoseconds; set when one fails.
    not_before_ns: u64,
}

impl OwnClaims {
    pub(crate) fn new(words: Span) -> OwnClaims {
        OwnClaims {
            words,
            free: (0..FIRST_CLAIMS).collect(),
            withdrawn: Vec::with_capacity(FIRST_CLAIMS.into()),
            is_sweep_requested: false,
            is_grown: false,
            not_before_ns: 0,
        }
    }

    /// Returns true if committing all words would add claims, no canceled request is pending, and
    /// the retry delay has elapsed.
    pub(crate) fn can_grow(&self, now_ns: u64) -> bool {
        let is_wanted = !self.is_grown && CLAIMS > FIRST_CLAIMS && self.withdrawn.is_empty();
        is_wanted && now_ns >= self.not_before_ns
    }

    /// Records that memory for all words could not be committed. The next attempt is delayed,
    /// because waiting sends check often and a failing allocation is slow.
    pub(crate) fn refused(&mut self, now_ns: u64) {
        self.not_before_ns = now_ns + ASK_AGAIN_NS;
    }

    /// Adds the claims whose words have now been committed.
    pub(crate) fn grow(&mut self) {
        self.is_grown = true;
        self.free.extend(FIRST_CLAIMS..CLAIMS);
        self.withdrawn.reserve(CLAIMS.into());
    }

    /// Returns true if the receiver should be requested to release canceled requests. Without that
    /// request, these keep their claims until the receiver matches such a message.
    pub(crate) fn should_request_sweep(&self) -> bool {
        !self.is_sweep_requested && !self.withdrawn.is_empty()
    }

    /// Records that the receiver was requested to release canceled requests (Sweep).
    pub(crate) fn sweep_requested(&mut self) {
        self.is_sweep_requested = true;
    }

    /// Allocates a claim for a rendezvous request; `None` while all claims are in use.
    pub(crate) fn open(&mut self) -> Option<u16> {
        if self.free.is_empty() {
            // Allocates no memory, because this is on the path of a send.
            let (words, free) = (&self.words, &mut self.free);
            self.withdrawn.retain(|&claim| {
                let is_seen = state(words, claim) == FREE;
                if is_seen {
                    free.push(claim);
                }
                !is_seen
            });
            self.is_sweep_requested &= self.free.is_empty();
        }
        let claim = self.free.pop()?;
        if let Some(word) = word(&self.words, claim) {
            word.store(OFFERED, Relaxed); // published by the record of the request
        }
        Some(claim)
    }

    /// Frees the claim of a request that was not sent or is complete.
    pub(crate) fn close(&mut self, claim: u16) {
        self.free.push(claim);
    }

    /// Cancels a request; returns false if the receiver has already accepted it.
    pub(crate) fn cancel(&mut self, claim: u16) -> bool {
        let won = change(&self.words, claim, OFFERED, WITHDRAWN);
        if won {
            self.withdrawn.push(claim);
        }
        won
    }

    /// Claims the next piece for copying; `None` if no piece is left.
    pub(crate) fn take_piece(&self, claim: u16) -> Option<u32> {
        take_some(&self.words, claim, |left| left.start + 1..left.end)
            .map(|(before, _)| before.start)
    }

    /// Returns the range of unclaimed pieces.
    pub(crate) fn left(&self, claim: u16) -> Range<u32> {
        share(&self.words, claim).map_or(0..0, |word| left(word.load(Relaxed)))
    }
}

/// Receiver's side of the claims on the requests from one rank.
pub(crate) struct PeerClaims {
    words: Span,
}

impl PeerClaims {
    pub(crate) fn new(words: Span) -> PeerClaims {
        PeerClaims { words }
    }

    /// Returns true if the request is neither accepted nor canceled.
    pub(crate) fn is_open(&self, claim: u16) -> bool {
        state(&self.words, claim) == OFFERED
    }

    /// Accepts a request. Returns false if the sender has canceled it, and releases its claim in
    /// that case.
    pub(crate) fn take(&self, claim: u16) -> bool {
        if change(&self.words, claim, OFFERED, TAKEN) {
            return true;
        }
        self.release_withdrawn(claim);
        false
    }

    /// Releases the claim of a canceled request; returns false if the request is not canceled.
    pub(crate) fn release_withdrawn(&self, claim: u16) -> bool {
        change(&self.words, claim, WITHDRAWN, FREE)
    }

    /// Makes pieces of an accepted message claimable by both sides.
    pub(crate) fn share(&self, claim: u16, pieces: Range<u32>) {
        if let Some(word) = share(&self.words, claim) {
            word.store(word_of(&pieces), Relaxed); // published by the record that clears the sender
        }
    }

    /// Claims up to `most` pieces from the end; `None` if no piece is left.
    pub(crate) fn take_pieces(&self, claim: u16, most: u32) -> Option<Range<u32>> {
        let choose = |left: &Range<u32>| left.start..left.end - most.min(left.end - left.start);
        take_some(&self.words, claim, choose).map(|(before, after)| after.end..before.end)
    }

    /// Returns the last `count` claimed pieces to the sender.
    pub(crate) fn return_pieces(&self, claim: u16, count: u32) {
        if let Some(word) = share(&self.words, claim) {
            word.fetch_add(u64::from(count) << 32, Relaxed);
        }
    }
}

#[cfg(test)]
#[path = "tests/rndv_claims.rs"]
mod tests;
