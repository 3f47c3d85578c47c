//! Sender's side of large messages: copies fragments into cells (shared buffers), into the ring if
//! there are no cells, or with method `Split` (`copy_choice`) to the receiver's memory.
//!
//! With cells, a message of up to `LONG` bytes is sent at once if there are cells for all its
//! fragments: the receiver copies the first fragment while the sender copies the second one into
//! its cell, and no rendezvous request precedes the fragments. The rendezvous request of a larger
//! message is followed by the first fragments in the same way, and by the other fragments once the
//! receiver has sent Clear (clear to send, CTS). If no receive matches yet, the receiver copies
//! unrequested fragments to its own memory, so a waiting message never occupies a cell.

use super::cma::{explain_denial, half};
use super::copy_method::{CopyMethod, LONG};
use super::engine::{Engine, Send, SendStage, ShmOperation, done};
use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use crate::backend::shm::memory::cells::{CELL, CellPool};
use crate::backend::shm::memory::ring::{MAX_DATA, Payload, RecordKind};
use crate::backend::shm::memory::segment::PeerState;
use crate::runtime::component::OpId;
use crate::runtime::log::warning;
use crate::sys::{memory::buf::Region, sync::wait::now_ns};

/// Size of a fragment of a large message in bytes: the size of a cell (shared buffer), or the
/// maximum payload of a ring record if that is smaller.
pub(crate) const FRAGMENT: usize = if CELL < MAX_DATA { CELL } else { MAX_DATA };
/// Number of fragments that are sent before the receiver requests any; the receiver's answer
/// arrives while these fragments are copied.
const FIRST: usize = LONG.div_ceil(FRAGMENT);
/// Maximum number of fragments copied per call to `stream_to`; incoming records are read in
/// between.
const FRAGMENTS: usize = 8;
/// Position, in the argument of a record that has the size of a fragment, of the time in
/// nanoseconds that the sender took to fill the first cell of a message.
pub(crate) const FILLED_BIT: u32 = 32;
/// Number of fragments of one message that are sent before another message is served.
const TURN: u32 = 64;

/// Returns the number of fragments of a message of `len` bytes.
pub(crate) fn fragments_of(len: usize) -> u32 {
    u32::try_from(len.div_ceil(FRAGMENT)).unwrap_or(u32::MAX)
}

/// Outcome of an attempt to send a fragment.
enum Streamed {
    Full,
    /// The bytes of the fragment are not available yet.
    Unready,
    /// The fragment was sent; true if another message is to be served next.
    Fragment(bool),
    Over,
}

impl Engine {
    /// Sends a complete message through cells (shared buffers); returns false, having sent nothing,
    /// if too few cells are free or the ring has too little space for the records. `begun_ns` is
    /// the time when the send began, or 0.
    pub(crate) fn send_long(
        &mut self,
        dest: usize,
        word: u64,
        data: Region,
        (method, begun_ns): (CopyMethod, u64),
    ) -> bool {
        let count = data.len().div_ceil(FRAGMENT);
        let Some(cells) = self.take_cells(dest, count, count) else { return false };
        let cells = cells.into_iter().take(count);
        self.send_first(dest, (RecordKind::Long, begun_ns), word, (data, method), cells);
        true
    }

    /// Allocates cells (shared buffers) for the fragments that are sent right after a rendezvous
    /// request. Returns count 0 if the message is not large, too few cells are free, or the ring
    /// has too little space.
    pub(crate) fn cells_for_first(&mut self, dest: usize, len: usize) -> ([u16; FIRST], usize) {
        let count = if len > MAX_DATA { len.div_ceil(FRAGMENT).min(FIRST) } else { 0 };
        self.take_cells(dest, count, 1 + count).map_or(([0; FIRST], 0), |cells| (cells, count))
    }

    /// Allocates `count` cells (shared buffers), at most `FIRST`. Returns `None`, with nothing
    /// allocated, if fewer cells are free or the ring to `dest` has no space for `records` records.
    fn take_cells(&mut self, dest: usize, count: usize, records: usize) -> Option<[u16; FIRST]> {
        if !self.peers.producer(dest)?.has_slots(records) {
            return None;
        }
        let pool = self.pool()?;
        let mut cells = [0; FIRST];
        for index in 0..count {
            let Some(cell) = pool.take() else {
                cells.into_iter().take(index).for_each(|cell| pool.give_back(cell));
                return None;
            };
            *cells.get_mut(index)? = cell;
        }
        Some(cells)
    }

