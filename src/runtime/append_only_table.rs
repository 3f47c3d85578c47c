//! Append-only table: slots that are set once and never cleared, so that a lookup takes no lock.
//! The table is used for user-defined dtypes and operations, for members of extensible enumerations
//! (`enums`), and for instances of parameterized members (templates). Memory is allocated a chunk
//! at a time. Objects that can be destroyed use `sys::handles::handle_table` instead.
//!
//! Memory ordering: each slot is a `OnceLock`, whose `set` publishes the value with release and
//! whose `get` reads it with acquire. A chunk is a `OnceLock`, too. No other ordering is needed: a
//! thread that finds a slot empty and is about to set it checks the slot again under the caller's
//! lock.

use std::sync::OnceLock;

/// Number of slots (table entries) in a chunk, the unit of allocation.
pub(super) const CHUNK: usize = 1 << 8;

/// Append-only table of `CHUNKS * CHUNK` slots (table entries).
pub(super) struct AppendOnlyTable<T: 'static, const CHUNKS: usize> {
    chunks: [OnceLock<Box<[OnceLock<T>]>>; CHUNKS],
}

impl<T, const CHUNKS: usize> AppendOnlyTable<T, CHUNKS> {
    /// Creates a table whose slots are all empty.
    pub(super) const fn new() -> Self {
        AppendOnlyTable { chunks: [const { OnceLock::new() }; CHUNKS] }
    }

    /// Returns the value in a slot; `None` if the slot is empty or the index is out of range.
    pub(super) fn get(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / CHUNK)?.get()?.get(index % CHUNK)?.get()
    }

    /// Sets an empty slot; returns `None` if the slot is already set or the index is out of range.
    pub(super) fn set(&self, index: usize, value: T) -> Option<()> {
        let empty = || (0..CHUNK).map(|_| OnceLock::new()).collect();
        self.chunks.get(index / CHUNK)?.get_or_init(empty).get(index % CHUNK)?.set(value).ok()
    }
}
