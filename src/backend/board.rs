//! A board: where the ranks of a communicator that share memory put up a few bytes for each other.
//!
//! Each rank has a sheet that only it writes, with blocks that posts take in turn. A post's stamp is stored last and
//! read first. What does not fit into a block lies on a page; there are fewer of these. Block and page are used
//! again only when every rank has done with what was in them: either the ranks have met since (who has seen all
//! others' posts of number n knows that all have done with n - 1, as each posts a number only when it has done with
//! the one before), or their sheets say so.
//!
//! There are many blocks, as who only gives (the root of a broadcast) should get far ahead of who only takes: ranks
//! that share a processor change places once for all that one of them may do before it must wait.
//!
//! Whose memory it is, and how who waits is woken, is the transports' matter (`shm`, `local`); what is posted,
//! that of `runtime::comm::flat`.

use crate::runtime::backend::Post;
use crate::sys::buf::Region;
use crate::sys::shared::Span;
use crate::sys::sync;
use crate::sys::sync::AtomicU64;
use crate::sys::sync::Ordering::{Acquire, Relaxed, Release};

/// Most ranks of a transport that has boards: each reads what all others post.
pub(super) const MOST_RANKS: usize = 64;
/// Places for boards in a transport: as many communicators have one at the same time.
pub(super) const PLACES: usize = 64;
/// The largest post.
pub(super) const ROOM: usize = sync::size(2048, 16);
/// Posts that a sheet holds, and those among them that are on pages.
const BLOCKS: u64 = sync::size(32, 2) as u64;
const PAGES: u64 = sync::size(8, 1) as u64;

/// Two lines, which the machine likes to fetch together.
const ALIGN: usize = 128;
/// Who uses the sheet, or used it last: one more than the communicator's context; 0 = nobody yet.
const USER_AT: usize = 0;
/// Added when that communicator has gone.
const GONE: u64 = 1 << 63;
/// What this rank has done with: context, and the low half of the number.
const OVER_AT: usize = 8;
const BLOCKS_AT: usize = ALIGN;
const BLOCK: usize = ALIGN;
/// A block's own words: stamp; what and length.
const WORDS: usize = 16;
/// The largest post that fits into a block.
const SMALL: usize = sync::size(BLOCK - WORDS, 8);
const PAGES_AT: usize = BLOCKS_AT + BLOCKS as usize * BLOCK;
/// Bytes of a sheet.
pub(super) const SHEET: usize = (PAGES_AT + PAGES as usize * ROOM).next_multiple_of(ALIGN);

/// A communicator's view of the sheets of one place, one sheet for each rank of the transport.
pub(super) struct Board {
    sheets: Span,
    /// The transport's ranks, in the communicator's order: there are few (`MOST_RANKS`).
    ranks: Box<[u8]>,
    own: usize,
    context: u32,
    /// All ranks have done with the numbers up to this one.
    known: AtomicU64,
}

fn user_word(sheets: &Span, rank: usize) -> Option<&AtomicU64> {
    sheets.word(rank * SHEET + USER_AT)
}

fn user(sheets: &Span, rank: usize) -> u64 {
    user_word(sheets, rank).map_or(0, |word| word.load(Acquire))
}

impl Board {
    /// `ranks`: the transport's ranks of the communicator; `own`: which of the transport's ranks this one is.
    pub(super) fn new(sheets: Span, ranks: &[i32], own: usize, context: u32) -> Self {
        let index = |rank: &i32| u8::try_from(*rank).unwrap_or(0);
        let ranks = ranks.iter().map(index).collect();
        if let Some(word) = user_word(&sheets, own) {
            word.store(u64::from(context) + 1, Release);
        }
        Board { sheets, ranks, own, context, known: AtomicU64::new(0) }
    }

    #[inline(always)]
    fn block(rank: usize, number: u64) -> usize {
        rank * SHEET + BLOCKS_AT + (number % BLOCKS) as usize * BLOCK
    }

    #[inline(always)]
    fn page(&self, rank: usize, number: u64, len: usize) -> Region {
        self.sheets.region().part(rank * SHEET + PAGES_AT + (number % PAGES) as usize * ROOM, len.min(ROOM))
    }

    /// The communicator and the low half of a number. That half is enough: each rank posts every number, so what
    /// lies in a block is never older than `BLOCKS`.
    #[inline(always)]
    fn stamp(&self, number: u64) -> u64 {
        u64::from(self.context) << 32 | u64::from(number as u32)
    }