    /// Fills cells (shared buffers) with the first fragments and writes a record that announces
    /// each cell as soon as the cell is full. The caller must have checked that the ring has space
    /// for the records. `begun_ns` is the time when the send began, or 0.
    pub(crate) fn send_first(
        &mut self,
        dest: usize,
        (mut kind, mut begun_ns): (RecordKind, u64),
        word: u64,
        (data, method): (Region, CopyMethod),
        cells: impl Iterator<Item = u16>,
    ) {
        let all = self.announce(dest, data.len() as u32, method);
        for (index, cell) in cells.enumerate() {
            let bytes = data.part(index * FRAGMENT, FRAGMENT);
            self.fill(cell, bytes, method);
            let ns = if begun_ns > 0 { now_ns().saturating_sub(begun_ns) } else { 0 };
            let len = bytes.len() as u64 | ns << FILLED_BIT;
            self.send_cell(dest, kind, word, cell, [len, all]);
            (kind, begun_ns) = (RecordKind::More, 0);
        }
    }

    /// Returns the word of the record of the next large message to `dest` (`LargeHeader`).
    pub(super) fn announce(&self, dest: usize, size: u32, method: CopyMethod) -> u64 {
        self.peers.link(dest).map_or(0, |link| link.exchange.announce(size, method))
    }

    /// Sends fragments of large messages to `dest`; returns true if any was sent.
    pub(crate) fn stream_to(&mut self, dest: usize) -> bool {
        let mut count = 0;
        for _ in 0..FRAGMENTS {
            let Some(id) = self.peers.link_mut(dest).and_then(|link| link.streams.pop_front())
            else {
                break;
            };
            let streamed = self.stream(dest, id);
            let Some(link) = self.peers.link_mut(dest) else { break };
            count += u32::from(!matches!(streamed, Streamed::Full | Streamed::Unready));
            match streamed {
                Streamed::Full => {
                    link.streams.push_front(id);
                    break;
                }
                Streamed::Unready => link.streams.push_back(id),
                Streamed::Fragment(true) => link.streams.push_back(id),
                Streamed::Fragment(false) => link.streams.push_front(id),
                Streamed::Over => {}
            }
        }
        count > 0
    }

    /// Sends the next fragment of send `id`, whose receiver has sent the `Clear` record (CTS).
    #[inline(never)] // row: shm_message_8
    fn stream(&mut self, dest: usize, id: OpId) -> Streamed {
        let Some(&ShmOperation::Send(Send { data, stage, ref filling, .. })) =
            self.operations.get(id)
        else {
            return Streamed::Over;
        };
        let SendStage::Streaming { claim, receiver, end, method, .. } = stage else {
            return Streamed::Over;
        };
        if method == CopyMethod::Split {
            return self.write(dest, id, data);
        }
        // The number of bytes that are available, or why the rest does not become available.
        let filled = match filling.as_ref().map(|by| (by.failure(), by)) {
            None => Ok(usize::MAX),
            Some((DTL_SUCCESS, by)) => Ok(by.ready()),
            Some((status, _)) => Err(status),
        };
        let Some(next) = self.next_fragment(dest, claim) else { return Streamed::Full };
        let at = next as usize * FRAGMENT;
        let bytes = data.part(at, FRAGMENT.min(end.saturating_sub(at)));
        match filled {
            Ok(filled) if filled < at + bytes.len() => return Streamed::Unready,
            Ok(_) => {}
            Err(status) => return self.break_off(dest, (id, claim), receiver, status),
        }
        // Reserves room before taking the fragment, because a fragment that is taken must be sent.
        let cell = self.pool().and_then(CellPool::take);
        let Some(producer) = self.peers.producer(dest) else { return Streamed::Over };
        if cell.is_none() && !producer.has_room(bytes.len()) {
            return Streamed::Full;
        }
        if producer.offers.take_fragments(claim, |_| 1).is_none() {
            if let (Some(cell), Some(pool)) = (cell, self.pool()) {
                pool.give_back(cell);
            }
            return self.end_fragments_of(id);
        }
        match cell {
            Some(cell) => {
                self.fill(cell, bytes, method);
                self.send_cell(dest, RecordKind::Cell, receiver, cell, [bytes.len() as u64, 0]);
            }
            None => {
                self.push(dest, RecordKind::Data, receiver, Payload::Bytes(bytes));
            }
        }
        let left = self.peers.producer(dest).map_or(0..0, |producer| producer.offers.left(claim));
        if left.is_empty() {
            return self.end_fragments_of(id);
        }
        Streamed::Fragment((next + 1) % TURN == 0)
    }

