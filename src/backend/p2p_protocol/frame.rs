//! Frames, which carry all small messages and all control messages: format and buffers.
//!
//! A frame is a 32-byte little-endian header, followed by the payload of an eager message. The
//! header has these fields: kind (32 bits), payload tag (32), match bits (64), size (64) and ID
//! (64).

use crate::sys::memory::buf::Region;

/// Maximum size of a frame, in bytes.
pub(super) const FRAME: usize = 8192;
/// Size of a frame's header, in bytes.
pub(super) const HEADER: usize = 32;
/// Maximum payload of an Eager frame (a frame that contains the whole message), in bytes.
pub(super) const INLINE: usize = FRAME - HEADER;

/// Kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameKind {
    /// A complete message; its payload follows the header.
    Eager = 1,
    /// Rendezvous request (RTS) for a message of `size` bytes; `id` is the sender's operation.
    Offer = 3,
    /// Clear to send (CTS) for send `id`: the first `size` bytes of its message may be sent with
    /// tag `payload`.
    Clear = 4,
    /// Completes send `id` without a payload transfer, because the matching receive has failed.
    Ack = 5,
    /// Cancels the rendezvous request of send `id`.
    Withdraw = 6,
    /// Confirms that the receiver has dropped the canceled request of send `id`.
    Forgotten = 7,
    /// The sender of the frame failed to open its transport and is closing it.
    Leave = 8,
}

impl FrameKind {
    fn of(number: u32) -> Option<FrameKind> {
        use FrameKind::*;
        [Eager, Offer, Clear, Ack, Withdraw, Forgotten, Leave]
            .into_iter()
            .find(|kind| *kind as u32 == number)
    }
}

/// Header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) kind: FrameKind,
    /// Only for Clear: tag of the posted receive for the payload.
    pub(super) payload: u32,
    /// Match bits of the message (context ID and tag).
    pub(super) word: u64,
    /// Size of the message in bytes; for Clear: number of bytes requested.
    pub(super) size: u64,
    /// Operation ID at the message's sender; not used in Eager frames.
    pub(super) id: u64,
}

impl Header {
    /// Returns the header of an Eager frame with match bits `word` and `len` payload bytes.
    #[inline]
    pub(super) fn eager(word: u64, len: usize) -> Header {
        Header { kind: FrameKind::Eager, payload: 0, word, size: len as u64, id: 0 }
    }

    /// Returns the header as words in little-endian byte order.
    #[inline]
    pub(super) fn words(&self) -> [u64; HEADER / 8] {
        let kind = u64::from(self.kind as u32) | u64::from(self.payload) << 32;
        [kind, self.word, self.size, self.id].map(u64::to_le)
    }

    /// Parses the header of a frame of `len` bytes; `None` if the words are not a valid header for
    /// this length.
    #[inline]
    pub(super) fn of(words: [u64; HEADER / 8], len: u64) -> Option<Header> {
        let [kind, word, size, id] = words.map(u64::from_le);
        let header = Header {
            kind: FrameKind::of(kind as u32)?,
            payload: (kind >> 32) as u32,
            word,
            size,
            id,
        };
        let carried = if header.kind == FrameKind::Eager { size } else { 0 };
        (len <= FRAME as u64 && Some(len) == carried.checked_add(HEADER as u64)).then_some(header)
    }
}

/// Returns the match bits of an Eager frame; `None` for any other frame. The match bits and the
/// payload length determine the other header words of an Eager frame; its operation ID is always 0,
/// because no other frame refers to the send.
#[inline]
pub fn eager_word(head: &[u64; HEADER / 8]) -> Option<u64> {
    let [kind, word, ..] = head.map(u64::from_le);
    (kind == FrameKind::Eager as u64).then_some(word)
}

/// Returns the header words of an Eager frame with match bits `word` and `len` payload bytes.
#[inline]
pub fn eager_head(word: u64, len: usize) -> [u64; HEADER / 8] {
    Header::eager(word, len).words()
}

/// Buffer of a frame. A `Vec`, because unlike a `Box` it may be moved while a transport holds the
/// address of its bytes.
pub(super) struct Frame(Vec<u8>);

impl Frame {
    /// Allocates a frame buffer; returns `None` if memory is exhausted.
    pub(super) fn new() -> Option<Frame> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(FRAME).ok()?;
        bytes.resize(FRAME, 0);
        Some(Frame(bytes))
    }

    /// Returns the first `len` bytes as a region. The caller must keep the frame until the
    /// operation on the region completes.
    pub(super) fn region(&mut self, len: usize) -> Region {
        let len = len.min(self.0.len());
        // SAFETY: the vector has `len` bytes, which do not move while the frame is kept; its bytes
        // are not accessed again before the operation is complete.
        unsafe { Region::new(self.0.as_mut_ptr().cast(), len) }
    }

    /// Writes the header and the payload into the frame; returns the region to send.
    pub(super) fn write(&mut self, header: &Header, payload: Region) -> Region {
        for (place, word) in self.0.chunks_exact_mut(8).zip(header.words()) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        let used = HEADER + payload.len().min(INLINE);
        self.region(FRAME).part(HEADER, INLINE).copy_from(payload);
        self.region(used)
    }

    /// Parses the header of a received frame of `len` bytes; `None` if it is invalid.
    pub(super) fn read(&self, len: u64) -> Option<Header> {
        let mut words =
            self.0.chunks_exact(8).map(|bytes| bytes.try_into().map_or(0, u64::from_ne_bytes));
        Header::of([words.next()?, words.next()?, words.next()?, words.next()?], len)
    }

    /// Returns the payload of an eager message of `size` bytes.
    pub(super) fn payload(&mut self, size: usize) -> Region {
        self.region(FRAME).part(HEADER, size)
    }
}

#[cfg(test)]
#[path = "tests/frame.rs"]
mod tests;