    /// Puts up a number's post; the numbers come one after the other from 1 on, each when the one before is
    /// finished. False: some rank may still read what is in its block.
    #[inline(always)]
    pub(super) fn post(&self, number: u64, what: u32, data: Region) -> bool {
        let is_small = data.len() <= SMALL;
        let ahead = if is_small { BLOCKS } else { PAGES };
        if self.known.load(Relaxed) + ahead < number && !self.is_free(number, ahead) {
            return false;
        }
        let block = self.sheets.block(Self::block(self.own, number), SMALL);
        let Some(([stamp, words], bytes)) = block else { return false };
        match is_small {
            true => bytes.part(0, data.len()).copy_from(data),
            false => self.page(self.own, number, data.len()).copy_from(data),
        }
        words.store(u64::from(what) << 32 | data.len() as u64, Relaxed);
        stamp.store(self.stamp(number), Release);
        // The others have it in their caches from the round before. Not the next one, at which they may look already.
        self.sheets.will_write(Self::block(self.own, number + 2));
        true
    }

    /// Whether all ranks have done with the number that is so far behind one to come.
    #[cold]
    fn is_free(&self, number: u64, ahead: u64) -> bool {
        let known = self.ranks.iter().map(|rank| self.over(usize::from(*rank), number)).min().unwrap_or(0);
        self.known.store(known, Relaxed);
        known + ahead >= number
    }

    /// What a rank has done with, as seen by one that has come to `number`.
    fn over(&self, rank: usize, number: u64) -> u64 {
        let word = self.sheets.word(rank * SHEET + OVER_AT).map_or(0, |word| word.load(Acquire));
        if word >> 32 != u64::from(self.context) {
            // Of a communicator before.
            return 0;
        }
        // Not ahead of this one by more than the blocks, nor behind it by more.
        let ahead = (word as u32).wrapping_sub(number as u32) as i32;
        number.saturating_add_signed(i64::from(ahead))
    }

    /// A rank's post of a number, if it is up: it stays until this rank has finished the number.
    #[inline(always)]
    pub(super) fn look(&self, rank: i32, number: u64) -> Option<Post> {
        let rank = usize::from(*self.ranks.get(rank as usize)?);
        let at = Self::block(rank, number);
        let ([stamp, words], bytes) = self.sheets.block(at, SMALL)?;
        if stamp.load(Acquire) != self.stamp(number) {
            return None;
        }
        let words = words.load(Relaxed);
        let len = words as u32 as usize;
        let data = if len <= SMALL { bytes.part(0, len) } else { self.page(rank, number, len) };
        Some(Post { what: (words >> 32) as u32, data })
    }

    /// This rank has done with a number; `met`: it has seen all others' posts of it.
    #[inline(always)]
    pub(super) fn finish(&self, number: u64, met: bool) {
        if met {
            self.known.store(number - 1, Relaxed);
        }
        if let Some(word) = self.sheets.word(self.own * SHEET + OVER_AT) {
            word.store(self.stamp(number), Release);
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        if let Some(word) = user_word(&self.sheets, self.own) {
            word.store(GONE | (u64::from(self.context) + 1), Release);
        }
    }
}

/// Which places this rank may use again: those where nobody looks at its sheet any more.
#[derive(Default)]
pub(super) struct Places {
    /// By place: its last board.
    last: Vec<Option<Last>>,
}

struct Last {
    sheets: Span,
    /// What its ranks' words say while they use it.
    user: u64,
    /// The ranks, and what their words said when this rank had made its own board: that of one that has not come
    /// so far says so still.
    ranks: Vec<(usize, u64)>,
}

impl Last {
    /// Whether none of its ranks uses it, or will.
    fn is_over(&self, is_gone: impl Fn(usize) -> bool) -> bool {
        self.ranks.iter().all(|(rank, before)| {
            let now = user(&self.sheets, *rank);
            now == GONE | self.user || (now != self.user && now != *before) || is_gone(*rank)
        })
    }
}

impl Places {
    /// Those, as bits. The first one is kept for the communicator of all ranks.
    pub(super) fn free(&self, is_gone: impl Fn(usize) -> bool) -> u64 {
        let last = |place: usize| self.last.get(place).and_then(Option::as_ref);
        let is_free = |place: &usize| last(*place).is_none_or(|last| last.is_over(&is_gone));
        (1..PLACES).filter(is_free).fold(0, |bits, place| bits | 1 << place)
    }

    /// Notes that a place has a board. The first place never has another one.
    pub(super) fn take(&mut self, place: usize, sheets: Span, board: &Board) {
        if place == 0 {
            return;
        }
        if self.last.len() <= place {
            self.last.resize_with(place + 1, || None);
        }
        if let Some(last) = self.last.get_mut(place) {
            let ranks = board
                .ranks
                .iter()
                .map(|rank| usize::from(*rank))
                .map(|rank| (rank, user(&sheets, rank)))
                .collect();
            *last = Some(Last { sheets, user: u64::from(board.context) + 1, ranks });
        }
    }
}

/// Bytes of a place: whole pages, as each place gets its memory by itself.
pub(super) fn place_bytes(ranks: usize) -> usize {
    (ranks * SHEET).next_multiple_of(4096)
}

#[cfg(test)]
#[path = "board/tests.rs"]
mod tests;
