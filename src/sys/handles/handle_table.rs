//! Tables that map 64-bit handles to objects: typed, generational, safe against stale handles and
//! against a destroy that races with a use.
//!
//! A handle is `type 8 | index 20 | generation 36`, with field widths in bits. The word of a slot
//! is the handle of its object. While the slot has no object, the word is the last handle with one
//! bit of its index inverted. Such a word is not a valid handle: its index selects another slot. So
//! a single comparison checks that a handle has this type, refers to this slot and is live. Readers
//! hold an [`epoch`] guard and access no shared counter; the [`epoch`] module explains why that is
//! safe.
//!
//! A call refers to an object of a table in one of three ways:
//!
//! - [`EpochRef`], or a plain reference that borrows a [`Guard`]: the thread is inside the epoch
//!   and must not wait.
//! - [`HazardRef`]: the thread is outside the epoch, and the hazard pointer in its thread record
//!   points to the object. The thread may wait.
//! - `Arc`: an owned reference, from `HandleTable::pin`. It outlives the call.
//!
//! A [`SlotRef`] is a reference to a slot of a table; it finds the object faster than the handle
//! alone.
//!
//! [`OwningRef`] is a reference to a part of a shared object. The reference keeps the whole object
//! alive.
//!
//! [`Rcu`] is a value that is read often and replaced rarely: readers take no lock and write no
//! shared memory. A reader holds an [`epoch`] guard, so the value that it has obtained stays valid
//! until that guard is dropped. A writer allocates a new value, swaps the pointer and retires the
//! old value. Memory ordering: the swap releases the contents of the new value, and the reader's
//! load acquires them. The old value outlives its readers for the reason that `epoch` explains; the
//! swap unlinks the old value. Writers must exclude each other (`runtime::dispatch` has a lock for
//! this purpose).

use crate::hints;
use crate::sys::handles::epoch::{self, Blocking, CallbackGuard, Guard, HazardPointer, Visit};
use crate::sys::sync::lock::Mutex;
use crate::sys::sync::{self, Arc, AtomicPtr, AtomicU64, Ordering, const_fn};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};

const GENERATION_BITS: u32 = 36;
const INDEX_BITS: u32 = 20;
pub(super) const INDEX_LIMIT: usize = 1 << INDEX_BITS;
pub(super) const LAST_GENERATION: u64 = (1 << GENERATION_BITS) - 1;
/// log2 of the number of slots in a chunk. A chunk fills a page and is never moved.
const CHUNK_BITS: u32 = 8;
const CHUNK: usize = sync::size(1 << CHUNK_BITS, 3);
/// Number of chunks. Reduced under Miri, which checks every chunk wherever a reference to the table
/// is passed.
const CHUNKS: usize = if cfg!(miri) { 4 } else { sync::size(INDEX_LIMIT >> CHUNK_BITS, 1) };

pub(super) struct HandleSlot {
    /// Handle of the object or, while there is no object, the last handle of the slot with the bit
    /// `ELSEWHERE` inverted.
    word: AtomicU64,
    /// Pointer from `Arc::into_raw`; null if there is no object.
    object: AtomicPtr<()>,
}

impl HandleSlot {
    /// Returns the object if the slot's word equals `handle`; see [`HandleTable::get`].
    #[inline]
    pub(super) fn object_of(&self, handle: u64) -> Option<*const ()> {
        let object = self.object.load(Ordering::Acquire).cast_const();
        hints::usually(self.word.load(Ordering::Relaxed) == handle && !object.is_null())
            .then_some(object)
    }

    /// Stores an object and its handle. The caller must hold the lock on the free indices.
    fn put(&self, handle: u64, object: *const ()) {
        self.object.store(object.cast_mut(), Ordering::Release);
        self.word.store(handle, Ordering::Release);
    }
}

/// Lowest bit of an index.
pub(super) const ELSEWHERE: u64 = 1 << GENERATION_BITS;

