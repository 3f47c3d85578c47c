//! Mailboxes in shared memory through which the ranks of a communicator exchange small messages.
//!
//! Each rank writes only its own mailbox. Message n uses block n modulo the number of blocks. A
//! rank stores the stamp of a message (communicator ID and message number) last, and readers load
//! the stamp first. Data that does not fit into a block is stored on a page of the mailbox; a
//! mailbox has fewer pages than blocks. A block or page is reused only when every rank has finished
//! reading it. The owner of the mailbox determines this in one of two ways. If the owner has read
//! message n from all other ranks, all ranks have finished message n - 1, because each rank writes
//! a message only after it has finished the preceding one. Otherwise the owner reads the number of
//! the last finished message, which each rank stores in its mailbox.
//!
//! The number of blocks is large, so that a rank that only sends (the root of a broadcast) can run
//! far ahead of a rank that only receives. Ranks that share a core then need only one context
//! switch per `BLOCKS` messages.
//!
//! A transport has several mailbox slots, and each slot contains one mailbox per rank. A rank
//! reserves a slot for its own mailbox before it creates a communicator, and the ranks exchange the
//! slot indices. So the ranks need not agree on one slot, and threads that create communicators
//! concurrently, in different orders on different ranks, never share a mailbox.
//!
//! The transports (`shm`, `inproc`) own the memory and wake waiting ranks;
//! `runtime::comm::coll::small_coll` defines the content of the messages.

use crate::error::{Result, fail};
use crate::runtime::component::{CollMailbox, Member, Post};
use crate::sys::memory::buf::Region;
use crate::sys::os::shm_segment::Span;
use crate::sys::sync;
use crate::sys::sync::AtomicU64;
use crate::sys::sync::Ordering::{Acquire, Relaxed, Release};
use std::ops::Range;

/// Maximum number of ranks of a transport with mailboxes. The number is limited because each rank
/// reads the mailboxes of all other ranks.
pub(super) const MOST_RANKS: usize = 64;
/// Number of mailbox slots of a transport: the maximum number of communicators in which a rank can
/// have a mailbox at the same time.
pub(super) const PLACES: usize = 64;
/// Maximum size of a mailbox message, in bytes.
pub(super) const ROOM: usize = sync::size(2048, 16);
/// Number of blocks in a mailbox; each block holds one message. `PAGES` is the number of pages for
/// messages that do not fit into a block.
const BLOCKS: u64 = sync::size(32, 2) as u64;
const PAGES: u64 = sync::size(8, 1) as u64;

/// Alignment of mailboxes, blocks and pages in bytes: two cache lines, because the adjacent-line
/// prefetcher fetches line pairs.
const ALIGN: usize = 128;
/// Offset in a mailbox of the 64-bit word that contains the ID plus 1 of the communicator that uses
/// the mailbox or used it last, and the flags `GONE` and `LEFT`. The word is 0 if no communicator
/// has used the mailbox.
const USER_AT: usize = 0;
/// Flag in the word at `USER_AT`: the mailbox's owner has dropped its view of the communicator's
/// mailboxes.
const GONE: u64 = 1 << 63;
/// Flag in the word at `USER_AT`: the mailbox's owner is destroying the communicator. Other threads
/// of the owner may still use the mailbox briefly.
const LEFT: u64 = 1 << 62;
/// Offset in a mailbox of the word with the number of the last message that the mailbox's owner has
/// finished; the owner no longer reads any rank's message with this number. The high 32 bits of the
/// word are the communicator ID; its low 32 bits are the low 32 bits of the message number.
const OVER_AT: usize = 8;
const BLOCKS_AT: usize = ALIGN;
const BLOCK: usize = ALIGN;
/// Size of a block's header in bytes: a 64-bit word with the stamp (communicator ID and message
/// number), then a 64-bit word with the tag (`what`) and the length of the message.
const WORDS: usize = 16;
/// Maximum size of a message that fits into a block, in bytes.
const SMALL: usize = sync::size(BLOCK - WORDS, 8);
const PAGES_AT: usize = BLOCKS_AT + BLOCKS as usize * BLOCK;
/// Size of a mailbox, in bytes.
pub(super) const SHEET: usize = (PAGES_AT + PAGES as usize * ROOM).next_multiple_of(ALIGN);

