//! Arguments of trace events, and the conversion of events to fixed-size records.

use super::names::Name;
use crate::abi::status::dtl_status_t;
use crate::abi::trace::*;
use crate::runtime::trace::spsc_queue::Record;
use crate::runtime::types;
use std::fmt::{self, Write};

/// Size in bytes of the buffer for an event's string argument (`what`), including the terminating
/// NUL.
const TEXT: usize = 32;

/// Arguments of a call, span or operation, as far as they are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Args {
    pub(super) has: u32,
    pub(super) bytes: u64,
    pub(super) peer: i32,
    pub(super) tag: i32,
    pub(super) comm: u64,
    pub(super) dtype: i32,
    pub(super) op: i32,
    pub(super) what: [u8; TEXT],
}

impl Args {
    /// Empty set of arguments.
    pub const NONE: Args =
        Args { has: 0, bytes: 0, peer: 0, tag: 0, comm: 0, dtype: 0, op: 0, what: [0; TEXT] };

    /// Adds a size in bytes.
    pub fn bytes(self, bytes: u64) -> Args {
        Args { has: self.has | DTL_TRACE_HAS_BYTES, bytes, ..self }
    }

    /// Adds the rank of the peer, or of the root of a collective.
    pub fn peer(self, peer: i32) -> Args {
        Args { has: self.has | DTL_TRACE_HAS_PEER, peer, ..self }
    }

    /// Adds the tag of a message or the sequence number of a collective.
    pub fn tag(self, tag: i32) -> Args {
        Args { has: self.has | DTL_TRACE_HAS_TAG, tag, ..self }
    }

    /// Adds the communicator's handle.
    pub fn comm(self, comm: u64) -> Args {
        Args { has: self.has | DTL_TRACE_HAS_COMM, comm, ..self }
    }

    /// Adds the dtype and the total size in bytes of `count` elements.
    pub fn elements(self, count: u64, dtype: i32) -> Args {
        let size = types::element_size(dtype).map_or(0, |size| size as u64);
        let sized = self.bytes(count.saturating_mul(size));
        Args { has: sized.has | DTL_TRACE_HAS_DTYPE, dtype, ..sized }
    }

    /// Adds a reduction operation.
    pub fn op(self, op: i32) -> Args {
        Args { has: self.has | DTL_TRACE_HAS_OP, op, ..self }
    }

    /// Adds a string, truncated to at most 31 bytes. Example:
    /// `Args::NONE.what(format_args!("{backend} {kind}"))`.
    pub fn what(self, text: impl fmt::Display) -> Args {
        let mut what = Cut { text: [0; TEXT], len: 0 };
        // The write fails where the text is truncated.
        let _ = write!(what, "{text}");
        Args { has: self.has | DTL_TRACE_HAS_WHAT, what: what.text, ..self }
    }

    /// Merges two sets of arguments; where both have a value, `later` takes precedence.
    pub(super) fn and(self, later: &Args) -> Args {
        let of = |bit| later.has & bit != 0;
        Args {
            has: self.has | later.has,
            bytes: if of(DTL_TRACE_HAS_BYTES) { later.bytes } else { self.bytes },
            peer: if of(DTL_TRACE_HAS_PEER) { later.peer } else { self.peer },
            tag: if of(DTL_TRACE_HAS_TAG) { later.tag } else { self.tag },
            comm: if of(DTL_TRACE_HAS_COMM) { later.comm } else { self.comm },
            dtype: if of(DTL_TRACE_HAS_DTYPE) { later.dtype } else { self.dtype },
            op: if of(DTL_TRACE_HAS_OP) { later.op } else { self.op },
            what: if of(DTL_TRACE_HAS_WHAT) { later.what } else { self.what },
        }
    }

    /// Returns the string argument of the event.
    pub(super) fn text(&self) -> &str {
        let len = self.what.iter().position(|byte| *byte == 0).unwrap_or(TEXT);
        self.what.get(..len).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or("")
    }
}