/// Number of first indices that only [`HandleTable::put_fixed`] assigns.
const RESERVED: usize = sync::size(2, 1);

struct Free {
    indices: Vec<usize>,
    next_fresh: usize,
}

impl Default for Free {
    fn default() -> Free {
        Free { indices: Vec::new(), next_fresh: RESERVED }
    }
}

/// The slots of a table, which do not depend on the type of its objects. A lookup reads only the
/// first cache line of this struct, unless the table has more than eight chunks. A new table
/// consists of zeros, so it takes no space in the library's file.
#[repr(C, align(64))]
struct Slots {
    /// Chunks of slots. The pointer to a chunk is null until a slot of the chunk is first needed,
    /// and does not change after that.
    chunks: [AtomicPtr<[HandleSlot; CHUNK]>; CHUNKS],
    /// `None` until the first insertion.
    free: Mutex<Option<Box<Free>>>,
}

impl Slots {
    #[inline]
    fn slot(&self, index: usize) -> Option<&HandleSlot> {
        let chunk = self.chunks.get(index >> CHUNK_BITS)?.load(Ordering::Acquire);
        // SAFETY: null, or a leaked and hence valid chunk.
        hints::usual(unsafe { chunk.as_ref() })?.get(index % CHUNK)
    }

    /// Returns a slot, allocating its chunk if needed. The caller must hold the lock on the free
    /// indices, so that two threads never allocate the same chunk.
    fn slot_or_grow(&self, index: usize) -> Option<&HandleSlot> {
        let place = self.chunks.get(index >> CHUNK_BITS)?;
        if place.load(Ordering::Relaxed).is_null() {
            let first = index >> CHUNK_BITS << CHUNK_BITS;
            let empty = |index| HandleSlot {
                word: AtomicU64::new(encode(0, index, 0) ^ ELSEWHERE),
                object: AtomicPtr::new(ptr::null_mut()),
            };
            let slots: Box<[HandleSlot]> = (first..first + CHUNK).map(empty).collect();
            let slots: Box<[HandleSlot; CHUNK]> = slots.try_into().ok()?;
            place.store(Box::into_raw(slots), Ordering::Release);
        }
        self.slot(index)
    }

    /// Inserts the pointer of an `Arc`; returns its handle, or `None` if the table is full.
    fn insert(&self, tag: u8, object: *const ()) -> Option<u64> {
        let mut free = self.free.lock();
        let free = free.get_or_insert_default();
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
        let handle = encode(tag, index, generation);
        slot.put(handle, object);
        Some(handle)
    }

    /// Unlinks an object and returns its pointer, or `None` if the handle is stale.
    fn unlink(&self, handle: u64) -> Option<*const ()> {
        let index = index_of(handle);
        let slot = self.slot(index)?;
        // Inserting takes this lock, too: a fixed handle can be reopened once its word is cleared.
        let mut free = self.free.lock();
        slot.word
            .compare_exchange(handle, handle ^ ELSEWHERE, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        let object = slot.object.load(Ordering::Acquire).cast_const();
        slot.object.store(ptr::null_mut(), Ordering::Release);
        if index >= RESERVED && handle & LAST_GENERATION < LAST_GENERATION {
            free.get_or_insert_default().indices.push(index); // an exhausted slot retires
        }
        Some(object)
    }

    /// Returns the handles that are live now.
    fn handles(&self) -> Vec<u64> {
        let end = self.free.lock().as_ref().map_or(RESERVED, |free| free.next_fresh);
        (0..end)
            .filter_map(|index| {
                let word = self.slot(index)?.word.load(Ordering::Acquire);
                (index_of(word) == index).then_some(word)
            })
            .collect()
    }
}

/// Table of objects of one type, addressed by handle.
pub struct HandleTable<T> {
    slots: Slots,
    _owns: PhantomData<Arc<T>>,
}

impl<T: Send + Sync + 'static> HandleTable<T> {
    const_fn! {
        /// Creates an empty table.
        #[allow(clippy::new_without_default, reason = "tables are statics")]
        pub fn new() -> Self {
            let slots = Slots { chunks: sync::nulls(), free: Mutex::new(None) };
            HandleTable { slots, _owns: PhantomData }
        }
    }

