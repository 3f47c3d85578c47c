//! A board: where the ranks of a communicator that share memory put up a few bytes for each other.
//!
//! Each rank has a sheet that only it writes, with blocks that posts take in turn. A post's stamp
//! is stored last and read first. Data that does not fit into a block lies on a page; there are
//! fewer of these. Block and page are used again only when every rank has done with their contents.
//! Either the ranks have met since: a rank that has seen all others' posts of number n can infer
//! that all have done with n - 1, as each posts a number only when it has done with the one before.
//! Or their sheets record it.
//!
//! There are many blocks, so that a rank that only gives (the root of a broadcast) can get far
//! ahead of a rank that only takes. Ranks that share a processor then switch context once for all
//! posts that one of them may make before it must wait.
//!
//! A transport has places, each with a sheet for every rank. A rank reserves a place for its own
//! sheet before it makes a communicator, and the ranks exchange the places. So the ranks of a board
//! need not agree on one place, and threads that make communicators at the same time, in different
//! orders on different ranks, never meet on one sheet.
//!
//! The memory, and the wakeup of a waiting rank, belong to the transports (`shm`, `inproc`); the
//! contents of posts belong to `runtime::comm::coll::small_coll`.

use crate::error::{Result, fail};
use crate::runtime::component::{Member, Post};
use crate::sys::memory::buf::Region;
use crate::sys::os::shm_segment::Span;
use crate::sys::sync;
use crate::sys::sync::AtomicU64;
use crate::sys::sync::Ordering::{Acquire, Relaxed, Release};
use std::ops::Range;

/// Most ranks of a transport that has boards: each reads what all others post.
pub(super) const MOST_RANKS: usize = 64;
/// Places in a transport, and so the number of boards in which a rank can have a sheet at the same
/// time.
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
/// Added when the rank destroys that communicator, of which its other threads may still use the
/// sheet for a moment.
const LEFT: u64 = 1 << 62;
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

/// A communicator's view of its ranks' sheets.
pub(super) struct MailboxView {
    /// The sheets of all places.
    sheets: Span,
    /// Offset of each rank's sheet, in the communicator's order: there are few (`MOST_RANKS`).
    members: Box<[u32]>,
    /// Offset of this rank's sheet.
    own: usize,
    context: u32,
    /// All ranks have done with the numbers up to this one.
    known: AtomicU64,
}

fn user_word(sheets: &Span, sheet: usize) -> Option<&AtomicU64> {
    sheets.word(sheet + USER_AT)
}

/// Who uses a sheet, whether it has left or not.
fn user(sheets: &Span, sheet: usize) -> u64 {
    user_word(sheets, sheet).map_or(0, |word| word.load(Acquire) & !LEFT)
}

impl MailboxView {
    /// `members`: offsets of the ranks' sheets, in the communicator's order; `own`: offset of this
    /// rank's sheet.
    pub(super) fn new(sheets: Span, members: Box<[u32]>, own: usize, context: u32) -> Self {
        if let Some(word) = user_word(&sheets, own) {
            word.store(u64::from(context) + 1, Release);
        }
        MailboxView { sheets, members, own, context, known: AtomicU64::new(0) }
    }

    fn block(sheet: usize, number: u64) -> usize {
        sheet + BLOCKS_AT + (number % BLOCKS) as usize * BLOCK
    }

    #[inline]
    fn page(&self, sheet: usize, number: u64, len: usize) -> Region {
        self.sheets
            .region()
            .part(sheet + PAGES_AT + (number % PAGES) as usize * ROOM, len.min(ROOM))
    }

    /// The communicator and the low half of a number. That half is enough: each rank posts every
    /// number, so what lies in a block is never older than `BLOCKS`.
    fn stamp(&self, number: u64) -> u64 {
        u64::from(self.context) << 32 | u64::from(number as u32)
    }

