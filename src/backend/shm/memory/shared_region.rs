//! Memory of one rank that all ranks of the segment access with loads and stores: a separate range
//! (part) of the segment's file, which each rank maps. Its pages are allocated before any other
//! rank receives the key of the range, and freed when the last rank releases the range; a rank that
//! died counts as having released it.
//!
//! Ranges are never reused, so an old key refers to a hole in the file. The header of a part
//! contains a count of the ranks that have the part mapped. A rank that reads a count of 0 can no
//! longer map the part. The header also has a bit for each of these ranks, for the one case in
//! which the count is not sufficient: only ranks that have died remain. Each rank clears its bit
//! before it decrements the count. The rank that decrements the count to the number of dead ranks
//! whose bits are still set is the last one: no rank reads the header afterwards.

use super::segment::{MOST_RANKS, PeerState, Segment};
use crate::backend::os_error::memory_error;
use crate::backend::shm::transport;
use crate::error::{Result, fail, failure};
use crate::runtime::component::{self, PART_WORDS, PartKey, part_is_gone};
use crate::sys::memory::buf::Region;
use crate::sys::memory::host_pages::page_size;
use crate::sys::os::shm_segment::{SharedMapping, Span};
use crate::sys::sync::{AtomicUpdate, wait};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Offset of the number of ranks that have this shared window memory mapped. The number is 0 before
/// the memory is created and after the last rank has released it.
const LIVES_AT: usize = 0;
const NONCE_AT: usize = 8;
/// Offset of the word that contains the size of the data in bytes.
const LEN_AT: usize = 16;
/// Offset of the bit set of the ranks that have the part (shared window memory) mapped.
const BITS_AT: usize = 128;
const BIT_WORDS: usize = MOST_RANKS / 64;
const WORDS_AT: usize = 512;
const DATA_AT: usize = WORDS_AT + 8 * PART_WORDS;

/// Factory for the shared window memory of one rank. Creates and maps parts of the segment's file.
#[derive(Clone)]
pub(crate) struct Parts {
    segment: Arc<Segment>,
    rank: usize,
    opener: u32,
}

/// Shared window memory, mapped in this process.
struct ShmRegion {
    parts: Parts,
    memory: Arc<SharedMapping>,
    span: Span,
    key: PartKey,
    len: usize,
}

fn span_of(memory: &Arc<SharedMapping>) -> Result<Span> {
    memory
        .span(0, memory.len())
        .ok_or_else(|| failure!(DTL_ERROR_INTERNAL, "a part lies outside of its memory"))
}

/// Returns the size of shared window memory with `bytes` bytes of data and a header, rounded up to
/// whole pages; `None` on overflow.
fn room(bytes: usize) -> Option<usize> {
    bytes.checked_add(DATA_AT)?.checked_next_multiple_of(page_size())
}

impl Parts {
    pub(crate) fn new(segment: Segment, rank: usize, opener: u32) -> Self {
        Parts { segment: Arc::new(segment), rank, opener }
    }

    /// Returns the segment, for callers that must not wait for the lock of the protocol engine.
    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Returns true if no rank is known to have left or died.
    pub(crate) fn is_quiet(&self) -> bool {
        self.segment.changes() == 0
    }

    /// Allocates shared window memory of `bytes` bytes.
    pub(crate) fn offer(&self, bytes: usize) -> Result<Box<dyn component::SharedRegion>> {
        let place = room(bytes).and_then(|room| Some((self.segment.reserve_part(room)?, room)));
        let Some((offset, room)) = place else {
            return fail!(
                DTL_ERROR_OUT_OF_MEMORY,
                "{bytes} bytes of shared memory are more than a file can have"
            );
        };
        let what = |error| memory_error(&format!("{bytes} bytes of shared memory"), &error);
        let memory = self.segment.memory().extend(offset, room).map_err(what)?;
        let key = [offset as u64, (wait::now_ns() << 12) ^ (offset as u64).rotate_left(32) | 1];
        let span = span_of(&memory)?;
        let begin =
            [(NONCE_AT, key[1], Relaxed), (LEN_AT, bytes as u64, Relaxed), (LIVES_AT, 1, Release)];
        for (at, content, order) in begin {
            if let Some(word) = span.word(at) {
                word.store(content, order);
            }
        }
        Ok(self.part(memory, span, key, bytes))
    }

