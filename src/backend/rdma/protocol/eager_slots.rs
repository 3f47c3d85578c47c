//! What travels in slots: small messages of registered memory, a header first.
//!
//! Header, 16 bytes: messages of the peer's that were consumed, 32 bits | kind 8 | has a note 8 | 0
//! 16 | word 32 | bytes 32; then the note (48 bytes), then the bytes. All ranks have the same byte
//! order, which opening sees to.

use crate::sys::memory::buf::{Region, Scratch};

/// Bytes of a message's header.
const HEADER: usize = 16;
/// Bytes of a note.
const NOTE: usize = 48;
/// Most bytes behind both: a frame of `frames`.
pub(in crate::backend::rdma) const DATA: usize = 8192;
/// Bytes of a slot, whole cache lines.
pub(in crate::backend::rdma) const SLOT: usize = HEADER + NOTE + DATA;
const _: () = assert!(SLOT % 64 == 0);
/// Most rails: a note has a key for each.
pub(in crate::backend::rdma) const RAILS: usize = 4;

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::backend::rdma) enum EagerKind {
    /// A frame.
    Frame = 1,
    /// Bytes of a payload, in order; more follow.
    Piece = 2,
    /// The last of them.
    LastPiece = 3,
    /// Nothing but a note.
    Note = 4,
}

/// Kind of a note about a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::backend::rdma) enum NoteKind {
    /// Its receiver waits for it in this memory.
    Landing = 1,
    /// Its sender has it in this memory, to be read.
    Offer = 2,
    /// Its receiver has read it.
    Fetched = 3,
    /// Its receiver cannot read it: send it in pieces.
    InPieces = 4,
}

/// Memory of the sender of a note, and what it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::backend::rdma) struct Note {
    pub(in crate::backend::rdma) about: NoteKind,
    /// The payload's word.
    pub(in crate::backend::rdma) word: u32,
    pub(in crate::backend::rdma) addr: u64,
    pub(in crate::backend::rdma) len: u64,
    /// For each rail.
    pub(in crate::backend::rdma) keys: [u32; RAILS],
}

/// A message's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::backend::rdma) struct EagerHeader {
    pub(in crate::backend::rdma) consumed: u32,
    pub(in crate::backend::rdma) kind: EagerKind,
    pub(in crate::backend::rdma) word: u32,
    pub(in crate::backend::rdma) len: usize,
    pub(in crate::backend::rdma) note: Option<Note>,
}

impl EagerHeader {
    /// Writes it and its bytes to a slot; what is to be sent.
    #[inline]
    pub(in crate::backend::rdma) fn write(
        &self,
        slot: Region,
        head: &[u64],
        data: Region,
    ) -> Region {
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

    /// Reads what arrived, `len` bytes, and where its own bytes are; `None`: it is nothing of ours.
    #[inline]
    pub(in crate::backend::rdma) fn read(
        slot: Region,
        len: usize,
    ) -> Option<(EagerHeader, Region)> {
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
        let message =
            EagerHeader { consumed: first as u32, kind, word: second as u32, len: bytes, note };
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

/// Memory for the slots of one peer: receives, sends, two lines of words with the counts of
/// consumed messages (those that the peer writes here, and those that are written to the peer), and
/// words for the results of atomics.
#[derive(Default)]
pub(in crate::backend::rdma) struct Slab {
    memory: Scratch,
    receives: usize,
    sends: usize,
}

/// Bytes of the words of one direction, one for each queue pair.
const WORDS: usize = 64;
/// Changes of single elements at a peer that may be under way.
pub(in crate::backend::rdma) const RESULTS: usize = 64;
/// Most queue pairs of a peer.
pub(in crate::backend::rdma) const LANES: usize = WORDS / 4;

impl Slab {
    /// Bytes of one with so many slots.
    pub(in crate::backend::rdma) const fn bytes(receives: usize, sends: usize) -> usize {
        (receives + sends) * SLOT + 2 * WORDS + RESULTS * 8
    }

    /// `None` without memory.
    pub(in crate::backend::rdma) fn new(receives: usize, sends: usize) -> Option<Slab> {
        Some(Slab { memory: Scratch::new(Self::bytes(receives, sends))?, receives, sends })
    }

    pub(in crate::backend::rdma) fn region(&self) -> Region {
        self.memory.region()
    }

    pub(in crate::backend::rdma) fn receive(&self, index: usize) -> Region {
        self.region().part(index * SLOT, SLOT)
    }

    pub(in crate::backend::rdma) fn send(&self, index: usize) -> Region {
        self.region().part((self.receives + index) * SLOT, SLOT)
    }

    /// Where a device writes what an element of the peer's was.
    pub(in crate::backend::rdma) fn result(&self, index: usize) -> Region {
        let at = (self.receives + self.sends) * SLOT + 2 * WORDS;
        self.region().part(at + index * 8, 8)
    }

    fn word(&self, direction: usize, lane: usize) -> Region {
        let at = (self.receives + self.sends) * SLOT + direction * WORDS;
        self.region().part(at + lane * 4, 4)
    }

    /// Where the peer writes how much it consumed of a lane.
    pub(in crate::backend::rdma) fn credit_word(&self, lane: usize) -> Region {
        self.word(0, lane)
    }

    /// What is written to the peer, with its value.
    pub(in crate::backend::rdma) fn write_credits(&self, lane: usize, consumed: u32) -> Region {
        let word = self.word(1, lane);
        // SAFETY: the variable outlives the copy, which only reads it.
        word.copy_from(unsafe { Region::new((&raw const consumed).cast_mut().cast(), 4) });
        word
    }

    /// What the peer has written.
    pub(in crate::backend::rdma) fn read_credits(&self, lane: usize) -> u32 {
        let at = self.credit_word(lane).addr().ptr().cast::<u32>();
        // SAFETY: aligned memory of this slab; the device may write it at any time, in one piece of
        // four bytes.
        unsafe { at.read_volatile() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_was_written_and_nothing_else_is_one() {
        let slab = Slab::new(2, 1).expect("memory");
        let data = Scratch::new(100).expect("memory");
        data.region().fill(7);
        let note = Note {
            about: NoteKind::Offer,
            word: 9,
            addr: u64::MAX,
            len: 1 << 40,
            keys: [1, 2, 3, u32::MAX],
        };
        for (kind, note) in [
            (EagerKind::Frame, None),
            (EagerKind::Piece, Some(note)),
            (EagerKind::Note, Some(note)),
        ] {
            let message = EagerHeader { consumed: u32::MAX, kind, word: 1 << 27, len: 100, note };
            let sent = message.write(slab.send(0), &[], data.region());
            let slot = slab.receive(1);
            slot.copy_from(sent);
            let (read, bytes) = EagerHeader::read(slot, sent.len()).expect("a message");
            assert_eq!((read, bytes.len()), (message, 100));
            assert_eq!(Scratch::copy_of(bytes).expect("memory").words(), data.words());
            assert!(EagerHeader::read(slot, sent.len() - 1).is_none());
            assert!(EagerHeader::read(slot, sent.len() + 1).is_none());
            assert!(EagerHeader::read(slot, 7).is_none());
        }
        slab.receive(0).fill(0xFF);
        assert!(EagerHeader::read(slab.receive(0), 100).is_none());
    }
}
