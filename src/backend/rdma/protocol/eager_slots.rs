//! Eager slots: registered buffers, each of which holds one small message with a header.
//!
//! The header has 16 bytes: the number of messages that the sender has consumed (32 bits), the kind
//! (8 bits), 1 if a note (rendezvous control data) follows (8 bits), 0 (16 bits), the field `word`
//! (32 bits), and the length in bytes (32 bits). If the message is a frame, `word` is the index of
//! its match bits in the header cache plus 1, or 0 if the frame has no match bits to cache. If the
//! message is a fragment of a payload, `word` identifies the payload. A note (48 bytes) is
//! rendezvous control data about a payload. The note, if there is one, and the message's bytes
//! follow the header. All ranks have the same byte order, which is checked when a communicator is
//! opened.

use crate::sys::memory::buf::{Region, Scratch};

/// Size of a message's header in bytes.
const HEADER: usize = 16;
/// Size of a note in bytes.
const NOTE: usize = 48;
/// Maximum number of message bytes in a slot, excluding the header and the note (rendezvous control
/// data): one frame of `p2p_protocol`.
pub(crate) const DATA: usize = 8192;
/// Size of an eager slot (buffer for one small message) in bytes, a multiple of the cache line
/// size.
pub(crate) const SLOT: usize = HEADER + NOTE + DATA;
const _: () = assert!(SLOT % 64 == 0);
/// Maximum number of rails: a note (rendezvous control data) has space for one remote key (rkey)
/// per rail.
pub(crate) const RAILS: usize = 4;

/// Kind of a message in an eager slot (registered buffer).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EagerKind {
    /// Frame of `p2p_protocol`.
    Frame = 1,
    /// The next bytes of a payload; more fragments follow.
    Fragment = 2,
    /// Last bytes of a payload.
    LastFragment = 3,
    /// Message without data, which carries only a note (rendezvous control data).
    Note = 4,
}

/// Kind of a note: rendezvous control data about a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoteKind {
    /// The receiver has posted the memory range in this note as the buffer for the payload (clear
    /// to send).
    Landing = 1,
    /// The sender announces the payload (RTS), which the receiver can read from the memory range in
    /// this note.
    Offer = 2,
    /// The receiver has read the payload.
    Fetched = 3,
    /// The receiver cannot read the payload and requests that it be sent in fragments.
    Fragmented = 4,
}

/// Note (rendezvous control data) about a payload: a memory range of the rank that sends the note,
/// and the purpose of that range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Note {
    pub(crate) about: NoteKind,
    /// Number that identifies the payload.
    pub(crate) word: u32,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    /// Remote key (rkey) of the memory for each rail.
    pub(crate) keys: [u32; RAILS],
}

/// Header of a message in an eager slot (registered buffer).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EagerHeader {
    pub(crate) consumed: u32,
    pub(crate) kind: EagerKind,
    pub(crate) word: u32,
    pub(crate) note: Option<Note>,
}

impl EagerHeader {
    /// Writes this header, the frame header `head` and the bytes `data` to a slot; returns the part
    /// of the slot to send.
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
            2 => EagerKind::Fragment,
            3 => EagerKind::LastFragment,
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
    let about = [NoteKind::Landing, NoteKind::Offer, NoteKind::Fetched, NoteKind::Fragmented];
    let about = about.into_iter().find(|about| *about as u64 == first & 0xFFFF_FFFF)?;
    let keys = [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32];
    Some(Note { about, word: (first >> 32) as u32, addr, len, keys })
}

/// Registered memory for one peer: slots (buffers) for receives and sends, two cache lines with
/// counts of consumed messages (one that the peer writes, and one that this rank writes to the
/// peer), and words for the results of atomic operations.
#[derive(Default)]
pub(crate) struct Slab {
    memory: Scratch,
    receives: usize,
    sends: usize,
}

/// Size, in bytes, of the counts of consumed messages (credits) for one direction: one 32-bit count
/// for each queue pair.
const WORDS: usize = 64;
/// Maximum number of atomic requests in flight to a peer, each on one element.
pub(crate) const RESULTS: usize = 64;
/// Maximum number of queue pairs per peer.
pub(crate) const LANES: usize = WORDS / 4;

impl Slab {
    /// Returns the size in bytes of the registered memory for one peer with `receives` receive
    /// slots and `sends` send slots (one buffer per small message).
    pub(crate) const fn bytes(receives: usize, sends: usize) -> usize {
        (receives + sends) * SLOT + 2 * WORDS + RESULTS * 8
    }

    /// Allocates the memory for one peer: message buffers, counts of consumed messages, and results
    /// of atomic operations. Returns `None` if memory is exhausted.
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

    /// Returns the word to which the network card writes the result of atomic request `index`: the
    /// previous value of the peer's element.
    pub(crate) fn result(&self, index: usize) -> Region {
        let at = (self.receives + self.sends) * SLOT + 2 * WORDS;
        self.region().part(at + index * 8, 8)
    }

    fn word(&self, direction: usize, lane: usize) -> Region {
        let at = (self.receives + self.sends) * SLOT + direction * WORDS;
        self.region().part(at + lane * 4, 4)
    }

    /// Returns the word to which the peer writes the number of messages that it has consumed from
    /// queue pair `lane`.
    pub(crate) fn credit_word(&self, lane: usize) -> Region {
        self.word(0, lane)
    }

    /// Stores, in a word of registered memory, the number of messages that this rank has consumed
    /// from queue pair `lane`; returns that word, for the caller to write to the peer.
    pub(crate) fn write_credits(&self, lane: usize, consumed: u32) -> Region {
        let word = self.word(1, lane);
        // SAFETY: the variable `consumed` outlives the copy, which only reads it.
        word.copy_from(unsafe { Region::new((&raw const consumed).cast_mut().cast(), 4) });
        word
    }

    /// Returns the number of messages that the peer has consumed from queue pair `lane`, according
    /// to the peer's latest credit update.
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
