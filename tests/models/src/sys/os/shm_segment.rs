//! Shared memory of the library as units of eight bytes. Each unit is a loom atomic (for accesses
//! as a word) and a loom cell (for accesses as bytes, where loom rejects unordered accesses).

use crate::sys::memory::buf::{Place, Region};
use crate::sys::sync::AtomicU64;
use std::ops::Deref;
use std::sync::Arc;

pub struct SharedMapping {
    places: Box<[Place]>,
}

impl SharedMapping {
    pub fn create(len: usize) -> Arc<Self> {
        Arc::new(SharedMapping { places: (0..len / 8).map(|_| Place::default()).collect() })
    }

    pub fn commit(&self, _offset: usize, _len: usize) -> std::io::Result<()> {
        Ok(())
    }

    pub fn len(&self) -> usize {
        8 * self.places.len()
    }

    pub fn region(&self) -> Region {
        Region::over(&self.places)
    }

    pub fn word(self: &Arc<Self>, offset: usize) -> Option<SharedWord> {
        let inside = offset % 8 == 0 && offset + 8 <= self.len();
        inside.then(|| SharedWord { memory: Arc::clone(self), index: offset / 8 })
    }

    pub fn span(self: &Arc<Self>, offset: usize, len: usize) -> Option<Span> {
        let inside = offset % 8 == 0 && offset + len <= self.len();
        inside.then(|| Span { memory: Arc::clone(self), offset, len })
    }
}

pub struct SharedWord {
    memory: Arc<SharedMapping>,
    index: usize,
}

impl Deref for SharedWord {
    type Target = AtomicU64;
    fn deref(&self) -> &AtomicU64 {
        &self.memory.places[self.index].word
    }
}

#[derive(Clone)]
pub struct Span {
    memory: Arc<SharedMapping>,
    offset: usize,
    len: usize,
}

impl Span {
    pub fn region(&self) -> Region {
        self.memory.region().part(self.offset, self.len)
    }

    pub fn word(&self, offset: usize) -> Option<&AtomicU64> {
        let inside = offset % 8 == 0 && offset + 8 <= self.len;
        inside.then(|| &self.memory.places[(self.offset + offset) / 8].word)
    }

    /// Does nothing; a prefetch hint in the library.
    pub fn will_write(&self, _offset: usize) {}

    /// Does nothing; a prefetch hint in the library.
    pub fn will_read(&self, _offset: usize) {}

    pub fn block(&self, offset: usize, len: usize) -> Option<([&AtomicU64; 2], Region)> {
        let words = [self.word(offset)?, self.word(offset + 8)?];
        Some((words, self.region().part(offset + 16, len)))
    }
}
