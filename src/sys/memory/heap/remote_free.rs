//! State word of a block, and the remote-free list, through which a block that another thread has
//! freed returns to its owner.
//!
//! Each block has a state word. LIVE: the block is allocated; the word also contains its size, and
//! the kind and the tag (two numbers) that the caller of the allocator has assigned to it. SENT: a
//! thread that does not own the slab has freed the block, and the owner has not collected it yet.
//! Otherwise the block is free, and the word is the address of the next free block. Only the owner
//! of a slab (the heap that allocates from it) allocates its blocks and frees them directly, by
//! plain stores. Another thread frees a block with a compare-and-swap of the word from LIVE to
//! SENT, which succeeds in only one of several threads, and pushes the block onto the owner's
//! remote-free list. The owner takes the whole list with one exchange. Only the owner removes
//! blocks from the list, so a block cannot be back in the list between the load and the
//! compare-and-swap of a push (no ABA problem).
//!
//! Memory ordering: The freeing thread accesses the bytes of the block before its push (release).
//! These accesses happen before the owner's exchange (acquire), for every block in the list: each
//! push is a read-modify-write of the same head, so it belongs to the release sequences of the
//! earlier pushes. The state word of a listed block is written before the push that publishes it. A
//! loom model in `tests/models` checks this.
//!
//! If two threads free the same block at the same time (an error in the program) and one of them is
//! the owner, both calls may return success: the owner's plain store may overwrite the result of
//! the other thread's compare-and-swap. So a push changes the word of its block by compare-and-swap
//! too, and an owner that finds a block in its list whose word is not SENT skips the rest of that
//! list. The skipped blocks may be lost until all memory is unmapped, but no block is allocated
//! twice.

use crate::sys::sync::{AtomicU64, Ordering};

/// State bit of an allocated block.
pub(super) const LIVE: u64 = 1 << 63;
/// State bit of a block that another thread has freed and that the owner has not collected yet.
pub(super) const SENT: u64 = 1 << 62;
/// Bit position of the tag in the state word of an allocated block. Before a block is freed, this
/// bit and all higher bits (tag, SENT and LIVE) are compared with their expected values.
pub(super) const TAG_SHIFT: u32 = 48;
/// Bit position of the kind (a number from 0 to 31 that the caller assigns) in the state word of an
/// allocated block.
pub(super) const KIND_SHIFT: u32 = 43;
/// Bit mask that selects the size in bytes from the state word of an allocated block.
pub(super) const SIZE: u64 = (1 << KIND_SHIFT) - 1;

/// List of the blocks that belong to one owner and that other threads have freed.
#[derive(Default)]
pub(super) struct RemoteFreeList {
    /// Address of the block that was pushed last; 0 if the list is empty.
    head: AtomicU64,
}

impl RemoteFreeList {
    /// Returns the address of the block that was pushed last, to pass to [`claim`]; 0 if the list
    /// is empty.
    pub(super) fn peek(&self) -> u64 {
        self.head.load(Ordering::Relaxed)
    }

    /// Pushes the block with the state word `word` and the address `block` (not 0) onto the list.
    /// `head` is the address that the caller has obtained from `peek` and passed to [`claim`] for
    /// this block. Does not push the block if it detects that the owner has freed the block in the
    /// meantime.
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

    /// Empties the list and returns the address of the block that was pushed last, or 0 if the list
    /// is empty. [`next`] returns the address of the block after it.
    #[must_use]
    pub(super) fn take(&self) -> u64 {
        self.head.swap(0, Ordering::Acquire)
    }
}

/// Marks a block as freed (SENT) if its state word is still `was`. Called by threads that do not
/// own the slab and, for a block with a mapping of its own, also by the owner. `head` is the first
/// block of the remote-free list onto which the block will be pushed (0 if the list is empty).
/// Returns false if the state word has changed, for example because another thread has freed the
/// block.
#[must_use]
pub(super) fn claim(word: &AtomicU64, was: u64, head: u64) -> bool {
    word.compare_exchange(was, SENT | head, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Returns the address of the next block of a remote-free list (0 at the end of the list), or
/// `None` if `word` is not the state word of a block in such a list.
pub(super) fn next(word: &AtomicU64) -> Option<u64> {
    let value = word.load(Ordering::Relaxed);
    (value & SENT != 0).then_some(value & !SENT)
}