/// String buffer that accepts as many whole characters as fit before the terminating NUL.
struct Cut {
    text: [u8; TEXT],
    len: usize,
}

impl Write for Cut {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        for char in more.chars().filter(|char| *char != '\0') {
            let end = self.len + char.len_utf8();
            match self.text.get_mut(self.len..end).filter(|_| end < TEXT) {
                Some(place) => char.encode_utf8(place),
                None => return Err(fmt::Error),
            };
            self.len = end;
        }
        Ok(())
    }
}

/// Kind of an event. The value is the ASCII code of the event's phase letter in Chrome's trace
/// format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Phase {
    Begin = b'B',
    End = b'E',
    OperationBegin = b'b',
    OperationEnd = b'e',
    /// Work of a device, with both times.
    Complete = b'X',
    Counter = b'C',
}

impl Phase {
    const ALL: [Phase; 6] = {
        use Phase::*;
        [Begin, End, OperationBegin, OperationEnd, Complete, Counter]
    };

    /// Returns true for the events of tracks.
    pub(super) fn is_of_track(self) -> bool {
        matches!(self, Phase::Complete | Phase::Counter)
    }

    pub(super) fn letter(self) -> char {
        self as u8 as char
    }
}

/// Begin or end event, or an event of a track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TraceEvent {
    pub(super) phase: Phase,
    pub(super) category: Name,
    pub(super) name: Name,
    /// Number that pairs a begin with its end; for an event of a track, the number of the track.
    pub(super) id: u64,
    /// 0: the time at which the event is recorded.
    pub(super) time_ns: u64,
    /// End time of [`Phase::Complete`], bits of the `f64` of [`Phase::Counter`], otherwise 0.
    pub(super) value: u64,
    pub(super) status: dtl_status_t,
    pub(super) args: Args,
}

fn pair(low: i32, high: i32) -> u64 {
    u64::from(low as u32) | u64::from(high as u32) << 32
}

fn apart(pair: u64) -> (i32, i32) {
    (pair as u32 as i32, (pair >> 32) as i32)
}

impl TraceEvent {
    pub(super) fn to_record(self) -> Record {
        let TraceEvent { phase, category, name, id, time_ns, value, status, args } = self;
        let Args { has, bytes, peer, tag, comm, dtype, op, what } = args;
        let head = phase as u64 | u64::from(category.0) << 8 | u64::from(name.0) << 32;
        let mut text = [0; TEXT / 8];
        for (word, bytes) in text.iter_mut().zip(what.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        let [a, b, c, d] = text;
        // Events of tracks have no communicator.
        let comm = if phase.is_of_track() { value } else { comm };
        let (peers, types, status) = (pair(peer, tag), pair(dtype, op), pair(status, has as i32));
        [time_ns, head, id, bytes, peers, comm, types, status, a, b, c, d]
    }

    pub(super) fn of_record(record: Record) -> Option<TraceEvent> {
        let [time_ns, head, id, bytes, peers, comm, types, status, text @ ..] = record;
        let phase = *Phase::ALL.iter().find(|phase| **phase as u64 == head & 0xFF)?;
        let ((peer, tag), (dtype, op), (status, has)) = (apart(peers), apart(types), apart(status));
        let mut what = [0; TEXT];
        for (bytes, word) in what.chunks_exact_mut(8).zip(text) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let (comm, value) = if phase.is_of_track() { (0, comm) } else { (comm, 0) };
        let args = Args { has: has as u32, bytes, peer, tag, comm, dtype, op, what };
        let (category, name) = (Name((head >> 8) as u32 & 0xFF_FFFF), Name((head >> 32) as u32));
        Some(TraceEvent { phase, category, name, id, time_ns, value, status, args })
    }
}

#[cfg(test)]
#[path = "tests/args.rs"]
mod tests;