    /// Inserts an object and returns its handle, or `None` if the table is full. `tag` is the type
    /// byte of the table's handles (not 0).
    pub fn insert(&self, tag: u8, object: Arc<T>) -> Option<u64> {
        let handle = self.slots.insert(tag, Arc::as_ptr(&object).cast())?;
        std::mem::forget(object); // The table now owns this reference.
        Some(handle)
    }

    /// Inserts an object under a handle that is known beforehand, because it has a reserved index
    /// and generation 0. Returns false if the index is in use or not reserved.
    pub fn put_fixed(&self, tag: u8, index: usize, object: Arc<T>) -> bool {
        let _one_inserts = self.slots.free.lock();
        let Some(slot) = self.slots.slot_or_grow(index).filter(|_| index < RESERVED) else {
            return false;
        };
        let handle = encode(tag, index, 0);
        if slot.word.load(Ordering::Relaxed) == handle {
            return false;
        }
        slot.put(handle, Arc::into_raw(object).cast());
        true
    }

    /// Returns the object that a handle names, valid as long as the guard lives. Does not write
    /// shared memory.
    ///
    /// The slot's object pointer is read before the slot's word (the handle of the object). A
    /// pointer that is not null was in the slot at a moment when this thread was inside the epoch,
    /// and `remove` clears the pointer before it releases the object: so the object lives as long
    /// as the guard. The word then shows whether the handle is live. A thread that received the
    /// handle sees its object, or a later object whose word differs. A thread that guessed the
    /// handle may get the preceding object.
    #[inline]
    pub fn get<'g>(&self, _inside: &'g Guard, handle: u64) -> Option<&'g T> {
        let object = self.slots.slot(index_of(handle))?.object_of(handle)?.cast::<T>();
        // SAFETY: null, or an object that was in the slot while this thread was inside its epoch:
        // `remove` does not release it before the guard ends.
        unsafe { object.as_ref() }
    }

    /// Returns a reference to the slot that a handle selects. The object may be inserted into the
    /// slot later.
    pub fn slot_ref(&'static self, handle: u64) -> SlotRef<T> {
        let _one_makes_chunks = self.slots.free.lock();
        SlotRef(self.slots.slot_or_grow(index_of(handle)), PhantomData)
    }

    /// Returns the object that a handle names. The thread remains inside the epoch until the result
    /// is dropped.
    #[inline]
    pub fn visit(&self, visit: Visit, handle: u64) -> Option<EpochRef<T>> {
        let object = ptr::from_ref(self.get(&visit, handle)?);
        Some(EpochRef { object, visit })
    }

    /// Returns true if a handle names an object at this moment.
    pub fn is_live(&self, handle: u64) -> bool {
        let slot = self.slots.slot(index_of(handle));
        slot.is_some_and(|slot| slot.word.load(Ordering::Acquire) == handle)
    }

    /// Returns a counted reference to the object. The reference may outlive the guard.
    #[must_use]
    #[inline]
    pub fn pin(&self, _inside: &Guard, handle: u64) -> Option<Arc<T>> {
        let object = self.slots.slot(index_of(handle))?.object_of(handle)?.cast::<T>();
        // SAFETY: `object` is the very pointer of Arc::into_raw (a pointer made from `get`'s
        // reference must not be used for the counters beside the object), not null, and the table's
        // own counted reference is alive as long as the guard, as in `get`.
        unsafe { Arc::increment_strong_count(object) };
        // SAFETY: takes over the counted reference made in the line above.
        Some(unsafe { Arc::from_raw(object) })
    }

    /// Leaves the epoch with a reference to the object, for a call that will wait. Usually cheaper
    /// than [`pin`]: a shared counter is accessed only if the thread's hazard pointer cannot be
    /// used. Returns `Err` with the guard if the handle is stale.
    ///
    /// [`pin`]: HandleTable::pin
    pub fn hold(&self, inside: Guard, handle: u64) -> Result<HazardRef<T>, Guard> {
        let Some(object) = self.get(&inside, handle).map(ptr::from_ref) else { return Err(inside) };
        let inside = match inside.into_hazard(object.cast()) {
            Ok(pointer) => {
                let _protection = Protection::Pointer { _pointer: pointer };
                return Ok(HazardRef { object, _protection });
            }
            Err(inside) => hints::out_of_line(|| inside),
        };
        let Some(share) = self.pin(&inside, handle) else { return Err(inside) };
        let object = Arc::as_ptr(&share);
        let _protection = Protection::Count { _share: share, _blocking: inside.into_blocking() };
        Ok(HazardRef { object, _protection })
    }

    /// Unlinks the object and returns a counted reference to it. The handle is stale afterwards.
    /// The table's own counted reference is dropped once the last thread that may still access the
    /// object has left the epoch. Returns `None` if the handle was already stale.
    #[must_use]
    pub fn remove(&self, inside: &Guard, handle: u64) -> Option<Arc<T>> {
        let object = self.pin(inside, handle)?;
        let tables_share = self.slots.unlink(handle)?.cast::<T>();
        debug_assert!(ptr::eq(tables_share, Arc::as_ptr(&object)));
        // SAFETY: `unlink` returns the table's reference, which `insert` or `put_fixed` left, once.
        let share = unsafe { Arc::from_raw(tables_share) };
        epoch::retire(tables_share.cast(), move || drop(share));
        Some(object)
    }

    /// Returns the handles that are live now.
    pub fn handles(&self) -> Vec<u64> {
        self.slots.handles()
    }

    /// Removes all objects, one at each step of the iterator, and returns them.
    pub fn drain<'a>(&'a self, inside: &'a Guard) -> impl Iterator<Item = Arc<T>> {
        self.handles().into_iter().filter_map(|handle| self.remove(inside, handle))
    }
}

