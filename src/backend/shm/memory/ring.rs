//! Single-producer, single-consumer ring of records (messages, fragments of messages, and control
//! messages) from one rank to another, in shared memory.
//!
//! A record has a slot of two cache lines: a header with kind and key, and the payload if it fits.
//! A message whose header and payload fit into the first line moves only that line between cores.
//! Payloads that do not fit are stored in a separate byte ring in slot order, each of them
//! contiguous.
//!
//! Layout (`STRIDE` bytes): the counts of slots and bytes that the consumer has freed, in a cache
//! line that the producer reads only when it runs out of space; the consumer's choices of copy
//! methods (`copy_choice`); the slots; the byte ring; the state words of rendezvous requests
//! (`rndv_claims`). The state words of the first requests are committed together with the rest of
//! the ring (`FIRST_BYTES`), the others when more requests are open at the same time.
//!
//! Memory order: the first word of a slot has the number of its record, which no earlier record of
//! the slot had. The producer writes the payload and the key with plain and relaxed stores and then
//! stores the first word with Release. The consumer loads the first word with Acquire and finds the
//! number that it expects. So the consumer reads a record completely or not at all, even if the
//! producer is killed while writing. In the other direction, the consumer stores the counts of
//! freed slots and bytes with Release after it has last read those slots and bytes, and the
//! producer loads the counts with Acquire before it overwrites that memory. Each word has one
//! writer, so no store needs a stronger order. The memory order of the state words of requests is
//! described in `rndv_claims`.

use super::rndv_claims::{self, OwnClaims, PeerClaims};
use crate::error::{Result, failure};
use crate::sys::memory::buf::Region;
use crate::sys::os::shm_segment::{SharedMapping, SharedWord, Span};
use crate::sys::sync;
use crate::sys::sync::Ordering::{Acquire, Relaxed, Release};
use std::sync::Arc;

/// Number of slots of a ring; each holds one record.
const SLOTS: u64 = sync::size(256, 2) as u64;
/// Size of a slot in bytes: two cache lines, because the adjacent-line prefetcher fetches cache
/// lines in pairs.
const SLOT: usize = 128;
/// Size of a slot's header in bytes. The first word contains the record number, the kind, and the
/// payload length or the index of a rendezvous request (`claim`); the second word contains the key
/// (match bits or operation ID).
const WORDS: usize = 16;
/// Lowest bit of the payload length or claim in the first word of a slot.
const LEN_SHIFT: u32 = 40;
/// Maximum size of a payload that fits into a slot, in bytes.
const IN_SLOT: usize = sync::size(SLOT - WORDS, 32);
/// Size, in bytes, of the byte ring for payloads that do not fit into a slot; a power of two.
pub(crate) const CAPACITY: usize = sync::size(128 << 10, 128);
/// Maximum payload of a record, in bytes. The byte ring has space for several such payloads, so
/// producer and consumer can work at the same time.
pub(crate) const MAX_DATA: usize = sync::size(16 << 10, 112);
/// Maximum size, in bytes, of a payload that is always copied by ordinary stores. The record of a
/// larger payload says how the producer has copied it.
pub(crate) const ORDINARY: usize = sync::size(2 << 10, 96);
/// Alignment, in bytes, of the payloads in the byte ring: a cache line.
const LINE: usize = 64;

/// Distance, in slots, from a record to the slot that is prefetched when the record is written or
/// read: several transfers of cache lines between the cores then overlap.
const AHEAD: u64 = 4;

const HEAD_AT: usize = 0;
/// Offset of the count of freed bytes; in the same cache line as the count of freed slots.
const FREED_AT: usize = 8;
/// Offset of the consumer's choices of copy methods, in a cache line that is rarely written.
const CHOICES_AT: usize = 128;
/// Size, in bytes, of the area before the slots. The area contains the counts of freed slots and
/// bytes, and the choices of copy methods.
const HEADER: usize = sync::size(4096, 256);
const BYTES_AT: usize = HEADER + SLOTS as usize * SLOT;
const CLAIMS_AT: usize = BYTES_AT + CAPACITY;
/// Number of bytes of a ring that are committed when the ring is opened.
pub(crate) const FIRST_BYTES: usize = (CLAIMS_AT + rndv_claims::FIRST_BYTES).next_multiple_of(4096);
/// Distance between consecutive rings in bytes; a multiple of the page size.
pub(crate) const STRIDE: usize = (CLAIMS_AT + rndv_claims::BYTES).next_multiple_of(4096);

/// Kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordKind {
    /// A complete message. Key: match bits.
    Eager = 2,
    /// Rendezvous request (RTS). Key: match bits; arguments: message size, ID of the send, address
    /// of the data or 0, number of unrequested fragments that follow; `claim`: index of the
    /// request's state words.
    Offer = 3,
    /// Clear to send (CTS): the sender may send the (remaining) fragments. Key: ID of the send;
    /// arguments: ID of the receive, number of bytes that fit into the receive buffer, address of
    /// the buffer if the sender may copy to it, else 0.
    Clear = 4,
    /// The next fragment of a message. Key: ID of the receive.
    Data = 5,
    /// The receive has obtained all bytes that fit into its buffer. Key: ID of the send.
    Finish = 6,
    /// The next fragment of a message is in a cell. Key: ID of the receive; arguments: index of the
    /// cell, send count of the cell, number of bytes.
    Cell = 7,
    /// A complete message. Its first fragment is in a cell, and the other fragments follow
    /// immediately. Key: match bits; arguments: index of the cell, send count of the cell, number
    /// of bytes in the cell, message size.
    Long = 8,
    /// The next fragment after a `Long` or an `Offer` record is in a cell. Arguments: index of the
    /// cell, send count of the cell, number of bytes.
    More = 9,
    /// Request to the receiver to release the state words of canceled rendezvous requests.
    Sweep = 10,
    /// Aborts a message: its remaining bytes are not sent. Key: ID of the receive; argument: the
    /// error status.
    Broken = 11,
    /// The sender has copied the next bytes of a message to the receive buffer. Key: ID of the
    /// receive; argument: number of bytes.
    Written = 12,
}

impl RecordKind {
    fn of(number: u64) -> Option<RecordKind> {
        use RecordKind::*;
        [Eager, Offer, Clear, Data, Finish, Cell, Long, More, Sweep, Broken, Written]
            .into_iter()
            .find(|&kind| kind as u64 == number)
    }
}

/// Payload of a record to be written.
#[derive(Clone, Copy)]
pub(crate) enum Payload {
    Bytes(Region),
    Words([u64; 4]),
    /// Arguments of an `Offer` record (rendezvous request), and the index of the request's state
    /// words.
    Offer([u64; 4], u16),
}

/// A record, read in place. Its payload is valid until `pop` is called.
#[derive(Clone, Copy)]
pub(crate) struct RingRecord {
    pub(crate) kind: RecordKind,
    pub(crate) claim: u16,
    pub(crate) key: u64,
    /// Arguments of a record that carries no message bytes.
    pub(crate) words: [u64; 4],
    /// Message bytes of an `Eager` or `Data` record.
    pub(crate) payload: Region,
    /// End of this record's payload in the byte ring, as a byte count since the ring was created.
    end: u64,
}

/// View of a ring's memory, used by the producer and by the consumer.
struct Ring {
    head: SharedWord,
    freed: SharedWord,
    choices: SharedWord,
    slots: Span,
    bytes: Span,
}

impl Ring {
    fn at(memory: &Arc<SharedMapping>, offset: usize) -> Option<Ring> {
        Some(Ring {
            head: memory.word(offset + HEAD_AT)?,
            freed: memory.word(offset + FREED_AT)?,
            choices: memory.word(offset + CHOICES_AT)?,
            slots: memory.span(offset + HEADER, BYTES_AT - HEADER)?,
            bytes: memory.span(offset + BYTES_AT, CAPACITY)?,
        })
    }

    fn new(memory: &Arc<SharedMapping>, offset: usize) -> Result<Ring> {
        Ring::at(memory, offset).ok_or_else(|| {
            failure!(
                DTL_ERROR_INTERNAL,
                "ring at {offset} lies outside the {} shared bytes",
                memory.len()
            )
        })
    }

    fn put(&self, offset: usize, value: u64) {
        if let Some(word) = self.slots.word(offset) {
            word.store(value, Relaxed);
        }
    }

    fn get(&self, offset: usize) -> u64 {
        self.slots.word(offset).map_or(0, |word| word.load(Relaxed))
    }
}

