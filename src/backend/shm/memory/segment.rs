//! Shared memory of a communicator: its layout, and the state that the ranks share in addition to
//! rings.
//!
//! Rank 0 commits the control area when it creates the segment: a header, a block per rank, and,
//! for each ordered pair of ranks, a bit that is set once the pair's ring has memory. A ring per
//! ordered pair follows, committed by its sender on first use: if each of 8 ranks exchanges
//! messages with only two neighbors, their rings use 3 MiB in total, whereas the rings of all pairs
//! would use 11 MiB. Next are the cells (buffers for large messages) of each rank, committed when
//! the rank sends its first large message. If there are few ranks, the slots for collective
//! mailboxes (one mailbox per rank in each slot) are next; a slot is committed when a communicator
//! reserves it. Window memory (parts) follows at the end: the file grows when a part is created,
//! and each rank maps separately the parts that it uses.

use super::cells::{self, CellMemory, CellPool};
use super::ring::{self, Consumer, Producer, STRIDE};
use crate::backend::coll_mailbox;
use crate::backend::os_error::memory_error;
use crate::error::{Result, fail};
use crate::sys::memory::host_pages::page_size;
use crate::sys::os::hwinfo;
use crate::sys::os::shm_segment::{SharedMapping, Span};
use crate::sys::sync::AtomicUpdate;
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Maximum number of ranks. The address space (not physical memory) that rings reserve grows with
/// the square of the number of ranks.
pub const MOST_RANKS: usize = 1024;

/// Liveness state of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeerState {
    /// The rank has not left and is not known to have died.
    Present,
    /// The rank has closed the communicator.
    Left,
    /// The rank's process ended without closing the communicator.
    Dead,
}

/// Offset of the counter of rank state changes, in a cache line of its own, because each poll reads
/// it.
const CHANGES_AT: usize = 128;
/// Offset of the word that counts the bytes that `reserve_part` has reserved for window segments.
const PARTS_AT: usize = 256;
/// Offset of the measured copy times that the ranks share (`copy_choice`), and the size in bytes of
/// those for one distance.
const TIMES_AT: usize = 512;
pub(crate) const TIMES_BYTES: usize = 512;
const RANKS_AT: usize = 4096;
const RANK_STRIDE: usize = 128;
const STATE: usize = 0;
const PROBE_ADDRESS: usize = 8;
const PROBE_VALUE: usize = 16;
/// Offset of the affinity mask in a rank's block of the control area. The mask has one bit per
/// logical core; core numbers are taken modulo the number of bits.
const PROCESSORS: usize = 32;
const PROCESSOR_WORDS: usize = 4;
/// Offset of the names of a rank's level-3 cache and socket ([`hwinfo::cache_and_socket`]).
const DOMAINS: usize = 64;
const PAGE: usize = 4096;

/// Shared memory of a communicator, mapped in this process.
pub(crate) struct Segment {
    memory: Arc<SharedMapping>,
    control: Span,
    size: usize,
}

fn row_bytes(size: usize) -> usize {
    (size.div_ceil(64) * 8).next_multiple_of(128)
}

fn rows_at(size: usize) -> usize {
    RANKS_AT + size * RANK_STRIDE
}

fn rings_at(size: usize) -> usize {
    (rows_at(size) + size * row_bytes(size)).next_multiple_of(PAGE)
}

fn cells_at(size: usize) -> usize {
    rings_at(size) + size * size * STRIDE
}

fn mailboxes_at(size: usize) -> usize {
    cells_at(size) + size * cells::STRIDE
}

fn has_mailboxes(size: usize) -> bool {
    (2..=coll_mailbox::MOST_RANKS).contains(&size)
}

fn total(size: usize) -> usize {
    let places = if has_mailboxes(size) { coll_mailbox::PLACES } else { 0 };
    mailboxes_at(size) + places * coll_mailbox::place_bytes(size)
}

impl Segment {
    /// Creates the segment for `size` ranks (1 to MOST_RANKS).
    pub(crate) fn create(size: usize) -> Result<Segment> {
        let memory = SharedMapping::create(total(size))
            .map_err(|error| memory_error("making shared memory", &error))?;
        memory
            .commit(0, rings_at(size))
            .map_err(|error| memory_error("allocating shared memory", &error))?;
        Segment::of(memory, size)
    }

    /// Maps the segment that rank 0 created. `fd` is the file descriptor of the segment.
    pub(crate) fn attach(fd: OwnedFd, size: usize) -> Result<Segment> {
        let memory = SharedMapping::attach(fd)
            .map_err(|error| memory_error("mapping shared memory", &error))?;
        Segment::of(memory, size)
    }

