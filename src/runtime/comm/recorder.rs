//! The flight recorder: each rank's last operations on a communicator, kept for reports.
//!
//! Recording is a handful of relaxed stores. Whoever reads may race a writer: an entry's stamp is 0
//! while it is written and its number afterwards, so a reader that sees the same number before and
//! after (with the fences below) has read one entry and not two halves.
//!
//! The thread that was first has a list of its own, whose numbers it counts with a load and a store (in most
//! programs it is the only one; an atomic addition costs as much as the rest). The other threads share
//! the second list. Two of them meet in one entry only if 64 operations start while one is being noted; a
//! report may then show a mixture, nothing else depends on it.
//!
//! As every operation passes here, this is also where a trace hears of them.

use crate::abi::comm::{DTL_ANY_SOURCE, DTL_ANY_TAG};
use crate::runtime::comm::types;
use crate::runtime::trace::{self, Args};
use crate::sys::epoch;
use crate::sys::sync::{self, AtomicU64, AtomicUsize, Ordering, fence};
use std::array;
use std::fmt;
use std::iter::from_fn;

/// Operations kept.
const KEPT: usize = sync::size(64, 1);

macro_rules! kinds {
    ($($name:ident $text:literal),+ $(,)?) => {
        /// What an operation is.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub(super) enum Kind { $($name),+ }
        /// All of them, with their names.
        pub(super) const KINDS: &[(Kind, &str)] = &[$((Kind::$name, $text)),+];
    };
}
kinds! {
    Send "send", Ssend "ssend", Recv "recv", Probe "probe", Sendrecv "sendrecv",
    Put "put", Get "get", Barrier "barrier", Bcast "bcast", Reduce "reduce", Allreduce "allreduce", Gather "gather",
    Gatherv "gatherv", Scatter "scatter", Scatterv "scatterv", Allgather "allgather",
    Allgatherv "allgatherv", Alltoall "alltoall", Alltoallv "alltoallv",
    ReduceScatter "reduce_scatter", ReduceScatterBlock "reduce_scatter_block", Scan "scan",
    Exscan "exscan", NeighborAlltoallv "neighbor_alltoallv", Split "split", Dup "dup", Open "open", Shrink "shrink",
    GroupCreate "group_create", WinCreate "win_create/allocate", WinDestroy "win_destroy", Fence "fence",
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("?", |(_, name)| name)
    }

    fn of(number: u64) -> Option<Kind> {
        KINDS.iter().map(|(kind, _)| *kind).find(|kind| *kind as u64 == number)
    }

    pub(super) fn is_collective(self) -> bool {
        self as u8 >= Kind::Barrier as u8
    }
}

/// The bit of `op` that all numbers of operations have as their sign says.
const ON_DEVICE: i32 = 1 << 30;

/// One operation as its caller described it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Call {
    pub(super) kind: Kind,
    /// -1: none.
    pub(super) dtype: i32,
    /// -1: none.
    pub(super) op: i32,
    /// Root or peer.
    pub(super) peer: i32,
    /// Tag, or the collective's number.
    pub(super) tag: i32,
    /// Elements.
    pub(super) count: u64,
}

impl Call {
    #[inline(always)]
    pub(super) fn new(kind: Kind) -> Call {
        Call { kind, dtype: -1, op: -1, peer: -1, tag: 0, count: 0 }
    }

    #[inline(always)]
    pub(super) fn with(self, count: u64, dtype: i32) -> Call {
        Call { count, dtype, ..self }
    }

    pub(super) fn root(self, root: i32) -> Call {
        Call { peer: root, ..self }
    }

    pub(super) fn op(self, op: i32) -> Call {
        Call { op, ..self }
    }

