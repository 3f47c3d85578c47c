//! The flight recorder: the last operations of each rank on a communicator, retained for reports.
//!
//! Recording takes a few relaxed stores. A reader may race with a writer. An entry's stamp is 0
//! while the entry is written, and the number of the operation afterwards. So a reader that reads
//! the same number before and after it reads the entry (with the fences below) has read one entry
//! and not parts of two.
//!
//! The first thread that records an operation has a list of its own, whose operation count it
//! increments with a load and a store. (Most programs have only this thread, and an atomic addition
//! costs as much as the rest of the recording.) The other threads share the second list. Two
//! threads write to one entry only if 64 operations start while one operation is being recorded. A
//! report may then show a mixture of both. Nothing else depends on the entries.
//!
//! Every operation calls the recorder, so operations are also reported to a trace here.

use super::op_desc::{Kind, OpDesc};
use crate::abi::status::DTL_ERROR_TIMEOUT;
use crate::error::{Error, Result};
use crate::hints;
use crate::runtime::trace;
use crate::sys::handles::epoch;
use crate::sys::sync::{AtomicU64, AtomicUsize, Ordering, fence, size};
use std::iter::from_fn;
use std::{array, ptr};

/// Prefetch distance in entries: an entry is prefetched this many operations before it is written.
const AHEAD: usize = 4;

/// Number of operations that a list retains.
const KEPT: usize = size(64, 1);

/// Entry for one operation, in a cache line of its own, so that recording does not access the cache
/// line of another entry.
#[derive(Default)]
#[repr(align(64))]
struct RecordedOp {
    stamp: AtomicU64,
    call: [AtomicU64; 3],
    /// Number of operations in the list of the first recording thread when this operation was
    /// recorded; set only in the list that the other threads share.
    after: AtomicU64,
    /// Number of the last operation in this entry that was recorded as complete; equals `stamp` if
    /// the current operation of this entry is complete.
    over: AtomicU64,
}

/// Entries of a list. `Box::default` constructs the entries in place; `Box::new` would copy them.
struct Entries([RecordedOp; KEPT]);

impl Default for Entries {
    fn default() -> Self {
        Entries(array::from_fn(|_| RecordedOp::default()))
    }
}

/// List of the last operations, either of the first thread that recorded an operation or of all
/// other threads.
#[derive(Default)]
#[repr(C)]
struct RecorderList {
    noted: AtomicU64,
    entries: Box<Entries>,
}

/// Copy of an entry, made by a reader.
struct Noted {
    call: OpDesc,
    is_over: bool,
    after: u64,
}

impl RecorderList {
    #[inline(always)] // row: send_recv_8
    fn entry(&self, number: u64) -> &RecordedOp {
        let Entries(entries) = &*self.entries;
        let [first, ..] = entries;
        entries.get(number as usize % KEPT).unwrap_or(first)
    }

    #[inline(always)] // row: send_recv_8
    fn note(&self, number: u64, words: [u64; 3], after: Option<u64>) -> &RecordedOp {
        let entry = self.entry(number);
        entry.stamp.store(0, Ordering::Relaxed);
        // A reader that sees one of the words stored below also sees the 0 stored above.
        fence(Ordering::Release);
        for (slot, word) in entry.call.iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        if let Some(after) = after {
            entry.after.store(after, Ordering::Relaxed);
        }
        entry.stamp.store(number, Ordering::Release);
        entry
    }

    /// Records that operation `number` is complete.
    #[inline(always)] // row: send_recv_8
    fn over(&self, number: u64) {
        self.entry(number).over.store(number, Ordering::Relaxed);
    }