fn claims_of(memory: &Arc<SharedMapping>, offset: usize) -> Result<Span> {
    memory.span(offset + CLAIMS_AT, rndv_claims::BYTES).ok_or_else(|| {
        failure!(
            DTL_ERROR_INTERNAL,
            "claims at {offset} lie outside the {} shared bytes",
            memory.len()
        )
    })
}

/// Returns the offset of the slot of record `number`, in bytes.
fn slot_of(number: u64) -> usize {
    (number % SLOTS) as usize * SLOT
}

fn place(count: u64) -> usize {
    (count % CAPACITY as u64) as usize
}

/// Returns the space in the byte ring that a payload of `len` bytes takes, in bytes.
fn space_of(len: usize) -> u64 {
    len.next_multiple_of(LINE) as u64
}

/// Returns the first word of a slot. From the low bits up: the record's number plus 1 (32 bits),
/// the kind (8 bits), and the index of the rendezvous request or the payload length (24 bits).
fn stamp(number: u64, kind: RecordKind, claim_or_len: u64) -> u64 {
    u64::from(number.wrapping_add(1) as u32) | (kind as u64) << 32 | claim_or_len << LEN_SHIFT
}

/// Producer end of a ring.
pub(crate) struct Producer {
    ring: Ring,
    /// Number of records written.
    tail: u64,
    /// Number of records that the consumer has freed, as last read (a lower bound).
    head: u64,
    /// Number of bytes of the byte ring allocated to payloads so far, including padding for
    /// alignment and skipped space at the end of the byte ring. `freed` is the number of these
    /// bytes that the consumer has freed, as last read.
    filled: u64,
    freed: u64,
    pub(crate) offers: OwnClaims,
}

impl Producer {
    /// Creates the producer end of a ring. The ring's memory must be committed, and no record may
    /// have been written to the ring.
    pub(crate) fn new(memory: &Arc<SharedMapping>, offset: usize) -> Result<Producer> {
        let (ring, offers) =
            (Ring::new(memory, offset)?, OwnClaims::new(claims_of(memory, offset)?));
        Ok(Producer { ring, tail: 0, head: 0, filled: 0, freed: 0, offers })
    }

    /// Writes a record; returns false if the ring has no space for it now.
    pub(crate) fn push(&mut self, kind: RecordKind, key: u64, payload: Payload) -> bool {
        match payload {
            Payload::Bytes(bytes) if bytes.len() > IN_SLOT => {
                return self.push_long(kind, key, bytes);
            }
            _ if !self.has_slot() => return false,
            _ => {}
        }
        let at = slot_of(self.tail) + WORDS;
        let (words, claim) = match payload {
            Payload::Bytes(bytes) => {
                self.ring.slots.region().part(at, bytes.len()).copy_from(bytes);
                self.publish(kind, bytes.len() as u64, key);
                return true;
            }
            Payload::Words(words) => (words, 0),
            Payload::Offer(words, claim) => (words, claim),
        };
        for (index, word) in words.into_iter().enumerate() {
            self.ring.put(at + 8 * index, word);
        }
        self.publish(kind, u64::from(claim), key);
        true
    }

    /// Returns the consumer's choices of copy methods (`copy_choice`).
    pub(crate) fn choices(&self) -> u64 {
        self.ring.choices.load(Relaxed)
    }

    /// Returns true if the ring has space for `count` records whose payloads fit into slots.
    pub(crate) fn has_slots(&mut self, count: usize) -> bool {
        let fits = |producer: &Self| producer.tail - producer.head + count as u64 <= SLOTS;
        fits(self) || {
            self.look();
            fits(self)
        }
    }

    /// Returns true if the ring has space for a record with `len` payload bytes.
    pub(crate) fn has_room(&mut self, len: usize) -> bool {
        self.has_slot() && (len <= IN_SLOT || self.room_for(len).is_some())
    }

    /// Returns the start and the end of the space in the byte ring for a payload that does not fit
    /// into a slot, or `None` if the byte ring has too little space now. A payload is contiguous:
    /// if the remainder at the end of the byte ring is too short, it is skipped.
    fn room_for(&mut self, len: usize) -> Option<(u64, u64)> {
        let (space, to_end) = (space_of(len), (CAPACITY - place(self.filled)) as u64);
        let start = if to_end < space { self.filled + to_end } else { self.filled };
        let end = start + space;
        let fits = |producer: &Self| end - producer.freed <= CAPACITY as u64;
        if !fits(self) {
            self.look();
        }
        fits(self).then_some((start, end))
    }

