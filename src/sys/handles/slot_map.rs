//! Map from handles to objects that stay in place. Its slots are never freed, and each slot has a
//! lock of its own. The table serves objects that are created and destroyed with every operation.
//! Removing such an object needs neither the allocator nor a barrier of all threads.
//! (`handle_table` needs both, because its objects are used without a lock.) An object that is used
//! once needs one atomic read-modify-write in its life, as long as the thread that creates the
//! object can reuse a slot that it has freed itself.
//!
//! The word of a slot is the handle of its object. While the object is in use, the word is that
//! handle with one bit of its index inverted (`BUSY`). While there is no object, the word is the
//! last handle with another bit of its index inverted (`ELSEWHERE`). Such a word is not a valid
//! handle: its index selects another slot (`handle_table`).
//!
//! Memory ordering. The word is the lock of a slot. A thread locks the slot with an acquire
//! exchange that replaces the handle with the handle with `BUSY` inverted. It unlocks the slot with
//! a release store of the handle or, if the object is removed, of the handle with `ELSEWHERE`
//! inverted. So a thread with an old handle never gets the lock, and a thread that gets the lock
//! sees the object that the release store of an equal handle has published. A slot without an
//! object belongs to the thread that removed the object, and then to the thread that took the slot
//! from the free list. The list passes the slot on by a release exchange and an acquire exchange,
//! so the next object is written after the previous object has been removed. The head of the list
//! has a counter, so that a slot that has been taken and returned in the meantime is not mistaken
//! for a slot that has stayed in the list (ABA problem).
//!
//! The group of an object (`group`, the handle of the object's owner) is read without the lock,
//! which may be locked for a long time. The group is read between two loads of the word, and stored
//! with release after the word of the preceding object: a thread that reads a later group also sees
//! that the word has changed. A thread's own free slots are in a list that only this thread
//! accesses ([`SpareSlots`]). Nevertheless `next` is stored with release and loaded with acquire in
//! the shared list: after a thread has loaded the head, another thread may take that slot into its
//! own list, where `next` may link to a slot of a chunk whose publication the loading thread has
//! not seen. Release and acquire make the contents of the linked slot visible. The value read from
//! it is discarded, because the exchange of the head fails. Chunks of slots are published as in
//! `handle_table`. `tests/models` checks this.

use super::epoch::{self, SpareSlots};
use super::handle_table::{ELSEWHERE, INDEX_LIMIT, LAST_GENERATION, encode, index_of};
use crate::hints;
use crate::sys::sync::lock::Mutex;
use crate::sys::sync::{
    self, AtomicPtr, AtomicU64, AtomicUpdate, AtomicUsize, Ordering, const_fn, yield_now,
};
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr;

/// log2 of the number of slots in a chunk. A chunk is allocated and written as a whole.
const CHUNK_BITS: u32 = 7;
const CHUNK: usize = sync::size(1 << CHUNK_BITS, 2);
/// Number of chunks. Reduced under Miri, which checks every chunk wherever a reference to the table
/// is passed.
const CHUNKS: usize = if cfg!(miri) { 4 } else { sync::size(INDEX_LIMIT >> CHUNK_BITS, 1) };

/// Maximum number of free slots in a thread's own list. (It is 0 under the model checker: a list
/// that only one thread accesses has no interleavings to check.)
const KEPT: u32 = sync::size(256, 0) as u32;

/// Number of attempts to lock an object that another thread uses, between two yields of the
/// processor.
const SPINS: u32 = sync::size(100, 1) as u32;

/// Second-lowest bit of the index in a handle (`ELSEWHERE` is the lowest). It is inverted in the
/// slot's word while the object is in use.
const BUSY: u64 = ELSEWHERE << 1;

/// Slot for an object. It has cache lines of its own, because threads use adjacent slots
/// concurrently.
#[repr(C, align(64))]
struct Slot<T> {
    /// Handle of the object, which also serves as the slot's lock. The index bit `BUSY` is inverted
    /// while the slot is locked, the index bit `ELSEWHERE` while the slot has no object.
    word: AtomicU64,
    /// Next slot in the list of free slots, or null at the end.
    next: AtomicPtr<Slot<T>>,
    /// Handle of the object's owner (its group). It does not change during the object's lifetime.
    group: AtomicU64,
    /// The object; initialized while `word` is a handle, or a handle with `BUSY` inverted.
    object: UnsafeCell<MaybeUninit<T>>,
    /// Result of `epoch::thread_mark` in the thread that holds the lock, if that thread may call
    /// user callbacks, which may access the object again; 0 otherwise. A thread only compares it
    /// with its own `epoch::thread_mark`.
    owner: AtomicUsize,
}

