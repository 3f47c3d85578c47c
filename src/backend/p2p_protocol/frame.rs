//! A frame: the unit that all small messages and all control words travel in, and its pool.
//!
//! 32 bytes of header, little endian, then the payload of an eager message:
//! kind 32 | payload word 32 | match word 64 | size 64 | id 64.

use crate::sys::memory::buf::Region;

/// Bytes of a frame.
pub(super) const FRAME: usize = 8192;
/// Bytes of its header.
pub(super) const HEADER: usize = 32;
/// The longest message that travels in its frame.
pub(super) const INLINE: usize = FRAME - HEADER;

/// Kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameKind {
    /// A whole message.
    Eager = 1,
    /// A message of `size` bytes is to be had from send `id`.
    Offer = 3,
    /// Send `id` may send its first `size` bytes under the payload word.
    Clear = 4,
    /// Send `id` is over: a receive has taken its message.
    Ack = 5,
    /// Send `id`, which was offered, is withdrawn.
    Withdraw = 6,
    /// The withdrawn offer of send `id` is forgotten.
    Forgotten = 7,
    /// The sender could not open its side and closes it.
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

/// A frame's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) kind: FrameKind,
    /// Clear: under which word the payload is awaited.
    pub(super) payload: u32,
    /// The message's match word.
    pub(super) word: u64,
    /// The message's size; Clear: how much of it is wanted.
    pub(super) size: u64,
    /// The operation of the sender of the message.
    pub(super) id: u64,
}

impl Header {
    /// As it travels.
    #[inline]
    pub(super) fn words(&self) -> [u64; HEADER / 8] {
        let kind = u64::from(self.kind as u32) | u64::from(self.payload) << 32;
        [kind, self.word, self.size, self.id].map(u64::to_le)
    }

    /// The match word, if these are the words of a whole message. Its send has no number, since no
    /// frame refers to it.
    #[inline]
    pub(super) fn eager_word(words: &[u64; HEADER / 8]) -> Option<u64> {
        let [kind, word, ..] = words.map(u64::from_le);
        (kind == FrameKind::Eager as u64).then_some(word)
    }

    /// The header that a frame of `len` bytes begins with; `None`: this is no frame.
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

/// Its bytes. In a `Vec`, which unlike a `Box` may move while a transport holds the address.
pub(super) struct Frame(Vec<u8>);

impl Frame {
    /// `None` without memory.
    pub(super) fn new() -> Option<Frame> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(FRAME).ok()?;
        bytes.resize(FRAME, 0);
        Some(Frame(bytes))
    }

    /// The first bytes. Keep the frame until the operation that gets them is over.
    pub(super) fn region(&mut self, len: usize) -> Region {
        let len = len.min(self.0.len());
        // SAFETY: the vector has `len` bytes, which stay where they are while the frame is kept; it
        // is looked at again only when the operation is over.
        unsafe { Region::new(self.0.as_mut_ptr().cast(), len) }
    }

    /// Writes header and payload; the bytes to send.
    pub(super) fn write(&mut self, header: &Header, payload: Region) -> Region {
        for (place, word) in self.0.chunks_exact_mut(8).zip(header.words()) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        let used = HEADER + payload.len().min(INLINE);
        self.region(FRAME).part(HEADER, INLINE).copy_from(payload);
        self.region(used)
    }

    /// The header of a frame of `len` received bytes; `None`: this is no frame.
    pub(super) fn read(&self, len: u64) -> Option<Header> {
        let mut words =
            self.0.chunks_exact(8).map(|bytes| bytes.try_into().map_or(0, u64::from_ne_bytes));
        Header::of([words.next()?, words.next()?, words.next()?, words.next()?], len)
    }

    /// The payload of an eager message.
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
