//! A ring of records from one rank to another, in shared memory: one producer, one consumer.
//!
//! Layout (`STRIDE` bytes): the tail (bytes ever produced) and the head (bytes ever consumed), each
//! in cache lines of its own; the claim words of offered messages (`claims`); the records.
//!
//! Memory order. The producer writes a record with plain and relaxed stores and then stores the tail
//! with Release; the consumer loads the tail with Acquire before it reads what lies below it. So a
//! record is seen whole or not at all, also when its producer is killed half way. The other way round
//! the consumer stores the head with Release after its last read of a record, and the producer loads
//! it with Acquire before it writes that place again. Each word has one writer, so no store needs
//! more than that. These are all the atomics of the data path, in this file.

use crate::error::{Result, fail};
use crate::sys::buf::Region;
use crate::sys::shared::{Memory, Span, Word};
use crate::sys::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sys::sync::{self, AtomicU64};
use std::sync::Arc;

/// Bytes of records in a ring. A power of two.
pub(super) const CAPACITY: usize = sync::size(128 << 10, 256);
/// The largest payload of a record: a few of them fit, so both sides work at the same time.
pub(super) const FRAGMENT: usize = sync::size(16 << 10, 112);
/// Bytes before the records.
const HEADER: usize = 4096;
/// Bytes from one ring to the next.
pub(super) const STRIDE: usize = HEADER + CAPACITY;

const TAIL_AT: usize = 0;
const HEAD_AT: usize = 128;
const CLAIMS_AT: usize = 256;
/// Large messages that one rank can have on offer to another at a time; more wait their turn.
const CLAIMS: u16 = sync::size(256, 1) as u16;
/// Records start at multiples of a cache line.
const LINE: usize = 64;
/// A record's own words: kind, claim and length; key.
const WORDS: usize = 16;

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Nothing: the rest of the ring up to its end.
    Pad = 1,
    /// A whole message. Key: match word.
    Eager = 2,
    /// A large message is offered. Key: match word; arguments: size, operation, address or 0; claim.
    Offer = 3,
    /// "Send it through the ring". Key: the sender's operation; arguments: the receiver's operation,
    /// first byte, end.
    Clear = 4,
    /// Bytes of a message. Key: the receiver's operation.
    Data = 5,
    /// "I have all of it". Key: the sender's operation.
    Finish = 6,
}

impl Kind {
    fn of(number: u64) -> Option<Kind> {
        use Kind::*;
        [Pad, Eager, Offer, Clear, Data, Finish].into_iter().find(|&kind| kind as u64 == number)
    }
}

/// A record to be written: what its payload is.
#[derive(Clone, Copy)]
pub(super) enum Payload {
    Bytes(Region),
    Words([u64; 3]),
}

/// A record read in place. Its payload is valid until it is popped.
#[derive(Clone, Copy)]
pub(super) struct Record {
    pub(super) kind: Kind,
    pub(super) claim: u16,
    pub(super) key: u64,
    /// The words of a control record.
    pub(super) words: [u64; 3],
    /// The bytes of an Eager or Data record.
    pub(super) payload: Region,
    space: u64,
}

/// Both ends' view of a ring's memory.
struct Ring {
    tail: Word,
    head: Word,
    claims: Span,
    records: Span,
}

impl Ring {
    fn at(memory: &Arc<Memory>, offset: usize) -> Option<Ring> {
        Some(Ring {
            tail: memory.word(offset + TAIL_AT)?,
            head: memory.word(offset + HEAD_AT)?,
            claims: memory.span(offset, HEADER)?,
            records: memory.span(offset + HEADER, CAPACITY)?,
        })
    }

    fn new(memory: &Arc<Memory>, offset: usize) -> Result<Ring> {
        match Ring::at(memory, offset) {
            Some(ring) => Ok(ring),
            None => {
                fail!(DTL_ERROR_INTERNAL, "ring at {offset} lies outside the {} shared bytes", memory.len())
            }
        }
    }

