//! The flight recorder: each rank's last operations on a communicator, kept for reports.
//!
//! Recording is a handful of relaxed stores. A reader may race a writer: an entry's stamp is 0
//! while it is written and its number afterwards, so a reader that sees the same number before and
//! after (with the fences below) has read one entry and not two halves.
//!
//! The thread that was first has a list of its own, whose numbers it counts with a load and a store
//! (in most programs it is the only one; an atomic addition costs as much as the rest). The other
//! threads share the second list. Two of them meet in one entry only if 64 operations start while
//! one is being noted; a report may then show a mixture, nothing else depends on it.
//!
//! Every operation passes here, so this is also where operations are reported to a trace.

use super::op_desc::{Kind, OpDesc};
use crate::runtime::trace;
use crate::sys::handles::epoch;
use crate::sys::sync::{AtomicU64, AtomicUsize, Ordering, fence, hints, size};
use std::iter::from_fn;
use std::{array, ptr};

/// An entry is prefetched this many operations before it is written.
const AHEAD: usize = 4;

/// Operations kept.
const KEPT: usize = size(64, 1);

/// A line of the cache each: noting one touches no other.
#[derive(Default)]
#[repr(align(64))]
struct RecordedOp {
    stamp: AtomicU64,
    call: [AtomicU64; 3],
    /// In the shared list: how many the first thread had noted before.
    after: AtomicU64,
    /// The stamp of the operation that is over.
    over: AtomicU64,
}

/// Entries of a list. `Box::default` makes them where they stay; `Box::new` would copy them.
struct Entries([RecordedOp; KEPT]);

impl Default for Entries {
    fn default() -> Self {
        Entries(array::from_fn(|_| RecordedOp::default()))
    }
}

/// The last operations of some threads.
#[derive(Default)]
#[repr(C)]
struct RecorderList {
    noted: AtomicU64,
    entries: Box<Entries>,
}

/// An entry as it was read.
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
        // A reader that sees one of the words below also sees the 0 above.
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

    /// Notes that one is over.
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

    /// Entries that are kept, the latest first, with their numbers.
    fn latest(&self) -> impl Iterator<Item = (u64, Noted)> {
        let last = self.noted.load(Ordering::Relaxed);
        let first = last.saturating_sub(KEPT as u64 - 1).max(1);
        (first..=last).rev().filter_map(|number| Some((number, self.read(number)?)))
    }
}

/// Flight recorder of one communicator: its last operations, kept for reports.
#[repr(C)]
pub(in crate::runtime::comm) struct Recorder {
    /// The first thread's mark, or [`NOBODY`].
    first: AtomicUsize,
    own: RecorderList,
    shared: RecorderList,
    /// The communicator's handle, for a trace.
    comm: AtomicU64,
}

/// A noted operation: its number, above [`SHARED`] and [`TRACED`]; of a traced one in the highest
/// byte its kind.
#[derive(Clone, Copy)]
pub(in crate::runtime::comm) struct Ticket(u64);

/// No thread's mark, also not that of one without a record.
const NOBODY: usize = 1;
/// Bit of a ticket: the operation is in the shared list.
const SHARED: u64 = 1;
/// Bit of a ticket: the operation's begin was reported to a trace.
const TRACED: u64 = 2;
const KIND_SHIFT: u32 = 56;

impl Ticket {
    fn number(self) -> u64 {
        (self.0 & ((1 << KIND_SHIFT) - 1)) >> 2
    }
}

impl Recorder {
    /// Memory of its lists, in bytes.
    pub(in crate::runtime::comm) const HEAP_BYTES: usize = 2 * size_of::<Entries>();

    pub(in crate::runtime::comm) fn new() -> Self {
        let (first, comm) = (AtomicUsize::new(NOBODY), AtomicU64::new(0));
        Recorder { first, comm, own: RecorderList::default(), shared: RecorderList::default() }
    }

    /// Sets the communicator's handle, for traces.
    pub(in crate::runtime::comm) fn belongs_to(&self, comm: u64) {
        self.comm.store(comm, Ordering::Relaxed);
    }

    /// Whether that is the first thread's mark. A mark passes from a thread that has ended to a
    /// later one, with all that the ended one has written.
    #[inline(always)] // row: send_recv_8
    fn is_first(&self, mark: usize) -> bool {
        self.first.load(Ordering::Relaxed) == mark
    }

