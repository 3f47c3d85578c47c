//! The sender's pieces of large messages: into its cells, or without cells into the ring.
//!
//! Up to `LONG` bytes go at once if there are cells for all of them: the receiver copies the first piece while
//! the second is filled, and nobody asks it before. The pieces of larger ones wait until they are wanted.

use super::cells::{CELL, CELLS, Pool};
use super::engine::{Ahead, Engine, MOST_AHEAD, Operation, Send, SendStage};
use super::ring::{FRAGMENT, Kind, Payload};
use crate::runtime::backend::OpId;
use crate::runtime::log::warning;
use crate::sys::buf::Region;

/// Pieces copied in one round: what comes from others is read in between.
const PIECES: usize = 8;
/// After so many pieces it is the next message's turn.
const TURN: u32 = 64;
/// The longest message that goes without an offer, and its pieces.
pub(super) const LONG: usize = 64 << 10;
const MOST_LONG: usize = 8;

/// Cells that may be filled before somebody wants them.
const CELLS_AHEAD: usize = CELLS as usize / 4;

/// Bytes of a message's pieces. In a short one the receiver should not wait long for the first.
pub(super) fn piece_of(len: usize) -> usize {
    let piece = if len <= 64 << 10 { 8 << 10 } else { 16 << 10 };
    piece.min(CELL).min(FRAGMENT)
}

/// The same for one that goes at once.
fn long_piece_of(len: usize) -> usize {
    CELL.max(len / MOST_LONG).min(CELL)
}

/// What came of a piece.
enum Streamed {
    Full,
    /// Copied; whether the next message may go on now.
    Piece(bool),
    Over,
}

impl Engine {
    /// Sends a whole message through cells; false if there are not enough of them, or no room for the records.
    pub(super) fn send_long(&mut self, dest: usize, word: u64, data: Region) -> bool {
        let piece = long_piece_of(data.len());
        let count = data.len().div_ceil(piece);
        let producer = self.peers.link_mut(dest).and_then(|link| link.producer.as_mut());
        if count > MOST_LONG || !producer.is_some_and(|producer| producer.has_slots(count)) {
            return false;
        }
        let mut cells = [0; MOST_LONG];
        if !self.take_cells(cells.iter_mut().take(count)) {
            return false;
        }
        for (index, cell) in cells.into_iter().take(count).enumerate() {
            let bytes = data.part(index * piece, piece);
            self.pool().into_iter().for_each(|pool| pool.fill(cell, bytes));
            let kind = if index == 0 { Kind::Long } else { Kind::More };
            self.send_cell(dest, kind, word, cell, [bytes.len(), data.len()]);
        }
        true
    }