    /// Maps window memory of `rank`; fails with NOT_FOUND if `key` is no longer valid.
    pub(crate) fn find(&self, rank: i32, key: PartKey) -> Result<Box<dyn component::SharedRegion>> {
        let failed = |error| memory_error(&format!("mapping memory of rank {rank}"), &error);
        let (offset, len, room) = self.look_up(key).ok_or_else(|| part_is_gone(rank))?;
        let memory = self.segment.memory().range(offset, room).map_err(failed)?;
        // The last user may release the part at this moment: then its range is a hole, for which
        // there may be no memory.
        memory.commit(0, page_size()).map_err(failed)?;
        let span = span_of(&memory)?;
        let enter = |lives: u64| if lives > 0 { lives.checked_add(1) } else { None };
        let lives =
            span.word(LIVES_AT).and_then(|word| word.checked_update(AcqRel, Acquire, enter).ok());
        if lives.is_none() {
            return Err(part_is_gone(rank));
        }
        Ok(self.part(memory, span, key, len))
    }

    /// Wraps mapped shared window memory, and sets this rank's bit in the header of this memory.
    /// The count of ranks in the header already includes this rank.
    fn part(
        &self,
        memory: Arc<SharedMapping>,
        span: Span,
        key: PartKey,
        len: usize,
    ) -> Box<dyn component::SharedRegion> {
        if let Some(word) = span.word(BITS_AT + self.rank / 64 * 8) {
            word.fetch_or(1 << (self.rank % 64), Relaxed);
        }
        Box::new(ShmRegion { parts: self.clone(), memory, span, key, len })
    }

    /// Returns the offset of a part (shared window memory), and the sizes of its data and of the
    /// whole part, from its header; `None` if `key` is not valid. This function copies the header
    /// without mapping the part, so the values may already be outdated when it returns.
    fn look_up(&self, key: PartKey) -> Option<(usize, usize, usize)> {
        let offset = usize::try_from(key[0]).ok()?;
        if offset % page_size() != 0 || offset < self.segment.parts_at() {
            return None;
        }
        let mut bytes = [0; 24];
        self.segment.memory().peek(offset, &mut bytes).ok()?;
        let mut words =
            bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
        let (lives, nonce, len) = (words.next()?, words.next()?, words.next()?);
        let len = usize::try_from(len).ok()?;
        (lives > 0 && nonce == key[1]).then_some((offset, len, room(len)?))
    }
}

impl component::SharedRegion for ShmRegion {
    fn region(&self) -> Region {
        self.span.region().part(DATA_AT, self.len)
    }

    fn words(&self) -> &[AtomicU64] {
        self.span.words(WORDS_AT, PART_WORDS).unwrap_or_default()
    }

    fn key(&self) -> PartKey {
        self.key
    }
}

impl ShmRegion {
    /// Returns the number of ranks that died while they had the shared window memory mapped.
    fn dead(&self) -> u64 {
        let is_dead = |rank: usize| self.parts.segment.state(rank) == PeerState::Dead;
        let of_word = |(index, word): (usize, &AtomicU64)| {
            let bits = word.load(Acquire);
            (0..64).filter(|bit| bits >> bit & 1 == 1 && is_dead(64 * index + bit)).count() as u64
        };
        self.span
            .words(BITS_AT, BIT_WORDS)
            .unwrap_or_default()
            .iter()
            .enumerate()
            .map(of_word)
            .sum()
    }

    /// Removes this rank from the header of the shared window memory; returns true if no other live
    /// rank has that memory mapped.
    fn leave(&self) -> bool {
        let rank = self.parts.rank;
        if let Some(word) = self.span.word(BITS_AT + rank / 64 * 8) {
            word.fetch_and(!(1 << (rank % 64)), Relaxed);
        }
        let dead = self.dead();
        let Some(lives) = self.span.word(LIVES_AT) else { return false };
        let left = lives.fetch_sub(1, AcqRel).wrapping_sub(1);
        // Only the last living user finds that just dead users remain. If living users remain, this
        // process does not read the header again.
        left == 0 || (left == dead && lives.compare_exchange(left, 0, AcqRel, Relaxed).is_ok())
    }
}

impl Drop for ShmRegion {
    fn drop(&mut self) {
        // A forked child's copy must not release its parent's part.
        if transport::is_opener(self.parts.opener) && self.leave() {
            self.memory.discard();
        }
    }
}

#[cfg(test)]
#[path = "tests/shared_region.rs"]
mod tests;
