//! Wire format of requests from an origin to a target: the header, and the tags of replies and
//! data.
//!
//! Requests from one origin arrive in order, because they all have the same tag. Replies have odd
//! tags and the data of large puts has even tags, so that a receive for a reply never matches put
//! data, and vice versa. Operation numbers in tags wrap around; messages with equal tags then match
//! in the order in which they were sent.

/// Tag of requests.
pub(super) const REQUEST: i32 = 0;
/// Number of distinct operation numbers in tags, small enough that the tags are valid on every
/// transport.
const NUMBERS: u64 = 8192;
/// Size of a header in bytes.
pub(super) const HEAD: usize = 24;
/// Maximum size of a request in bytes. Most transports send messages of this size eagerly.
pub(super) const ROOM: usize = 16 << 10;
/// Maximum size, in bytes, of a put whose data is in the request message, after the header. The
/// data of a larger put is sent as a separate message from the source buffer.
pub(super) const INLINE: usize = 2 << 10;
/// Maximum size in bytes of the data in a request, a multiple of every element size.
pub(super) const FRAGMENT: usize = (ROOM - HEAD) / 16 * 16;

/// Kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum RequestKind {
    /// Put whose data follows the header in the same message.
    Put = 1,
    /// Put whose data arrives as a separate message.
    PutLarge,
    Get,
    Accumulate,
    GetAccumulate,
    /// Compare-and-swap; the new value and the expected value follow the header.
    Swap,
    /// Lock request: exclusive if `op` is 1, otherwise shared.
    Lock,
    /// Request for a shared lock, which the target refuses unless the lock can be granted
    /// immediately.
    LockIfFree,
    Unlock,
    /// Cancellation of the origin's lock request that has the same tag. If the target has not yet
    /// replied to the lock request, it does so now.
    Forget,
    /// Request for a reply after all previous requests from the origin are complete.
    Flush,
}

const ALL: [RequestKind; 11] = [
    RequestKind::Put,
    RequestKind::PutLarge,
    RequestKind::Get,
    RequestKind::Accumulate,
    RequestKind::GetAccumulate,
    RequestKind::Swap,
    RequestKind::Lock,
    RequestKind::LockIfFree,
    RequestKind::Unlock,
    RequestKind::Forget,
    RequestKind::Flush,
];

/// Header of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) what: RequestKind,
    /// Reduction operation (DTL_OP_...).
    pub(super) op: i32,
    /// Element type (DTL_DTYPE_...).
    pub(super) dtype: i32,
    /// Tag of the reply or, for a large put, tag of the message that contains the data.
    pub(super) tag: i32,
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Head {
    pub(super) fn new(what: RequestKind) -> Head {
        Head { what, op: 0, dtype: 0, tag: 0, offset: 0, len: 0 }
    }

    pub(super) fn at(self, offset: usize, len: usize) -> Head {
        Head { offset: offset as u64, len: len as u64, ..self }
    }

    pub(super) fn words(&self) -> [u64; 3] {
        let first = self.what as u64
            | u64::from(self.op as u8) << 8
            | u64::from(self.dtype as u8) << 16
            | u64::from(self.tag as u32) << 32;
        [first, self.offset, self.len]
    }

    pub(super) fn parse([first, offset, len]: [u64; 3]) -> Option<Head> {
        let what = ALL.into_iter().find(|what| *what as u8 == first as u8)?;
        let (op, dtype) = (i32::from((first >> 8) as u8), i32::from((first >> 16) as u8));
        Some(Head { what, op, dtype, tag: (first >> 32) as i32, offset, len })
    }
}

/// Returns the tag of the reply to the operation with the number `number`.
pub(super) fn answer_tag(number: u64) -> i32 {
    (1 + 2 * (number % NUMBERS)) as i32
}

/// Returns the tag of the separate data message of the large put with the operation number
/// `number`.
pub(super) fn data_tag(number: u64) -> i32 {
    answer_tag(number) + 1
}

#[cfg(test)]
#[path = "tests/wire_format.rs"]
mod tests;
