//! Allocations of a backend, by address.

use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::RwLock;
use std::collections::BTreeMap;

/// An allocation.
#[derive(Clone, Copy)]
pub struct Block<O> {
    /// Address that the driver returned.
    pub base: Addr,
    /// Bytes from the first one that the caller sees.
    pub size: u64,
    /// Device on which it was allocated.
    pub device: i32,
    /// How it was allocated.
    pub origin: O,
}

/// Live allocations by the first byte that the caller sees.
pub struct Blocks<O>(RwLock<BTreeMap<usize, Block<O>>>);

impl<O> Default for Blocks<O> {
    fn default() -> Self {
        Blocks(RwLock::default())
    }
}

impl<O: Copy> Blocks<O> {
    /// The allocation that contains an address.
    pub fn find(&self, addr: Addr) -> Option<Block<O>> {
        let blocks = self.0.read();
        let (first, block) = blocks.range(..=addr.get()).next_back()?;
        (((addr.get() - first) as u64) < block.size).then_some(*block)
    }

    /// Adds an allocation; returns its first aligned byte.
    pub fn add(&self, block: Block<O>, align: u64) -> Addr {
        let base = block.base;
        let first = base.offset(base.get().next_multiple_of(align.max(1) as usize) - base.get());
        self.insert(first, block);
        first
    }

    /// Adds an allocation whose first byte is known.
    pub fn insert(&self, first: Addr, block: Block<O>) {
        self.0.write().insert(first.get(), block);
    }

    /// Adds an allocation unless one with the same first byte is in the list. False if there is.
    pub fn try_insert(&self, first: Addr, block: Block<O>) -> bool {
        let mut blocks = self.0.write();
        let is_new = !blocks.contains_key(&first.get());
        if is_new {
            blocks.insert(first.get(), block);
        }
        is_new
    }

    /// Removes an allocation by its first byte.
    pub fn remove(&self, first: Addr) -> Option<Block<O>> {
        self.0.write().remove(&first.get())
    }
}