/// Map from generational handles to objects. A lookup reads only the first cache line of this
/// struct.
#[repr(C, align(64))]
pub struct SlotMap<T> {
    chunks: [AtomicPtr<[Slot<T>; CHUNK]>; CHUNKS],
    /// Head of the free list: a count of the list's changes in the upper 32 bits; the index of the
    /// first slot plus 1, or 0 if the list is empty, in the lower 32 bits.
    free: AtomicU64,
    /// Number of slots that were ever used.
    used: Mutex<usize>,
}

// SAFETY: the slot lock ensures that one thread at a time accesses an object (see the head of this
// file), so the object need not be Sync.
unsafe impl<T: Send> Sync for SlotMap<T> {}

/// Decision on whether an object stays in the table after its use, with the result of that use.
pub enum SlotAction<R> {
    /// The object stays.
    Keep(R),
    /// The object is removed and dropped, and its handle becomes stale.
    End(R),
}

/// Reason why a lookup returns no object.
#[derive(Debug, PartialEq, Eq)]
pub enum LookupFailure {
    /// The handle names no object.
    Stale,
    /// Another thread uses the object.
    Busy,
    /// An enclosing library call made by this thread uses the object: waiting for that call would
    /// cause a deadlock.
    Own,
}

impl<T> Slot<T> {
    /// Returns the index of a free slot plus 1, as stored in the head of the free list.
    fn number(&self) -> u32 {
        index_of(self.word.load(Ordering::Relaxed) ^ ELSEWHERE) as u32 + 1
    }

    #[inline]
    fn try_lock(&self, handle: u64) -> Result<(), LookupFailure> {
        match self.word.compare_exchange(
            handle,
            handle ^ BUSY,
            Ordering::Acquire,
            Ordering::Relaxed,
        ) {
            Ok(_) => Ok(()),
            Err(now) => {
                Err(if now == handle ^ BUSY { LookupFailure::Busy } else { LookupFailure::Stale })
            }
        }
    }
}

/// Guard of the lock of a slot, which gives exclusive access to the slot's live object.
pub struct Locked<T: 'static> {
    slot: &'static Slot<T>,
    handle: u64,
    pool: &'static SlotMap<T>,
}

impl<T> Drop for Locked<T> {
    #[inline]
    fn drop(&mut self) {
        self.slot.owner.store(0, Ordering::Relaxed);
        self.slot.word.store(self.handle, Ordering::Release);
    }
}

impl<T> Deref for Locked<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        let object = self.slot.object.get().cast::<T>();
        // SAFETY: the slot is live and `self` has its lock: the object stays and is not changed.
        unsafe { &*object }
    }
}

impl<T> DerefMut for Locked<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        let object = self.slot.object.get().cast::<T>();
        // SAFETY: the slot is live and `self` has its lock: the object exists, stays, and no other
        // thread accesses it. `self` is borrowed exclusively.
        unsafe { &mut *object }
    }
}

impl<T: Send + 'static> Locked<T> {
    /// Returns the group of the object (the handle of its owner).
    pub fn group(&self) -> u64 {
        self.slot.group.load(Ordering::Relaxed)
    }

    /// Records this thread as the holder of the lock until it unlocks. Required before a call to a
    /// user callback, which may access the object again.
    pub fn set_owner(&self) {
        self.slot.owner.store(epoch::thread_mark(), Ordering::Relaxed);
    }

    /// Removes and drops the object; its handle is then stale. `own` is the calling thread's list
    /// of free slots.
    #[inline(always)] // row: any_source_8
    pub fn end(self, own: Option<&SpareSlots>) {
        self.slot.owner.store(0, Ordering::Relaxed);
        self.end_by(own, |object| {
            // SAFETY: the object is initialized, and is not accessed again.
            unsafe { object.assume_init_drop() };
        });
    }

    /// Removes an object without dropping it. The object must own no resources, and
    /// [`Locked::set_owner`] must not have been called.
    #[inline]
    pub fn forget(self, own: Option<&SpareSlots>) {
        self.end_by(own, |_| ());
    }

    #[inline(always)] // row: any_source_8
    fn end_by(self, own: Option<&SpareSlots>, clear: impl FnOnce(&mut MaybeUninit<T>)) {
        let Locked { slot, handle, pool } = *ManuallyDrop::new(self);
        // First: destructors may use the table, which no longer lists the object then.
        slot.word.store(handle ^ ELSEWHERE, Ordering::Release);
        let place = slot.object.get();
        // SAFETY: this thread owns the slot until it is freed; the reference to its contents has
        // ended with `self`.
        clear(unsafe { &mut *place });
        pool.give_back(own, handle, slot);
    }
}

