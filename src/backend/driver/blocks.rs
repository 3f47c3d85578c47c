//! Table of a backend's allocations, keyed by address.

use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::RwLock;
use std::collections::BTreeMap;

/// Allocation of a backend.
#[derive(Clone, Copy)]
pub struct Block<O> {
    /// Address that the driver returned; alignment may place the caller's address above it.
    pub base: Addr,
    /// Size in bytes, counted from the address that the caller received.
    pub size: u64,
    /// Device on which the memory was allocated.
    pub device: i32,
    /// Origin of the allocation: determines how the memory is freed.
    pub origin: O,
}

/// Live allocations, keyed by the address that the caller received.
pub struct Blocks<O>(RwLock<BTreeMap<usize, Block<O>>>);

impl<O> Default for Blocks<O> {
    fn default() -> Self {
        Blocks(RwLock::default())
    }
}

impl<O: Copy> Blocks<O> {
    /// Returns the allocation that contains `addr`; `None` if there is none.
    pub fn find(&self, addr: Addr) -> Option<Block<O>> {
        let blocks = self.0.read();
        let (first, block) = blocks.range(..=addr.get()).next_back()?;
        (((addr.get() - first) as u64) < block.size).then_some(*block)
    }

    /// Adds an allocation with its first address that is a multiple of `align` as the key, and
    /// returns this address.
    pub fn add(&self, block: Block<O>, align: u64) -> Addr {
        let base = block.base;
        let first = base.offset(base.get().next_multiple_of(align.max(1) as usize) - base.get());
        self.insert(first, block);
        first
    }

    /// Adds an allocation under `first`, the address that the caller receives.
    pub fn insert(&self, first: Addr, block: Block<O>) {
        self.0.write().insert(first.get(), block);
    }

    /// Adds an allocation under the address `first` and returns true. Returns false, and leaves the
    /// table unchanged, if the table already contains an allocation at `first`.
    pub fn try_insert(&self, first: Addr, block: Block<O>) -> bool {
        let mut blocks = self.0.write();
        let is_new = !blocks.contains_key(&first.get());
        if is_new {
            blocks.insert(first.get(), block);
        }
        is_new
    }

    /// Removes and returns the allocation at address `first`; `None` if there is none.
    pub fn remove(&self, first: Addr) -> Option<Block<O>> {
        self.0.write().remove(&first.get())
    }
}
