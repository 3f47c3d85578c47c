//! Tables that map 64-bit handles to objects: typed, generational, safe against stale handles and
//! against a destroy that races a use.
//!
//! A handle is `type 8 | index 20 | generation 36`. The word of a slot is the handle of its object.
//! While the slot has no object, the word is the last handle with one bit of its index inverted.
//! Such a word is no valid handle: its index selects another slot. So one compare checks that a
//! handle is of this type, of this slot and live. Readers hold an [`epoch`] guard and access no
//! shared counter; the [`epoch`] module explains why that is safe.

use super::epoch::{self, Guard, Visit};
use super::handle_ref::{EpochRef, HazardRef};
use super::slot_ref::SlotRef;
use crate::sys::sync::lock::Mutex;
use crate::sys::sync::{self, Arc, AtomicPtr, AtomicU64, Ordering, const_fn, hints};
use std::ptr;

const GENERATION_BITS: u32 = 36;
const INDEX_BITS: u32 = 20;
pub(super) const INDEX_LIMIT: usize = 1 << INDEX_BITS;
pub(super) const LAST_GENERATION: u64 = (1 << GENERATION_BITS) - 1;
/// log2 of the number of slots in a chunk. A chunk fills a page and is never moved.
const CHUNK_BITS: u32 = 8;
const CHUNK: usize = sync::size(1 << CHUNK_BITS, 2);
/// Number of chunks. Small for Miri, which checks every chunk wherever a table reference is passed.
const CHUNKS: usize = if cfg!(miri) { 4 } else { sync::size(INDEX_LIMIT >> CHUNK_BITS, 1) };

pub(super) struct HandleSlot<T> {
    /// Handle of the object; with `ELSEWHERE` inverted if there is no object.
    word: AtomicU64,
    /// Pointer from `Arc::into_raw`; null if there is no object.
    object: AtomicPtr<T>,
}

impl<T> HandleSlot<T> {
    /// Returns the object if `handle` is the slot's word; see [`HandleTable::get`].
    #[inline]
    pub(super) fn object_of(&self, handle: u64) -> Option<*const T> {
        let object = self.object.load(Ordering::Acquire).cast_const();
        hints::usually(self.word.load(Ordering::Relaxed) == handle && !object.is_null())
            .then_some(object)
    }
}

/// Lowest bit of an index.
pub(super) const ELSEWHERE: u64 = 1 << GENERATION_BITS;

struct Free {
    indices: Vec<usize>,
    next_fresh: usize,
    live: usize,
}

/// Objects of one type under their handles. A look-up reads only the table's first cache line.
#[repr(C, align(64))]
pub struct HandleTable<T> {
    tag: u8,
    reserved: usize,
    /// Chunks of slots. A chunk is null until the first insert that needs it, and fixed after that.
    chunks: [AtomicPtr<[HandleSlot<T>; CHUNK]>; CHUNKS],
    free: Mutex<Free>,
}