    /// The same for a trace.
    fn args(&self) -> Args {
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

    /// The same of device memory where a library of devices runs it: other ranks' of host memory do not go with it.
    pub(super) fn on_device(self) -> Call {
        Call { op: self.op ^ ON_DEVICE, ..self }
    }

    /// The operation as the program named it.
    fn reduction(&self) -> i32 {
        if self.is_on_device() { self.op ^ ON_DEVICE } else { self.op }
    }

    /// Whether it is such a one.
    fn is_on_device(&self) -> bool {
        (self.op & ON_DEVICE != 0) != (self.op < 0)
    }

    /// Eight bits that differ, most likely, between collectives that do not go together. They are
    /// part of their messages' tags, so such messages never meet.
    pub(super) fn signature(&self) -> u8 {
        let parts = [self.kind as u32, self.dtype as u32, self.op as u32, self.peer as u32];
        let mixed = parts.iter().fold(0x811C_9DC5_u32, |hash, part| (hash ^ part).wrapping_mul(0x0100_0193));
        (mixed ^ mixed >> 8 ^ mixed >> 16 ^ mixed >> 24) as u8
    }

    /// Whether two ranks' calls can be the same collective; counts may differ where each rank has
    /// its own.
    pub(super) fn goes_with(&self, other: &Call) -> bool {
        let uniform = !matches!(
            self.kind,
            Kind::Gatherv
                | Kind::Scatterv
                | Kind::Allgatherv
                | Kind::Alltoallv
                | Kind::NeighborAlltoallv
                | Kind::ReduceScatter
        );
        (self.kind, self.dtype, self.op, self.peer) == (other.kind, other.dtype, other.op, other.peer)
            && (!uniform || self.count == other.count)
    }

    /// As three words, for the recorder and for messages.
    #[inline(always)]
    pub(super) fn words(&self) -> [u64; 3] {
        let pair = |low: i32, high: i32| u64::from(low as u32) | u64::from(high as u32) << 32;
        [
            self.kind as u64
                | u64::from(self.dtype as u32 & 0xFF_FFFF) << 8
                | u64::from(self.op as u32) << 32,
            pair(self.peer, self.tag),
            self.count,
        ]
    }

    pub(super) fn from_words(words: [u64; 3]) -> Option<Call> {
        let [first, second, third] = words;
        let kind = Kind::of(first & 0xFF)?;
        // 24 bits with a sign.
        let dtype = (first as u32 & 0xFFFF_FF00) as i32 >> 8;
        let (op, peer, tag) = ((first >> 32) as i32, second as u32 as i32, (second >> 32) as i32);
        Some(Call { kind, dtype, op, peer, tag, count: third })
    }
}

impl fmt::Display for Call {
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
        if self.is_on_device() {
            details.push("device memory".to_owned());
        }
        match (collective, self.kind) {
            (true, _) if self.peer >= 0 => details.push(format!("root {}", self.peer)),
            (true, _) => {}
            (false, Kind::Recv | Kind::Probe) if self.peer == DTL_ANY_SOURCE => {
                details.push("from any rank".to_owned());
            }
            (false, Kind::Recv | Kind::Probe) => details.push(format!("from rank {}", self.peer)),
            (false, _) => details.push(format!("to rank {}", self.peer)),
        }
        if !collective {
            details.push(if self.tag == DTL_ANY_TAG {
                "any tag".into()
            } else {
                format!("tag {}", self.tag)
            });
        }
        if details.is_empty() { Ok(()) } else { write!(f, " ({})", details.join(", ")) }
    }
}

/// A line of the cache each: noting one touches no other.
#[derive(Default)]
#[repr(align(64))]
struct Entry {
    stamp: AtomicU64,
    call: [AtomicU64; 3],
    /// In the shared list: how many the first thread had noted before.
    after: AtomicU64,
    /// The stamp of the operation that is over.
    over: AtomicU64,
}

/// The last operations of some threads.
#[repr(C)]
struct List {
    noted: AtomicU64,
    entries: Box<[Entry; KEPT]>,
}

/// An entry as it was read.
struct Noted {
    call: Call,
    is_over: bool,
    after: u64,
}

impl List {
    fn new() -> Self {
        List { noted: AtomicU64::new(0), entries: Box::new(array::from_fn(|_| Entry::default())) }
    }

    #[inline(always)]
    fn entry(&self, number: u64) -> Option<&Entry> {
        self.entries.get(number as usize % KEPT)
    }