    fn put(&self, offset: usize, value: u64) {
        if let Some(word) = self.records.word(offset) {
            word.store(value, Relaxed);
        }
    }

    fn get(&self, offset: usize) -> u64 {
        self.records.word(offset).map_or(0, |word| word.load(Relaxed))
    }
}

fn place(count: u64) -> usize {
    (count % CAPACITY as u64) as usize
}

/// The writing end.
pub(super) struct Producer {
    ring: Ring,
    tail: u64,
    /// The head as last seen; the real one is never behind it.
    head: u64,
    /// Short numbers: there is a list for each rank that was talked to.
    free_claims: Vec<u16>,
    /// Claims of withdrawn offers that the receiver has not seen yet.
    withdrawn: Vec<u16>,
}

impl Producer {
    /// The end of a ring whose memory is committed.
    pub(super) fn new(memory: &Arc<Memory>, offset: usize) -> Result<Producer> {
        let ring = Ring::new(memory, offset)?;
        let (tail, head) = (ring.tail.load(Relaxed), ring.head.load(Acquire));
        Ok(Producer {
            ring,
            tail,
            head,
            free_claims: (0..CLAIMS).collect(),
            withdrawn: Vec::with_capacity(CLAIMS.into()),
        })
    }

    /// Writes a record; false if the ring is too full for it now.
    pub(super) fn push(&mut self, kind: Kind, claim: u16, key: u64, payload: Payload) -> bool {
        let len = match payload {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Words(words) => size_of_val(&words),
        };
        debug_assert!(len <= FRAGMENT);
        let space = (WORDS + len).next_multiple_of(LINE);
        let to_end = CAPACITY - place(self.tail);
        // A record lies in one piece; what is too short for it at the end is padded.
        let pad = if to_end < space { to_end } else { 0 };
        if !self.has_room((pad + space) as u64) {
            return false;
        }
        if pad > 0 {
            self.write(Kind::Pad, 0, 0, pad - WORDS);
            self.tail += pad as u64;
        }
        let at = place(self.tail);
        self.write(kind, claim, key, len);
        match payload {
            Payload::Bytes(bytes) => self.ring.records.region().part(at + WORDS, len).copy_from(bytes),
            Payload::Words(words) => {
                for (index, word) in words.into_iter().enumerate() {
                    self.ring.put(at + WORDS + 8 * index, word);
                }
            }
        }
        self.tail += space as u64;
        self.ring.tail.store(self.tail, Release);
        true
    }

    fn has_room(&mut self, space: u64) -> bool {
        if self.tail + space - self.head <= CAPACITY as u64 {
            return true;
        }
        self.head = self.ring.head.load(Acquire);
        self.tail + space - self.head <= CAPACITY as u64
    }

    fn write(&self, kind: Kind, claim: u16, key: u64, len: usize) {
        let at = place(self.tail);
        self.ring.put(at, kind as u64 | u64::from(claim) << 16 | (len as u64) << 32);
        self.ring.put(at + 8, key);
    }

    /// Takes a claim word for an offer; `None` while all are in use.
    pub(super) fn offer(&mut self) -> Option<u16> {
        if self.free_claims.is_empty() {
            // No new memory: this is on the way of a send.
            let (ring, free) = (&self.ring, &mut self.free_claims);
            self.withdrawn.retain(|&claim| {
                let is_seen = claim_state(ring, claim) == FREE;
                if is_seen {
                    free.push(claim);
                }
                !is_seen
            });
        }
        let claim = self.free_claims.pop()?;
        if let Some(word) = claim_word(&self.ring, claim) {
            word.store(OFFERED, Relaxed); // published by the tail of the offer's record
        }
        Some(claim)
    }

    /// Gives back the claim of an offer that was not sent or is finished.
    pub(super) fn release(&mut self, claim: u16) {
        self.free_claims.push(claim);
    }

    /// Withdraws an offer; false if the receiver has taken it already.
    pub(super) fn withdraw(&mut self, claim: u16) -> bool {
        let won = move_claim(&self.ring, claim, OFFERED, WITHDRAWN);
        if won {
            self.withdrawn.push(claim);
        }
        won
    }
}