    fn push_long(&mut self, kind: RecordKind, key: u64, bytes: Region) -> bool {
        let Some(into) = self.reserve(bytes.len()) else { return false };
        into.copy_across(bytes);
        self.push_reserved(kind, key, bytes.len(), [0; 2]);
        true
    }

    /// Reserves space in the byte ring for the payload of the next record, which must then be
    /// written by `push_reserved`. Returns `None` if there is too little space now.
    pub(crate) fn reserve(&mut self, len: usize) -> Option<Region> {
        debug_assert!(len <= MAX_DATA);
        let (start, end) = if self.has_slot() { self.room_for(len)? } else { return None };
        self.filled = end;
        Some(self.ring.bytes.region().part(place(start), len))
    }

    /// Writes a record whose payload of `len` bytes is in the space that `reserve` has returned.
    /// `ns` is the time that its copy took, in nanoseconds, or 0 if it was not measured, and
    /// `method` is the number of the copy method (`copy_choice`).
    pub(crate) fn push_reserved(
        &mut self,
        kind: RecordKind,
        key: u64,
        len: usize,
        [ns, method]: [u64; 2],
    ) {
        let at = slot_of(self.tail) + WORDS;
        self.ring.put(at, self.filled);
        if len > ORDINARY {
            self.ring.put(at + 8, ns);
            self.ring.put(at + 16, method);
        }
        self.publish(kind, len as u64, key);
    }

    /// Returns the number of records written.
    pub(crate) fn count(&self) -> u64 {
        self.tail
    }

    #[inline]
    fn publish(&mut self, kind: RecordKind, claim_or_len: u64, key: u64) {
        let at = slot_of(self.tail);
        if let Some(([word, key_word], _)) = self.ring.slots.block(at, 0) {
            key_word.store(key, Relaxed);
            word.store(stamp(self.tail, kind, claim_or_len), Release);
        }
        self.tail += 1;
        // That slot's line is in the consumer's cache, and a store to it waits for the transfer.
        self.ring.slots.will_write(slot_of(self.tail + AHEAD));
    }

    #[inline]
    fn has_slot(&mut self) -> bool {
        self.has_slots(1)
    }

    /// Reads the counts of freed slots and bytes.
    #[cold]
    fn look(&mut self) {
        self.head = self.ring.head.load(Acquire);
        self.freed = self.ring.freed.load(Acquire);
    }
}

/// Consumer end of a ring.
pub(crate) struct Consumer {
    ring: Ring,
    /// Number of records consumed.
    head: u64,
    /// Number of bytes of the byte ring consumed so far, including padding for alignment and
    /// skipped space at the end of the byte ring.
    read: u64,
    /// Value of `head` that was last published to the producer. `reported_bytes` is the value of
    /// `read` that was last published.
    reported: u64,
    reported_bytes: u64,
    pub(crate) offers: PeerClaims,
}

impl Consumer {
    /// Creates the consumer end of a ring. The ring's memory must be committed, and no record may
    /// have been read from the ring.
    pub(crate) fn new(memory: &Arc<SharedMapping>, offset: usize) -> Result<Consumer> {
        let (ring, offers) =
            (Ring::new(memory, offset)?, PeerClaims::new(claims_of(memory, offset)?));
        Ok(Consumer { ring, head: 0, read: 0, reported: 0, reported_bytes: 0, offers })
    }

    /// Publishes the consumer's choices of copy methods (`copy_choice`). The producer may read the
    /// old ones for some time. Both are correct, so Relaxed is sufficient.
    pub(crate) fn publish_choices(&self, choices: u64) {
        // A store would take the cache line from the producer, which reads it for each message.
        if self.ring.choices.load(Relaxed) != choices {
            self.ring.choices.store(choices, Relaxed);
        }
    }