    fn read(&self, number: u64) -> Option<Noted> {
        let entry = self.entry(number);
        let before = entry.stamp.load(Ordering::Acquire);
        let [a, b, c] = &entry.call;
        let words = [a, b, c].map(|word| word.load(Ordering::Relaxed));
        let (after, over) =
            (entry.after.load(Ordering::Relaxed), entry.over.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let now = entry.stamp.load(Ordering::Relaxed);
        let call = OpDesc::from_words(words).filter(|_| before == number && now == number)?;
        Some(Noted { call, is_over: over == number, after })
    }

    /// Returns the retained entries with their numbers, the latest first.
    fn latest(&self) -> impl Iterator<Item = (u64, Noted)> {
        let last = self.noted.load(Ordering::Relaxed);
        let first = last.saturating_sub(KEPT as u64 - 1).max(1);
        (first..=last).rev().filter_map(|number| Some((number, self.read(number)?)))
    }
}

/// Flight recorder of one communicator: its last operations, retained for reports.
#[repr(C)]
pub(crate) struct Recorder {
    /// `epoch::thread_mark` of the first thread that recorded an operation, or [`NOBODY`] before
    /// the first operation.
    first: AtomicUsize,
    own: RecorderList,
    shared: RecorderList,
    /// Handle of the communicator, for traces.
    comm: AtomicU64,
}

/// Identifier of a recorded operation: the operation's number in its list, shifted left by two
/// bits, and the bits [`SHARED`] and [`TRACED`]. The highest byte is the operation's kind if the
/// operation is traced.
#[derive(Clone, Copy)]
pub(crate) struct Ticket(u64);

/// Value that no thread has as its `epoch::thread_mark`. (The mark of a thread that is not
/// registered with `epoch` is 0.)
const NOBODY: usize = 1;
/// Bit of a ticket, set if the operation is recorded in the shared list.
const SHARED: u64 = 1;
/// Bit of a ticket, set if the start of the operation was reported to a trace.
const TRACED: u64 = 2;
const KIND_SHIFT: u32 = 56;

impl Ticket {
    /// Returns true if the start of the operation was reported to a trace.
    pub(crate) fn is_traced(self) -> bool {
        self.0 & TRACED != 0
    }

    fn number(self) -> u64 {
        (self.0 & ((1 << KIND_SHIFT) - 1)) >> 2
    }
}

impl Recorder {
    /// Heap memory of the recorder's lists, in bytes.
    pub(crate) const HEAP_BYTES: usize = 2 * size_of::<Entries>();

    pub(crate) fn new() -> Self {
        let (first, comm) = (AtomicUsize::new(NOBODY), AtomicU64::new(0));
        Recorder { first, comm, own: RecorderList::default(), shared: RecorderList::default() }
    }

    /// Sets the communicator's handle, for traces.
    pub(crate) fn belongs_to(&self, comm: u64) {
        self.comm.store(comm, Ordering::Relaxed);
    }

    /// Returns true if `mark` is the `epoch::thread_mark` of the first thread that recorded an
    /// operation. A later thread may take over the mark of a terminated thread; it then observes
    /// all writes of the terminated thread.
    #[inline(always)] // row: send_recv_8
    fn is_first(&self, mark: usize) -> bool {
        self.first.load(Ordering::Relaxed) == mark
    }

    /// Records the start of an operation, described by `words` ([`OpDesc::words`]). Returns the
    /// operation's ticket.
    #[inline(always)] // row: send_recv_8
    pub(crate) fn begin(&self, words: [u64; 3]) -> Ticket {
        let me = epoch::thread_mark();
        if self.is_first(me) && !trace::is_on() {
            return self.begin_own(words);
        }
        hints::rarely();
        // Passed as separate arguments, so that the words stay in registers.
        let [first, second, third] = words;
        self.begin_other(first, second, third)
    }

    #[inline(always)] // row: send_recv_8
    fn begin_own(&self, words: [u64; 3]) -> Ticket {
        let number = self.own.noted.load(Ordering::Relaxed) + 1;
        self.own.noted.store(number, Ordering::Relaxed);
        let entry = self.own.note(number, words, None);
        // By the time that an entry is reused, large messages may have evicted it from the nearer
        // caches. (At the end of the list this prefetches beyond the list, which is harmless.)
        hints::prefetch(ptr::from_ref(entry).wrapping_add(AHEAD));
        Ticket(number << 2)
    }