    /// Takes as many cells as there are places for; false, and none: there are not so many.
    fn take_cells<'a>(&mut self, places: impl Iterator<Item = &'a mut u16>) -> bool {
        let Some(pool) = self.pool() else { return false };
        let mut taken = [0; MOST_LONG];
        let mut count = 0;
        for (place, note) in places.zip(&mut taken) {
            let Some(cell) = pool.take() else {
                taken.iter().take(count).for_each(|&cell| pool.give_back(cell));
                return false;
            };
            (*place, *note) = (cell, cell);
            count += 1;
        }
        true
    }

    /// Copies a few pieces for one rank.
    pub(super) fn stream_to(&mut self, dest: usize) -> bool {
        for count in 0..PIECES {
            let Some(id) = self.peers.link_mut(dest).and_then(|link| link.streams.pop_front()) else {
                return count > 0;
            };
            let streamed = self.stream(dest, id);
            let Some(link) = self.peers.link_mut(dest) else { return count > 0 };
            match streamed {
                Streamed::Full => {
                    link.streams.push_front(id);
                    return count > 0;
                }
                Streamed::Piece(true) => link.streams.push_back(id),
                Streamed::Piece(false) => link.streams.push_front(id),
                Streamed::Over => {}
            }
        }
        true
    }

    /// Sends the next piece of a large message.
    fn stream(&mut self, dest: usize, id: OpId) -> Streamed {
        let Some(&Operation::Send(Send { data, ahead, stage, .. })) = self.operations.get(id) else {
            return Streamed::Over;
        };
        let SendStage::Streaming { claim, receiver, end } = stage else { return Streamed::Over };
        let Some(next) = self.next_piece(dest, claim) else { return Streamed::Full };
        let (size, at) = (piece_of(data.len()), next as usize * piece_of(data.len()));
        let bytes = data.part(at, size.min(end.saturating_sub(at)));
        // First the room for it: a piece that is taken must be sent.
        let filled = ahead.cells.iter().take(ahead.count.into()).nth(next as usize).copied();
        let cell = filled.or_else(|| self.pool()?.take());
        let producer = self.peers.link_mut(dest).and_then(|link| link.producer.as_mut());
        let Some(producer) = producer else { return Streamed::Over };
        if cell.is_none() && !producer.has_room(bytes.len()) {
            return Streamed::Full;
        }
        if producer.offers.take_piece(claim).is_none() {
            if let (Some(cell), Some(pool), None) = (cell, self.pool(), filled) {
                pool.give_back(cell);
            }
            return self.end_pieces_of(id);
        }
        match cell {
            Some(cell) if filled.is_some() => {
                self.note_sent(id);
                self.send_cell(dest, Kind::Cell, receiver, cell, [bytes.len(), 0]);
            }
            Some(cell) => {
                self.pool().into_iter().for_each(|pool| pool.fill(cell, bytes));
                self.send_cell(dest, Kind::Cell, receiver, cell, [bytes.len(), 0]);
            }
            None => {
                self.push(dest, Kind::Data, 0, receiver, Payload::Bytes(bytes));
            }
        }
        match self.are_pieces_left(dest, claim) {
            true => Streamed::Piece((next + 1) % TURN == 0),
            false => self.end_pieces_of(id),
        }
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

    /// Tells of a filled cell: bytes there and in all.
    fn send_cell(&mut self, dest: usize, kind: Kind, key: u64, cell: u16, [len, all]: [usize; 2]) {
        let number = self.pool().map_or(0, |pool| pool.send(cell, dest));
        let words = [u64::from(cell), number, len as u64, all as u64];
        self.push(dest, kind, 0, key, Payload::Words(words));
    }

    /// All pieces are copied, or taken by the receiver, for whose word the send then waits.
    fn end_pieces_of(&mut self, id: OpId) -> Streamed {
        let Some(Operation::Send(send)) = self.operations.get_mut(id) else { return Streamed::Over };
        let SendStage::Streaming { claim, end, .. } = send.stage else { return Streamed::Over };
        send.stage = SendStage::Meeting { claim };
        let all = end.div_ceil(piece_of(send.data.len()));
        let producer = self.peers.link(send.dest).and_then(|link| link.producer.as_ref());
        if producer.is_some_and(|producer| producer.offers.left(claim).end as usize == all) {
            self.finish_send(id, claim);
        }
        Streamed::Over
    }

    /// This rank's cells; `None`: there is no memory for them, and pieces go through the rings.
    fn pool(&mut self) -> Option<&mut Pool> {
        let (segment, rank) = (&self.segment, self.rank);
        let pool = self.pool.get_or_insert_with(|| {
            let opened = segment.open_cells(rank);
            opened.map_err(|error| warning!("large messages go through the rings: {}", error.text())).ok()
        });
        pool.as_mut()
    }

    /// Copies a piece of a message that nobody has asked for yet, to be ready when it is.
    pub(super) fn fill_ahead(&mut self, dest: usize) -> bool {
        let Some(id) = self.peers.link(dest).and_then(|link| link.ahead.front().copied()) else {
            return false;
        };
        let filled = self.fill_one(id);
        if let Some(link) = self.peers.link_mut(dest).filter(|_| !filled) {
            link.ahead.pop_front();
        }
        true
    }

    fn fill_one(&mut self, id: OpId) -> bool {
        let Some(&Operation::Send(Send { data, stage: SendStage::Offered { .. }, ahead, .. })) =
            self.operations.get(id)
        else {
            return false;
        };
        let (piece, count) = (piece_of(data.len()), usize::from(ahead.count));
        let bytes = data.part(count * piece, piece);
        if bytes.is_empty() || count >= MOST_AHEAD || self.cells_ahead >= CELLS_AHEAD {
            return false;
        }
        let Some(pool) = self.pool() else { return false };
        let Some(cell) = pool.take() else { return false };
        pool.fill(cell, bytes);
        self.cells_ahead += 1;
        if let Some(Operation::Send(Send { ahead, .. })) = self.operations.get_mut(id) {
            if let Some(place) = ahead.cells.get_mut(count) {
                *place = cell;
                ahead.count += 1;
            }
        }
        true
    }

    fn note_sent(&mut self, id: OpId) {
        self.cells_ahead -= 1;
        if let Some(Operation::Send(Send { ahead, .. })) = self.operations.get_mut(id) {
            ahead.sent += 1;
        }
    }

    /// Frees the cells that a send has filled and not sent.
    pub(super) fn give_back(&mut self, ahead: Ahead) {
        for &cell in ahead.cells.iter().take(ahead.count.into()).skip(ahead.sent.into()) {
            self.cells_ahead -= 1;
            self.pool().into_iter().for_each(|pool| pool.give_back(cell));
        }
    }
}