    #[inline(always)]
    fn note(&self, number: u64, words: [u64; 3], after: u64) {
        if let Some(entry) = self.entry(number) {
            entry.stamp.store(0, Ordering::Relaxed);
            // A reader that sees one of the words below also sees the 0 above.
            fence(Ordering::Release);
            for (slot, word) in entry.call.iter().zip(words) {
                slot.store(word, Ordering::Relaxed);
            }
            entry.after.store(after, Ordering::Relaxed);
            entry.stamp.store(number, Ordering::Release);
        }
    }

    /// Notes that one is over.
    #[inline(always)]
    fn over(&self, number: u64) {
        if let Some(entry) = self.entry(number) {
            entry.over.store(number, Ordering::Relaxed);
        }
    }

    fn read(&self, number: u64) -> Option<Noted> {
        let entry = self.entry(number)?;
        let before = entry.stamp.load(Ordering::Acquire);
        let [a, b, c] = &entry.call;
        let words = [a, b, c].map(|word| word.load(Ordering::Relaxed));
        let (after, over) = (entry.after.load(Ordering::Relaxed), entry.over.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let now = entry.stamp.load(Ordering::Relaxed);
        let call = Call::from_words(words).filter(|_| before == number && now == number)?;
        Some(Noted { call, is_over: over == number, after })
    }

    /// What is kept, the latest first, by number.
    fn latest(&self) -> impl Iterator<Item = (u64, Noted)> {
        let last = self.noted.load(Ordering::Relaxed);
        let first = last.saturating_sub(KEPT as u64 - 1).max(1);
        (first..=last).rev().filter_map(|number| Some((number, self.read(number)?)))
    }
}

/// See the module's text.
#[repr(C)]
pub(super) struct Recorder {
    /// The first thread's mark.
    first: AtomicUsize,
    own: List,
    shared: List,
    /// The communicator's handle, for a trace.
    comm: AtomicU64,
}

/// A noted operation: its number, above [`SHARED`] and [`TRACED`]; of a traced one in the highest byte its kind.
#[derive(Clone, Copy)]
pub(super) struct Ticket(u64);

/// It is in the shared list.
const SHARED: u64 = 1;
/// A trace has heard of its begin.
const TRACED: u64 = 2;
const KIND_SHIFT: u32 = 56;

impl Ticket {
    fn number(self) -> u64 {
        (self.0 & ((1 << KIND_SHIFT) - 1)) >> 2
    }
}

impl Recorder {
    /// What its lists take.
    pub(super) const HEAP_BYTES: usize = 2 * size_of::<[Entry; KEPT]>();

    pub(super) fn new() -> Self {
        let (first, comm) = (AtomicUsize::new(0), AtomicU64::new(0));
        Recorder { first, comm, own: List::new(), shared: List::new() }
    }

    /// Whose it is.
    pub(super) fn belongs_to(&self, comm: u64) {
        self.comm.store(comm, Ordering::Relaxed);
    }

    /// Whether the calling thread is the first. A mark passes from a thread that has ended to a later one,
    /// with all that the ended one has written.
    #[inline(always)]
    fn is_first(&self) -> bool {
        let (me, first) = (epoch::thread_mark(), self.first.load(Ordering::Relaxed));
        if first == me { me != 0 } else { first == 0 && self.is_first_now(me) }
    }

