//! Frames, which carry all small messages and all control messages, and their buffers.
//!
//! A frame is 32 bytes of header, little endian, then the payload of an eager message:
//! kind 32 | payload word 32 | match word 64 | size 64 | id 64 (sizes in bits).

use crate::sys::memory::buf::Region;

/// Maximum size of a frame, in bytes.
pub(super) const FRAME: usize = 8192;
/// Size of a frame's header, in bytes.
pub(super) const HEADER: usize = 32;
/// Maximum size of a message that is sent in its frame, in bytes.
pub(super) const INLINE: usize = FRAME - HEADER;

/// Kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameKind {
    /// A complete message.
    Eager = 1,
    /// Rendezvous request (RTS): send `id` offers a message of `size` bytes.
    Offer = 3,
    /// Clear to send (CTS): send `id` may send its first `size` bytes under the payload word.
    Clear = 4,
    /// Send `id` is complete: a receive has its message.
    Ack = 5,
    /// Rendezvous request of send `id` is canceled.
    Withdraw = 6,
    /// The canceled request of send `id` was dropped by the receiver.
    Forgotten = 7,
    /// The sender of the frame could not open its wire and closes it.
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
    /// For Clear: match word under which the payload's receive is posted.
    pub(super) payload: u32,
    /// Match bits of the message.
    pub(super) word: u64,
    /// Size of the message in bytes; for Clear: number of bytes requested.
    pub(super) size: u64,
    /// Operation of the message's sender.
    pub(super) id: u64,
}

impl Header {
    /// Returns the header as little-endian words.
    #[inline]
    pub(super) fn words(&self) -> [u64; HEADER / 8] {
        let kind = u64::from(self.kind as u32) | u64::from(self.payload) << 32;
        [kind, self.word, self.size, self.id].map(u64::to_le)
    }

    /// Returns the match bits if these words are the header of a complete message. Such a header
    /// has no operation number, since no other frame refers to its send.
    #[inline]
    pub(super) fn eager_word(words: &[u64; HEADER / 8]) -> Option<u64> {
        let [kind, word, ..] = words.map(u64::from_le);
        (kind == FrameKind::Eager as u64).then_some(word)
    }

    /// Parses the header of a frame of `len` bytes; returns `None` if the words are no valid
    /// header.
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
        let carried = match header.kind {
            FrameKind::Eager => size,
            FrameKind::Offer
            | FrameKind::Clear
            | FrameKind::Ack
            | FrameKind::Withdraw
            | FrameKind::Forgotten
            | FrameKind::Leave => 0,
        };
        (len <= FRAME as u64 && Some(len) == carried.checked_add(HEADER as u64)).then_some(header)
    }
}

/// Buffer of a frame. A `Vec`, which unlike a `Box` may be moved while a transport holds the
/// address of its bytes.
pub(super) struct Frame(Vec<u8>);

impl Frame {
    /// Allocates a frame; returns `None` if there is no memory.
    pub(super) fn new() -> Option<Frame> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(FRAME).ok()?;
        bytes.resize(FRAME, 0);
        Some(Frame(bytes))
    }

    /// Returns the first `len` bytes as a region. The frame must be kept until the operation on the
    /// region is complete.
    pub(super) fn region(&mut self, len: usize) -> Region {
        let len = len.min(self.0.len());
        // SAFETY: the vector has `len` bytes, which do not move while the frame is kept; its bytes
        // are not accessed again before the operation is complete.
        unsafe { Region::new(self.0.as_mut_ptr().cast(), len) }
    }

    /// Writes header and payload; returns the bytes to send.
    pub(super) fn write(&mut self, header: &Header, payload: Region) -> Region {
        for (place, word) in self.0.chunks_exact_mut(8).zip(header.words()) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        let used = HEADER + payload.len().min(INLINE);
        self.region(FRAME).part(HEADER, INLINE).copy_from(payload);
        self.region(used)
    }

    /// Parses the header of a frame of `len` received bytes; returns `None` if it is invalid.
    pub(super) fn read(&self, len: u64) -> Option<Header> {
        let mut words =
            self.0.chunks_exact(8).map(|bytes| bytes.try_into().map_or(0, u64::from_ne_bytes));
        Header::of([words.next()?, words.next()?, words.next()?, words.next()?], len)
    }

    /// Returns the payload of an eager message.
    pub(super) fn payload(&mut self, size: usize) -> Region {
        self.region(FRAME).part(HEADER, size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::memory::buf::Scratch;

    #[test]
    fn a_frame_says_what_was_written_and_nothing_else_is_one() {
        let mut frame = Frame::new().expect("memory");
        let data = Scratch::new(100).expect("memory");
        data.region().fill(7);
        for kind in (1..9).filter_map(FrameKind::of) {
            let payload = if kind == FrameKind::Eager { data.region() } else { Region::EMPTY };
            let header = Header { kind, payload: 5, word: u64::MAX, size: 100, id: 1 << 40 };
            let len = frame.write(&header, payload).len() as u64;
            assert_eq!(
                (len, frame.read(len)),
                (HEADER as u64 + payload.len() as u64, Some(header))
            );
            assert_eq!((frame.read(len + 1), frame.read(len - 1)), (None, None));
        }
        assert_eq!(frame.0[HEADER + 99..HEADER + 101], [7, 0]);
        frame.0[0] = 9;
        assert_eq!(frame.read(HEADER as u64), None);
        let huge = Header { kind: FrameKind::Eager, payload: 0, word: 0, size: u64::MAX, id: 0 };
        frame.write(&huge, Region::EMPTY);
        assert_eq!(frame.read(HEADER as u64 - 1), None);
    }
}