pub(super) fn encode(tag: u8, index: usize, generation: u64) -> u64 {
    u64::from(tag) << (INDEX_BITS + GENERATION_BITS)
        | (index as u64) << GENERATION_BITS
        | generation
}

/// Returns the table index that a handle selects. There may be no object at that index.
pub const fn index_of(handle: u64) -> usize {
    (handle >> GENERATION_BITS) as usize & (INDEX_LIMIT - 1)
}

/// Returns the type byte of a handle, whatever table it belongs to.
pub fn tag_of(handle: u64) -> u8 {
    (handle >> (INDEX_BITS + GENERATION_BITS)) as u8
}

/// Reference to an object in a handle table. The thread stays in the critical section of the
/// epoch-based reclamation until the reference is dropped.
pub struct EpochRef<T> {
    pub(super) object: *const T,
    pub(super) visit: Visit,
}

impl<T> EpochRef<T> {
    /// Returns the epoch guard, which is valid as long as this reference.
    pub fn inside(&self) -> &Guard {
        &self.visit
    }

    /// Leaves the epoch for a call that may wait, and protects the object with the thread's hazard
    /// pointer. Returns `None` if an enclosing library call made by this thread uses the hazard
    /// pointer.
    #[inline]
    pub fn into_hazard(self) -> Option<HazardRef<T>> {
        let object = self.object;
        let pointer = self.visit.into_hazard(object.cast())?;
        Some(HazardRef { object, _protection: Protection::Pointer { _pointer: pointer } })
    }

    /// Leaves the epoch so that the call can run a user callback. Until the result is dropped, the
    /// thread counts as being in a call.
    #[must_use]
    pub fn into_running(self) -> CallbackGuard {
        self.visit.into_running()
    }