/// One rank's view of the mailboxes of all ranks of a communicator.
pub(super) struct MailboxView {
    /// Memory of all mailbox slots (a slot contains one mailbox per rank).
    memory: Span,
    /// Byte offset of each rank's mailbox, indexed by rank in the communicator (at most
    /// `MOST_RANKS` ranks).
    members: Box<[u32]>,
    /// Byte offset of this rank's own mailbox.
    own: usize,
    context: u32,
    /// Number of the latest messages that all ranks are known to have finished reading: no rank
    /// reads messages with this number any more.
    known: AtomicU64,
}

fn user_word(memory: &Span, mailbox: usize) -> Option<&AtomicU64> {
    memory.word(mailbox + USER_AT)
}

/// Returns the word at offset `USER_AT` of a mailbox, with the flag `LEFT` cleared; 0 if the offset
/// `mailbox` is out of bounds.
fn user(memory: &Span, mailbox: usize) -> u64 {
    user_word(memory, mailbox).map_or(0, |word| word.load(Acquire) & !LEFT)
}

impl MailboxView {
    /// Creates this rank's view of the mailboxes of a communicator, and stores `context` + 1 at
    /// `USER_AT` in this rank's mailbox. `context` is the communicator's ID. `members[i]` is the
    /// offset of the mailbox of rank i of the communicator; `own` is the offset of this rank's
    /// mailbox.
    pub(super) fn new(memory: Span, members: Box<[u32]>, own: usize, context: u32) -> Self {
        if let Some(word) = user_word(&memory, own) {
            word.store(u64::from(context) + 1, Release);
        }
        MailboxView { memory, members, own, context, known: AtomicU64::new(0) }
    }

    fn block(mailbox: usize, number: u64) -> usize {
        mailbox + BLOCKS_AT + (number % BLOCKS) as usize * BLOCK
    }

    fn page(&self, mailbox: usize, number: u64, len: usize) -> Region {
        self.memory
            .region()
            .part(mailbox + PAGES_AT + (number % PAGES) as usize * ROOM, len.min(ROOM))
    }

    /// Returns the stamp of message `number`: the communicator's ID and the low 32 bits of
    /// `number`. The low 32 bits are unambiguous: each rank writes a message for every number, so
    /// the message in a block is at most `BLOCKS` messages old.
    fn stamp(&self, number: u64) -> u64 {
        u64::from(self.context) << 32 | u64::from(number as u32)
    }

    /// Reads from each mailbox the number of the last message that the mailbox's owner has finished
    /// reading. Returns true if all ranks have finished reading message `number - ahead`.
    #[cold]
    fn is_free(&self, number: u64, ahead: u64) -> bool {
        let known = self
            .members
            .iter()
            .map(|mailbox| self.over(*mailbox as usize, number))
            .min()
            .unwrap_or(0);
        self.known.store(known, Relaxed);
        known + ahead >= number
    }

    /// Returns the number of the last message that the mailbox's owner has finished reading; 0 if
    /// the owner has not finished any message of this communicator. `number` is the current message
    /// number of this rank, which determines the high bits of the result.
    fn over(&self, mailbox: usize, number: u64) -> u64 {
        let word = self.memory.word(mailbox + OVER_AT).map_or(0, |word| word.load(Acquire));
        if word >> 32 != u64::from(self.context) {
            // The word was written for an earlier communicator.
            return 0;
        }
        // The owner is at most the number of blocks ahead of or behind this rank, so 32 bits
        // suffice.
        let ahead = (word as u32).wrapping_sub(number as u32) as i32;
        number.saturating_add_signed(i64::from(ahead))
    }

    fn add_to_user(&self, mark: u64) {
        if let Some(word) = user_word(&self.memory, self.own) {
            word.fetch_or(mark, Release);
        }
    }
}

impl CollMailbox for MailboxView {
    fn room(&self) -> usize {
        ROOM
    }

