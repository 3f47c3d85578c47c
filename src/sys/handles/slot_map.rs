//! Handles to objects that stay in place: slots that are never freed, each with a lock of its own.
//! For objects that come and go with every operation. Their end needs neither the allocator nor a
//! barrier of all threads, which `handle_table` needs because its objects are used without a lock.
//! An object that is used once costs one atomic read-modify-write in its life: a thread reuses the
//! slots that it has given back before, as long as it has some.
//!
//! A slot's word is its object's handle. While the object is in use, and while there is none, the
//! word is that handle, or the last one, with one of two bits of its index turned. That is no valid
//! handle: its index selects another slot (`handle_table`).
//!
//! Memory ordering. The word is the lock of a slot: taken with an acquire exchange of the handle
//! for that with `BUSY` turned, given back with a release store of the handle, or of that with
//! `ELSEWHERE` turned at the end of the object. So a thread with an old handle never gets the lock,
//! and a thread that gets it sees the object that the release store of the same handle has
//! published. A slot without an object belongs to the thread that ended the object, and then to the
//! one that took the slot from the free list. The list passes it on by a release exchange and an
//! acquire one, so the next object is written after the last one is gone. The list's head has a
//! counter, so that a slot that was taken and given back meanwhile is not mistaken for one that
//! stayed (ABA).
//!
//! The group of an object (`group`) is read without the lock, which may be held for long. It is
//! read between two loads of the word, and stored with release after the word of the object before:
//! a thread that reads a later group sees that the word has gone, too. A thread's own free slots
//! are in a list that only it touches (`epoch::SpareSlots`). Yet `next` is stored with release and
//! loaded with acquire in the shared list: the slot of a loaded head may by then be in another
//! thread's list, in front of a slot of a chunk that the loading thread has not seen published.
//! Its read of that slot is complete, and is then discarded with the head. Chunks of slots are
//! published as in `handle_table`. `tests/models` tries all of it.

use super::epoch;
use super::handle_table::{ELSEWHERE, INDEX_LIMIT, LAST_GENERATION, encode, index_of};
use crate::sys::sync::lock::Mutex;
use crate::sys::sync::{
    self, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, const_fn, hints, yield_now,
};
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr;

/// Slots are made so many at a time, each of which is written then.
const CHUNK_BITS: u32 = 7;
const CHUNK: usize = sync::size(1 << CHUNK_BITS, 2);
/// Few for Miri: it looks at each of them wherever a reference to the table is passed on.
const CHUNKS: usize = if cfg!(miri) { 4 } else { sync::size(INDEX_LIMIT >> CHUNK_BITS, 1) };

/// Free slots that a thread keeps for itself. (None in a model: there is nothing to try in a list
/// of one's own.)
const KEPT: u32 = sync::size(64, 0) as u32;

/// Looks at a busy object before the next yield.
const SPINS: u32 = sync::size(100, 1) as u32;

/// The second bit of an index (`ELSEWHERE` is the first): the object is in use.
const BUSY: u64 = ELSEWHERE << 1;

/// A place for an object. On lines of its own: threads look at neighbours at the same time.
#[repr(C, align(64))]
struct Slot<T> {
    /// Handle of the object and lock of the slot, by two bits of the index (`BUSY`, `ELSEWHERE`).
    word: AtomicU64,
    /// In a list of free ones: the next, or null.
    next: AtomicPtr<Slot<T>>,
    /// Group of the object. It does not change during the object's life.
    group: AtomicU64,
    /// There while `word` is a handle, or one that is busy.
    object: UnsafeCell<MaybeUninit<T>>,
    /// The thread (`epoch::thread_mark`) that has the lock and may call the program, which may look
    /// at the object again; else 0. A thread only compares it with its own mark.
    owner: AtomicUsize,
}

/// The table. A look-up reads its first line of the cache only.
#[repr(C, align(64))]
pub struct SlotMap<T> {
    tag: u8,
    chunks: [AtomicPtr<[Slot<T>; CHUNK]>; CHUNKS],
    /// Head of the free list: count << 32 | index + 1, or 0 there.
    free: AtomicU64,
    /// Slots that were ever used.
    used: Mutex<usize>,
}

// SAFETY: an object is reached by one thread at a time (see the module's text), so it need not be
// Sync.
unsafe impl<T: Send> Sync for SlotMap<T> {}

/// Fate of an object after its use.
pub enum SlotAction<R> {
    /// It stays.
    Keep(R),
    /// It goes, and its handle is stale.
    End(R),
}

/// Why nobody looks at an object.
#[derive(Debug, PartialEq, Eq)]
pub enum LookupFailure {
    /// There is no such object.
    Stale,
    /// Another thread uses it.
    Busy,
    /// A call further up this thread uses it: waiting for that would be a deadlock.
    Own,
}

