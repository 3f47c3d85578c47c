//! Handles to objects that stay where they are: slots that are never freed, each with a lock of its own. For
//! objects that come and go with every operation: neither memory nor a barrier of all threads is asked for
//! at their end, as `slab` must do, whose objects are used without a lock.
//!
//! Memory ordering: the lock of a slot orders everything that is in it. A slot's generation is written with the
//! lock held; `is_live` reads it without, which tells what was true at some moment, as any answer would that is
//! given after an unlock. Chunks of slots are published as in `slab`.

use super::slab::{CHUNK, CHUNK_BITS, CHUNKS, INDEX_LIMIT, LAST_GENERATION, decode, encode};
use crate::sys::lock::Mutex;
use crate::sys::sync::{self, AtomicPtr, AtomicU64, Ordering, const_fn};

/// A place for an object.
struct Slot<T> {
    /// generation << 1 | live, as in a handle.
    word: AtomicU64,
    object: Mutex<Option<T>>,
}

struct Free {
    indices: Vec<usize>,
    next_fresh: usize,
}

/// The table.
pub struct Pool<T> {
    tag: u8,
    chunks: [AtomicPtr<[Slot<T>; CHUNK]>; CHUNKS],
    free: Mutex<Free>,
}

/// What came of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub enum Tried<R> {
    /// No such object.
    Stale,
    /// Another thread is at it.
    Busy,
    /// The object stays.
    Kept(R),
}

/// What becomes of an object after a look at it.
pub enum Then<R> {
    /// It stays.
    Keep(R),
    /// It goes, and its handle is stale.
    End(R),
}