    /// Notes an operation that starts, by the words of its call.
    #[inline(always)] // row: send_recv_8
    pub(in crate::runtime::comm) fn begin(&self, words: [u64; 3]) -> Ticket {
        let me = epoch::thread_mark();
        if self.is_first(me) && !trace::is_on() {
            return self.begin_own(words);
        }
        hints::rarely();
        // One by one, so that they stay in registers.
        let [first, second, third] = words;
        self.begin_other(first, second, third)
    }

    #[inline(always)] // row: send_recv_8
    fn begin_own(&self, words: [u64; 3]) -> Ticket {
        let number = self.own.noted.load(Ordering::Relaxed) + 1;
        self.own.noted.store(number, Ordering::Relaxed);
        let entry = self.own.note(number, words, None);
        // By the time that an entry is used again, large messages may have evicted it from the
        // nearer caches. (At the list's end this prefetches beyond it: harmless.)
        hints::prefetch(ptr::from_ref(entry).wrapping_add(AHEAD));
        Ticket(number << 2)
    }

    /// Notes the start of a communicator's first operation, of one by another thread, or of one
    /// that is traced.
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

    fn list_of(&self, ticket: Ticket) -> &RecorderList {
        if ticket.0 & SHARED == 0 { &self.own } else { &self.shared }
    }

    /// Notes an operation for as long as `act` takes.
    #[inline(always)] // row: send_recv_8
    pub(in crate::runtime::comm) fn during<T>(
        &self,
        words: [u64; 3],
        act: impl FnOnce() -> T,
    ) -> T {
        let ticket = self.begin(words);
        let done = act();
        self.end(ticket);
        done
    }

    /// Notes that it is over.
    #[inline(always)] // row: send_recv_8
    pub(in crate::runtime::comm) fn end(&self, ticket: Ticket) {
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
        let list = self.list_of(ticket);
        let number = ticket.number();
        // Some failures are met twice.
        let is_news = list.entry(number).over.load(Ordering::Relaxed) != number;
        list.over(number);
        if let Some(kind) =
            Kind::of(ticket.0 >> KIND_SHIFT).filter(|_| is_news && ticket.0 & TRACED != 0)
        {
            trace::operation_end(self.id_of(ticket), kind.name());
        }
    }

    /// Returns an id that is unique among this process' operations that are not over: the
    /// communicator's index in its table (20 bits of its handle), and the operation's number.
    fn id_of(&self, ticket: Ticket) -> u64 {
        let index = self.comm.load(Ordering::Relaxed) >> 36 & 0xF_FFFF;
        1 << 63 | index << 43 | (ticket.0 & SHARED) << 42 | ticket.number() & ((1 << 42) - 1)
    }

    /// The operations kept, the latest first, and whether each is over.
    pub(in crate::runtime::comm) fn latest(&self) -> impl Iterator<Item = (OpDesc, bool)> {
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

    /// The first collective that is not over, of those kept: the one that the others wait for.
    pub(in crate::runtime::comm) fn stuck(&self) -> Option<OpDesc> {
        self.latest()
            .filter(|(call, is_over)| !is_over && call.kind.is_collective())
            .last()
            .map(|(call, _)| call)
    }

    /// The collective of a number, if it is kept, and whether it is over.
    pub(in crate::runtime::comm) fn collective(&self, number: i32) -> Option<(OpDesc, bool)> {
        self.latest().find(|(call, _)| call.kind.is_collective() && call.tag == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_latest_and_their_state() {
        let recorder = Recorder::new();
        let tickets: Vec<_> = (0..100_u64)
            .map(|count| {
                recorder
                    .begin(OpDesc { peer: 1, ..OpDesc::new(Kind::Bcast).with(count, 2) }.words())
            })
            .collect();
        assert_eq!(recorder.stuck().map(|call| call.count), Some(36), "the oldest of 64");
        recorder.end(tickets[98]);
        recorder.end(tickets[1]); // its entry serves another one by now
        let kept: Vec<_> = recorder.latest().collect();
        assert_eq!(kept.len(), KEPT);
        assert_eq!((kept[0].0.count, kept[0].1), (99, false));
        assert_eq!((kept[1].0.count, kept[1].1), (98, true));
        assert_eq!(kept.iter().filter(|(_, over)| *over).count(), 1);
    }
}
