//! Requests of an origin to a target: the head of each, and the tags of what goes with it.
//!
//! Requests of one origin arrive in their order, as all have one tag. Answers and the data of large
//! puts have tags of their own, those of the data even, so that neither takes the other. Numbers of
//! operations come again after many others; then order decides, as for any two messages.

/// The tag of requests.
pub(super) const REQUEST: i32 = 0;
/// Different tags: few enough for every transport.
const NUMBERS: u64 = 8192;
/// Bytes of a head.
pub(super) const HEAD: usize = 24;
/// Most bytes of a request: what transports send at once, most of them.
pub(super) const ROOM: usize = 16 << 10;
/// Most bytes of a put that travel with the head; more are sent from where they are.
pub(super) const INLINE: usize = 2 << 10;
/// Most bytes of data in a request, a multiple of every element's size.
pub(super) const PIECE: usize = (ROOM - HEAD) / 16 * 16;

/// Kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum RequestKind {
    /// The data follow.
    Put = 1,
    /// The data come as a message of their own.
    PutLarge,
    Get,
    Accumulate,
    GetAccumulate,
    /// Value and what is expected follow.
    Swap,
    /// Shared, or exclusive if `op` is 1.
    Lock,
    /// Shared, if it is free for that; else the answer is a refusal.
    LockIfFree,
    Unlock,
    /// Cancels the request for a lock under that tag. If that request was not answered, now it is.
    Forget,
    /// An answer when all that came before is done.
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

/// The head of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) what: RequestKind,
    /// DTL_OP_...
    pub(super) op: i32,
    /// DTL_DTYPE_...
    pub(super) dtype: i32,
    /// Tag of the answer, or of the data.
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

/// The tag of the answer to operation `number`.
pub(super) fn answer_tag(number: u64) -> i32 {
    (1 + 2 * (number % NUMBERS)) as i32
}

/// The tag of its data.
pub(super) fn data_tag(number: u64) -> i32 {
    answer_tag(number) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_the_way() {
        for what in ALL {
            let head =
                Head { what, op: 13, dtype: 22, tag: answer_tag(8191), offset: 1 << 40, len: 77 };
            assert_eq!(Head::parse(head.words()), Some(head));
        }
        assert_eq!(Head::parse([99, 0, 0]), None);
    }

    #[test]
    fn tags_differ_and_fit_every_mpi() {
        let tags: std::collections::BTreeSet<i32> =
            (0..NUMBERS).flat_map(|number| [answer_tag(number), data_tag(number)]).collect();
        assert!(tags.len() == 2 * NUMBERS as usize && !tags.contains(&REQUEST));
        assert!(tags.last().is_some_and(|last| *last <= 32767), "MPI promises tags up to 32767");
    }
}
