//! The life of a block in one word, and how a block comes home that another thread has freed.
//!
//! A word has the state of its block: LIVE with size, kind and tag; SENT: freed by a thread that
//! does not own the slab, on its way to the owner; else free, with the address of the next free
//! block. Only a slab's owner makes its blocks live and takes them back, by plain stores. Another
//! thread claims a block with a compare-and-swap from LIVE to SENT, which one of several can win,
//! and pushes it onto the owner's mail; the owner takes all mail with one exchange. Nobody but the
//! owner takes from it, so a block cannot come back between a push's load and its swap (no ABA).
//!
//! Memory ordering. What the freeing thread did with the block's bytes comes before its push
//! (release); the owner's exchange (acquire) sees it, also for pushes further down: each push is a
//! read-modify-write of the same head, so it belongs to the release sequence of those before. The
//! word of a block in the mail is written before the push that publishes it. `tests/models` has the
//! model.
//!
//! If two threads free one block at the same moment and one of them is the owner, both calls may
//! return success: the owner's plain store may cross the other's swap. So words in the mail are
//! changed by compare-and-swap too, and an owner that finds one in its mail that is not SENT leaves
//! the rest of that mail alone: memory may be lost until the end, none is given out twice.

use crate::sys::sync::{AtomicU64, Ordering};

/// The block is in use.
pub(super) const LIVE: u64 = 1 << 63;
/// The block is in the mail.
pub(super) const SENT: u64 = 1 << 62;
/// Where the tag is in a LIVE word: LIVE, SENT and tag are its upper bits, what a free compares.
pub(super) const TAG_SHIFT: u32 = 48;
/// Where the kind is.
pub(super) const KIND_SHIFT: u32 = 43;
/// The size in a LIVE word.
pub(super) const SIZE: u64 = (1 << KIND_SHIFT) - 1;

/// Blocks that other threads have freed, for the owner of their slabs.
#[derive(Default)]
pub(super) struct RemoteFreeList {
    /// The last one pushed; 0 = none.
    head: AtomicU64,
}

impl RemoteFreeList {
    /// Whether a thread has pushed.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.head.load(Ordering::Relaxed) != 0
    }

    /// The last one pushed, for `claim`.
    pub(super) fn peek(&self) -> u64 {
        self.head.load(Ordering::Relaxed)
    }

    /// Pushes a block that was claimed with what `peek` gave; `block` (not 0) is how the owner
    /// finds it.
    pub(super) fn push(&self, word: &AtomicU64, mut head: u64, block: u64) {
        while let Err(now) =
            self.head.compare_exchange_weak(head, block, Ordering::Release, Ordering::Relaxed)
        {
            let (old, new) = (SENT | head, SENT | now);
            if word.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                return; // the owner has freed it at the same moment: it is back already
            }
            head = now;
        }
    }

    /// Takes all: the block pushed last; `next` of its word leads to the others. 0 = none.
    #[must_use]
    pub(super) fn take(&self) -> u64 {
        self.head.swap(0, Ordering::Acquire)
    }
}

/// Claims a block that was LIVE with the word `was`, for a thread that does not own it. `head` is
/// the mail that it will go to, or 0. False: another thread has freed it.
#[must_use]
pub(super) fn claim(word: &AtomicU64, was: u64, head: u64) -> bool {
    word.compare_exchange(was, SENT | head, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// The block behind one in the mail, or `None` if its word is not that of a block in the mail.
#[must_use]
pub(super) fn next(word: &AtomicU64) -> Option<u64> {
    let value = word.load(Ordering::Relaxed);
    (value & SENT != 0).then_some(value & !SENT)
}