// The life of a claim word. Sender: FREE -> OFFERED, OFFERED -> WITHDRAWN. Receiver: OFFERED -> TAKEN,
// WITHDRAWN -> FREE. One compare-exchange decides between "taken" and "withdrawn", so a cancelled
// send's bytes are never read.
const FREE: u64 = 0;
const OFFERED: u64 = 1;
const TAKEN: u64 = 2;
const WITHDRAWN: u64 = 3;

fn claim_word(ring: &Ring, claim: u16) -> Option<&AtomicU64> {
    (claim < CLAIMS).then(|| ring.claims.word(CLAIMS_AT + 8 * usize::from(claim)))?
}

fn claim_state(ring: &Ring, claim: u16) -> u64 {
    claim_word(ring, claim).map_or(WITHDRAWN, |word| word.load(Acquire))
}

fn move_claim(ring: &Ring, claim: u16, from: u64, to: u64) -> bool {
    claim_word(ring, claim).is_some_and(|word| word.compare_exchange(from, to, AcqRel, Acquire).is_ok())
}

/// The reading end.
pub(super) struct Consumer {
    ring: Ring,
    head: u64,
    /// The tail as last seen.
    tail: u64,
    /// The head as last told to the producer.
    told: u64,
}

impl Consumer {
    /// The end of a ring whose memory is committed.
    pub(super) fn new(memory: &Arc<Memory>, offset: usize) -> Result<Consumer> {
        let ring = Ring::new(memory, offset)?;
        let head = ring.head.load(Relaxed);
        Ok(Consumer { ring, head, tail: head, told: head })
    }

    /// The next record. `Err`: what lies there is no record (the producer is broken).
    pub(super) fn peek(&mut self) -> std::result::Result<Option<Record>, ()> {
        loop {
            if self.head == self.tail {
                self.tail = self.ring.tail.load(Acquire);
                if self.head == self.tail {
                    return Ok(None);
                }
            }
            let record = self.read().ok_or(())?;
            if record.kind != Kind::Pad {
                return Ok(Some(record));
            }
            self.head += record.space;
        }
    }

    fn read(&self) -> Option<Record> {
        let at = place(self.head);
        let word = self.ring.get(at);
        let len = (word >> 32) as usize;
        let space = (WORDS + len).next_multiple_of(LINE);
        let kind = Kind::of(word & 0xFFFF)?;
        let sound = space as u64 <= self.tail.wrapping_sub(self.head)
            && at + space <= CAPACITY
            && (kind == Kind::Pad || len <= FRAGMENT);
        sound.then(|| Record {
            kind,
            claim: (word >> 16) as u16,
            key: self.ring.get(at + 8),
            words: self.words(kind, at + WORDS),
            payload: self.ring.records.region().part(at + WORDS, len),
            space: space as u64,
        })
    }

    fn words(&self, kind: Kind, at: usize) -> [u64; 3] {
        match kind {
            Kind::Offer | Kind::Clear => [0, 8, 16].map(|offset| self.ring.get(at + offset)),
            _ => [0; 3],
        }
    }

    /// Frees the record that was peeked.
    pub(super) fn pop(&mut self, record: &Record) {
        self.head += record.space;
        // Telling the producer costs a cache line's journey; a quarter of the ring at a time will do.
        if self.head - self.told >= (CAPACITY / 4) as u64 {
            self.tell();
        }
    }

    /// Tells the producer what is free.
    pub(super) fn tell(&mut self) {
        if self.told != self.head {
            self.told = self.head;
            self.ring.head.store(self.head, Release);
        }
    }

    /// Whether an offer could be taken now.
    pub(super) fn is_offered(&self, claim: u16) -> bool {
        claim_state(&self.ring, claim) == OFFERED
    }