    fn of(memory: Arc<SharedMapping>, size: usize) -> Result<Segment> {
        let control = memory.span(0, rings_at(size)).filter(|_| memory.len() == total(size));
        match control {
            Some(control) => Ok(Segment { memory, control, size }),
            None => fail!(
                DTL_ERROR_INCOMPATIBLE_ABI,
                "rank 0 shares {} bytes but {} were expected; use one version of libdtl on all \
                 ranks",
                memory.len(),
                total(size)
            ),
        }
    }

    /// Returns another handle to the shared memory of this segment, for threads that must not wait
    /// for the lock of the protocol engine.
    pub(crate) fn again(&self) -> Result<Segment> {
        Segment::of(Arc::clone(&self.memory), self.size)
    }

    pub(crate) fn memory(&self) -> &Arc<SharedMapping> {
        &self.memory
    }

    /// Returns the offset of the first window segment in the shared memory file.
    pub(crate) fn parts_at(&self) -> usize {
        total(self.size).next_multiple_of(page_size())
    }

    /// Reserves a range of `bytes` bytes (whole pages) for a window segment. Returns its offset, or
    /// `None` if the file offset would overflow. Ranges are never reused: file offsets can reach
    /// 2^63 bytes, and a range occupies memory only while it is in use.
    pub(crate) fn reserve_part(&self, bytes: usize) -> Option<usize> {
        let begin = self.parts_at();
        let taken = self.word(PARTS_AT)?.checked_update(Relaxed, Relaxed, |taken| {
            let end = taken.checked_add(u64::try_from(bytes).ok()?)?;
            i64::try_from(end.checked_add(u64::try_from(begin).ok()?)?).is_ok().then_some(end)
        });
        begin.checked_add(usize::try_from(taken.ok()?).ok()?)
    }

    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.memory.descriptor()
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    fn word(&self, offset: usize) -> Option<&AtomicU64> {
        self.control.word(offset)
    }

    fn rank_word(&self, rank: usize, field: usize) -> Option<&AtomicU64> {
        self.word(RANKS_AT + rank * RANK_STRIDE + field).filter(|_| rank < self.size)
    }

    /// Returns the number of rank state changes so far.
    pub(crate) fn changes(&self) -> u64 {
        self.word(CHANGES_AT).map_or(0, |word| word.load(Acquire))
    }

    /// Returns the state of `rank`. A caller that reads Left or Dead also sees everything that the
    /// rank had written into its rings. (This load is Acquire, and the thread that stored the state
    /// with Release had seen those writes.)
    pub(crate) fn state(&self, rank: usize) -> PeerState {
        match self.rank_word(rank, STATE).map_or(0, |word| word.load(Acquire)) {
            0 => PeerState::Present,
            1 => PeerState::Left,
            _ => PeerState::Dead,
        }
    }

    /// Records in shared memory that `rank` has closed the communicator or has died. If one of
    /// these states is already recorded, it does not change.
    pub(crate) fn mark(&self, rank: usize, state: PeerState) {
        let number = if state == PeerState::Left { 1 } else { 2 };
        let word = self.rank_word(rank, STATE);
        if word.is_some_and(|word| word.compare_exchange(0, number, AcqRel, Relaxed).is_ok()) {
            if let Some(changes) = self.word(CHANGES_AT) {
                changes.fetch_add(1, Release);
            }
        }
    }

    /// Publishes the address of the memory word that other ranks read to test direct access to the
    /// memory of `rank`, and the value expected there.
    pub(crate) fn set_probe(&self, rank: usize, address: u64, value: u64) {
        for (field, content) in [(PROBE_VALUE, value), (PROBE_ADDRESS, address)] {
            if let Some(word) = self.rank_word(rank, field) {
                word.store(content, Release);
            }
        }
    }

    /// Publishes the logical cores on which this rank may run, and its level-3 cache and socket.
    pub(crate) fn set_processors(&self, rank: usize) {
        let mask = hwinfo::affinity_mask::<PROCESSOR_WORDS>();
        let cores = (PROCESSORS..).step_by(8).zip(mask);
        for (field, bits) in cores.chain((DOMAINS..).step_by(8).zip(hwinfo::cache_and_socket())) {
            if let Some(word) = self.rank_word(rank, field) {
                word.store(bits, Release);
            }
        }
    }

    /// Returns the memory of the copy times that all pairs of ranks at the distance of `a` and `b`
    /// share: pairs with a common level-3 cache, pairs on one socket, and all others. Also returns
    /// true if `b` is the lower rank.
    pub(crate) fn copy_times(&self, a: usize, b: usize) -> (Option<Span>, bool) {
        let of = |rank, field| self.rank_word(rank, field).map_or(0, |word| word.load(Acquire));
        let is_common = |field| of(a, field) != 0 && of(a, field) == of(b, field);
        let distance = [DOMAINS, DOMAINS + 8].into_iter().position(is_common).unwrap_or(2);
        (self.memory.span(TIMES_AT + distance * TIMES_BYTES, TIMES_BYTES), b < a)
    }

