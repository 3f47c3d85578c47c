//! Offers of large messages, and who has them: the sender, until it withdraws one or the receiver
//! takes it.
//!
//! One word for each offer that one rank can have open to another. Its life: FREE -> OFFERED and
//! OFFERED -> WITHDRAWN by the sender, OFFERED -> TAKEN and WITHDRAWN -> FREE by the receiver. One
//! compare-exchange decides between "taken" and "withdrawn", so a withdrawn message's bytes are
//! never read. It is published by the record of the offer, and given back by the answer to it.
//!
//! A second word assigns the pieces of a message that was taken: the sender takes pieces from the
//! front, the receiver, if it reads the sender's memory, from the back, until they meet. So whoever
//! is there copies what is next, and nobody waits for more than the piece that the other has in
//! hand. A piece is taken by a compare-exchange, hence by one side only. That needs no more than
//! Relaxed: it is set by the receiver before the record that clears the sender to send, and records
//! report what is copied, too.

use crate::sys::os::shm_segment::Span;
use crate::sys::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sys::sync::{self, AtomicU64};
use std::ops::Range;

/// Large messages that one rank can have on offer to another at a time; more wait their turn.
const CLAIMS: u16 = sync::size(4096, 1) as u16;
/// Those of them whose words have memory from the beginning.
const FIRST_CLAIMS: u16 = sync::size(256, 1) as u16;
/// A claim's two words.
const PAIR: usize = 16;
/// Bytes of all words, and of the first ones.
pub(in crate::backend::shm) const BYTES: usize = PAIR * CLAIMS as usize;
pub(in crate::backend::shm) const FIRST_BYTES: usize = PAIR * FIRST_CLAIMS as usize;

/// Time between two tries to get memory for more.
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

/// The word with the range of pieces that are left: those from its low half up to its high half.
fn share(words: &Span, claim: u16) -> Option<&AtomicU64> {
    (claim < CLAIMS).then(|| words.word(PAIR * usize::from(claim) + 8))?
}

fn left(word: u64) -> Range<u32> {
    word as u32..(word >> 32) as u32
}

fn word_of(left: &Range<u32>) -> u64 {
    u64::from(left.start) | u64::from(left.end) << 32
}

/// Takes some of what is left; `choose` gives what is left then.
fn take_some(
    words: &Span,
    claim: u16,
    choose: impl Fn(&Range<u32>) -> Range<u32>,
) -> Option<(Range<u32>, Range<u32>)> {
    let share = share(words, claim)?;
    let mut known = share.load(Relaxed);
    loop {
        let before = left(known);
        if before.is_empty() {
            return None;
        }
        let after = choose(&before);
        match share.compare_exchange(known, word_of(&after), Relaxed, Relaxed) {
            Ok(_) => return Some((before, after)),
            Err(now) => known = now,
        }
    }
}

/// The sender's side.
pub(in crate::backend::shm) struct OwnClaims {
    words: Span,
    /// Short numbers: there is a list for each rank with messages.
    free: Vec<u16>,
    /// Of withdrawn offers that the receiver has not seen yet.
    withdrawn: Vec<u16>,
    /// The record that makes the receiver look for these was sent.
    is_asked: bool,
    /// All words have memory.
    is_grown: bool,
    /// When memory for them may be requested again, after there was none.
    not_before_ns: u64,
}

impl OwnClaims {
    pub(in crate::backend::shm) fn new(words: Span) -> OwnClaims {
        OwnClaims {
            words,
            free: (0..FIRST_CLAIMS).collect(),
            withdrawn: Vec::with_capacity(FIRST_CLAIMS.into()),
            is_asked: false,
            is_grown: false,
            not_before_ns: 0,
        }
    }

    /// Whether there would be more claims if all words had memory, and the time to request it has
    /// come.
    pub(in crate::backend::shm) fn can_grow(&self, now_ns: u64) -> bool {
        let is_wanted = !self.is_grown && CLAIMS > FIRST_CLAIMS && self.withdrawn.is_empty();
        is_wanted && now_ns >= self.not_before_ns
    }

    /// There is no memory for all words. Sends that wait look often, and the system takes long to
    /// refuse.
    pub(in crate::backend::shm) fn refused(&mut self, now_ns: u64) {
        self.not_before_ns = now_ns + ASK_AGAIN_NS;
    }

    /// All words have memory now.
    pub(in crate::backend::shm) fn grow(&mut self) {
        self.is_grown = true;
        self.free.extend(FIRST_CLAIMS..CLAIMS);
        self.withdrawn.reserve(CLAIMS.into());
    }

    /// Returns whether the receiver should be made to look for withdrawn offers. They otherwise
    /// keep their claims until it looks for such a message.
    pub(in crate::backend::shm) fn should_ask(&self) -> bool {
        !self.is_asked && !self.withdrawn.is_empty()
    }

    /// Records that the receiver was made to look for withdrawn offers.
    pub(in crate::backend::shm) fn asked(&mut self) {
        self.is_asked = true;
    }

    /// Takes a claim for an offer; `None` while all are in use.
    pub(in crate::backend::shm) fn open(&mut self) -> Option<u16> {
        if self.free.is_empty() {
            // No new memory: this is on the way of a send.
            let (words, free) = (&self.words, &mut self.free);
            self.withdrawn.retain(|&claim| {
                let is_seen = state(words, claim) == FREE;
                if is_seen {
                    free.push(claim);
                }
                !is_seen
            });
            self.is_asked &= self.free.is_empty();
        }
        let claim = self.free.pop()?;
        if let Some(word) = word(&self.words, claim) {
            word.store(OFFERED, Relaxed); // published by the offer's record
        }
        Some(claim)
    }