    /// Narrows the reference to a part of the object; returns `None` if `part` returns `None`.
    #[inline]
    pub fn filter_map<U>(self, part: impl FnOnce(&T) -> Option<&U>) -> Option<EpochRef<U>> {
        let object = ptr::from_ref(part(&self)?);
        Some(EpochRef { object, visit: self.visit })
    }
}

impl<T> Deref for EpochRef<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `HandleTable::visit` had a reference that lives as long as the visit, and
        // `filter_map` had a reference that lives as long as the first one.
        unsafe { &*self.object }
    }
}

/// Reference to an object that stays alive while its user waits outside the epoch.
pub struct HazardRef<T> {
    object: *const T,
    /// Hazard pointer or counted reference, which keeps the object alive until this field is
    /// dropped.
    _protection: Protection<T>,
}

/// Protection that keeps the object of a [`HazardRef`] alive. A thread has one hazard pointer.
/// While a call uses it, calls nested in that call (made by a user callback) hold counted
/// references instead.
enum Protection<T> {
    Pointer { _pointer: HazardPointer },
    Count { _share: Arc<T>, _blocking: Blocking },
}

impl<T> HazardRef<T> {
    /// Returns true if the object is kept alive by a counted reference.
    #[cfg(test)]
    pub(super) fn is_counted(&self) -> bool {
        matches!(self._protection, Protection::Count { .. })
    }
}

impl<T> Deref for HazardRef<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `_protection` keeps the object alive. With a hazard pointer, the thread's record
        // names the object until `_protection` is dropped, and `epoch::retire` frees no object that
        // a record names. Otherwise `_protection` has a counted reference to the object.
        unsafe { &*self.object }
    }
}

/// Reference to a slot, for use with the handle of an object that is or was in the slot. Later, the
/// slot may contain another object, even at the same address.
pub struct SlotRef<T: 'static>(Option<&'static HandleSlot>, PhantomData<&'static T>);

impl<T> Clone for SlotRef<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SlotRef<T> {}

impl<T> SlotRef<T> {
    /// Returns the object, or `None` if `handle` is stale.
    #[inline]
    pub fn get(self, _inside: &Guard, handle: u64) -> Option<&T> {
        let object = hints::usual(self.0)?.object_of(handle)?.cast::<T>();
        // SAFETY: the pointer was in the slot while this thread was inside the epoch, and `remove`
        // clears it before it releases the object, so the object lives as long as the guard.
        Some(unsafe { &*object })
    }
}

/// Slot and handle of an object, stored in the object. The thread that inserts the object sets both
/// once, before it passes the handle on. While they are being set, a thread that obtains the object
/// without its handle may see only one of the two values.
pub struct SlotRefCell<T: 'static> {
    slot: AtomicPtr<HandleSlot>,
    handle: AtomicU64,
    _of: PhantomData<&'static T>,
}

impl<T> Default for SlotRefCell<T> {
    fn default() -> Self {
        let slot = AtomicPtr::new(ptr::null_mut());
        SlotRefCell { slot, handle: AtomicU64::new(0), _of: PhantomData }
    }
}

impl<T> SlotRefCell<T> {
    /// Sets the slot and the handle.
    pub fn set(&self, slot: SlotRef<T>, handle: u64) {
        let slot = slot.0.map_or(ptr::null(), ptr::from_ref);
        self.slot.store(slot.cast_mut(), Ordering::Relaxed);
        self.handle.store(handle, Ordering::Relaxed);
    }

    /// Returns the reference to the slot; before `set`, a reference to no slot.
    pub fn get(&self) -> SlotRef<T> {
        // SAFETY: null, or a slot of a table that lives forever (`HandleTable::slot_ref`).
        SlotRef(unsafe { self.slot.load(Ordering::Relaxed).as_ref() }, PhantomData)
    }

