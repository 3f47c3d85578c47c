//! Models of the remote-free list: other threads free blocks while the owner takes them back.

#[path = "../../../../../src/sys/memory/heap/remote_free.rs"]
mod remote_free;

use crate::Model;
use crate::sys::sync::{AtomicU64, Ordering};
use loom::cell::UnsafeCell;
use loom::thread;
use remote_free::{LIVE, RemoteFreeList};
use std::sync::Arc;

pub const ALL: &[Model] = &[
    ("heap: two send, the owner takes", two_send),
    ("heap: two that free one block", freed_twice),
];

/// Three blocks of one owner, numbered from 1: their state words, and the data that their users
/// wrote.
#[derive(Default)]
struct Owner {
    mail: RemoteFreeList,
    words: [AtomicU64; 3],
    bytes: [UnsafeCell<u64>; 3],
}

// SAFETY: loom watches over the cells.
unsafe impl Sync for Owner {}

impl Owner {
    fn with_live_blocks() -> Arc<Owner> {
        let owner = Owner::default();
        owner.words.iter().for_each(|word| word.store(LIVE, Ordering::Relaxed));
        Arc::new(owner)
    }

    /// Frees a block of another thread as `Heap::free_apart` does.
    fn free_from_elsewhere(&self, block: usize) -> bool {
        let word = &self.words[block - 1];
        let head = self.mail.peek();
        let won = word.load(Ordering::Relaxed) == LIVE && remote_free::claim(word, LIVE, head);
        if won {
            self.mail.push(word, head, block as u64);
        }
        won
    }

    /// Collects the returned blocks as `Heap::collect` does.
    fn collect(&self) -> Vec<usize> {
        let mut back = Vec::new();
        let mut at = self.mail.take() as usize;
        while at != 0 {
            let Some(next) = remote_free::next(&self.words[at - 1]) else { break };
            self.words[at - 1].store(0, Ordering::Relaxed);
            // SAFETY: loom fails the model if its last user may still be writing.
            self.bytes[at - 1].with_mut(|bytes| unsafe { *bytes = 0 });
            back.push(at);
            at = next as usize;
        }
        back
    }

    fn write(&self, block: usize) {
        // SAFETY: loom fails the model if somebody else uses it meanwhile.
        self.bytes[block - 1].with_mut(|bytes| unsafe { *bytes = 1 });
    }
}

fn two_send() {
    let owner = Owner::with_live_blocks();
    let others: Vec<_> = [vec![1, 2], vec![3]]
        .into_iter()
        .map(|blocks| {
            let owner = Arc::clone(&owner);
            thread::spawn(move || {
                for block in blocks {
                    owner.write(block);
                    assert!(owner.free_from_elsewhere(block));
                }
            })
        })
        .collect();
    let mut back = owner.collect();
    others.into_iter().for_each(|other| other.join().unwrap());
    back.extend(owner.collect());
    back.sort_unstable();
    assert_eq!(back, [1, 2, 3], "every block comes back once");
}

fn freed_twice() {
    let owner = Owner::with_live_blocks();
    let other = Arc::clone(&owner);
    let other = thread::spawn(move || other.free_from_elsewhere(2));
    let here = owner.free_from_elsewhere(2);
    assert_ne!(here, other.join().unwrap(), "one of them is told");
    assert_eq!(owner.collect(), [2]);
}
