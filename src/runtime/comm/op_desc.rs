//! Descriptions of operations, for the flight recorder, reports, and comparison between ranks.

use crate::abi::comm::communicator::{DTL_ANY_SOURCE, DTL_ANY_TAG, DTL_PROC_NULL};
pub(crate) use crate::runtime::op_kind::{KINDS, Kind};
use crate::runtime::trace::Args;
use crate::runtime::{id_table, types};
use std::fmt;

/// Bit of `op` that is inverted for device memory. In every valid operation number, this bit equals
/// the sign bit.
const ON_DEVICE: i32 = 1 << 30;
/// Bit of `op` that is inverted for collectives that a registered backend executes. In every valid
/// operation number, this bit equals the sign bit.
const BY_BACKEND: i32 = 1 << 29;

/// Description of one operation, as specified by its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OpDesc {
    pub(crate) kind: Kind,
    /// Value of the argument that has the same name as this field; -1 if the operation has no such
    /// argument.
    pub(crate) dtype: i32,
    /// Value of the argument that has the same name as this field; -1 if the operation has no such
    /// argument.
    pub(crate) op: i32,
    /// Rank of the root or of the peer; -1 if there is no such rank.
    pub(crate) peer: i32,
    /// Tag of a message, or number of a collective.
    pub(crate) tag: i32,
    /// Number of elements.
    pub(crate) count: u64,
}

impl OpDesc {
    pub(crate) fn new(kind: Kind) -> OpDesc {
        OpDesc { kind, dtype: -1, op: -1, peer: -1, tag: 0, count: 0 }
    }

    pub(crate) fn with(self, count: u64, dtype: i32) -> OpDesc {
        OpDesc { count, dtype, ..self }
    }

    /// Returns the arguments of the call for a trace.
    pub(crate) fn args(&self) -> Args {
        let mut args = Args::NONE.tag(self.tag);
        if self.dtype >= 0 {
            args = args.elements(self.count, self.dtype);
        }
        let op = self.reduction();
        if op >= 0 {
            args = args.op(op);
        }
        if self.peer >= 0 || !self.kind.is_collective() { args.peer(self.peer) } else { args }
    }

    /// Returns the description with a mark that a device library (for example NCCL) executes the
    /// call on device memory. The marked description does not match the descriptions of other
    /// ranks' calls on host memory.
    pub(crate) fn on_device(self) -> OpDesc {
        OpDesc { op: self.op ^ ON_DEVICE, ..self }
    }

    /// Returns the description with a mark that a registered backend executes the collective. The
    /// marked description does not match those of ranks on which the library executes it.
    pub(crate) fn by_backend(self) -> OpDesc {
        OpDesc { op: self.op ^ BY_BACKEND, ..self }
    }

    /// Returns the reduction operation that the program passed.
    fn reduction(&self) -> i32 {
        self.op ^ self.marks()
    }

    /// Returns the bits of `op` that are inverted.
    fn marks(&self) -> i32 {
        let sign = if self.op < 0 { -1 } else { 0 };
        (self.op ^ sign) & (ON_DEVICE | BY_BACKEND)
    }

    /// Returns the description with a dtype number and an operation number that are the same on
    /// every rank.
    pub(crate) fn portable(self) -> OpDesc {
        let (dtype, op) = self.portable_types();
        OpDesc { dtype, op, ..self }
    }

    /// Returns the dtype number and the operation number of the portable description.
    pub(crate) fn portable_types(&self) -> (i32, i32) {
        if self.dtype < id_table::FIRST && self.op < id_table::FIRST {
            (self.dtype, self.op)
        } else {
            self.of_own_types()
        }
    }

    #[cold]
    fn of_own_types(&self) -> (i32, i32) {
        let op = types::portable_op(self.reduction()) ^ self.marks();
        (types::portable_dtype(self.dtype), op)
    }

    /// Returns an 8-bit hash that very likely differs between collectives that do not match. The
    /// hash is part of the message tags, so messages of mismatched collectives almost never match.
    #[inline]
    pub(crate) fn signature(&self) -> u8 {
        let (dtype, op) = self.portable_types();
        let parts = [self.kind as u32, dtype as u32, op as u32, self.peer as u32];
        let mixed = parts
            .iter()
            .fold(0x811C_9DC5_u32, |hash, part| (hash ^ part).wrapping_mul(0x0100_0193));
        (mixed ^ mixed >> 8 ^ mixed >> 16 ^ mixed >> 24) as u8
    }