/// Free slots of one of the tables that a thread keeps for itself, in its record (`epoch`).
pub struct SpareSlots {
    table: AtomicPtr<()>,
    first: AtomicPtr<()>,
    count: AtomicU32,
}

impl SpareSlots {
    pub(super) fn none() -> Self {
        let null = || AtomicPtr::new(ptr::null_mut());
        SpareSlots { table: null(), first: null(), count: AtomicU32::new(0) }
    }

    /// Whether they are a table's.
    fn is_of<T>(&self, table: &SlotMap<T>) -> bool {
        ptr::eq(self.table.load(Ordering::Relaxed).cast(), table)
    }

    /// In a forked child, of a thread that is not there: it may have been changing them.
    pub(super) fn forget(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.first.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

impl<T> Slot<T> {
    /// Returns index + 1 of a slot in the free list.
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

/// Exclusive access to a live object, by the lock of its slot.
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
        // SAFETY: the slot is live and `self` has its lock: the object stays and nobody changes it.
        unsafe { &*object }
    }
}

impl<T> DerefMut for Locked<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        let object = self.slot.object.get().cast::<T>();
        // SAFETY: the slot is live and `self` has its lock: the object is there, stays, and nobody
        // else reaches it. `self` is borrowed exclusively.
        unsafe { &mut *object }
    }
}

impl<T: Send + 'static> Locked<T> {
    /// Returns the group of the object.
    #[must_use]
    pub fn group(&self) -> u64 {
        self.slot.group.load(Ordering::Relaxed)
    }

    /// Records this thread as the one that has the lock, until it gives it back: for a caller that
    /// may call the program, which may look at the object again.
    pub fn set_owner(&self) {
        self.slot.owner.store(epoch::thread_mark(), Ordering::Relaxed);
    }

    /// Ends the object: its handle is stale. `own`: the thread's free slots.
    #[inline(always)] // row: any_source_8
    pub fn end(self, own: Option<&SpareSlots>) {
        self.slot.owner.store(0, Ordering::Relaxed);
        self.end_by(own, |object| {
            // SAFETY: it was there, and is not touched again.
            unsafe { object.assume_init_drop() };
        });
    }

    /// Ends an object that owns nothing, and whose owner was not set: it is not dropped.
    pub fn forget(self, own: Option<&SpareSlots>) {
        self.end_by(own, |_| ());
    }

    #[inline(always)] // row: any_source_8
    fn end_by(self, own: Option<&SpareSlots>, clear: impl FnOnce(&mut MaybeUninit<T>)) {
        let Locked { slot, handle, pool } = *ManuallyDrop::new(self);
        // First: what goes with the object may use the table, which does not list it any more.
        slot.word.store(handle ^ ELSEWHERE, Ordering::Release);
        let place = slot.object.get();
        // SAFETY: the slot is ours until it is given back, and with `self` the reference to what is
        // in it has gone.
        clear(unsafe { &mut *place });
        pool.give_back(own, handle, slot);
    }
}

