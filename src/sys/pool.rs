//! Handles to objects that stay where they are: slots that are never freed, each with a lock of its own. For
//! objects that come and go with every operation: at their end neither memory nor a barrier of all threads is
//! asked for, as `slab` must do, whose objects are used without a lock. An object costs one atomic
//! read-modify-write in its life, to look at it once: slots come from those that the thread has given back
//! before, as long as it has some.
//!
//! Memory ordering. `busy` is the lock of a slot: taken with an acquire exchange, given back with a release
//! store. A slot's generation (`word`) changes at the end of an object, with the lock held, and when the next
//! one has been put, without: a slot from the free list belongs to who took it. Who has the lock touches the
//! object only if `word` is that of its handle, so one with an old handle never does; and the acquire load
//! of `word` sees the object that the release store of the same number has published. The free list passes a
//! slot on by a release exchange and an acquire one, so the next object is written after the last one is gone.
//! Its head counts, so that a slot that was taken and given back meanwhile is not mistaken for itself.
//! A thread's own free slots are in a list that only it touches (`epoch::SpareSlots`).
//! Chunks of slots are published as in `slab`. `tests/models` tries all of it.

use super::epoch;
use super::slab::{CHUNK, CHUNK_BITS, CHUNKS, INDEX_LIMIT, LAST_GENERATION, decode, encode};
use crate::sys::lock::Mutex;
use crate::sys::sync::{self, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, const_fn, yield_now};
use std::cell::UnsafeCell;
use std::mem;
use std::ptr;

/// Free slots that a thread keeps for itself. (None in a model: there is nothing to try in a list of one's own.)
const KEPT: u32 = sync::size(64, 0) as u32;

/// A place for an object.
struct Slot<T> {
    /// generation << 1 | live, as in a handle.
    word: AtomicU64,
    /// Somebody looks at the object.
    busy: AtomicBool,
    /// In the free list: the next one's index + 1.
    next: AtomicU32,
    object: UnsafeCell<Option<T>>,
}

/// The table. A look-up reads its first line of the cache only.
#[repr(C, align(64))]
pub struct Pool<T> {
    tag: u8,
    chunks: [AtomicPtr<[Slot<T>; CHUNK]>; CHUNKS],
    /// Head of the free list: count << 32 | index + 1, or 0 there.
    free: AtomicU64,
    /// Slots that were ever used.
    used: Mutex<usize>,
}

// SAFETY: an object is reached by one thread at a time (see the module's text), so it need not be Sync.
unsafe impl<T: Send> Sync for Pool<T> {}

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
    /// The same of one that owns nothing: it is not dropped.
    Forget(R),
}

/// The lock of a slot.
struct Looking<'a, T>(&'a Slot<T>);

impl<T> Drop for Looking<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

impl<T> Slot<T> {
    #[inline(always)]
    fn try_look(&self) -> Option<Looking<'_, T>> {
        let taken = self.busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| Looking(self))
    }
}

