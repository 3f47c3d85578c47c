//! A table of places that are filled once and never emptied, so that looking takes no lock: dtypes
//! and operations of the program, members of enumerations, their instances. Room is taken a chunk
//! at a time. Not for what goes away: that is in `sys::handles::handle_table`.
//!
//! Ordering: a place is a `OnceLock`, whose `set` publishes with release what `get` reads with
//! acquire; a chunk is one, too. Nothing else is ordered: a thread that finds a place empty and is
//! going to fill it looks again under a lock of the caller's.

use std::sync::OnceLock;

/// Places in a chunk.
pub const CHUNK: usize = 1 << 8;

/// `CHUNKS * CHUNK` places.
pub struct AppendOnlyTable<T: 'static, const CHUNKS: usize> {
    chunks: [OnceLock<Box<[OnceLock<T>]>>; CHUNKS],
}

impl<T, const CHUNKS: usize> AppendOnlyTable<T, CHUNKS> {
    /// All empty.
    #[must_use]
    pub const fn new() -> Self {
        AppendOnlyTable { chunks: [const { OnceLock::new() }; CHUNKS] }
    }

    /// Returns the content of a place; `None`: it is empty, or there is no such place.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / CHUNK)?.get()?.get(index % CHUNK)?.get()
    }

    /// Fills an empty place; `None`: it is not empty, or there is no such place.
    pub fn set(&self, index: usize, value: T) -> Option<()> {
        let empty = || (0..CHUNK).map(|_| OnceLock::new()).collect();
        self.chunks.get(index / CHUNK)?.get_or_init(empty).get(index % CHUNK)?.set(value).ok()
    }
}

impl<T, const CHUNKS: usize> Default for AppendOnlyTable<T, CHUNKS> {
    fn default() -> Self {
        Self::new()
    }
}