    /// Puts up a number's post; the numbers come one after the other from 1 on, each when the one
    /// before is finished. False: some rank may still read what is in its block.
    #[inline]
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
        // The others have it in their caches from the round before. Not the next one, at which they
        // may look already.
        self.sheets.will_write(Self::block(self.own, number + 2));
        true
    }

    /// Whether all ranks have done with the number that is so far behind one to come.
    #[cold]
    fn is_free(&self, number: u64, ahead: u64) -> bool {
        let known =
            self.members.iter().map(|sheet| self.over(*sheet as usize, number)).min().unwrap_or(0);
        self.known.store(known, Relaxed);
        known + ahead >= number
    }

    /// What the rank with a sheet has done with, as seen by one that has come to `number`.
    fn over(&self, sheet: usize, number: u64) -> u64 {
        let word = self.sheets.word(sheet + OVER_AT).map_or(0, |word| word.load(Acquire));
        if word >> 32 != u64::from(self.context) {
            // Of a communicator before.
            return 0;
        }
        // Not ahead of this one by more than the blocks, nor behind it by more.
        let ahead = (word as u32).wrapping_sub(number as u32) as i32;
        number.saturating_add_signed(i64::from(ahead))
    }

    /// A rank's post of a number, if it is up: it stays until this rank has finished the number.
    #[inline]
    pub(super) fn look(&self, rank: i32, number: u64) -> Option<Post> {
        let sheet = *self.members.get(rank as usize)? as usize;
        let at = Self::block(sheet, number);
        let ([stamp, words], bytes) = self.sheets.block(at, SMALL)?;
        if stamp.load(Acquire) != self.stamp(number) {
            return None;
        }
        let words = words.load(Relaxed);
        let len = words as u32 as usize;
        let data = if len <= SMALL { bytes.part(0, len) } else { self.page(sheet, number, len) };
        Some(Post { what: (words >> 32) as u32, data })
    }

    /// This rank has done with a number; `met`: it has seen all others' posts of it.
    #[inline]
    pub(super) fn finish(&self, number: u64, met: bool) {
        if met {
            self.known.store(number - 1, Relaxed);
        }
        if let Some(word) = self.sheets.word(self.own + OVER_AT) {
            word.store(self.stamp(number), Release);
        }
    }

    fn add_to_user(&self, mark: u64) {
        if let Some(word) = user_word(&self.sheets, self.own) {
            word.fetch_or(mark, Release);
        }
    }

    /// Tells the others that this rank has left: it posts nothing more.
    pub(super) fn leave(&self) {
        self.add_to_user(LEFT);
    }

    /// Whether a rank has left. Its sheet is used again only after this board has gone, so the mark
    /// stays. What the rank posted before is seen by who has seen that.
    pub(super) fn has_left(&self, rank: i32) -> bool {
        let word = self
            .members
            .get(rank as usize)
            .and_then(|sheet| user_word(&self.sheets, *sheet as usize));
        let user = LEFT | (u64::from(self.context) + 1);
        word.is_some_and(|word| word.load(Acquire) & !GONE == user)
    }
}

impl Drop for MailboxView {
    fn drop(&mut self) {
        self.add_to_user(GONE);
    }
}

/// The places of one rank, and which of them it may use for another board.
#[derive(Default)]
pub(super) struct Places {
    /// By place, up to the highest one that was used.
    all: Vec<SheetState>,
}

#[derive(Default)]
enum SheetState {
    /// No rank reads this rank's sheet at the place.
    #[default]
    Free,
    /// Reserved for a communicator that is being made.
    Reserved,
    /// Used by this board, the last one at the place.
    Used(Last),
}

struct Last {
    sheets: Span,
    /// Value of its ranks' user words while they use it.
    user: u64,
    members: Box<[Reader]>,
}

/// A rank that reads this rank's sheet.
struct Reader {
    /// Its rank in the transport.
    rank: usize,
    sheet: usize,
    /// Its user word when this rank had made its own board. A rank that has not come that far still
    /// has this value.
    before: u64,
}