impl<T: Send + 'static> SlotMap<T> {
    const_fn! {
        /// Empty; `tag` is the type byte of its handles.
        #[must_use]
        pub fn new(tag: u8) -> Self {
            SlotMap { tag, chunks: sync::nulls(), free: AtomicU64::new(0), used: Mutex::new(0) }
        }
    }

    /// The place of an index.
    #[inline]
    fn slot(&'static self, index: usize) -> Option<&'static Slot<T>> {
        let chunk = self.chunks.get(index >> CHUNK_BITS)?.load(Ordering::Acquire);
        // SAFETY: null, or a chunk that is published once and never freed.
        hints::usual(unsafe { chunk.as_ref() })?.get(index % CHUNK)
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

    /// Takes a free slot: of the thread's own if it has one.
    #[inline]
    fn pop(&'static self, own: Option<&SpareSlots>) -> Option<&'static Slot<T>> {
        let own = own.filter(|own| own.is_of(self));
        let slot = own.and_then(|own| free_slot(own.first.load(Ordering::Relaxed).cast()));
        let (Some(own), Some(slot)) = (own, slot) else {
            hints::rarely();
            return self.pop_elsewhere();
        };
        own.first.store(slot.next.load(Ordering::Relaxed).cast(), Ordering::Relaxed);
        own.count.store(own.count.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        Some(slot)
    }

    /// From the free list, or a fresh one.
    #[cold]
    #[inline(never)]
    fn pop_elsewhere(&'static self) -> Option<&'static Slot<T>> {
        self.pop_shared().or_else(|| self.fresh())
    }

    /// Gives the slot of a handle back; one that has had its last retires.
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

    /// Into the thread's own list.
    #[inline]
    fn keep(&'static self, own: &SpareSlots, slot: &'static Slot<T>) {
        slot.next.store(own.first.load(Ordering::Relaxed).cast(), Ordering::Release);
        own.first.store(ptr::from_ref(slot).cast_mut().cast(), Ordering::Relaxed);
        own.count.store(own.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Where the thread's own list is full, or none of this table's: if it is empty, it can be that
    /// from now on.
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
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let slot = self.slot((head as u32).checked_sub(1)? as usize)?;
            // If another thread has taken the slot, this is some slot, and the exchange fails.
            let next = free_slot(slot.next.load(Ordering::Acquire)).map_or(0, Slot::number);
            let after = (head >> 32).wrapping_add(1) << 32 | u64::from(next);
            match self.free.compare_exchange_weak(head, after, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => return Some(slot),
                Err(now) => head = now,
            }
        }
    }

    fn push_shared(&'static self, slot: &'static Slot<T>) {
        let mut head = self.free.load(Ordering::Relaxed);
        loop {
            let next = (head as u32).checked_sub(1).and_then(|index| self.slot(index as usize));
            let next = next.map_or(ptr::null_mut(), |next| ptr::from_ref(next).cast_mut());
            slot.next.store(next, Ordering::Release);
            let after = (head >> 32).wrapping_add(1) << 32 | u64::from(slot.number());
            match self.free.compare_exchange_weak(head, after, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Puts an object of a group under a fresh handle. `make` builds it in place: a copy would cost
    /// as much as the rest of the call. `own`: the thread's free slots. `Err`: no slot is left;
    /// `make` was not called.
    #[inline]
    pub fn put<F: FnOnce() -> T>(
        &'static self,
        own: Option<&SpareSlots>,
        group: u64,
        make: F,
    ) -> Result<u64, F> {
        let Some(slot) = self.pop(own) else { return Err(make) };
        let place = slot.object.get();
        // SAFETY: the slot is in no list, and nobody has a handle of its next generation yet: it is
        // ours alone.
        unsafe { place.write(MaybeUninit::new(make())) };
        slot.group.store(group, Ordering::Release);
        // The next generation: one of the last is not used again.
        let handle = (slot.word.load(Ordering::Relaxed) ^ ELSEWHERE) + 1;
        slot.word.store(handle, Ordering::Release);
        Ok(handle)
    }

    /// Whether a handle names an object.
    #[inline]
    #[must_use]
    pub fn is_live(&'static self, handle: u64) -> bool {
        let word = self.slot(index_of(handle)).map(|slot| slot.word.load(Ordering::Relaxed));
        word.is_some_and(|word| [handle, handle ^ BUSY].contains(&word))
    }

    /// Returns the group of an object, whether it is in use or not. `None`: no such object.
    #[must_use]
    pub fn group_of(&'static self, handle: u64) -> Option<u64> {
        let slot = self.slot(index_of(handle))?;
        let is_there = || [handle, handle ^ BUSY].contains(&slot.word.load(Ordering::Acquire));
        if !is_there() {
            return None;
        }
        let group = slot.group.load(Ordering::Acquire);
        is_there().then_some(group)
    }

    /// Whether a call further up this thread looks at an object, and has noted it.
    #[must_use]
    pub fn is_own(&'static self, handle: u64) -> bool {
        let mark = epoch::thread_mark();
        let slot = self.slot(index_of(handle)).filter(|_| mark != 0);
        let is = |slot: &Slot<T>| {
            slot.word.load(Ordering::Relaxed) == handle ^ BUSY
                && slot.owner.load(Ordering::Relaxed) == mark
        };
        slot.is_some_and(is)
    }

    /// Calls `look` with an object, after waiting until no other thread uses it.
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
            // A thread that polls the object has it most of the time. The gap between two of its
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

    /// Locks an object without waiting. The holder decides at the end whether the object stays.
    #[inline]
    pub fn try_look(&'static self, handle: u64) -> Result<Locked<T>, LookupFailure> {
        let Some(slot) = self.slot(index_of(handle)) else { return Err(LookupFailure::Stale) };
        slot.try_lock(handle).map(|()| Locked { slot, handle, pool: self })
    }

    /// The handles of all objects.
    #[must_use]
    pub fn handles(&'static self) -> Vec<u64> {
        self.handles_where(|_| true)
    }

    /// The handles of a group's objects. Takes few instructions for each slot of another group.
    #[must_use]
    pub fn handles_of(&'static self, group: u64) -> Vec<u64> {
        let mut handles = self.handles_where(|other| other == group);
        // Between the two reads of a slot, its object may have made room for another group's.
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

    /// In a forked child: forgets all objects. The slot of one that another thread looked at when
    /// the process forked is not used again.
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

/// A slot of a list; `None`: its end.
#[inline]
fn free_slot<T>(slot: *mut Slot<T>) -> Option<&'static Slot<T>> {
    // SAFETY: null or a slot, and slots are never freed. The thread that stored the pointer had the
    // slot's chunk, and the caller is that thread or has acquired what it stored.
    unsafe { slot.as_ref() }
}

#[cfg(test)]
#[path = "slot_map/tests.rs"] // also where tests/models compiles this file
mod tests;