    /// Returns the handle; 0 before `set`.
    pub fn handle(&self) -> u64 {
        self.handle.load(Ordering::Relaxed)
    }
}

/// Read-copy-update cell, which contains a pointer to the current value.
pub struct Rcu<T> {
    now: AtomicPtr<T>,
}

impl<T: Send + Sync + 'static> Rcu<T> {
    /// Creates a cell with its first value.
    pub fn new(value: T) -> Self {
        Rcu { now: AtomicPtr::new(Box::into_raw(Box::new(value))) }
    }

    /// Returns the current value, valid for as long as the guard lives.
    #[inline]
    pub fn get<'g>(&'g self, _inside: &'g Guard) -> &'g T {
        let now = self.now.load(Ordering::Acquire);
        // SAFETY: the pointer comes from a box and is never null. While this thread is inside the
        // epoch, `replace` keeps the value that it has unlinked.
        unsafe { &*now }
    }

    /// Replaces the current value. The old value is dropped once its last reader has left the
    /// epoch.
    ///
    /// Consumes the guard: a reference to the old value borrows the guard, so the caller cannot
    /// keep one.
    pub fn replace(&self, value: T, inside: Guard) {
        let before = self.now.swap(Box::into_raw(Box::new(value)), Ordering::AcqRel);
        // SAFETY: the pointer comes from a box, and the swap made this call its only owner.
        let before = unsafe { Box::from_raw(before) };
        let place = std::ptr::from_ref::<T>(&before).cast();
        epoch::retire(place, move || drop(before));
        drop(inside);
    }
}

impl<T> Drop for Rcu<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from a box, and no other thread can access this cell any more.
        drop(unsafe { Box::from_raw(self.now.load(Ordering::Acquire)) });
    }
}

/// Shared reference (`Arc`) to an object, together with a direct reference to one part of the
/// object.
#[repr(C)]
pub struct OwningRef<T: ?Sized, W: ?Sized> {
    whole: Arc<W>,
    part: NonNull<T>,
}

// SAFETY: the value is an `Arc<W>` and a `&T`. The bounds are those under which both are Send.
unsafe impl<T: ?Sized + Sync, W: ?Sized + Send + Sync> Send for OwningRef<T, W> {}
// SAFETY: the value is an `Arc<W>` and a `&T`. The bounds are those under which both are Sync.
unsafe impl<T: ?Sized + Sync, W: ?Sized + Send + Sync> Sync for OwningRef<T, W> {}

impl<T: ?Sized, W: ?Sized> OwningRef<T, W> {
    /// Creates a reference to the part that `part` returns.
    pub fn new(whole: Arc<W>, part: impl FnOnce(&W) -> &T) -> Self {
        let part = NonNull::from(part(&whole));
        OwningRef { whole, part }
    }

    /// Creates a reference to an optional part; `None` if `part` returns `None`.
    pub fn find(whole: Arc<W>, part: impl FnOnce(&W) -> Option<&T>) -> Option<Self> {
        let part = NonNull::from(part(&whole)?);
        Some(OwningRef { whole, part })
    }

    /// Returns the referenced part of the object.
    #[inline]
    pub fn part(&self) -> &T {
        // SAFETY: the pointer came from a reference that is valid as long as one to the whole (or
        // forever). The whole does not move, and lives as long as this `Arc`. No code changes it,
        // since no exclusive reference to it can be obtained while this `Arc` exists.
        unsafe { self.part.as_ref() }
    }
}

impl<T: ?Sized, W: ?Sized> Deref for OwningRef<T, W> {
    type Target = Arc<W>;

    fn deref(&self) -> &Arc<W> {
        &self.whole
    }
}

#[cfg(test)]
#[path = "tests/owning_ref.rs"]
mod owning_ref_tests;
#[cfg(test)]
#[path = "tests/handle_table.rs"]
mod tests;