    /// Claims the next fragments of send `id` and copies them to the receiver's memory: half of the
    /// unclaimed ones, or two if that is more.
    fn write(&mut self, dest: usize, id: OpId, data: Region) -> Streamed {
        let Some(ShmOperation::Send(send)) = self.operations.get_mut(id) else {
            return Streamed::Over;
        };
        let SendStage::Streaming { claim, receiver, end, into, method } = &mut send.stage else {
            return Streamed::Over;
        };
        let (claim, receiver) = (*claim, *receiver);
        let Some(producer) = self.peers.producer(dest) else { return Streamed::Over };
        if !producer.has_room(0) {
            return Streamed::Full;
        }
        let Some(range) = producer.offers.take_fragments(claim, |left| half(left, 2)) else {
            return self.end_fragments_of(id);
        };
        let at = range.start as usize * FRAGMENT;
        let bytes = data.part(at, (range.end as usize * FRAGMENT).min(*end).saturating_sub(at));
        let Some(peer) = self.peers.get(dest) else { return Streamed::Over };
        match peer.write(into.wrapping_add(at as u64), bytes) {
            Ok(count) if count == bytes.len() => {}
            Ok(0) => {
                self.segment.mark(dest, PeerState::Dead);
                return Streamed::Over;
            }
            // Cells carry these fragments and all later ones.
            written => {
                *method = CopyMethod::Cells;
                written.err().into_iter().for_each(|error| explain_denial(dest, &error));
                if let Some(producer) = self.peers.producer(dest) {
                    producer.offers.return_fragments(claim, range.end - range.start);
                }
                return Streamed::Fragment(false);
            }
        }
        let words = [bytes.len() as u64, 0, 0, 0];
        self.push(dest, RecordKind::Written, receiver, Payload::Words(words));
        let left = self.peers.producer(dest).map_or(0..0, |producer| producer.offers.left(claim));
        if left.is_empty() { self.end_fragments_of(id) } else { Streamed::Fragment(false) }
    }

    /// Aborts send `id`, whose remaining bytes will not become available, and sends `status` to the
    /// receiver.
    fn break_off(
        &mut self,
        dest: usize,
        (id, claim): (OpId, u16),
        receiver: u64,
        status: dtl_status_t,
    ) -> Streamed {
        let words = [u64::from(status.unsigned_abs()), 0, 0, 0];
        if !self.push(dest, RecordKind::Broken, receiver, Payload::Words(words)) {
            return Streamed::Full;
        }
        if let Some(producer) = self.peers.producer(dest) {
            producer.offers.close(claim);
        }
        self.operations.finish(id, done(self.rank, status, 0, 0));
        Streamed::Over
    }

    /// Returns the index of the next fragment that neither side has claimed for copying; `None` if
    /// the ring to `dest` has no space for a record.
    fn next_fragment(&mut self, dest: usize, claim: u16) -> Option<u32> {
        let producer = self.peers.producer(dest)?;
        producer.has_room(0).then(|| producer.offers.left(claim).start)
    }

    /// Copies bytes into the allocated cell `cell`.
    fn fill(&mut self, cell: u16, bytes: Region, method: CopyMethod) {
        let is_nt = method == CopyMethod::CellsNt;
        self.pool().into_iter().for_each(|pool| pool.fill(cell, bytes, is_nt));
    }

    /// Writes the record that announces a filled cell (shared buffer) with `len` bytes. `all` is
    /// the word of the message (`LargeHeader`).
    fn send_cell(
        &mut self,
        dest: usize,
        kind: RecordKind,
        key: u64,
        cell: u16,
        [len, all]: [u64; 2],
    ) {
        let number = self.pool().map_or(0, |pool| pool.send(cell, dest));
        let words = [u64::from(cell), number, len, all];
        self.push(dest, kind, key, Payload::Words(words));
    }

    /// Ends the copying of the fragments of send `id`. Completes the send if this rank has copied
    /// all fragments; if the receiver reads some fragments from this rank's memory, the send waits
    /// for the receiver's `Finish` record.
    fn end_fragments_of(&mut self, id: OpId) -> Streamed {
        let Some(ShmOperation::Send(send)) = self.operations.get_mut(id) else {
            return Streamed::Over;
        };
        let SendStage::Streaming { claim, end, .. } = send.stage else { return Streamed::Over };
        send.stage = SendStage::Meeting { claim };
        let all = fragments_of(end);
        let producer = self.peers.producer(send.dest);
        if producer.is_some_and(|producer| producer.offers.left(claim).end == all) {
            self.finish_send(id, claim);
        }
        Streamed::Over
    }

    /// Returns this rank's cells (shared buffers); `None` if they could not be allocated, in which
    /// case fragments are sent through the rings.
    fn pool(&mut self) -> Option<&mut CellPool> {
        let (segment, rank) = (&self.segment, self.rank);
        let pool = self.pool.get_or_insert_with(|| {
            let opened = segment.open_cells(rank);
            opened
                .map_err(|error| warning!("large messages go through the rings: {}", error.text()))
                .ok()
        });
        pool.as_mut()
    }
}