    /// Returns the next record, or `None` if there is none. `Err` means that the slot has an
    /// invalid record, because the producer is faulty.
    pub(crate) fn peek(&mut self) -> Result<Option<RingRecord>, ()> {
        let at = slot_of(self.head);
        let Some(([word, key], rest)) = self.ring.slots.block(at, IN_SLOT) else { return Ok(None) };
        let word = word.load(Acquire);
        if word as u32 != self.head.wrapping_add(1) as u32 {
            return Ok(None);
        }
        self.record(at, word, key.load(Relaxed), rest).map(Some).ok_or(())
    }

    /// Returns the key and the payload of the next record if it is a message whose payload is in
    /// the slot. If it is `None`, `peek` finds any other record.
    #[inline]
    pub(crate) fn peek_short(&self) -> Option<(u64, Region)> {
        let ([word, key], rest) = self.ring.slots.block(slot_of(self.head), IN_SLOT)?;
        let word = word.load(Acquire);
        let (first, len) = (word & ((1 << LEN_SHIFT) - 1), (word >> LEN_SHIFT) as usize);
        let is_short = first == stamp(self.head, RecordKind::Eager, 0) && len <= IN_SLOT;
        is_short.then(|| (key.load(Relaxed), rest.part(0, len)))
    }

    fn record(&self, at: usize, word: u64, key: u64, rest: Region) -> Option<RingRecord> {
        let kind = RecordKind::of(word >> 32 & 0xFF)?;
        let claim_or_len = (word >> LEN_SHIFT) as usize;
        let mut record = RingRecord {
            kind,
            claim: claim_or_len as u16,
            key,
            words: [0; 4],
            payload: Region::EMPTY,
            end: self.read,
        };
        match kind {
            RecordKind::Finish | RecordKind::Sweep => {}
            RecordKind::Eager | RecordKind::Data if claim_or_len <= IN_SLOT => {
                record.payload = rest.part(0, claim_or_len);
            }
            RecordKind::Eager | RecordKind::Data => {
                record.end = self.ring.get(at + WORDS);
                record.payload = self.long(claim_or_len, record.end)?;
            }
            _ => record.words = [0, 8, 16, 24].map(|word| self.ring.get(at + WORDS + word)),
        }
        Some(record)
    }

    /// Returns the payload of `len` bytes whose space in the byte ring ends at byte number `end`,
    /// counted since the ring was created; `None` if `len` or `end` is invalid.
    fn long(&self, len: usize, end: u64) -> Option<Region> {
        let start = end.checked_sub(space_of(len)).filter(|_| len <= MAX_DATA)?;
        let is_sound = start >= self.read
            && end - self.read <= CAPACITY as u64
            && place(start) + len <= CAPACITY;
        is_sound.then(|| self.ring.bytes.region().part(place(start), len))
    }

    /// Returns how the producer has copied the payload of the next record, which has more than
    /// `ORDINARY` bytes: see `Producer::push_reserved`.
    pub(crate) fn copied(&self) -> [u64; 2] {
        let at = slot_of(self.head) + WORDS;
        [self.ring.get(at + 8), self.ring.get(at + 16)]
    }

    /// Returns the number of records consumed.
    pub(crate) fn count(&self) -> u64 {
        self.head
    }

    /// Prefetches a later slot. Call it only if the record in that slot has probably been written:
    /// the prefetch of a slot that is written afterwards delays the producer.
    pub(crate) fn will_read(&self) {
        self.ring.slots.will_read(slot_of(self.head + AHEAD));
    }

    /// Frees `record`, which must be the one that `peek` returned.
    pub(crate) fn pop(&mut self, record: &RingRecord) {
        self.read = record.end;
        self.pop_short();
    }

    /// Frees the record that `peek_short` returned.
    #[inline]
    pub(crate) fn pop_short(&mut self) {
        self.head += 1;
        // Publishing to the producer costs one transfer of a cache line, so it is done for a
        // quarter of the ring at a time.
        if self.head - self.reported >= SLOTS / 4
            || self.read - self.reported_bytes >= (CAPACITY / 4) as u64
        {
            self.publish_free();
        }
    }

    /// Publishes the counts of freed slots and bytes to the producer.
    pub(crate) fn publish_free(&mut self) {
        if self.reported != self.head {
            (self.reported, self.reported_bytes) = (self.head, self.read);
            self.ring.freed.store(self.read, Release);
            self.ring.head.store(self.head, Release);
        }
    }
}

#[cfg(test)]
#[path = "tests/ring.rs"]
mod tests;