    /// Writes `data` as message `number`. Numbers start at 1 and are consecutive; the caller must
    /// have finished the preceding message. Returns false if another rank may still be reading the
    /// block or page that the message needs.
    #[inline]
    fn post(&self, number: u64, what: u32, data: Region) -> bool {
        let is_small = data.len() <= SMALL;
        let ahead = if is_small { BLOCKS } else { PAGES };
        if self.known.load(Relaxed) + ahead < number && !self.is_free(number, ahead) {
            return false;
        }
        let block = self.memory.block(Self::block(self.own, number), SMALL);
        let Some(([stamp, words], bytes)) = block else { return false };
        match is_small {
            true => bytes.part(0, data.len()).copy_from(data),
            false => self.page(self.own, number, data.len()).copy_from(data),
        }
        words.store(u64::from(what) << 32 | data.len() as u64, Relaxed);
        stamp.store(self.stamp(number), Release);
        // Prefetches the block of `number + 2` for writing, because its cache lines are in the
        // caches of the other ranks since the previous round. The block of `number + 1` is not
        // prefetched, because other ranks may already poll it.
        self.memory.will_write(Self::block(self.own, number + 2));
        true
    }

    /// Returns message `number` from `rank`, or `None` if it has not been published yet. The data
    /// is valid until the calling rank calls `finish(number)`.
    fn look(&self, rank: i32, number: u64) -> Option<Post> {
        let mailbox = *self.members.get(rank as usize)? as usize;
        let at = Self::block(mailbox, number);
        let ([stamp, words], bytes) = self.memory.block(at, SMALL)?;
        if stamp.load(Acquire) != self.stamp(number) {
            return None;
        }
        let words = words.load(Relaxed);
        let len = words as u32 as usize;
        let data = if len <= SMALL { bytes.part(0, len) } else { self.page(mailbox, number, len) };
        Some(Post { what: (words >> 32) as u32, data })
    }

    /// Records that this rank has finished message `number`. `met` is true if this rank has read
    /// message `number` from all other ranks.
    fn finish(&self, number: u64, met: bool) {
        if met {
            self.known.store(number - 1, Relaxed);
        }
        if let Some(word) = self.memory.word(self.own + OVER_AT) {
            word.store(self.stamp(number), Release);
        }
    }

    /// Sets the flag `LEFT` in this rank's mailbox: this rank has left the communicator and does
    /// not write any further messages.
    fn leave(&self) {
        self.add_to_user(LEFT);
    }

    /// Returns true if `rank` has left the communicator. The flag `LEFT` stays set, because the
    /// rank's mailbox is reused only after this view is dropped. If the function returns true, all
    /// earlier messages from `rank` are visible to the caller.
    fn has_left(&self, rank: i32) -> bool {
        let word = self
            .members
            .get(rank as usize)
            .and_then(|mailbox| user_word(&self.memory, *mailbox as usize));
        let user = LEFT | (u64::from(self.context) + 1);
        word.is_some_and(|word| word.load(Acquire) & !GONE == user)
    }
}

impl Drop for MailboxView {
    fn drop(&mut self) {
        self.add_to_user(GONE);
    }
}

/// State of one rank's mailbox in each slot (a slot contains one mailbox per rank). The state
/// determines whether the slot can be reused.
#[derive(Default)]
pub(super) struct Places {
    /// State of each slot, up to the highest slot that was used.
    all: Vec<SlotState>,
}

#[derive(Default)]
enum SlotState {
    /// No other rank reads this rank's mailbox in the slot.
    #[default]
    Free,
    /// Reserved for a communicator that is being created.
    Reserved,
    /// The slot is or was used by at least one communicator; `Last` describes the most recent user.
    Used(Last),
}

struct Last {
    memory: Span,
    /// Value of the word at `USER_AT` in a rank's mailbox while that rank uses the communicator:
    /// the communicator's ID plus 1.
    user: u64,
    members: Box<[Reader]>,
}

/// Another rank, which reads this rank's mailbox.
struct Reader {
    /// The reader's rank in the transport.
    rank: usize,
    mailbox: usize,
    /// Value of the word at `USER_AT` in the reader's mailbox when this rank created its own view.
    /// The value does not change until the reader creates its view.
    before: u64,
}

impl Last {
    /// Returns true if no other rank of the communicator can still read this rank's mailbox.
    /// Ignores ranks for which `is_gone` returns true.
    fn is_over(&self, is_gone: impl Fn(usize) -> bool) -> bool {
        self.members.iter().all(|member| {
            let now = user(&self.memory, member.mailbox);
            now == GONE | self.user
                || (now != self.user && now != member.before)
                || is_gone(member.rank)
        })
    }
}