impl<T: Send + Sync + 'static> HandleTable<T> {
    const_fn! {
        /// Creates a table whose handles have the type byte `tag` (not 0). Only
        /// [`HandleTable::put_fixed`] assigns the first `reserved` indices.
        pub fn new(tag: u8, reserved: usize) -> Self {
            HandleTable {
                tag,
                reserved,
                chunks: sync::nulls(),
                free: Mutex::new(Free { indices: Vec::new(), next_fresh: reserved, live: 0 }),
            }
        }
    }

    #[inline]
    fn slot(&self, index: usize) -> Option<&HandleSlot<T>> {
        let chunk = self.chunks.get(index >> CHUNK_BITS)?.load(Ordering::Acquire);
        // SAFETY: null, or a leaked and hence valid chunk.
        hints::usual(unsafe { chunk.as_ref() })?.get(index % CHUNK)
    }

    /// Returns a slot, allocating its chunk if needed. The caller holds the lock of the free
    /// indices, so a chunk is allocated once.
    fn slot_or_grow(&self, index: usize) -> Option<&HandleSlot<T>> {
        let place = self.chunks.get(index >> CHUNK_BITS)?;
        if place.load(Ordering::Relaxed).is_null() {
            let first = index >> CHUNK_BITS << CHUNK_BITS;
            let empty = |index| HandleSlot {
                word: AtomicU64::new(encode(self.tag, index, 0) ^ ELSEWHERE),
                object: AtomicPtr::new(ptr::null_mut()),
            };
            let slots: Box<[HandleSlot<T>]> = (first..first + CHUNK).map(empty).collect();
            let slots: Box<[HandleSlot<T>; CHUNK]> = slots.try_into().ok()?;
            place.store(Box::into_raw(slots), Ordering::Release);
        }
        self.slot(index)
    }

    /// Inserts an object and returns its handle, or `None` if the table is full.
    pub fn insert(&self, object: Arc<T>) -> Option<u64> {
        let mut free = self.free.lock();
        let index = match free.indices.pop() {
            Some(index) => index,
            None if free.next_fresh < INDEX_LIMIT => {
                free.next_fresh += 1;
                free.next_fresh - 1
            }
            None => return None,
        };
        let slot = self.slot_or_grow(index)?;
        let generation = (slot.word.load(Ordering::Relaxed) & LAST_GENERATION) + 1;
        let handle = encode(self.tag, index, generation);
        slot.object.store(Arc::into_raw(object).cast_mut(), Ordering::Release);
        slot.word.store(handle, Ordering::Release);
        free.live += 1;
        Some(handle)
    }

    /// Inserts an object under a handle known beforehand: reserved index, generation 0. Returns
    /// false if the index is in use or not reserved.
    pub fn put_fixed(&self, index: usize, object: Arc<T>) -> bool {
        let mut free = self.free.lock();
        let Some(slot) = self.slot_or_grow(index).filter(|_| index < self.reserved) else {
            return false;
        };
        let handle = encode(self.tag, index, 0);
        if slot.word.load(Ordering::Relaxed) == handle {
            return false;
        }
        slot.object.store(Arc::into_raw(object).cast_mut(), Ordering::Release);
        slot.word.store(handle, Ordering::Release);
        free.live += 1;
        true
    }

    /// Returns the object of a handle, for as long as the guard lives. Writes no shared memory.
    ///
    /// The pointer of the slot is read before its word. A pointer that is not null was in the slot
    /// at a moment when this thread was inside its epoch, and `remove` clears the pointer before it
    /// releases the object: so the object lives as long as the guard. The word then shows whether
    /// the handle is live. A thread that received the handle sees its object, or a later object
    /// whose word differs. A thread that guessed the handle may get the preceding object.
    #[must_use]
    #[inline]
    pub fn get<'g>(&self, _inside: &'g Guard, handle: u64) -> Option<&'g T> {
        let object = self.slot(index_of(handle))?.object_of(handle)?;
        // SAFETY: null, or an object that was in the slot while this thread was inside its epoch:
        // `remove` does not release it before the guard ends.
        unsafe { object.as_ref() }
    }

    /// Returns the slot of a handle, whether its object is in the slot yet or not.
    pub fn slot_ref(&'static self, handle: u64) -> SlotRef<T> {
        let _one_makes_chunks = self.free.lock();
        SlotRef::new(self.slot_or_grow(index_of(handle)))
    }

    /// Returns the object of a handle, for as long as the visit lasts.
    #[inline]
    pub fn visit(&self, visit: Visit, handle: u64) -> Option<EpochRef<T>> {
        let object = ptr::from_ref(self.get(&visit, handle)?);
        Some(EpochRef { object, visit })
    }

    /// Returns true if a handle names an object at this moment.
    pub fn is_live(&self, handle: u64) -> bool {
        self.slot(index_of(handle)).is_some_and(|slot| slot.word.load(Ordering::Acquire) == handle)
    }

    /// Returns a counted reference to the object, which outlives the guard.
    #[must_use]
    pub fn pin(&self, _inside: &Guard, handle: u64) -> Option<Arc<T>> {
        let object = self.slot(index_of(handle))?.object_of(handle)?;
        // SAFETY: `object` is the very pointer of Arc::into_raw (a pointer made from `get`'s
        // reference must not be used for the counters beside the object), not null, and the table's
        // own counted reference is alive as long as the guard, as in `get`.
        unsafe { Arc::increment_strong_count(object) };
        // SAFETY: takes over the counted reference made in the line above.
        Some(unsafe { Arc::from_raw(object) })
    }

    /// Leaves the epoch with a reference to the object, for a call that will wait. Cheaper than
    /// [`pin`]: no shared counter is accessed. Returns `Err` with the guard if the handle is stale.
    ///
    /// [`pin`]: HandleTable::pin
    pub fn hold(&self, inside: Guard, handle: u64) -> Result<HazardRef<T>, Guard> {
        let Some(object) = self.get(&inside, handle).map(ptr::from_ref) else { return Err(inside) };
        HazardRef::new(inside, object, |inside| self.pin(inside, handle))
    }

    /// Unlinks the object: from here on the handle is stale. The table's counted reference is
    /// dropped once the last short-term user has left. `None` if the handle was stale already.
    #[must_use]
    pub fn remove(&self, inside: &Guard, handle: u64) -> Option<Arc<T>> {
        let index = index_of(handle);
        let object = self.pin(inside, handle)?;
        let slot = self.slot(index)?;
        // Inserting takes this lock, too: a fixed handle can be reopened once its word is cleared.
        let mut free = self.free.lock();
        slot.word
            .compare_exchange(handle, handle ^ ELSEWHERE, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        let tables_share = slot.object.load(Ordering::Acquire).cast_const();
        debug_assert!(ptr::eq(tables_share, Arc::as_ptr(&object)));
        slot.object.store(ptr::null_mut(), Ordering::Release);
        // SAFETY: the exchange made this call the only one to take the table's reference back.
        let share = unsafe { Arc::from_raw(tables_share) };
        free.live -= 1;
        if index >= self.reserved && handle & LAST_GENERATION < LAST_GENERATION {
            free.indices.push(index); // an exhausted slot retires
        }
        drop(free);
        epoch::retire(tables_share.cast(), move || drop(share));
        Some(object)
    }

    /// Returns the handles that are live now.
    pub fn handles(&self) -> Vec<u64> {
        let end = self.free.lock().next_fresh;
        (0..end)
            .filter_map(|index| {
                let word = self.slot(index)?.word.load(Ordering::Acquire);
                (index_of(word) == index).then_some(word)
            })
            .collect()
    }
}

pub(super) fn encode(tag: u8, index: usize, generation: u64) -> u64 {
    u64::from(tag) << (INDEX_BITS + GENERATION_BITS)
        | (index as u64) << GENERATION_BITS
        | generation
}

/// Returns the table index that a handle selects, whether an object is there or not.
pub const fn index_of(handle: u64) -> usize {
    (handle >> GENERATION_BITS) as usize & (INDEX_LIMIT - 1)
}

/// Returns the type byte of a handle, whatever table it belongs to.
pub fn tag_of(handle: u64) -> u8 {
    (handle >> (INDEX_BITS + GENERATION_BITS)) as u8
}

#[cfg(test)]
#[path = "tests/handle_table.rs"]
mod tests;
