//! Handles to objects that stay where they are: slots that are never freed, each with a lock of its own. For
//! objects that come and go with every operation: at their end neither memory nor a barrier of all threads is
//! asked for, as `slab` must do, whose objects are used without a lock. An object costs one atomic
//! read-modify-write in its life, to look at it once: slots come from those that the thread has given back
//! before, as long as it has some.
//!
//! A slot's word is its object's handle, or while it has none that of the last one with a bit turned, as in `slab`.
//!
//! Memory ordering. `busy` is the lock of a slot: taken with an acquire exchange, given back with a release
//! store. A slot's `word` changes at the end of an object, with the lock held, and when the next
//! one has been put, without: a slot from the free list belongs to who took it. Who has the lock touches the
//! object only if `word` is its handle, so one with an old handle never does; and the acquire load
//! of `word` sees the object that the release store of the same handle has published. The free list passes a
//! slot on by a release exchange and an acquire one, so the next object is written after the last one is gone.
//! Its head counts, so that a slot that was taken and given back meanwhile is not mistaken for itself.
//! A thread's own free slots are in a list that only it touches (`epoch::SpareSlots`). Yet `next` is stored with release and
//! acquired in the shared list: who has loaded a head may find its slot in another thread's list by then, and in front of one
//! of a chunk that it has not heard of; what it reads of that is whole, and then thrown away with the head.
//! Chunks of slots are published as in `slab`. `tests/models` tries all of it.

use super::epoch::{self, SpareSlots};
use super::slab::{ELSEWHERE, INDEX_LIMIT, LAST_GENERATION, encode, index_of};
use crate::sys::lock::Mutex;
use crate::sys::sync::{self, AtomicBool, AtomicPtr, AtomicU64, Ordering, const_fn, yield_now};
use std::cell::UnsafeCell;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr;

/// Slots are made so many at a time, each of which is written then.
const CHUNK_BITS: u32 = 7;
const CHUNK: usize = sync::size(1 << CHUNK_BITS, 2);
const CHUNKS: usize = sync::size(INDEX_LIMIT >> CHUNK_BITS, 1);

/// Free slots that a thread keeps for itself. (None in a model: there is nothing to try in a list of one's own.)
const KEPT: u32 = sync::size(64, 0) as u32;

/// A place for an object. On lines of its own: threads look at neighbours at the same time.
#[repr(C, align(64))]
struct Slot<T> {
    /// The handle; that XOR `ELSEWHERE` = no object.
    word: AtomicU64,
    /// In a list of free ones: the next, or null.
    next: AtomicPtr<Slot<T>>,
    /// Its own. Never changes.
    index: u32,
    /// Somebody looks at the object.
    busy: AtomicBool,
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

/// What becomes of an object after a look at it.
pub enum Then<R> {
    /// It stays.
    Keep(R),
    /// It goes, and its handle is stale.
    End(R),
}

/// Why nobody looks at an object.
#[derive(Debug, PartialEq, Eq)]
pub enum Missed {
    /// There is no such object.
    Stale,
    /// Another thread is at it.
    Busy,
}

/// The lock of a slot.
struct Lock<T: 'static>(&'static Slot<T>);

impl<T> Drop for Lock<T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

impl<T> Slot<T> {
    /// Its index + 1.
    fn number(&self) -> u32 {
        self.index + 1
    }

    #[inline(always)]
    fn try_lock(&'static self) -> Option<Lock<T>> {
        let taken = self.busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| Lock(self))
    }
}

/// A look at a live object: nobody else is at it until this goes.
pub struct Looking<T: 'static> {
    object: *mut T,
    handle: u64,
    lock: Lock<T>,
    pool: &'static Pool<T>,
}

impl<T> Deref for Looking<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: as in `deref_mut`: the lock keeps the object where it is and everybody else away.
        unsafe { &*self.object }
    }
}

impl<T> DerefMut for Looking<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: in a live slot whose lock this has: the object stays, and nobody else reaches it.
        unsafe { &mut *self.object }
    }
}