impl Last {
    /// Whether none of its ranks uses it, or will.
    fn is_over(&self, is_gone: impl Fn(usize) -> bool) -> bool {
        self.members.iter().all(|member| {
            let now = user(&self.sheets, member.sheet);
            now == GONE | self.user
                || (now != self.user && now != member.before)
                || is_gone(member.rank)
        })
    }
}

impl Places {
    /// Reserves a place for this rank's sheet in another board. Also returns whether the place is
    /// used for the first time. Place 0 is kept for the communicator of all ranks.
    pub(super) fn reserve(&mut self, is_gone: impl Fn(usize) -> bool) -> Option<(usize, bool)> {
        let known = self.all.len().max(1);
        self.all.resize_with(known, SheetState::default);
        let is_free = |place: &SheetState| match place {
            SheetState::Free => true,
            SheetState::Reserved => false,
            SheetState::Used(last) => last.is_over(&is_gone),
        };
        let place = match self.all.iter().skip(1).position(is_free) {
            Some(before) => before + 1,
            None if known < PLACES => known,
            None => return None,
        };
        self.set(place, SheetState::Reserved);
        Some((place, place == known))
    }

    /// Releases a reserved place that no board uses.
    pub(super) fn release(&mut self, place: u32) {
        if let Some(reserved @ SheetState::Reserved) = self.all.get_mut(place as usize) {
            *reserved = SheetState::Free;
        }
    }

    /// Releases a place for which no memory could be allocated.
    pub(super) fn forget(&mut self, place: usize) {
        self.all.truncate(place);
    }

    fn set(&mut self, place: usize, content: SheetState) {
        if self.all.len() <= place {
            self.all.resize_with(place + 1, SheetState::default);
        }
        if let Some(slot) = self.all.get_mut(place) {
            *slot = content;
        }
    }

    /// Makes a board at a reserved place, or at place 0, where there is never another board.
    /// `ranks`: number of ranks of the transport. `sheets`: two spans over the memory of all
    /// places.
    pub(super) fn open(
        &mut self,
        sheets: [Option<Span>; 2],
        (ranks, own): (usize, usize),
        context: u32,
        members: &[Member],
    ) -> Result<MailboxView> {
        let at = |member: &Member| (member.rank.unsigned_abs() as usize, member.place as usize);
        let sheet = |member: &Member| {
            let (rank, place) = at(member);
            sheets_at(ranks, place, rank..rank + 1).start
        };
        let Some(mine) = members.iter().find(|member| at(member).0 == own) else {
            return fail!(DTL_ERROR_INTERNAL, "rank {own} is not a member of its own board");
        };
        let [Some(first), Some(again)] = sheets else {
            self.release(mine.place);
            return fail!(
                DTL_ERROR_INTERNAL,
                "the places for boards lie outside the shared memory"
            );
        };
        // Offsets are far below 4 GiB (`MOST_RANKS`); an offset outside the span finds nothing.
        let sheets =
            members.iter().map(|member| u32::try_from(sheet(member)).unwrap_or(u32::MAX)).collect();
        let board = MailboxView::new(first, sheets, sheet(mine), context);
        let (_, place) = at(mine);
        if place > 0 {
            let reader = |member: &Member| {
                let ((rank, _), sheet) = (at(member), sheet(member));
                Reader { rank, sheet, before: user(&again, sheet) }
            };
            let members = members.iter().map(reader).collect();
            self.set(
                place,
                SheetState::Used(Last { sheets: again, user: u64::from(context) + 1, members }),
            );
        }
        Ok(board)
    }
}

/// Where the sheets of some ranks are in the memory of all places.
pub(super) fn sheets_at(ranks: usize, place: usize, of: Range<usize>) -> Range<usize> {
    let first = place * place_bytes(ranks);
    first + of.start * SHEET..first + of.end * SHEET
}

/// Bytes of a place: whole pages, as each place gets its memory by itself.
pub(super) fn place_bytes(ranks: usize) -> usize {
    (ranks * SHEET).next_multiple_of(sync::size(4096, ALIGN))
}

#[cfg(test)]
#[path = "coll_mailbox/tests.rs"]
mod tests;
