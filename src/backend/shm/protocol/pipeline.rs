//! The sender's pieces of large messages: into its cells, or without cells into the ring.
//!
//! Up to `LONG` bytes go at once if there are cells for all of them: the receiver copies the first
//! piece while the second is filled, and no request precedes it. An offer of more is followed by
//! its first pieces in the same way, and by the others when the receiver wants them. The receiver
//! keeps unrequested pieces if no receive matches yet, so a cell is never held by a message that
//! waits.

use super::engine::{Engine, Send, SendStage, ShmOperation, done};
use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use crate::backend::shm::memory::cells::{CELL, CellPool};
use crate::backend::shm::memory::ring::{FRAGMENT, Payload, RecordKind};
use crate::runtime::component::{OpId, PipelinedSource};
use crate::runtime::log::warning;
use crate::sys::memory::buf::Region;

/// Bytes of a piece: a cell, or without cells a record.
pub(in crate::backend::shm) const PIECE: usize = if CELL < FRAGMENT { CELL } else { FRAGMENT };
/// First pieces that go unasked: while they are copied, the receiver's answer is on its way.
const FIRST: usize = 4;
/// The longest message that goes without an offer.
pub(in crate::backend::shm) const LONG: usize = FIRST * PIECE;
/// Pieces copied in one round: what comes from others is read in between.
const PIECES: usize = 8;
/// After so many pieces it is the next message's turn.
const TURN: u32 = 64;

/// How many pieces so many bytes are.
pub(in crate::backend::shm) fn pieces_of(len: usize) -> u32 {
    u32::try_from(len.div_ceil(PIECE)).unwrap_or(u32::MAX)
}

/// What came of a piece.
enum Streamed {
    Full,
    /// Its bytes are not there yet.
    Unready,
    /// Copied; whether the next message may go on now.
    Piece(bool),
    Over,
}

/// Bytes that are there, or why no more will be.
fn ready(filling: &PipelinedSource) -> Result<usize, dtl_status_t> {
    match filling.failure() {
        DTL_SUCCESS => Ok(filling.ready()),
        status => Err(status),
    }
}

impl Engine {
    /// Sends a whole message through cells; false if there are not enough of them, or no room for
    /// the records.
    pub(in crate::backend::shm) fn send_long(
        &mut self,
        dest: usize,
        word: u64,
        data: Region,
    ) -> bool {
        let count = data.len().div_ceil(PIECE);
        let producer = self.peers.link_mut(dest).and_then(|link| link.producer.as_mut());
        if !producer.is_some_and(|producer| producer.has_slots(count)) {
            return false;
        }
        let Some(cells) = self.take_cells(count) else { return false };
        self.send_first(dest, RecordKind::Long, word, data, cells.into_iter().take(count));
        true
    }

    /// Cells for the pieces behind an offer; none if that is no large message, or there are too
    /// few, or there is no room for all the records.
    pub(in crate::backend::shm) fn cells_for_first(
        &mut self,
        dest: usize,
        len: usize,
    ) -> ([u16; FIRST], usize) {
        let count = if len > FRAGMENT { len.div_ceil(PIECE).min(FIRST) } else { 0 };
        let producer = self.peers.link_mut(dest).and_then(|link| link.producer.as_mut());
        if !producer.is_some_and(|producer| producer.has_slots(1 + count)) {
            return ([0; FIRST], 0);
        }
        self.take_cells(count).map_or(([0; FIRST], 0), |cells| (cells, count))
    }

    /// Takes so many cells, `FIRST` at most; `None`, and none is taken: there are fewer.
    fn take_cells(&mut self, count: usize) -> Option<[u16; FIRST]> {
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

    /// Fills cells with the first pieces and announces each as soon as it is full. There is room
    /// for the records.
    pub(in crate::backend::shm) fn send_first(
        &mut self,
        dest: usize,
        first: RecordKind,
        word: u64,
        data: Region,
        cells: impl Iterator<Item = u16>,
    ) {
        let mut kind = first;
        for (index, cell) in cells.enumerate() {
            let bytes = data.part(index * PIECE, PIECE);
            self.pool().into_iter().for_each(|pool| pool.fill(cell, bytes));
            self.send_cell(dest, kind, word, cell, [bytes.len(), data.len()]);
            kind = RecordKind::More;
        }
    }

    /// Copies a few pieces for one rank.
    pub(in crate::backend::shm) fn stream_to(&mut self, dest: usize) -> bool {
        let mut count = 0;
        for _ in 0..PIECES {
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
                Streamed::Piece(true) => link.streams.push_back(id),
                Streamed::Piece(false) => link.streams.push_front(id),
                Streamed::Over => {}
            }
        }
        count > 0
    }