impl<T: Send + 'static> SlotMap<T> {
    const_fn! {
        /// Creates an empty table.
        #[allow(clippy::new_without_default, reason = "tables are statics")]
        pub fn new() -> Self {
            SlotMap { chunks: sync::nulls(), free: AtomicU64::new(0), used: Mutex::new(0) }
        }
    }

    /// Returns the slot with an index, or `None` if the chunk of the slot does not exist.
    #[inline]
    fn slot(&'static self, index: usize) -> Option<&'static Slot<T>> {
        let chunk = self.chunks.get(index >> CHUNK_BITS)?.load(Ordering::Acquire);
        // SAFETY: null, or a chunk that is published once and never freed.
        hints::usual(unsafe { chunk.as_ref() })?.get(index % CHUNK)
    }

    /// Returns a slot that was never used. Allocates a chunk if the slot is the first of the chunk.
    #[cold]
    fn fresh(&'static self, tag: u8) -> Option<&'static Slot<T>> {
        let mut used = self.used.lock();
        let index = *used;
        let place = self.chunks.get(index >> CHUNK_BITS).filter(|_| index < INDEX_LIMIT)?;
        if place.load(Ordering::Relaxed).is_null() {
            let empty = |index| Slot {
                word: AtomicU64::new(encode(tag, index, 0) ^ ELSEWHERE),
                next: AtomicPtr::new(ptr::null_mut()),
                group: AtomicU64::new(0),
                object: UnsafeCell::new(MaybeUninit::uninit()),
                owner: AtomicUsize::new(0),
            };
            let slots: Box<[Slot<T>]> = (index..index + CHUNK).map(empty).collect();
            let slots: Box<[Slot<T>; CHUNK]> = slots.try_into().ok()?;
            place.store(Box::into_raw(slots), Ordering::Release);
        }
        *used += 1;
        self.slot(index)
    }

    /// Takes a free slot from the thread's own list. If that list has no slot of this table, takes
    /// a slot from the shared free list or a slot that was never used.
    #[inline]
    fn pop(&'static self, own: Option<&SpareSlots>, tag: u8) -> Option<&'static Slot<T>> {
        let own = own.filter(|own| own.is_of(self));
        let slot = own.and_then(|own| free_slot(own.first.load(Ordering::Relaxed).cast()));
        let (Some(own), Some(slot)) = (own, slot) else {
            hints::rarely();
            return self.pop_elsewhere(tag);
        };
        own.first.store(slot.next.load(Ordering::Relaxed).cast(), Ordering::Relaxed);
        own.count.store(own.count.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        Some(slot)
    }

    /// Takes a slot from the shared free list or, if that is empty, a slot that was never used.
    #[cold]
    #[inline(never)]
    fn pop_elsewhere(&'static self, tag: u8) -> Option<&'static Slot<T>> {
        self.pop_shared().or_else(|| self.fresh(tag))
    }

    /// Frees the slot that `handle` selects. A slot whose last generation is used up is never used
    /// again.
    #[inline]
    fn give_back(&'static self, own: Option<&SpareSlots>, handle: u64, slot: &'static Slot<T>) {
        if handle & LAST_GENERATION == LAST_GENERATION {
            return;
        }
        match own {
            Some(own) if own.is_of(self) && own.count.load(Ordering::Relaxed) < KEPT => {
                self.keep(own, slot);
            }
            own => self.push_elsewhere(own, slot),
        }
    }

    /// Pushes the slot onto the thread's own list.
    #[inline]
    fn keep(&'static self, own: &SpareSlots, slot: &'static Slot<T>) {
        slot.next.store(own.first.load(Ordering::Relaxed).cast(), Ordering::Release);
        own.first.store(ptr::from_ref(slot).cast_mut().cast(), Ordering::Relaxed);
        own.count.store(own.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Frees a slot that the thread's own list cannot receive, because the list is full, belongs to
    /// another table or does not exist. If the list is empty, it becomes a list of this table and
    /// receives the slot. Otherwise the shared list receives the slot.
    #[cold]
    #[inline(never)]
    fn push_elsewhere(&'static self, own: Option<&SpareSlots>, slot: &'static Slot<T>) {
        match own.filter(|own| own.count.load(Ordering::Relaxed) == 0 && KEPT > 0) {
            Some(own) => {
                own.table.store(ptr::from_ref(self).cast_mut().cast(), Ordering::Relaxed);
                self.keep(own, slot);
            }
            None => self.push_shared(slot),
        }
    }

    fn pop_shared(&'static self) -> Option<&'static Slot<T>> {
        let mut taken = None;
        let pop = |head: u64| {
            let slot = self.slot((head as u32).checked_sub(1)? as usize)?;
            // If another thread has taken the slot, `next` is arbitrary, and the exchange fails.
            let next = free_slot(slot.next.load(Ordering::Acquire)).map_or(0, Slot::number);
            taken = Some(slot);
            Some((head >> 32).wrapping_add(1) << 32 | u64::from(next))
        };
        self.free.checked_update(Ordering::Acquire, Ordering::Acquire, pop).ok()?;
        taken
    }

    fn push_shared(&'static self, slot: &'static Slot<T>) {
        let push = |head: u64| {
            let next = (head as u32).checked_sub(1).and_then(|index| self.slot(index as usize));
            let next = next.map_or(ptr::null_mut(), |next| ptr::from_ref(next).cast_mut());
            slot.next.store(next, Ordering::Release);
            Some((head >> 32).wrapping_add(1) << 32 | u64::from(slot.number()))
        };
        // Succeeds, because `push` always returns a value.
        let _ = self.free.checked_update(Ordering::AcqRel, Ordering::Relaxed, push);
    }

    /// Inserts an object that belongs to `group` (the handle of its owner) and returns the object's
    /// handle, whose type byte is `tag` in all calls. `make` builds the object in place: a copy
    /// would cost as much as the rest of the call. `own` is the calling thread's list of free
    /// slots. If no slot is left, returns `make` as `Err` without calling it.
    #[inline]
    pub fn put<F: FnOnce() -> T>(
        &'static self,
        own: Option<&SpareSlots>,
        tag: u8,
        group: u64,
        make: F,
    ) -> Result<u64, F> {
        let Some(slot) = self.pop(own, tag) else { return Err(make) };
        let place = slot.object.get();
        // SAFETY: the slot is in no list, and no thread has a handle of its next generation yet:
        // only this thread accesses it.
        unsafe { place.write(MaybeUninit::new(make())) };
        slot.group.store(group, Ordering::Release);
        // The next generation: a slot in its last generation is not used again.
        let handle = (slot.word.load(Ordering::Relaxed) ^ ELSEWHERE) + 1;
        slot.word.store(handle, Ordering::Release);
        Ok(handle)
    }

    /// Returns true if a handle refers to a live object.
    #[inline]
    pub fn is_live(&'static self, handle: u64) -> bool {
        let word = self.slot(index_of(handle)).map(|slot| slot.word.load(Ordering::Relaxed));
        word.is_some_and(|word| [handle, handle ^ BUSY].contains(&word))
    }

    /// Returns the group of an object (the handle of its owner), whether or not the object is
    /// locked; `None` if the handle does not name an object.
    pub fn group_of(&'static self, handle: u64) -> Option<u64> {
        let slot = self.slot(index_of(handle))?;
        let is_there = || [handle, handle ^ BUSY].contains(&slot.word.load(Ordering::Acquire));
        if !is_there() {
            return None;
        }
        let group = slot.group.load(Ordering::Acquire);
        is_there().then_some(group)
    }

    /// Returns true if an enclosing library call made by this thread has locked the object and has
    /// called [`Locked::set_owner`].
    pub fn is_own(&'static self, handle: u64) -> bool {
        let mark = epoch::thread_mark();
        let slot = self.slot(index_of(handle)).filter(|_| mark != 0);
        let is = |slot: &Slot<T>| {
            slot.word.load(Ordering::Relaxed) == handle ^ BUSY
                && slot.owner.load(Ordering::Relaxed) == mark
        };
        slot.is_some_and(is)
    }

    /// Waits until no other thread uses the object, then calls `look` with the locked object.
    pub fn with<R>(
        &'static self,
        handle: u64,
        look: impl FnOnce(&mut Locked<T>) -> SlotAction<R>,
    ) -> Result<R, LookupFailure> {
        let mut looks = 0_u32;
        let mut locked = loop {
            match self.try_look(handle) {
                Ok(locked) => break locked,
                Err(LookupFailure::Busy) if !self.is_own(handle) => {}
                Err(LookupFailure::Busy) => return Err(LookupFailure::Own),
                Err(missed) => return Err(missed),
            }
            // A thread that polls the object holds it most of the time. The gap between two of its
            // polls leaves no time for other threads to run.
            looks = looks.wrapping_add(1);
            if looks % SPINS == 0 { yield_now() } else { spin_loop() }
        };
        locked.set_owner();
        Ok(match look(&mut locked) {
            SlotAction::Keep(result) => result,
            SlotAction::End(result) => {
                locked.end(epoch::spare_slots());
                result
            }
        })
    }

    /// Tries to lock an object; fails with `Busy` if it is locked. The caller may remove the object
    /// by calling [`Locked::end`].
    #[inline]
    pub fn try_look(&'static self, handle: u64) -> Result<Locked<T>, LookupFailure> {
        let Some(slot) = self.slot(index_of(handle)) else { return Err(LookupFailure::Stale) };
        slot.try_lock(handle).map(|()| Locked { slot, handle, pool: self })
    }

    /// Returns the handles of all objects.
    pub fn handles(&'static self) -> Vec<u64> {
        self.handles_where(|_| true)
    }

    /// Returns the handles of all objects that belong to `group` (the handle of their owner).
    /// Skipping a slot of another group costs only a few instructions.
    pub fn handles_of(&'static self, group: u64) -> Vec<u64> {
        let mut handles = self.handles_where(|other| other == group);
        // Between the two reads of a slot, an object of another group may have replaced its object.
        handles.retain(|handle| self.group_of(*handle) == Some(group));
        handles
    }

    #[inline]
    fn handles_where(&'static self, is_meant: impl Fn(u64) -> bool) -> Vec<u64> {
        let used = *self.used.lock();
        let mut handles = Vec::new();
        for first in (0..used).step_by(CHUNK) {
            let chunk = self.chunks.get(first >> CHUNK_BITS).map(|at| at.load(Ordering::Acquire));
            // SAFETY: null, or a chunk that is published once and never freed.
            let Some(chunk) = chunk.and_then(|chunk| unsafe { chunk.as_ref() }) else { break };
            for (index, slot) in (first..used).zip(chunk) {
                if is_meant(slot.group.load(Ordering::Relaxed)) {
                    let word = slot.word.load(Ordering::Acquire);
                    handles
                        .extend([word, word ^ BUSY].into_iter().find(|it| index_of(*it) == index));
                }
            }
        }
        handles
    }

    /// Empties the table in a forked child, without dropping the objects. The slot of an object
    /// that another thread was using when the process forked is not reused.
    pub fn forget_all(&'static self) {
        for handle in self.handles() {
            let Some(slot) = self.slot(index_of(handle)) else { continue };
            let was = slot.word.swap(handle ^ ELSEWHERE, Ordering::Relaxed);
            if was == handle {
                self.give_back(epoch::spare_slots(), handle, slot);
            }
        }
    }
}

/// Converts a pointer from a free list to a reference to the slot; returns `None` for null, the end
/// of the list.
#[inline]
fn free_slot<T>(slot: *mut Slot<T>) -> Option<&'static Slot<T>> {
    // SAFETY: null or a slot, and slots are never freed. The thread that stored the pointer had
    // access to the slot's chunk, and the caller is that thread or has acquired what it stored.
    unsafe { slot.as_ref() }
}

#[cfg(test)]
#[path = "tests/slot_map.rs"]
mod tests;