    /// Gives back the claim of an offer that was not sent or is finished.
    pub(in crate::backend::shm) fn close(&mut self, claim: u16) {
        self.free.push(claim);
    }

    /// Withdraws an offer; false if the receiver has taken it already.
    pub(in crate::backend::shm) fn cancel(&mut self, claim: u16) -> bool {
        let won = change(&self.words, claim, OFFERED, WITHDRAWN);
        if won {
            self.withdrawn.push(claim);
        }
        won
    }

    /// Takes the next piece to copy; `None`: none is left.
    pub(in crate::backend::shm) fn take_piece(&self, claim: u16) -> Option<u32> {
        take_some(&self.words, claim, |left| left.start + 1..left.end)
            .map(|(before, _)| before.start)
    }

    /// What is left.
    pub(in crate::backend::shm) fn left(&self, claim: u16) -> Range<u32> {
        share(&self.words, claim).map_or(0..0, |word| left(word.load(Relaxed)))
    }
}

/// The receiver's side.
pub(in crate::backend::shm) struct PeerClaims {
    words: Span,
}

impl PeerClaims {
    pub(in crate::backend::shm) fn new(words: Span) -> PeerClaims {
        PeerClaims { words }
    }

    /// Whether an offer could be taken now.
    pub(in crate::backend::shm) fn is_open(&self, claim: u16) -> bool {
        state(&self.words, claim) == OFFERED
    }

    /// Takes an offer; false if it was withdrawn (the claim is free again then).
    pub(in crate::backend::shm) fn take(&self, claim: u16) -> bool {
        if change(&self.words, claim, OFFERED, TAKEN) {
            return true;
        }
        self.release_withdrawn(claim);
        false
    }

    /// Gives the claim of a withdrawn offer back; false if it is not withdrawn.
    pub(in crate::backend::shm) fn release_withdrawn(&self, claim: u16) -> bool {
        change(&self.words, claim, WITHDRAWN, FREE)
    }

    /// Opens pieces of a taken message to both sides.
    pub(in crate::backend::shm) fn share(&self, claim: u16, pieces: Range<u32>) {
        if let Some(word) = share(&self.words, claim) {
            word.store(word_of(&pieces), Relaxed); // published by the record that clears the sender
        }
    }

    /// Takes up to `most` pieces from the back; `None`: none is left.
    pub(in crate::backend::shm) fn take_pieces(&self, claim: u16, most: u32) -> Option<Range<u32>> {
        let choose = |left: &Range<u32>| left.start..left.end - most.min(left.end - left.start);
        take_some(&self.words, claim, choose).map(|(before, after)| after.end..before.end)
    }

    /// Gives the pieces that were taken last back to the sender.
    pub(in crate::backend::shm) fn return_pieces(&self, claim: u16, count: u32) {
        if let Some(word) = share(&self.words, claim) {
            word.fetch_add(u64::from(count) << 32, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::os::shm_segment::SharedMapping;

    #[test]
    fn an_offer_is_taken_or_withdrawn() {
        let memory = SharedMapping::create(BYTES).expect("memfd");
        memory.commit(0, BYTES).expect("commit");
        let span = || memory.span(0, BYTES).expect("inside");
        let (mut offers, offered) = (OwnClaims::new(span()), PeerClaims::new(span()));
        let claim = offers.open().expect("claim");
        assert!(offered.is_open(claim) && offered.take(claim) && !offered.is_open(claim));
        assert!(!offers.cancel(claim), "taken");
        offers.close(claim);
        let all: Vec<_> = std::iter::from_fn(|| offers.open()).collect();
        assert_eq!(all.len(), usize::from(FIRST_CLAIMS));
        assert!(offers.can_grow(0) && !offers.should_ask());
        assert!(offers.cancel(all[0]));
        assert_eq!(offers.open(), None, "the receiver has not seen it");
        assert!(!offers.can_grow(0) && offers.should_ask(), "there is something to wait for");
        offers.asked();
        assert!(!offers.should_ask());
        assert!(!offered.take(all[0]));
        assert_eq!(offers.open(), Some(all[0]));
        assert!(offers.cancel(all[1]) && offers.should_ask());
        assert!(offered.release_withdrawn(all[1]) && !offered.release_withdrawn(all[2]));
        assert_eq!((offers.open(), offers.open()), (Some(all[1]), None));
        offers.refused(5);
        assert!(!offers.can_grow(4 + ASK_AGAIN_NS), "there was no memory a moment ago");
        assert!(offers.can_grow(5 + ASK_AGAIN_NS));
        offers.grow();
        assert_eq!(
            std::iter::from_fn(|| offers.open()).count(),
            usize::from(CLAIMS - FIRST_CLAIMS)
        );
    }

    #[test]
    fn pieces_are_taken_from_both_ends() {
        let memory = SharedMapping::create(BYTES).expect("memfd");
        memory.commit(0, BYTES).expect("commit");
        let span = || memory.span(0, BYTES).expect("inside");
        let (offers, offered) = (OwnClaims::new(span()), PeerClaims::new(span()));
        assert_eq!((offers.take_piece(5), offered.take_pieces(5, 3)), (None, None));
        offered.share(5, 0..6);
        assert_eq!((offers.take_piece(5), offered.take_pieces(5, 3)), (Some(0), Some(3..6)));
        assert_eq!((offers.take_piece(5), offers.left(5)), (Some(1), 2..3));
        assert_eq!((offered.take_pieces(5, 3), offers.take_piece(5)), (Some(2..3), None));
        offered.return_pieces(5, 1);
        assert_eq!((offers.take_piece(5), offers.left(5)), (Some(2), 3..3));
    }
}