    /// A communicator's first operation.
    #[cold]
    fn is_first_now(&self, me: usize) -> bool {
        self.first.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Notes an operation that starts.
    #[inline(always)]
    pub(super) fn begin(&self, call: &Call) -> Ticket {
        if trace::is_on() {
            // The words are at hand below; the call itself need not be in memory.
            let [first, second, third] = call.words();
            return self.begin_traced(first, second, third);
        }
        self.note(call)
    }

    #[inline(always)]
    fn note(&self, call: &Call) -> Ticket {
        if self.is_first() {
            let number = self.own.noted.load(Ordering::Relaxed) + 1;
            self.own.noted.store(number, Ordering::Relaxed);
            self.own.note(number, call.words(), 0);
            return Ticket(number << 2);
        }
        self.note_shared(call.words())
    }

    /// The same of a thread that is not the first.
    #[inline(never)]
    fn note_shared(&self, words: [u64; 3]) -> Ticket {
        let number = self.shared.noted.fetch_add(1, Ordering::Relaxed) + 1;
        self.shared.note(number, words, self.own.noted.load(Ordering::Relaxed));
        Ticket(number << 2 | SHARED)
    }

    /// Notes an operation for as long as `act` takes.
    #[inline(always)]
    pub(super) fn during<T>(&self, call: &Call, act: impl FnOnce() -> T) -> T {
        let ticket = self.begin(call);
        let done = act();
        self.end(ticket);
        done
    }

    /// Notes that it is over.
    #[inline(always)]
    pub(super) fn end(&self, ticket: Ticket) {
        if ticket.0 & (SHARED | TRACED) == 0 {
            self.own.over(ticket.0 >> 2);
        } else {
            self.end_other(ticket);
        }
    }

    #[inline(never)]
    fn end_other(&self, ticket: Ticket) {
        let list = if ticket.0 & SHARED == 0 { &self.own } else { &self.shared };
        let number = ticket.number();
        // Some failures are met twice.
        let is_news = list.entry(number).is_some_and(|entry| entry.over.load(Ordering::Relaxed) != number);
        list.over(number);
        if let Some(kind) = Kind::of(ticket.0 >> KIND_SHIFT).filter(|_| is_news && ticket.0 & TRACED != 0) {
            trace::operation_end(self.id_of(ticket), kind.name());
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_traced(&self, first: u64, second: u64, third: u64) -> Ticket {
        let call = Call::from_words([first, second, third]).unwrap_or(Call::new(Kind::Send));
        let ticket = self.note(&call);
        let args = call.args().comm(self.comm.load(Ordering::Relaxed));
        trace::operation_begin(self.id_of(ticket), call.kind.name(), &args);
        Ticket(ticket.0 | TRACED | (call.kind as u64) << KIND_SHIFT)
    }

    /// What no other operation of this process has that is not over: the communicator's index in its table (20 bits of
    /// its handle), and its number.
    fn id_of(&self, ticket: Ticket) -> u64 {
        let index = self.comm.load(Ordering::Relaxed) >> 36 & 0xF_FFFF;
        1 << 63 | index << 43 | (ticket.0 & SHARED) << 42 | ticket.number() & ((1 << 42) - 1)
    }

    /// The operations kept, the latest first, and whether each is over.
    pub(super) fn latest(&self) -> impl Iterator<Item = (Call, bool)> {
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
    pub(super) fn stuck(&self) -> Option<Call> {
        self.latest()
            .filter(|(call, is_over)| !is_over && call.kind.is_collective())
            .last()
            .map(|(call, _)| call)
    }

    /// The collective of a number, if it is kept, and whether it is over.
    pub(super) fn collective(&self, number: i32) -> Option<(Call, bool)> {
        self.latest().find(|(call, _)| call.kind.is_collective() && call.tag == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_survive_being_words() {
        for (kind, name) in KINDS {
            let call = Call { kind: *kind, dtype: 9, op: -1, peer: -2, tag: 12, count: 1 << 40 };
            assert_eq!(Call::from_words(call.words()), Some(call));
            assert!(call.to_string().starts_with(name), "{call}");
            let bare = Call::new(*kind);
            assert_eq!(Call::from_words(bare.words()), Some(bare));
        }
        assert_eq!(Call::from_words([200, 0, 0]), None);
    }

    #[test]
    fn keeps_the_latest_and_their_state() {
        let recorder = Recorder::new();
        let tickets: Vec<_> = (0..100_u64)
            .map(|count| recorder.begin(&Call::new(Kind::Bcast).with(count, 2).root(1)))
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

    #[test]
    fn texts_name_what_matters() {
        let call = Call::new(Kind::Allreduce).with(64, 9).op(0);
        assert_eq!(Call { tag: 812, ..call }.to_string(), "allreduce #812 (count 64, FLOAT64, SUM)");
        let recv = Call { peer: DTL_ANY_SOURCE, tag: DTL_ANY_TAG, ..Call::new(Kind::Recv).with(3, 2) };
        assert_eq!(recv.to_string(), "recv (count 3, INT32, from any rank, any tag)");
    }
}