    /// Takes an offer; false if it was withdrawn (the claim is free again then).
    pub(super) fn take(&self, claim: u16) -> bool {
        if move_claim(&self.ring, claim, OFFERED, TAKEN) {
            return true;
        }
        move_claim(&self.ring, claim, WITHDRAWN, FREE);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::buf::Scratch;

    fn ends() -> (Producer, Consumer) {
        let memory = Memory::create(STRIDE).expect("memfd");
        memory.commit(0, STRIDE).expect("commit");
        (Producer::new(&memory, 0).expect("ring"), Consumer::new(&memory, 0).expect("ring"))
    }

    fn send(producer: &mut Producer, key: u64, len: usize) -> bool {
        let data = Scratch::new(len).expect("memory");
        data.region().fill(key as u8);
        producer.push(Kind::Eager, 0, key, Payload::Bytes(data.region()))
    }

    fn next(consumer: &mut Consumer) -> Option<(u64, usize)> {
        let record = consumer.peek().expect("sound")?;
        // SAFETY: the record is not popped yet, so the producer does not write it.
        let bytes = unsafe { record.payload.as_slice() };
        assert!(bytes.iter().all(|&byte| byte == record.key as u8));
        let found = (record.key, bytes.len());
        consumer.pop(&record);
        Some(found)
    }

    #[test]
    fn records_come_out_as_they_went_in_round_and_round() {
        let (mut producer, mut consumer) = ends();
        for key in 0..1000_u64 {
            let len = key as usize * 7919 % (FRAGMENT + 1);
            assert!(send(&mut producer, key, len));
            assert_eq!(next(&mut consumer), Some((key, len)));
            consumer.tell();
        }
        assert_eq!(next(&mut consumer), None);
    }

    #[test]
    fn a_full_ring_refuses_and_goes_on_later() {
        let (mut producer, mut consumer) = ends();
        let mut sent = 0;
        while send(&mut producer, sent, 5000) {
            sent += 1;
        }
        assert!(sent >= (CAPACITY / 5120 - 1) as u64);
        for key in 0..sent {
            assert_eq!(next(&mut consumer), Some((key, 5000)));
        }
        consumer.tell();
        assert!(send(&mut producer, 7, FRAGMENT));
        assert_eq!(next(&mut consumer), Some((7, FRAGMENT)));
    }

    #[test]
    fn control_words_and_claims() {
        let (mut producer, mut consumer) = ends();
        let claim = producer.offer().expect("claim");
        assert!(producer.push(Kind::Offer, claim, 5, Payload::Words([u64::MAX, 2, 3])));
        let record = consumer.peek().expect("sound").expect("record");
        assert_eq!(
            (record.kind, record.claim, record.key, record.words),
            (Kind::Offer, claim, 5, [u64::MAX, 2, 3])
        );
        assert!(consumer.take(record.claim));
        assert!(!producer.withdraw(claim), "taken");
        producer.release(claim);
        let all: Vec<_> = std::iter::from_fn(|| producer.offer()).collect();
        assert_eq!(all.len(), usize::from(CLAIMS));
        assert!(producer.withdraw(all[0]));
        assert_eq!(producer.offer(), None, "the receiver has not seen it");
        assert!(!consumer.take(all[0]));
        assert_eq!(producer.offer(), Some(all[0]));
    }

    #[test]
    fn garbage_is_noticed() {
        let (producer, mut consumer) = ends();
        producer.ring.put(0, 99);
        producer.ring.tail.store(64, Release);
        assert!(consumer.peek().is_err());
        producer.ring.put(0, Kind::Eager as u64 | 1 << 60);
        assert!(consumer.peek().is_err());
    }

    #[test]
    fn two_threads() {
        let (mut producer, mut consumer) = ends();
        const COUNT: u64 = 20_000;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for key in 0..COUNT {
                    while !send(&mut producer, key, (key % 300) as usize) {
                        std::thread::yield_now();
                    }
                }
            });
            for key in 0..COUNT {
                loop {
                    if let Some(found) = next(&mut consumer) {
                        assert_eq!(found, (key, (key % 300) as usize));
                        break;
                    }
                    consumer.tell();
                    std::thread::yield_now();
                }
            }
        });
    }
}