impl<T: Send + 'static> Looking<T> {
    /// Ends the object: its handle is stale.
    #[inline(always)]
    pub fn end(self) {
        self.end_by(|object| *object = None);
    }

    /// The same of one that owns nothing: it is not dropped.
    #[inline(always)]
    pub fn forget(self) {
        self.end_by(|object| mem::forget(object.take()));
    }

    #[inline(always)]
    fn end_by(self, clear: impl FnOnce(&mut Option<T>)) {
        let Looking { handle, lock, pool, .. } = self;
        let slot = lock.0;
        // First: what goes with the object may use the table, which does not list it any more.
        slot.word.store(handle ^ ELSEWHERE, Ordering::Release);
        let place = slot.object.get();
        // SAFETY: the lock is ours, and with `self` the reference to what is in the object has gone.
        clear(unsafe { &mut *place });
        drop(lock);
        pool.give_back(handle, slot);
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

    /// The place of an index.
    #[inline(always)]
    fn slot(&'static self, index: usize) -> Option<&'static Slot<T>> {
        let chunk = self.chunks.get(index >> CHUNK_BITS)?.load(Ordering::Acquire);
        // SAFETY: null, or a chunk that is published once and never freed.
        unsafe { chunk.as_ref() }?.get(index % CHUNK)
    }

    /// A slot that was never used, with its chunk made if it is the first of it.
    #[cold]
    fn fresh(&'static self) -> Option<&'static Slot<T>> {
        let mut used = self.used.lock();
        let index = *used;
        let place = self.chunks.get(index >> CHUNK_BITS).filter(|_| index < INDEX_LIMIT)?;
        if place.load(Ordering::Relaxed).is_null() {
            let empty = |index| Slot {
                word: AtomicU64::new(encode(self.tag, index, 0) ^ ELSEWHERE),
                next: AtomicPtr::new(ptr::null_mut()),
                index: index as u32,
                busy: AtomicBool::new(false),
                object: UnsafeCell::new(None),
            };
            let slots: Box<[Slot<T>]> = (index..index + CHUNK).map(empty).collect();
            let slots: Box<[Slot<T>; CHUNK]> = slots.try_into().ok()?;
            place.store(Box::into_raw(slots), Ordering::Release);
        }
        *used += 1;
        self.slot(index)
    }

    /// Takes a free slot: of the thread's own, from the free list, or a fresh one.
    #[inline(always)]
    fn pop(&'static self) -> Option<&'static Slot<T>> {
        let own = epoch::spare_slots().filter(|own| own.is_of(self))?;
        let slot = free_slot(own.first.load(Ordering::Relaxed).cast())?;
        own.first.store(slot.next.load(Ordering::Relaxed).cast(), Ordering::Relaxed);
        own.count.store(own.count.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        Some(slot)
    }

    #[cold]
    #[inline(never)]
    fn pop_elsewhere(&'static self) -> Option<&'static Slot<T>> {
        self.pop_shared().or_else(|| self.fresh())
    }

    /// Gives the slot of a handle back; one that has had its last retires.
    #[inline(always)]
    fn give_back(&'static self, handle: u64, slot: &'static Slot<T>) {
        if handle & LAST_GENERATION != LAST_GENERATION {
            self.push(slot);
        }
    }

    #[inline(always)]
    fn push(&'static self, slot: &'static Slot<T>) {
        let own = epoch::spare_slots()
            .filter(|own| own.is_of(self) && own.count.load(Ordering::Relaxed) < KEPT)
            .or_else(|| self.spare_slots_now());
        let Some(own) = own else { return self.push_shared(slot) };
        slot.next.store(own.first.load(Ordering::Relaxed).cast(), Ordering::Release);
        own.first.store(ptr::from_ref(slot).cast_mut().cast(), Ordering::Relaxed);
        own.count.store(own.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The thread's own list, if it can be this table's from now on.
    #[cold]
    #[inline(never)]
    fn spare_slots_now(&'static self) -> Option<&'static SpareSlots> {
        let own = epoch::spare_slots().filter(|own| own.count.load(Ordering::Relaxed) == 0 && KEPT > 0)?;
        own.table.store(ptr::from_ref(self).cast_mut().cast(), Ordering::Relaxed);
        Some(own)
    }

    fn pop_shared(&'static self) -> Option<&'static Slot<T>> {
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let slot = self.slot((head as u32).checked_sub(1)? as usize)?;
            // Of one that another thread has taken meanwhile this is some slot, and the exchange fails.
            let next = free_slot(slot.next.load(Ordering::Acquire)).map_or(0, Slot::number);
            let after = (head >> 32).wrapping_add(1) << 32 | u64::from(next);
            match self.free.compare_exchange_weak(head, after, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(slot),
                Err(now) => head = now,
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn push_shared(&'static self, slot: &'static Slot<T>) {
        let mut head = self.free.load(Ordering::Relaxed);
        loop {
            let next = (head as u32).checked_sub(1).and_then(|index| self.slot(index as usize));
            let next = next.map_or(ptr::null_mut(), |next| ptr::from_ref(next).cast_mut());
            slot.next.store(next, Ordering::Release);
            let after = (head >> 32).wrapping_add(1) << 32 | u64::from(slot.number());
            match self.free.compare_exchange_weak(head, after, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// The slot of a handle, if it is live.
    #[inline(always)]
    fn find(&'static self, handle: u64) -> Option<&'static Slot<T>> {
        self.slot(index_of(handle)).filter(|slot| slot.word.load(Ordering::Relaxed) == handle)
    }

    /// Puts an object under a fresh handle. It is made in its place: built elsewhere and copied, it would cost
    /// as much as the rest. `Err`: none is left, and it was not made.
    #[inline(always)]
    pub fn put<F: FnOnce() -> T>(&'static self, make: F) -> Result<u64, F> {
        let Some(slot) = self.pop().or_else(|| self.pop_elsewhere()) else { return Err(make) };
        let place = slot.object.get();
        // SAFETY: the slot is in no list, and nobody has a handle of its next generation yet: it is ours alone.
        unsafe { place.write(Some(make())) };
        // The next generation: one of the last is not used again.
        let handle = (slot.word.load(Ordering::Relaxed) ^ ELSEWHERE) + 1;
        slot.word.store(handle, Ordering::Release);
        Ok(handle)
    }

    /// Whether a handle names an object.
    #[inline]
    #[must_use]
    pub fn is_live(&'static self, handle: u64) -> bool {
        self.find(handle).is_some()
    }

    /// Looks at an object, waiting for who looks at it just now. `None`: no such object. Not from inside a look
    /// at the same one.
    pub fn with<R>(&'static self, handle: u64, look: impl FnOnce(&mut T) -> Then<R>) -> Option<R> {
        let mut looking = loop {
            match self.try_look(handle) {
                Ok(looking) => break looking,
                Err(Missed::Stale) => return None,
                Err(Missed::Busy) => yield_now(),
            }
        };
        Some(match look(&mut looking) {
            Then::Keep(result) => result,
            Then::End(result) => {
                looking.end();
                result
            }
        })
    }

    /// The same, but waits for nobody, and who looks decides at the end what becomes of the object.
    #[inline(always)]
    pub fn try_look(&'static self, handle: u64) -> Result<Looking<T>, Missed> {
        let Some(slot) = self.find(handle) else { return Err(Missed::Stale) };
        let Some(lock) = slot.try_lock() else { return Err(Missed::Busy) };
        if slot.word.load(Ordering::Acquire) != handle {
            return Err(Missed::Stale);
        }
        let place = slot.object.get();
        // SAFETY: the handle is that of a live object and we have its lock: nobody else reaches it.
        match unsafe { &mut *place } {
            Some(object) => Ok(Looking { object, handle, lock, pool: self }),
            None => Err(Missed::Stale),
        }
    }

    /// The handles of all objects.
    #[must_use]
    pub fn handles(&'static self) -> Vec<u64> {
        let end = *self.used.lock();
        (0..end)
            .filter_map(|index| {
                let word = self.slot(index)?.word.load(Ordering::Acquire);
                (index_of(word) == index).then_some(word)
            })
            .collect()
    }

    /// In a forked child: forgets all objects. The slot of one that another thread looked at when the process
    /// forked is not used again.
    pub fn forget_all(&'static self) {
        for handle in self.handles() {
            let Some(slot) = self.find(handle) else { continue };
            let is_free = slot.try_lock().is_some();
            slot.word.store(handle ^ ELSEWHERE, Ordering::Release);
            if is_free {
                let place = slot.object.get();
                // SAFETY: no other thread is in this process, and nobody looked when it forked.
                mem::forget(unsafe { &mut *place }.take());
                self.give_back(handle, slot);
            }
        }
    }
}

/// A slot of a list; `None`: its end.
#[inline(always)]
fn free_slot<T>(slot: *mut Slot<T>) -> Option<&'static Slot<T>> {
    // SAFETY: null or a slot, of which none is ever freed; who stored the pointer had the slot's chunk, and the caller is that
    // thread or has acquired what it stored.
    unsafe { slot.as_ref() }
}

impl SpareSlots {
    /// Whether they are a table's.
    #[inline(always)]
    fn is_of<T>(&self, table: &Pool<T>) -> bool {
        ptr::eq(self.table.load(Ordering::Relaxed).cast(), table)
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
        assert_eq!(pool.try_look(handle).err(), Some(Missed::Stale));
        assert_eq!(*pool.try_look(again).ok().unwrap(), 8);
        assert_eq!(pool.handles(), [again]);
        pool.try_look(again).ok().unwrap().forget();
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
        let busy = POOL.with(handle, |_| Then::Keep(POOL.try_look(handle).err() == Some(Missed::Busy)));
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
