//! State of rendezvous requests. Each request has a claim: two words in shared memory. Each request
//! is either canceled by its sender or accepted by its receiver.
//!
//! The first word is the state of the request. The transitions are FREE -> OFFERED and OFFERED ->
//! WITHDRAWN by the sender, OFFERED -> TAKEN and WITHDRAWN -> FREE by the receiver. One
//! compare-exchange decides between TAKEN and WITHDRAWN, so the bytes of a canceled message are
//! never read. The `Offer` record publishes the claim; the answer to the request returns the claim
//! to the sender.
//!
//! The second word assigns the fragments of an accepted message: the sender claims fragments from
//! the front, to copy them to cells or to the receiver's memory. If the receiver reads the sender's
//! memory, it claims fragments from the end, until the two sides meet. So the side that is running
//! copies the next fragments, and neither side waits for more than the fragments that the other has
//! claimed. A fragment is claimed by a compare-exchange, so only one side claims it. Relaxed is
//! sufficient: the receiver initializes the word before it sends the Clear record, and the
//! completion of copies is also reported by records.

use crate::sys::os::shm_segment::Span;
use crate::sys::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sys::sync::{self, AtomicU64, AtomicUpdate};
use std::ops::Range;

/// Maximum number of rendezvous requests that one rank can have open to another; further messages
/// are queued.
const CLAIMS: u16 = sync::size(4096, 1) as u16;
/// Number of rendezvous requests whose state words are committed initially.
const FIRST_CLAIMS: u16 = sync::size(256, 1) as u16;
/// Size of the two state words of a rendezvous request, in bytes.
const PAIR: usize = 16;
/// Size, in bytes, of the state words of all rendezvous requests. `FIRST_BYTES` is the size of the
/// state words that are committed initially.
pub(crate) const BYTES: usize = PAIR * CLAIMS as usize;
pub(crate) const FIRST_BYTES: usize = PAIR * FIRST_CLAIMS as usize;

/// Delay between two attempts to commit memory for the state words of more requests, in
/// nanoseconds.
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

/// Returns the second state word of request `claim`, which contains the range of unclaimed
/// fragments: start in the low 32 bits, end in the high 32 bits. Returns `None` if `claim` is out
/// of range.
fn share(words: &Span, claim: u16) -> Option<&AtomicU64> {
    (claim < CLAIMS).then(|| words.word(PAIR * usize::from(claim) + 8))?
}

fn left(word: u64) -> Range<u32> {
    word as u32..(word >> 32) as u32
}

fn word_of(left: &Range<u32>) -> u64 {
    u64::from(left.start) | u64::from(left.end) << 32
}

/// Claims fragments of the message of request `claim`; `choose` receives the range of unclaimed
/// fragments and returns the range that remains unclaimed. Returns the unclaimed range before and
/// after the call, or `None` if no unclaimed fragment is left.
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

/// Sender-side state of the rendezvous requests to one rank.
pub(crate) struct OwnClaims {
    words: Span,
    /// Indices of the free state words of requests. The indices have 16 bits to save memory,
    /// because there is one such list per peer.
    free: Vec<u16>,
    /// Indices of canceled requests whose state words the receiver has not released yet.
    withdrawn: Vec<u16>,
    /// True if a `Sweep` record has requested that the receiver release the state words of canceled
    /// requests.
    is_sweep_requested: bool,
    /// True if the state words of all requests are committed.
    is_grown: bool,
    /// Earliest time of the next attempt to commit the state words of all requests, in nanoseconds;
    /// set when an attempt fails.
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

    /// Returns the number of open rendezvous requests to the rank.
    pub(crate) fn count_open(&self) -> u32 {
        let all = usize::from(if self.is_grown { CLAIMS } else { FIRST_CLAIMS });
        all.saturating_sub(self.free.len() + self.withdrawn.len()) as u32
    }

    /// Returns true if memory for the state words of more requests should be committed: not all
    /// state words are committed, the receiver has released the state words of all canceled
    /// requests, and the retry delay has elapsed.
    pub(crate) fn can_grow(&self, now_ns: u64) -> bool {
        let is_wanted = !self.is_grown && CLAIMS > FIRST_CLAIMS && self.withdrawn.is_empty();
        is_wanted && now_ns >= self.not_before_ns
    }

    /// Records a failed attempt to commit memory for the state words of all requests. The next
    /// attempt is delayed, because queued sends retry often and a failing allocation is slow.
    pub(crate) fn refused(&mut self, now_ns: u64) {
        self.not_before_ns = now_ns + ASK_AGAIN_NS;
    }

