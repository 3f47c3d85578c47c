//! Eager slots: small messages in registered memory, each with a header.
//!
//! The header has 16 bytes: 32 bits number of consumed messages of the peer, 8 bits kind, 8 bits
//! flag for a note, 16 bits 0, 32 bits word, 32 bits length in bytes. Then the note (48 bytes)
//! follows if there is one, then the message's bytes. All ranks have the same byte order, which is
//! checked when a communicator is opened.

use crate::sys::memory::buf::{Region, Scratch};

/// Size of a message's header in bytes.
const HEADER: usize = 16;
/// Size of a note in bytes.
const NOTE: usize = 48;
/// Maximum number of bytes after header and note: one frame of `p2p_protocol`.
pub(crate) const DATA: usize = 8192;
/// Size of a slot in bytes, a multiple of the cache line size.
pub(crate) const SLOT: usize = HEADER + NOTE + DATA;
const _: () = assert!(SLOT % 64 == 0);
/// Maximum number of rails: a note has one key per rail.
pub(crate) const RAILS: usize = 4;

/// Kind of a message in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EagerKind {
    /// Frame of `p2p_protocol`.
    Frame = 1,
    /// Bytes of a payload, in order; more pieces follow.
    Piece = 2,
    /// Last bytes of a payload.
    LastPiece = 3,
    /// Message that carries only a note.
    Note = 4,
}

/// Kind of a note about a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoteKind {
    /// The receiver has posted this memory for the payload (clear to send).
    Landing = 1,
    /// The sender announces the payload (RTS), which can be read from this memory.
    Offer = 2,
    /// The receiver has read the payload.
    Fetched = 3,
    /// The receiver cannot read the payload and requests it in pieces.
    InPieces = 4,
}

/// Note about a payload: memory of the note's sender and its purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Note {
    pub(crate) about: NoteKind,
    /// Word that identifies the payload.
    pub(crate) word: u32,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    /// Remote key (rkey) of the memory for each rail.
    pub(crate) keys: [u32; RAILS],
}

/// Header of a message in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EagerHeader {
    pub(crate) consumed: u32,
    pub(crate) kind: EagerKind,
    pub(crate) word: u32,
    pub(crate) note: Option<Note>,
}

impl EagerHeader {
    /// Writes the header, `head` and `data` to a slot; returns the region to send.
    pub(crate) fn write(&self, slot: Region, head: &[u64], data: Region) -> Region {
        let kinds = self.kind as u64 | u64::from(self.note.is_some()) << 8;
        let len = size_of_val(head) + data.len();
        let second = u64::from(self.word) | (len as u64) << 32;
        slot.put_words(&[u64::from(self.consumed) | kinds << 32, second]);
        let mut at = HEADER;
        if let Some(note) = &self.note {
            let [a, b, c, d] = note.keys.map(u64::from);
            let first = note.about as u64 | u64::from(note.word) << 32;
            slot.part(at, NOTE).put_words(&[
                first,
                note.addr,
                note.len,
                a | b << 32,
                c | d << 32,
                0,
            ]);
            at += NOTE;
        }
        slot.part(at, len).put_words(head);
        slot.part(at + size_of_val(head), data.len()).copy_from(data);
        slot.part(0, at + len)
    }

    /// Reads the header of a received message of `len` bytes; returns the header and the region of
    /// the message's bytes, or `None` if the message is not valid.
    pub(crate) fn read(slot: Region, len: usize) -> Option<(EagerHeader, Region)> {
        if len < HEADER {
            return None;
        }
        let [first, second] = slot.first_words();
        let kind = match (first >> 32) as u8 {
            1 => EagerKind::Frame,
            2 => EagerKind::Piece,
            3 => EagerKind::LastPiece,
            4 => EagerKind::Note,
            _ => return None,
        };
        let bytes = (second >> 32) as usize;
        let (note, at) = match (first >> 40) as u8 {
            0 => (None, HEADER),
            1 if len >= HEADER + NOTE => (Some(read_note(slot.part(HEADER, NOTE))?), HEADER + NOTE),
            _ => return None,
        };
        let message = EagerHeader { consumed: first as u32, kind, word: second as u32, note };
        (at + bytes == len).then(|| (message, slot.part(at, bytes)))
    }
}

fn read_note(bytes: Region) -> Option<Note> {
    let [first, addr, len, low, high] = bytes.first_words();
    let about = [NoteKind::Landing, NoteKind::Offer, NoteKind::Fetched, NoteKind::InPieces];
    let about = about.into_iter().find(|about| *about as u64 == first & 0xFFFF_FFFF)?;
    let keys = [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32];
    Some(Note { about, word: (first >> 32) as u32, addr, len, keys })
}

/// Memory for the slots of one peer: receives, sends, two cache lines of words with the counts of
/// consumed messages (those that the peer writes, and those that are written to the peer), and
/// words for the results of atomic operations.
#[derive(Default)]
pub(crate) struct Slab {
    memory: Scratch,
    receives: usize,
    sends: usize,
}

/// Size, in bytes, of the credit words of one direction, with one word for each queue pair.
const WORDS: usize = 64;
/// Maximum number of atomic requests in flight to a peer, each on one element.
pub(crate) const RESULTS: usize = 64;
/// Maximum number of queue pairs per peer.
pub(crate) const LANES: usize = WORDS / 4;

impl Slab {
    /// Returns the size of a slab in bytes with `receives` and `sends` slots.
    pub(crate) const fn bytes(receives: usize, sends: usize) -> usize {
        (receives + sends) * SLOT + 2 * WORDS + RESULTS * 8
    }

    /// Allocates a slab; returns `None` if no memory is left.
    pub(crate) fn new(receives: usize, sends: usize) -> Option<Slab> {
        Some(Slab { memory: Scratch::new(Self::bytes(receives, sends))?, receives, sends })
    }

    pub(crate) fn region(&self) -> Region {
        self.memory.region()
    }

    pub(crate) fn receive(&self, index: usize) -> Region {
        self.region().part(index * SLOT, SLOT)
    }

    pub(crate) fn send(&self, index: usize) -> Region {
        self.region().part((self.receives + index) * SLOT, SLOT)
    }

    /// Returns the word that a device writes the previous value of a peer's element to.
    pub(crate) fn result(&self, index: usize) -> Region {
        let at = (self.receives + self.sends) * SLOT + 2 * WORDS;
        self.region().part(at + index * 8, 8)
    }

    fn word(&self, direction: usize, lane: usize) -> Region {
        let at = (self.receives + self.sends) * SLOT + direction * WORDS;
        self.region().part(at + lane * 4, 4)
    }

    /// Returns the word where the peer writes its count of consumed messages of a lane.
    pub(crate) fn credit_word(&self, lane: usize) -> Region {
        self.word(0, lane)
    }

    /// Stores the count `consumed` of a lane in the word for the peer; returns that word.
    pub(crate) fn write_credits(&self, lane: usize, consumed: u32) -> Region {
        let word = self.word(1, lane);
        // SAFETY: the variable `consumed` outlives the copy, which only reads it.
        word.copy_from(unsafe { Region::new((&raw const consumed).cast_mut().cast(), 4) });
        word
    }

    /// Returns the count of consumed messages that the peer has written for a lane.
    pub(crate) fn read_credits(&self, lane: usize) -> u32 {
        let at = self.credit_word(lane).addr().ptr().cast::<u32>();
        // SAFETY: aligned memory of this slab, which the device may write at any time, 4 bytes at
        // once.
        unsafe { at.read_volatile() }
    }
}

#[cfg(test)]
#[path = "tests/eager_slots.rs"]
mod tests;