impl<T: Send + 'static> Pool<T> {
    const_fn! {
        /// Empty; `tag` is the type byte of its handles.
        #[must_use]
        pub fn new(tag: u8) -> Self {
            Pool { tag, chunks: sync::nulls(), free: Mutex::new(Free { indices: Vec::new(), next_fresh: 0 }) }
        }
    }

    #[inline]
    fn slot(&self, index: usize) -> Option<&Slot<T>> {
        let chunk = self.chunks.get(index >> CHUNK_BITS)?.load(Ordering::Acquire);
        // SAFETY: null, or a chunk that is published once and never freed.
        unsafe { chunk.as_ref() }?.get(index % CHUNK)
    }

    /// With the lock of `free` held.
    fn slot_or_grow(&self, index: usize) -> Option<&Slot<T>> {
        let place = self.chunks.get(index >> CHUNK_BITS)?;
        if place.load(Ordering::Relaxed).is_null() {
            let empty = || Slot { word: AtomicU64::new(0), object: Mutex::new(None) };
            let slots: Box<[Slot<T>]> = (0..CHUNK).map(|_| empty()).collect();
            let slots: Box<[Slot<T>; CHUNK]> = slots.try_into().ok()?;
            place.store(Box::into_raw(slots), Ordering::Release);
        }
        self.slot(index)
    }

    /// The slot of a handle, if it is live.
    #[inline]
    fn find(&self, handle: u64) -> Option<(usize, u64, &Slot<T>)> {
        let (index, word) = decode(self.tag, handle)?;
        let slot = self.slot(index)?;
        (slot.word.load(Ordering::Acquire) == word).then_some((index, word, slot))
    }

    /// Puts an object under a fresh handle; gives it back if there is none left.
    pub fn put(&self, object: T) -> Result<u64, T> {
        let mut free = self.free.lock();
        let index = match free.indices.pop() {
            Some(index) => index,
            None if free.next_fresh < INDEX_LIMIT => free.next_fresh,
            None => return Err(object),
        };
        let Some(slot) = self.slot_or_grow(index) else { return Err(object) };
        free.next_fresh = free.next_fresh.max(index + 1);
        drop(free);
        let mut place = slot.object.lock();
        *place = Some(object);
        let generation = (slot.word.load(Ordering::Relaxed) >> 1) + 1;
        slot.word.store(generation << 1 | 1, Ordering::Release);
        Ok(encode(self.tag, index, generation))
    }

    /// Whether a handle names an object.
    #[inline]
    #[must_use]
    pub fn is_live(&self, handle: u64) -> bool {
        self.find(handle).is_some()
    }

    /// Looks at an object, waiting for who looks at it just now. `None`: no such object.
    pub fn with<R>(&self, handle: u64, look: impl FnOnce(&mut T) -> Then<R>) -> Option<R> {
        let (index, word, slot) = self.find(handle)?;
        let place = slot.object.lock();
        self.look(index, word, slot, place, look)
    }

    /// The same, but waits for nobody.
    #[inline]
    pub fn try_with<R>(&self, handle: u64, look: impl FnOnce(&mut T) -> Then<R>) -> Tried<R> {
        let Some((index, word, slot)) = self.find(handle) else { return Tried::Stale };
        let Some(place) = slot.object.try_lock() else { return Tried::Busy };
        self.look(index, word, slot, place, look).map_or(Tried::Stale, Tried::Kept)
    }

    #[inline]
    fn look<R>(
        &self,
        index: usize,
        word: u64,
        slot: &Slot<T>,
        mut place: crate::sys::lock::MutexGuard<'_, Option<T>>,
        look: impl FnOnce(&mut T) -> Then<R>,
    ) -> Option<R> {
        if slot.word.load(Ordering::Relaxed) != word {
            return None;
        }
        match look(place.as_mut()?) {
            Then::Keep(result) => Some(result),
            Then::End(result) => {
                let object = place.take();
                slot.word.store(word & !1, Ordering::Release);
                drop(place);
                if word >> 1 < LAST_GENERATION {
                    self.free.lock().indices.push(index); // an exhausted slot retires
                }
                // What goes with the object may take its time, and use the table.
                drop(object);
                Some(result)
            }
        }
    }

    /// The handles of all objects.
    #[must_use]
    pub fn handles(&self) -> Vec<u64> {
        let end = self.free.lock().next_fresh;
        (0..end)
            .filter_map(|index| {
                let word = self.slot(index)?.word.load(Ordering::Acquire);
                (word & 1 == 1).then(|| encode(self.tag, index, word >> 1))
            })
            .collect()
    }

    /// In a forked child: forgets all objects. One that another thread was at when the process forked stays
    /// locked for ever; its slot is not used again.
    pub fn forget_all(&self) {
        for handle in self.handles() {
            let Some((index, word, slot)) = self.find(handle) else { continue };
            slot.word.store(word & !1, Ordering::Release);
            if let Some(mut place) = slot.object.try_lock() {
                std::mem::forget(place.take());
                self.free.lock().indices.push(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_dies_with_its_object() {
        let pool = Pool::new(5);
        let handle = pool.put(7).unwrap();
        assert_eq!(pool.with(handle, |n| Then::Keep(*n)), Some(7));
        assert!(pool.is_live(handle) && !pool.is_live(handle ^ 1 << 56));
        assert_eq!(pool.with(handle, |n| Then::End(*n)), Some(7));
        assert!(!pool.is_live(handle));
        assert_eq!(pool.with(handle, |n| Then::Keep(*n)), None);
        let again = pool.put(8).unwrap();
        assert_ne!(again, handle);
        assert_eq!(pool.try_with(handle, |n| Then::Keep(*n)), Tried::Stale);
        assert_eq!(pool.try_with(again, |n| Then::Keep(*n)), Tried::Kept(8));
        assert_eq!(pool.handles(), [again]);
    }

    #[test]
    fn an_object_that_is_looked_at_is_busy_and_may_use_the_table_at_its_end() {
        static POOL: Pool<Ends> = Pool::new(5);
        struct Ends(Option<u64>);
        impl Drop for Ends {
            fn drop(&mut self) {
                if let Some(handle) = self.0 {
                    assert_eq!(POOL.with(handle, |_| Then::End(())), Some(()));
                }
            }
        }
        let other = POOL.put(Ends(None)).ok().unwrap();
        let handle = POOL.put(Ends(Some(other))).ok().unwrap();
        let busy = POOL
            .with(handle, |_| Then::Keep(matches!(POOL.try_with(handle, |_| Then::Keep(())), Tried::Busy)));
        assert_eq!(busy, Some(true));
        assert_eq!(POOL.with(handle, |_| Then::End(())), Some(()));
        assert!(POOL.handles().is_empty());
    }

    #[test]
    fn many_threads_put_and_end() {
        static POOL: Pool<u64> = Pool::new(5);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    for round in 0..5000 {
                        let number = thread << 32 | round;
                        let handle = POOL.put(number).unwrap();
                        assert_eq!(POOL.with(handle, |n| Then::End(*n)), Some(number));
                    }
                });
            }
        });
        assert!(POOL.handles().is_empty());
    }
}