impl Places {
    /// Reserves a slot (which contains one mailbox per rank) for this rank's mailbox in a new
    /// communicator. Returns the slot, and true if the slot is used for the first time; `None` if
    /// no slot is free. Slot 0 is reserved for the communicator of all ranks.
    pub(super) fn reserve(&mut self, is_gone: impl Fn(usize) -> bool) -> Option<(usize, bool)> {
        let known = self.all.len().max(1);
        self.all.resize_with(known, SlotState::default);
        let is_free = |place: &SlotState| match place {
            SlotState::Free => true,
            SlotState::Reserved => false,
            SlotState::Used(last) => last.is_over(&is_gone),
        };
        let place = match self.all.iter().skip(1).position(is_free) {
            Some(before) => before + 1,
            None if known < PLACES => known,
            None => return None,
        };
        self.set(place, SlotState::Reserved);
        Some((place, place == known))
    }

    /// Releases a mailbox slot that was reserved but is not used by a communicator.
    pub(super) fn release(&mut self, place: u32) {
        if let Some(reserved @ SlotState::Reserved) = self.all.get_mut(place as usize) {
            *reserved = SlotState::Free;
        }
    }

    /// Removes mailbox slot `place`, which must be the last one, after a failure to allocate its
    /// memory.
    pub(super) fn forget(&mut self, place: usize) {
        self.all.truncate(place);
    }

    fn set(&mut self, place: usize, content: SlotState) {
        if self.all.len() <= place {
            self.all.resize_with(place + 1, SlotState::default);
        }
        if let Some(entry) = self.all.get_mut(place) {
            *entry = content;
        }
    }

    /// Creates this rank's view of the mailboxes of a communicator. This rank's own mailbox is in a
    /// reserved slot, or in slot 0, which only one communicator ever uses. `ranks`: number of ranks
    /// of the transport; `own`: this rank. `memory`: memory of all slots.
    pub(super) fn open(
        &mut self,
        memory: Option<Span>,
        (ranks, own): (usize, usize),
        context: u32,
        members: &[Member],
    ) -> Result<MailboxView> {
        let at = |member: &Member| (member.rank.unsigned_abs() as usize, member.place as usize);
        let mailbox = |member: &Member| {
            let (rank, place) = at(member);
            mailboxes_at(ranks, place, rank..rank + 1).start
        };
        let Some(mine) = members.iter().find(|member| at(member).0 == own) else {
            return fail!(DTL_ERROR_INTERNAL, "rank {own} has no mailbox in its own communicator");
        };
        let Some(memory) = memory else {
            self.release(mine.place);
            return fail!(DTL_ERROR_INTERNAL, "the mailbox slots are outside the shared memory");
        };
        // Offsets are far below 4 GiB (`MOST_RANKS`); an offset outside the span resolves to no
        // memory.
        let offsets = members
            .iter()
            .map(|member| u32::try_from(mailbox(member)).unwrap_or(u32::MAX))
            .collect();
        let view = MailboxView::new(memory.clone(), offsets, mailbox(mine), context);
        let (_, place) = at(mine);
        if place > 0 {
            let reader = |member: &Member| {
                let ((rank, _), mailbox) = (at(member), mailbox(member));
                Reader { rank, mailbox, before: user(&memory, mailbox) }
            };
            let members = members.iter().map(reader).collect();
            let user = u64::from(context) + 1;
            self.set(place, SlotState::Used(Last { memory, user, members }));
        }
        Ok(view)
    }
}

/// Returns the byte range of the mailboxes of ranks `of` in slot `place`.
pub(super) fn mailboxes_at(ranks: usize, place: usize, of: Range<usize>) -> Range<usize> {
    let first = place * place_bytes(ranks);
    first + of.start * SHEET..first + of.end * SHEET
}

/// Returns the size of a slot (one mailbox per rank) in bytes: whole memory pages, because each
/// slot is allocated separately.
pub(super) fn place_bytes(ranks: usize) -> usize {
    (ranks * SHEET).next_multiple_of(sync::size(4096, ALIGN))
}

#[cfg(test)]
#[path = "tests/coll_mailbox.rs"]
mod tests;