    /// Encodes the description in three 64-bit words, for the flight recorder and, if the
    /// description is portable ([`OpDesc::portable`]), for messages to other ranks. In the first
    /// word, the kind is in the bits above the tag, as in [`Tagged`]. Only the first word has to be
    /// computed for an ordinary message.
    pub(crate) fn words(&self) -> [u64; 3] {
        let op = u64::from(!self.op as u32) << 32;
        [
            Tagged::new(self.kind, self.tag).with_dtype(self.dtype),
            u64::from(self.peer as u32) | op,
            self.count,
        ]
    }

    pub(crate) fn from_words(words: [u64; 3]) -> Option<OpDesc> {
        let [first, second, third] = words;
        let kind = Kind::of(first >> 32 & 0xFF)?;
        // The dtype is a signed number of 24 bits.
        let (tag, dtype) = (first as u32 as i32, (first >> 32) as i32 >> 8);
        let (peer, op) = (second as u32 as i32, !((second >> 32) as i32));
        Some(OpDesc { kind, dtype, op, peer, tag, count: third })
    }
}

/// Kind of an operation (upper half) and its tag (lower half), in one word.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Tagged(u64);

impl Tagged {
    /// Packs an operation's kind and tag into one word.
    pub fn new(kind: Kind, tag: i32) -> Tagged {
        Tagged(u64::from(tag as u32) | (kind as u64) << 32)
    }

    /// Returns the tag.
    pub fn tag(self) -> i32 {
        self.0 as u32 as i32
    }

    /// Returns true if the operation is of the kind `kind`.
    pub(crate) fn is(self, kind: Kind) -> bool {
        self.0 >> 32 == kind as u64
    }

    /// Returns the kind.
    pub fn kind(self) -> Kind {
        Kind::of(self.0 >> 32).unwrap_or(Kind::Send)
    }

    /// Returns the first of the three 64-bit words that encode the description of an operation: the
    /// dtype is in the bits above the kind and the tag.
    fn with_dtype(self, dtype: i32) -> u64 {
        self.0 | u64::from(dtype as u32) << 40
    }

    /// Returns the three 64-bit words that encode the description of a message.
    pub(crate) fn words(self, peer: i32, count: u64, dtype: i32) -> [u64; 3] {
        [self.with_dtype(dtype), u64::from(peer as u32), count]
    }
}

impl fmt::Display for OpDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let collective = self.kind.is_collective();
        f.write_str(self.kind.name())?;
        if collective {
            write!(f, " #{}", self.tag)?;
        }
        let mut details = Vec::new();
        if self.dtype >= 0 {
            details.push(format!("count {}", self.count));
            details.push(types::dtype_text(self.dtype));
        }
        let op = self.reduction();
        if op >= 0 {
            details.push(types::op_text(op));
        }
        if self.marks() & ON_DEVICE != 0 {
            details.push("device memory".to_owned());
        }
        if self.marks() & BY_BACKEND != 0 {
            details.push("by the backend".to_owned());
        }
        if !collective {
            let way = if matches!(self.kind, Kind::Recv | Kind::Probe) { "from" } else { "to" };
            details.push(format!("{way} {}", rank_name(self.peer)));
            details.push(match self.tag {
                DTL_ANY_TAG => "any tag".into(),
                tag => format!("tag {tag}"),
            });
        } else if self.peer >= 0 {
            details.push(format!("root {}", self.peer));
        }
        if details.is_empty() { Ok(()) } else { write!(f, " ({})", details.join(", ")) }
    }
}

/// Returns the name of a peer for error messages.
pub(crate) fn rank_name(peer: i32) -> String {
    match peer {
        DTL_ANY_SOURCE => "any rank".to_owned(),
        DTL_PROC_NULL => "DTL_PROC_NULL".to_owned(),
        _ => format!("rank {peer}"),
    }
}

#[cfg(test)]
#[path = "tests/op_desc.rs"]
mod tests;
