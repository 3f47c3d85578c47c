//! Boards between the threads of this process. What a board is: `backend::board`. Here is the memory; `bell` wakes
//! who sleeps until a post is there.

use super::bell::Bell;
use crate::backend::board::{self, Board, Places, ROOM};
use crate::error::{Result, fail};
use crate::runtime::backend::{self, Post};
use crate::sys::buf::Region;
use crate::sys::shared::Memory;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The places of a fabric. They take no memory before the first board.
pub(super) struct Boards {
    ranks: usize,
    room: OnceLock<Option<Room>>,
}

struct Room {
    memory: Arc<Memory>,
    bells: Vec<Arc<Bell>>,
}

impl Boards {
    pub(super) fn new(ranks: usize) -> Self {
        Boards { ranks, room: OnceLock::new() }
    }

    /// `None`: there are too many ranks, or too few.
    fn room(&self) -> Option<&Room> {
        let make = || {
            let memory = Memory::private(board::PLACES * board::place_bytes(self.ranks)).ok()?;
            Some(Room { memory, bells: (0..board::PLACES).map(|_| Arc::default()).collect() })
        };
        let has_boards = (2..=board::MOST_RANKS).contains(&self.ranks);
        if has_boards { self.room.get_or_init(make).as_ref() } else { None }
    }

    /// Places that a rank may use, as bits.
    pub(super) fn free(&self, places: &Places, has_left: impl Fn(usize) -> bool) -> u64 {
        if self.room().is_some() { places.free(has_left) } else { 0 }
    }

    /// The board of some ranks at a place, for `own`.
    pub(super) fn open(
        &self,
        places: &mut Places,
        own: usize,
        (place, context): (usize, u32),
        ranks: &[i32],
    ) -> Option<Result<Box<dyn backend::Board>>> {
        let room = self.room()?;
        let bytes = board::place_bytes(self.ranks);
        let sheets = || room.memory.span(place * bytes, bytes);
        let (Some(first), Some(again), Some(bell)) = (sheets(), sheets(), room.bells.get(place)) else {
            return Some(fail!(DTL_ERROR_INTERNAL, "there is no place {place} for a board"));
        };
        let board = Board::new(first, ranks, own, context);
        places.take(place, again, &board);
        Some(Ok(Box::new(Local { board, bell: Arc::clone(bell) })))
    }
}

struct Local {
    board: Board,
    bell: Arc<Bell>,
}

impl backend::Board for Local {
    fn room(&self) -> usize {
        ROOM
    }

    #[inline]
    fn post(&self, number: u64, what: u32, data: Region) -> bool {
        let is_up = self.board.post(number, what, data);
        if is_up {
            self.bell.ring();
        }
        is_up
    }

    #[inline]
    fn look(&self, rank: i32, number: u64) -> Option<Post> {
        self.board.look(rank, number)
    }

    #[inline]
    fn finish(&self, number: u64, met: bool) {
        self.board.finish(number, met);
    }

    fn rest(&self, rank: i32, number: u64, limit: Duration) -> bool {
        self.bell.sleep(|| self.board.look(rank, number).is_some(), limit);
        true
    }
}
