//! State of a block in one word, and the return of a block that another thread has freed.
//!
//! The word of a block has its state: LIVE with size, kind and tag; SENT: freed by a thread that
//! does not own the slab, on its way to the owner; otherwise free, with the address of the next
//! free block. Only the owner of a slab makes its blocks live and frees them directly, by plain
//! stores. Another thread claims a block with a compare-and-swap from LIVE to SENT, which only one
//! of several threads can win, and pushes the block onto the owner's remote-free list (the mail).
//! The owner takes the whole list with one exchange. Only the owner takes from the list, so a block
//! cannot come back between the load and the swap of a push (no ABA).
//!
//! Memory ordering. The accesses of the freeing thread to the bytes of the block come before its
//! push (release). The owner's exchange (acquire) sees them, also for pushes further down: each
//! push is a read-modify-write of the one head, so it belongs to the release sequence of earlier
//! pushes. The word of a listed block is written before the push that publishes it. `tests/models`
//! has the model.
//!
//! If two threads free one block at the same moment and one of them is the owner, both calls may
//! return success: the owner's plain store may cross the other thread's swap. So the words of
//! listed blocks are changed by compare-and-swap too, and an owner that finds a block in its list
//! whose word is not SENT skips the rest of that list: memory may be lost until the end, but no
//! block is allocated twice.

use crate::sys::sync::{AtomicU64, Ordering};

/// State bit of a block in use.
pub(super) const LIVE: u64 = 1 << 63;
/// State bit of a block in a remote-free list.
pub(super) const SENT: u64 = 1 << 62;
/// Bit position of the tag in a LIVE word. LIVE, SENT and tag are the upper bits, which a free
/// compares.
pub(super) const TAG_SHIFT: u32 = 48;
/// Bit position of the kind in a LIVE word.
pub(super) const KIND_SHIFT: u32 = 43;
/// Mask of the size in a LIVE word.
pub(super) const SIZE: u64 = (1 << KIND_SHIFT) - 1;

/// List of blocks that other threads have freed, for the owner of their slabs.
#[derive(Default)]
pub(super) struct RemoteFreeList {
    /// Address of the block that was pushed last; 0 if the list is empty.
    head: AtomicU64,
}

impl RemoteFreeList {
    /// Returns the block that was pushed last, for `claim`; 0 if the list is empty.
    pub(super) fn peek(&self) -> u64 {
        self.head.load(Ordering::Relaxed)
    }

    /// Pushes a block that was claimed with `head`, the result of `peek`. `block` (not 0) is the
    /// address by which the owner finds the block.
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

    /// Takes the whole list and returns the block pushed last, or 0 if the list is empty. `next` of
    /// a block's word leads to the other blocks.
    #[must_use]
    pub(super) fn take(&self) -> u64 {
        self.head.swap(0, Ordering::Acquire)
    }
}

/// Claims a block that was LIVE with the word `was`, for a thread that does not own it. `head` is
/// the head of its later list, or 0. Returns false if another thread has freed the block.
#[must_use]
pub(super) fn claim(word: &AtomicU64, was: u64, head: u64) -> bool {
    word.compare_exchange(was, SENT | head, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Returns the block after a block of the list, or `None` if `word` is not that of a listed block.
pub(super) fn next(word: &AtomicU64) -> Option<u64> {
    let value = word.load(Ordering::Relaxed);
    (value & SENT != 0).then_some(value & !SENT)
}