    /// Records the start of an operation on the slow path: the first operation, an operation
    /// started by a thread that does not own the first list, or a traced operation.
    #[cold]
    #[inline(never)]
    fn begin_other(&self, first: u64, second: u64, third: u64) -> Ticket {
        let (me, words) = (epoch::thread_mark(), [first, second, third]);
        let becomes_first = || {
            self.first.compare_exchange(NOBODY, me, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let ticket = if self.is_first(me) || me != 0 && becomes_first() {
            self.begin_own(words)
        } else {
            let number = self.shared.noted.fetch_add(1, Ordering::Relaxed) + 1;
            self.shared.note(number, words, Some(self.own.noted.load(Ordering::Relaxed)));
            Ticket(number << 2 | SHARED)
        };
        if !trace::is_on() {
            return ticket;
        }
        let call = OpDesc::from_words(words).unwrap_or(OpDesc::new(Kind::Send));
        let args = call.args().comm(self.comm.load(Ordering::Relaxed));
        trace::operation_begin(self.id_of(ticket), call.kind.name(), &args);
        Ticket(ticket.0 | TRACED | (call.kind as u64) << KIND_SHIFT)
    }

    /// Records the start of an operation, runs `act`, and records the completion. The error of a
    /// passed time limit names the operation.
    #[inline(always)] // row: send_recv_8
    pub(crate) fn during<T>(&self, words: [u64; 3], act: impl FnOnce() -> Result<T>) -> Result<T> {
        let ticket = self.begin(words);
        let done = act();
        self.end(ticket);
        done.map_err(|error| self.name(ticket, error))
    }

    /// Adds the description of the operation to the error of a passed time limit.
    #[cold]
    #[inline(never)]
    pub(crate) fn name(&self, ticket: Ticket, error: Error) -> Error {
        let list = if ticket.0 & SHARED == 0 { &self.own } else { &self.shared };
        match list.read(ticket.number()).filter(|_| error.status() == DTL_ERROR_TIMEOUT) {
            Some(noted) => error.within(&noted.call.to_string()),
            None => error,
        }
    }

    /// Records that the operation identified by `ticket` is complete.
    #[inline(always)] // row: send_recv_8
    pub(crate) fn end(&self, ticket: Ticket) {
        if ticket.0 & (SHARED | TRACED) == 0 {
            self.own.over(ticket.0 >> 2);
        } else {
            hints::rarely();
            self.end_other(ticket);
        }
    }

    #[cold]
    #[inline(never)]
    fn end_other(&self, ticket: Ticket) {
        let list = if ticket.0 & SHARED == 0 { &self.own } else { &self.shared };
        let number = ticket.number();
        // Some failures are reported twice.
        let is_news = list.entry(number).over.load(Ordering::Relaxed) != number;
        list.over(number);
        if let Some(kind) =
            Kind::of(ticket.0 >> KIND_SHIFT).filter(|_| is_news && ticket.0 & TRACED != 0)
        {
            trace::operation_end(self.id_of(ticket), kind.name());
        }
    }

    /// Returns an id that is unique among this process' operations in flight: the communicator's
    /// index in the handle table (20 bits of the handle), the operation's list, and the operation's
    /// number in that list.
    fn id_of(&self, ticket: Ticket) -> u64 {
        let index = self.comm.load(Ordering::Relaxed) >> 36 & 0xF_FFFF;
        1 << 63 | index << 43 | (ticket.0 & SHARED) << 42 | ticket.number() & ((1 << 42) - 1)
    }

    /// Returns the retained operations, latest first, each with a flag that is true if the
    /// operation is complete.
    pub(crate) fn latest(&self) -> impl Iterator<Item = (OpDesc, bool)> {
        let (mut own, mut shared) = (self.own.latest().peekable(), self.shared.latest().peekable());
        from_fn(move || {
            let is_own = match (own.peek(), shared.peek()) {
                (Some((number, _)), Some((_, noted))) => *number > noted.after,
                (own, _) => own.is_some(),
            };
            let (_, noted) = if is_own { own.next() } else { shared.next() }?;
            Some((noted.call, noted.is_over))
        })
    }

    /// Returns the oldest retained collective that is not complete. Later collectives wait for it.
    pub(crate) fn stuck(&self) -> Option<OpDesc> {
        self.latest()
            .filter(|(call, is_over)| !is_over && call.kind.is_collective())
            .last()
            .map(|(call, _)| call)
    }

    /// Returns the retained collective with this number, and a flag that is true if the collective
    /// is complete.
    pub(crate) fn collective(&self, number: u64) -> Option<(OpDesc, bool)> {
        self.latest().find(|(call, _)| call.kind.is_collective() && call.tag as u64 == number)
    }
}

#[cfg(test)]
#[path = "tests/flight_recorder.rs"]
mod tests;
