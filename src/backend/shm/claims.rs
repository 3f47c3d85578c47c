//! Offers of large messages, and who has them: the sender, until it withdraws one or the receiver takes it.
//!
//! One word for each offer that one rank can have open to another. Its life: FREE -> OFFERED and OFFERED ->
//! WITHDRAWN by the sender, OFFERED -> TAKEN and WITHDRAWN -> FREE by the receiver. One compare-exchange decides
//! between "taken" and "withdrawn", so a withdrawn message's bytes are never read. It is published by the record
//! of the offer, and given back by the answer to it.

use crate::sys::shared::Span;
use crate::sys::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sys::sync::{self, AtomicU64};

/// Large messages that one rank can have on offer to another at a time; more wait their turn.
const CLAIMS: u16 = sync::size(256, 1) as u16;
/// Bytes of the words.
pub(super) const BYTES: usize = 8 * CLAIMS as usize;

const FREE: u64 = 0;
const OFFERED: u64 = 1;
const TAKEN: u64 = 2;
const WITHDRAWN: u64 = 3;

fn word(words: &Span, claim: u16) -> Option<&AtomicU64> {
    (claim < CLAIMS).then(|| words.word(8 * usize::from(claim)))?
}

fn state(words: &Span, claim: u16) -> u64 {
    word(words, claim).map_or(WITHDRAWN, |word| word.load(Acquire))
}

fn change(words: &Span, claim: u16, from: u64, to: u64) -> bool {
    word(words, claim).is_some_and(|word| word.compare_exchange(from, to, AcqRel, Acquire).is_ok())
}

/// The sender's side.
pub(super) struct Offers {
    words: Span,
    /// Short numbers: there is a list for each rank that was talked to.
    free: Vec<u16>,
    /// Of withdrawn offers that the receiver has not seen yet.
    withdrawn: Vec<u16>,
}

impl Offers {
    pub(super) fn new(words: Span) -> Offers {
        Offers { words, free: (0..CLAIMS).collect(), withdrawn: Vec::with_capacity(CLAIMS.into()) }
    }

    /// Takes a claim for an offer; `None` while all are in use.
    pub(super) fn open(&mut self) -> Option<u16> {
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
        }
        let claim = self.free.pop()?;
        if let Some(word) = word(&self.words, claim) {
            word.store(OFFERED, Relaxed); // published by the offer's record
        }
        Some(claim)
    }

    /// Gives back the claim of an offer that was not sent or is finished.
    pub(super) fn close(&mut self, claim: u16) {
        self.free.push(claim);
    }

    /// Withdraws an offer; false if the receiver has taken it already.
    pub(super) fn withdraw(&mut self, claim: u16) -> bool {
        let won = change(&self.words, claim, OFFERED, WITHDRAWN);
        if won {
            self.withdrawn.push(claim);
        }
        won
    }
}

/// The receiver's side.
pub(super) struct Offered {
    words: Span,
}

impl Offered {
    pub(super) fn new(words: Span) -> Offered {
        Offered { words }
    }

    /// Whether an offer could be taken now.
    pub(super) fn is_open(&self, claim: u16) -> bool {
        state(&self.words, claim) == OFFERED
    }

    /// Takes an offer; false if it was withdrawn (the claim is free again then).
    pub(super) fn take(&self, claim: u16) -> bool {
        if change(&self.words, claim, OFFERED, TAKEN) {
            return true;
        }
        change(&self.words, claim, WITHDRAWN, FREE);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::shared::Memory;

    #[test]
    fn an_offer_is_taken_or_withdrawn() {
        let memory = Memory::create(4096).expect("memfd");
        memory.commit(0, 4096).expect("commit");
        let span = || memory.span(0, BYTES).expect("inside");
        let (mut offers, offered) = (Offers::new(span()), Offered::new(span()));
        let claim = offers.open().expect("claim");
        assert!(offered.is_open(claim) && offered.take(claim) && !offered.is_open(claim));
        assert!(!offers.withdraw(claim), "taken");
        offers.close(claim);
        let all: Vec<_> = std::iter::from_fn(|| offers.open()).collect();
        assert_eq!(all.len(), usize::from(CLAIMS));
        assert!(offers.withdraw(all[0]));
        assert_eq!(offers.open(), None, "the receiver has not seen it");
        assert!(!offered.take(all[0]));
        assert_eq!(offers.open(), Some(all[0]));
    }
}