    /// Returns true if the ranks outnumber the logical cores in the union of their CPU affinity
    /// masks.
    pub(crate) fn is_oversubscribed(&self) -> bool {
        let all = |index: usize| {
            let of = |rank| self.rank_word(rank, PROCESSORS + 8 * index);
            (0..self.size).filter_map(of).fold(0, |bits, word| bits | word.load(Acquire))
        };
        let processors: u32 = (0..PROCESSOR_WORDS).map(|index| all(index).count_ones()).sum();
        self.size > processors as usize
    }

    /// Returns the address of the word that `rank` has published for a test of direct access to its
    /// memory, and the value expected there. The address is 0 if there is no such word.
    pub(crate) fn probe(&self, rank: usize) -> (u64, u64) {
        let read = |field| self.rank_word(rank, field).map_or(0, |word| word.load(Acquire));
        (read(PROBE_ADDRESS), read(PROBE_VALUE))
    }

    /// Returns true if the segment has collective mailboxes.
    pub(crate) fn has_mailboxes(&self) -> bool {
        has_mailboxes(self.size)
    }

    /// Allocates memory for the collective mailboxes of `ranks` in mailbox slot `place` (area of
    /// the segment with one mailbox per rank).
    pub(crate) fn commit_mailboxes(&self, place: usize, ranks: Range<usize>) -> io::Result<()> {
        let slots = coll_mailbox::mailboxes_at(self.size, place, ranks);
        self.memory.commit(mailboxes_at(self.size) + slots.start, slots.len())
    }

    /// Returns the memory of all collective mailboxes; `None` if the segment has no mailboxes.
    pub(crate) fn slots(&self) -> Option<Span> {
        let bytes = coll_mailbox::PLACES * coll_mailbox::place_bytes(self.size);
        self.memory.span(mailboxes_at(self.size), bytes).filter(|_| self.has_mailboxes())
    }

    fn ring_offset(&self, from: usize, to: usize) -> usize {
        rings_at(self.size) + (from * self.size + to) * STRIDE
    }

    #[inline]
    fn ready_word(&self, from: usize, to: usize) -> Option<&AtomicU64> {
        self.word(rows_at(self.size) + to * row_bytes(self.size) + from / 64 * 8)
    }

    /// Allocates memory for the rings between two ranks, in both directions, because a large
    /// message needs replies. Returns the producer end of the ring from `from` to `to`.
    pub(crate) fn open_ring(&self, from: usize, to: usize) -> Result<Producer> {
        for (from, to) in [(to, from), (from, to)] {
            self.memory.commit(self.ring_offset(from, to), ring::FIRST_BYTES).map_err(|error| {
                memory_error(&format!("ring from rank {from} to rank {to}"), &error)
            })?;
        }
        let producer = Producer::new(&self.memory, self.ring_offset(from, to))?;
        if let Some(word) = self.ready_word(from, to) {
            word.fetch_or(1 << (from % 64), Release);
        }
        Ok(producer)
    }

    /// Commits the rest of the memory for the state words of rendezvous requests in the ring from
    /// `from` to `to`, so that more requests can be open.
    pub(crate) fn commit_claims(&self, from: usize, to: usize) -> io::Result<()> {
        let first = ring::FIRST_BYTES;
        self.memory.commit(self.ring_offset(from, to) + first, STRIDE - first)
    }

    /// Returns a bit set of the senders with an open ring to rank `to`, among the 64 ranks that
    /// start at rank `64 * group`.
    pub(crate) fn ready(&self, to: usize, group: usize) -> u64 {
        self.ready_word(64 * group, to).map_or(0, |word| word.load(Acquire))
    }

    /// Returns the consumer end of a ring, which its sender must have opened.
    pub(crate) fn read_ring(&self, from: usize, to: usize) -> Result<Consumer> {
        Consumer::new(&self.memory, self.ring_offset(from, to))
    }

    fn cells_offset(&self, rank: usize) -> usize {
        cells_at(self.size) + rank * cells::STRIDE
    }

    /// Allocates memory for the cells (buffers for large messages) of `rank`, and returns the
    /// sender's side of these cells.
    pub(crate) fn open_cells(&self, rank: usize) -> Result<CellPool> {
        let offset = self.cells_offset(rank);
        self.memory
            .commit(offset, cells::FIRST_MEMORY)
            .map_err(|error| memory_error(&format!("cells of rank {rank}"), &error))?;
        CellPool::new(&self.memory, offset)
    }

    /// Returns the receiver's side of the cells (buffers for large messages) of `rank`, which must
    /// have sent a cell already.
    pub(crate) fn read_cells(&self, rank: usize) -> Result<CellMemory> {
        CellMemory::new(&self.memory, self.cells_offset(rank))
    }
}

#[cfg(test)]
#[path = "tests/segment.rs"]
mod tests;