    /// Adds the newly committed state words to the free list.
    pub(crate) fn grow(&mut self) {
        self.is_grown = true;
        self.free.extend(FIRST_CLAIMS..CLAIMS);
        self.withdrawn.reserve(CLAIMS.into());
    }

    /// Returns true if a `Sweep` record should request that the receiver release the state words of
    /// canceled requests. Without that record, the state words of a canceled request stay in use
    /// until the receiver matches the canceled message.
    pub(crate) fn should_request_sweep(&self) -> bool {
        !self.is_sweep_requested && !self.withdrawn.is_empty()
    }

    /// Records that a `Sweep` record has asked the receiver to release the state words of canceled
    /// requests.
    pub(crate) fn sweep_requested(&mut self) {
        self.is_sweep_requested = true;
    }

    /// Allocates the state words of a new rendezvous request and returns their index; `None` while
    /// all state words are in use.
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

    /// Frees the state words of request `claim`, which was not sent or is complete.
    pub(crate) fn close(&mut self, claim: u16) {
        self.free.push(claim);
    }

    /// Cancels rendezvous request `claim`; returns false if the receiver has already accepted the
    /// request.
    pub(crate) fn cancel(&mut self, claim: u16) -> bool {
        let won = change(&self.words, claim, OFFERED, WITHDRAWN);
        if won {
            self.withdrawn.push(claim);
        }
        won
    }

    /// Claims fragments from the front of a message for the sender to copy: as many as `count`
    /// returns for the number of unclaimed fragments. `None` if no fragment is left.
    pub(crate) fn take_fragments(
        &self,
        claim: u16,
        count: impl Fn(u32) -> u32,
    ) -> Option<Range<u32>> {
        let choose = |left: &Range<u32>| left.start + count(left.end - left.start)..left.end;
        take_some(&self.words, claim, choose).map(|(before, after)| before.start..after.start)
    }

    /// Releases the `count` fragments that the sender claimed last, so that both sides can claim
    /// them.
    pub(crate) fn return_fragments(&self, claim: u16, count: u32) {
        if let Some(word) = share(&self.words, claim) {
            word.fetch_sub(count.into(), Relaxed);
        }
    }

    /// Returns the range of fragments that neither side has claimed for copying.
    pub(crate) fn left(&self, claim: u16) -> Range<u32> {
        share(&self.words, claim).map_or(0..0, |word| left(word.load(Relaxed)))
    }
}

/// Receiver-side state of the rendezvous requests from one rank.
pub(crate) struct PeerClaims {
    words: Span,
}

impl PeerClaims {
    pub(crate) fn new(words: Span) -> PeerClaims {
        PeerClaims { words }
    }

    /// Returns true if rendezvous request `claim` is neither accepted nor canceled.
    pub(crate) fn is_open(&self, claim: u16) -> bool {
        state(&self.words, claim) == OFFERED
    }

    /// Accepts rendezvous request `claim`. If the sender has canceled the request, releases the
    /// state words of the request and returns false.
    pub(crate) fn take(&self, claim: u16) -> bool {
        if change(&self.words, claim, OFFERED, TAKEN) {
            return true;
        }
        self.release_withdrawn(claim);
        false
    }

    /// Releases the state words of the canceled request `claim`; returns false if the request has
    /// not been canceled.
    pub(crate) fn release_withdrawn(&self, claim: u16) -> bool {
        change(&self.words, claim, WITHDRAWN, FREE)
    }

    /// Stores `fragments`, the range of fragments that the sender and the receiver of an accepted
    /// message can claim. The subsequent Clear record (CTS) makes this store visible to the other
    /// rank.
    pub(crate) fn share(&self, claim: u16, fragments: Range<u32>) {
        if let Some(word) = share(&self.words, claim) {
            word.store(word_of(&fragments), Relaxed); // published by the Clear record (CTS)
        }
    }

    /// Claims fragments from the end of a message: as many as `count` returns for the number of
    /// unclaimed fragments. `None` if no fragment is left.
    pub(crate) fn take_fragments(
        &self,
        claim: u16,
        count: impl Fn(u32) -> u32,
    ) -> Option<Range<u32>> {
        let choose = |left: &Range<u32>| left.start..left.end - count(left.end - left.start);
        take_some(&self.words, claim, choose).map(|(before, after)| after.end..before.end)
    }

    /// Releases the `count` fragments that the receiver claimed last, so that the sender can claim
    /// them.
    pub(crate) fn return_fragments(&self, claim: u16, count: u32) {
        if let Some(word) = share(&self.words, claim) {
            word.fetch_add(u64::from(count) << 32, Relaxed);
        }
    }
}

#[cfg(test)]
#[path = "tests/rndv_claims.rs"]
mod tests;