impl<T: Send + 'static> Pool<T> {
    const_fn! {
        /// Empty; `tag` is the type byte of its handles.
        #[must_use]
        pub fn new(tag: u8) -> Self {
            Pool { tag, chunks: sync::nulls(), free: AtomicU64::new(0), used: Mutex::new(0) }
        }
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> Option<&Slot<T>> {
        let chunk = self.chunks.get(index >> CHUNK_BITS)?.load(Ordering::Acquire);
        // SAFETY: null, or a chunk that is published once and never freed.
        unsafe { chunk.as_ref() }?.get(index % CHUNK)
    }

    /// A slot that was never used, with its chunk made if it is the first of it.
    #[cold]
    fn fresh(&self) -> Option<usize> {
        let mut used = self.used.lock();
        let index = *used;
        let place = self.chunks.get(index >> CHUNK_BITS).filter(|_| index < INDEX_LIMIT)?;
        if place.load(Ordering::Relaxed).is_null() {
            let empty = || Slot {
                word: AtomicU64::new(0),
                busy: AtomicBool::new(false),
                next: AtomicU32::new(0),
                object: UnsafeCell::new(None),
            };
            let slots: Box<[Slot<T>]> = (0..CHUNK).map(|_| empty()).collect();
            let slots: Box<[Slot<T>; CHUNK]> = slots.try_into().ok()?;
            place.store(Box::into_raw(slots), Ordering::Release);
        }
        *used += 1;
        Some(index)
    }

    /// Takes a free slot: of the thread's own, from the free list, or a fresh one.
    #[inline(always)]
    fn pop(&'static self) -> Option<(usize, &'static Slot<T>)> {
        let own = epoch::spare_slots().filter(|own| own.count.load(Ordering::Relaxed) > 0);
        match own.filter(|own| ptr::eq(own.table.load(Ordering::Relaxed).cast(), self)) {
            Some(own) => {
                let index = own.first.load(Ordering::Relaxed) as usize;
                let slot = self.slot(index)?;
                own.first.store(slot.next.load(Ordering::Relaxed), Ordering::Relaxed);
                own.count.store(own.count.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
                Some((index, slot))
            }
            None => self.pop_elsewhere(),
        }
    }

    #[inline(never)]
    fn pop_elsewhere(&'static self) -> Option<(usize, &'static Slot<T>)> {
        let index = self.pop_shared().or_else(|| self.fresh())?;
        Some((index, self.slot(index)?))
    }

    /// Gives a slot back.
    #[inline(always)]
    fn push(&'static self, index: usize, slot: &Slot<T>) {
        let own = epoch::spare_slots().filter(|own| {
            let count = own.count.load(Ordering::Relaxed);
            count < KEPT && (count == 0 || ptr::eq(own.table.load(Ordering::Relaxed).cast(), self))
        });
        let Some(own) = own else { return self.push_shared(index, slot) };
        own.table.store(ptr::from_ref(self).cast_mut().cast(), Ordering::Relaxed);
        slot.next.store(own.first.load(Ordering::Relaxed), Ordering::Relaxed);
        own.first.store(index as u32, Ordering::Relaxed);
        own.count.store(own.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn pop_shared(&self) -> Option<usize> {
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let index = (head as u32).checked_sub(1)? as usize;
            let next = self.slot(index)?.next.load(Ordering::Relaxed);
            let after = (head >> 32).wrapping_add(1) << 32 | u64::from(next);
            match self.free.compare_exchange_weak(head, after, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(now) => head = now,
            }
        }
    }

    fn push_shared(&self, index: usize, slot: &Slot<T>) {
        let mut head = self.free.load(Ordering::Relaxed);
        loop {
            slot.next.store(head as u32, Ordering::Relaxed);
            let after = (head >> 32).wrapping_add(1) << 32 | (index as u64 + 1);
            match self.free.compare_exchange_weak(head, after, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// The slot of a handle, if it is live.
    #[inline(always)]
    fn find(&self, handle: u64) -> Option<(usize, u64, &Slot<T>)> {
        let (index, word) = decode(self.tag, handle)?;
        let slot = self.slot(index)?;
        (slot.word.load(Ordering::Relaxed) == word).then_some((index, word, slot))
    }

    /// Puts an object under a fresh handle. It is made in its place: built elsewhere and copied, it would cost
    /// as much as the rest. `Err`: none is left, and it was not made.
    #[inline(always)]
    pub fn put<F: FnOnce() -> T>(&'static self, make: F) -> Result<u64, F> {
        let Some((index, slot)) = self.pop() else { return Err(make) };
        let place = slot.object.get();
        // SAFETY: the slot is in no list, and nobody has a handle of its next generation yet: it is ours alone.
        unsafe { place.write(Some(make())) };
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

    /// Looks at an object, waiting for who looks at it just now. `None`: no such object. Not from inside a look
    /// at the same one.
    pub fn with<R>(&'static self, handle: u64, look: impl FnOnce(&mut T) -> Then<R>) -> Option<R> {
        let (index, word, slot) = self.find(handle)?;
        let looking = loop {
            match slot.try_look() {
                Some(looking) => break looking,
                None => yield_now(),
            }
        };
        self.look(index, word, looking, look)
    }

    /// The same, but waits for nobody.
    #[inline(always)]
    pub fn try_with<R>(&'static self, handle: u64, look: impl FnOnce(&mut T) -> Then<R>) -> Tried<R> {
        let Some((index, word, slot)) = self.find(handle) else { return Tried::Stale };
        let Some(looking) = slot.try_look() else { return Tried::Busy };
        self.look(index, word, looking, look).map_or(Tried::Stale, Tried::Kept)
    }

    #[inline(always)]
    fn look<R>(
        &'static self,
        index: usize,
        word: u64,
        looking: Looking<'_, T>,
        look: impl FnOnce(&mut T) -> Then<R>,
    ) -> Option<R> {
        let slot = looking.0;
        if slot.word.load(Ordering::Acquire) != word {
            return None;
        }
        let place = slot.object.get();
        // SAFETY: the word is that of a live object and we have its lock: nobody else reaches it.
        let object = unsafe { &mut *place };
        match look(object.as_mut()?) {
            Then::Keep(result) => Some(result),
            Then::End(result) => {
                self.end(index, word, looking, || *object = None);
                Some(result)
            }
            Then::Forget(result) => {
                self.end(index, word, looking, || mem::forget(object.take()));
                Some(result)
            }
        }
    }

    #[inline(always)]
    fn end(&'static self, index: usize, word: u64, looking: Looking<'_, T>, clear: impl FnOnce()) {
        let slot = looking.0;
        // First: what goes with the object may use the table, which does not list it any more.
        slot.word.store(word & !1, Ordering::Release);
        clear();
        drop(looking);
        if word >> 1 < LAST_GENERATION {
            self.push(index, slot); // an exhausted slot retires
        }
    }

    /// The handles of all objects.
    #[must_use]
    pub fn handles(&self) -> Vec<u64> {
        let end = *self.used.lock();
        (0..end)
            .filter_map(|index| {
                let word = self.slot(index)?.word.load(Ordering::Acquire);
                (word & 1 == 1).then(|| encode(self.tag, index, word >> 1))
            })
            .collect()
    }

    /// In a forked child: forgets all objects. The slot of one that another thread looked at when the process
    /// forked is not used again.
    pub fn forget_all(&'static self) {
        for handle in self.handles() {
            let Some((index, word, slot)) = self.find(handle) else { continue };
            let is_free = slot.try_look().is_some();
            slot.word.store(word & !1, Ordering::Release);
            if is_free {
                let place = slot.object.get();
                // SAFETY: no other thread is in this process, and nobody looked when it forked.
                mem::forget(unsafe { &mut *place }.take());
                self.push(index, slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_dies_with_its_object() {
        static POOL: Pool<u64> = Pool::new(5);
        let pool = &POOL;
        let handle = pool.put(|| 7).ok().unwrap();
        assert_eq!(pool.with(handle, |n| Then::Keep(*n)), Some(7));
        assert!(pool.is_live(handle) && !pool.is_live(handle ^ 1 << 56));
        assert_eq!(pool.with(handle, |n| Then::End(*n)), Some(7));
        assert!(!pool.is_live(handle));
        assert_eq!(pool.with(handle, |n| Then::Keep(*n)), None);
        let again = pool.put(|| 8).ok().unwrap();
        assert_ne!(again, handle);
        assert_eq!(pool.try_with(handle, |n| Then::Keep(*n)), Tried::Stale);
        assert_eq!(pool.try_with(again, |n| Then::Keep(*n)), Tried::Kept(8));
        assert_eq!(pool.handles(), [again]);
        assert_eq!(pool.with(again, |n| Then::Forget(*n)), Some(8));
        assert!(!pool.is_live(again) && pool.handles().is_empty());
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
        let other = POOL.put(|| Ends(None)).ok().unwrap();
        let handle = POOL.put(|| Ends(Some(other))).ok().unwrap();
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
                        let handle = POOL.put(|| number).ok().unwrap();
                        assert_eq!(POOL.with(handle, |n| Then::End(*n)), Some(number));
                    }
                });
            }
        });
        assert!(POOL.handles().is_empty());
    }
}