    /// Sends the next piece of a large message.
    fn stream(&mut self, dest: usize, id: OpId) -> Streamed {
        let Some(&ShmOperation::Send(Send { data, stage, ref filling, .. })) =
            self.operations.get(id)
        else {
            return Streamed::Over;
        };
        let SendStage::Streaming { claim, receiver, end } = stage else { return Streamed::Over };
        let filled = filling.as_ref().map_or(Ok(usize::MAX), |by| ready(by));
        let Some(next) = self.next_piece(dest, claim) else { return Streamed::Full };
        let at = next as usize * PIECE;
        let bytes = data.part(at, PIECE.min(end.saturating_sub(at)));
        match filled {
            Ok(filled) if filled < at + bytes.len() => return Streamed::Unready,
            Ok(_) => {}
            Err(status) => return self.break_off(dest, (id, claim), receiver, status),
        }
        // First the room for it: a piece that is taken must be sent.
        let cell = self.pool().and_then(CellPool::take);
        let producer = self.peers.link_mut(dest).and_then(|link| link.producer.as_mut());
        let Some(producer) = producer else { return Streamed::Over };
        if cell.is_none() && !producer.has_room(bytes.len()) {
            return Streamed::Full;
        }
        if producer.offers.take_piece(claim).is_none() {
            if let (Some(cell), Some(pool)) = (cell, self.pool()) {
                pool.give_back(cell);
            }
            return self.end_pieces_of(id);
        }
        match cell {
            Some(cell) => {
                self.pool().into_iter().for_each(|pool| pool.fill(cell, bytes));
                self.send_cell(dest, RecordKind::Cell, receiver, cell, [bytes.len(), 0]);
            }
            None => {
                self.push(dest, RecordKind::Data, 0, receiver, Payload::Bytes(bytes));
            }
        }
        match self.are_pieces_left(dest, claim) {
            true => Streamed::Piece((next + 1) % TURN == 0),
            false => self.end_pieces_of(id),
        }
    }

    /// Aborts a message whose rest will not come, and sends its receiver the reason.
    fn break_off(
        &mut self,
        dest: usize,
        (id, claim): (OpId, u16),
        receiver: u64,
        status: dtl_status_t,
    ) -> Streamed {
        let words = [u64::from(status.unsigned_abs()), 0, 0, 0];
        if !self.push(dest, RecordKind::Broken, 0, receiver, Payload::Words(words)) {
            return Streamed::Full;
        }
        if let Some(producer) = self.peers.link_mut(dest).and_then(|link| link.producer.as_mut()) {
            producer.offers.close(claim);
        }
        self.finish(id, done(self.rank, status, 0, 0));
        Streamed::Over
    }

    /// The next piece that nobody has taken, if there is room for a record.
    fn next_piece(&mut self, dest: usize, claim: u16) -> Option<u32> {
        let producer = self.peers.link_mut(dest)?.producer.as_mut()?;
        producer.has_room(0).then(|| producer.offers.left(claim).start)
    }

    fn are_pieces_left(&self, dest: usize, claim: u16) -> bool {
        let producer = self.peers.link(dest).and_then(|link| link.producer.as_ref());
        producer.is_some_and(|producer| !producer.offers.left(claim).is_empty())
    }

    /// Announces a filled cell: bytes there and in all.
    fn send_cell(
        &mut self,
        dest: usize,
        kind: RecordKind,
        key: u64,
        cell: u16,
        [len, all]: [usize; 2],
    ) {
        let number = self.pool().map_or(0, |pool| pool.send(cell, dest));
        let words = [u64::from(cell), number, len as u64, all as u64];
        self.push(dest, kind, 0, key, Payload::Words(words));
    }

    /// All pieces are copied, or taken by the receiver, for whose word the send then waits.
    fn end_pieces_of(&mut self, id: OpId) -> Streamed {
        let Some(ShmOperation::Send(send)) = self.operations.get_mut(id) else {
            return Streamed::Over;
        };
        let SendStage::Streaming { claim, end, .. } = send.stage else { return Streamed::Over };
        send.stage = SendStage::Meeting { claim };
        let all = pieces_of(end);
        let producer = self.peers.link(send.dest).and_then(|link| link.producer.as_ref());
        if producer.is_some_and(|producer| producer.offers.left(claim).end == all) {
            self.finish_send(id, claim);
        }
        Streamed::Over
    }

    /// This rank's cells; `None`: there is no memory for them, and pieces go through the rings.
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
