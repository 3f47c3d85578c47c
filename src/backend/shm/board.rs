//! Boards in a communicator's shared memory. What a board is: `backend::board`. Who waits for a post sleeps by
//! the clock; nobody wakes processes.

use super::segment::{Segment, State};
use crate::backend::board::{Board, Places, ROOM};
use crate::backend::shortage::memory_error;
use crate::error::{Result, fail};
use crate::runtime::backend::{self, Post};
use crate::sys::buf::Region;

/// A board whose sheets are in the segment.
struct Shared(Board);

impl backend::Board for Shared {
    fn room(&self) -> usize {
        ROOM
    }

    #[inline]
    fn post(&self, number: u64, what: u32, data: Region) -> bool {
        self.0.post(number, what, data)
    }

    #[inline]
    fn look(&self, rank: i32, number: u64) -> Option<Post> {
        self.0.look(rank, number)
    }

    #[inline]
    fn finish(&self, number: u64, met: bool) {
        self.0.finish(number, met);
    }
}

/// Places that the rank may use, as bits.
pub(super) fn free(segment: &Segment, places: &Places) -> u64 {
    match segment.has_boards() {
        true => places.free(|rank| segment.state(rank) != State::Present),
        false => 0,
    }
}

/// Allocates the memory of a place.
pub(super) fn commit(segment: &Segment, place: usize) -> Result<()> {
    segment.commit_board(place).map_err(|error| memory_error("memory for small collectives", &error))
}

/// The board at a place for some of the segment's ranks, among them `own`.
pub(super) fn open(
    segment: &Segment,
    places: &mut Places,
    own: usize,
    (place, context): (usize, u32),
    ranks: &[i32],
) -> Result<Box<dyn backend::Board>> {
    commit(segment, place)?;
    let (Some(sheets), Some(again)) = (segment.sheets(place), segment.sheets(place)) else {
        return fail!(DTL_ERROR_INTERNAL, "place {place} for a board lies outside of the shared memory");
    };
    let board = Board::new(sheets, ranks, own, context);
    places.take(place, again, &board);
    Ok(Box::new(Shared(board)))
}
