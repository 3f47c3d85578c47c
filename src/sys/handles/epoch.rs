//! Epoch-based reclamation: a destroyed object is freed only after the last thread that may still
//! access it has left the epoch (the critical section in which a thread uses shared objects).
//!
//! Each thread owns a record, its `ThreadRecord`. Entering the epoch makes the record's sequence
//! number odd, and leaving the epoch makes it even. Each is one plain store, without an atomic
//! read-modify-write and without a write to shared data. A destroyer first unlinks the object (so
//! that no new user finds it), then makes every running thread execute a memory barrier
//! (membarrier), then reads the records. A thread that was inside may still have a reference, so
//! the object waits in the limbo list until all such threads have left.
//!
//! Memory ordering. Reader: S1 `seq = odd`, compiler fence, L1 loads the object's slot. Destroyer:
//! S2 unlinks the slot, membarrier, L2 loads `seq`. The membarrier executes a full barrier on each
//! running thread between two of its instructions (a thread that is not running had one at its
//! context switch). If the barrier falls before S1 in the reader, L1 comes after S2 and finds
//! nothing. If it falls after S1, L2 sees the odd number and the object is kept. Without membarrier
//! (old kernels, some emulators) both sides use a SeqCst fence instead, which gives an equivalent
//! guarantee by the rules of the C++ memory model: either L1 finds the slot unlinked or L2 sees the
//! odd number. The model in `tests/models` checks the variant with fences. That proves the variant
//! with membarrier too: the barrier of membarrier is also a full one, and the code relies only on
//! this alternative, so the exact point at which the barrier executes does not matter.
//!
//! A call that waits leaves the epoch, but first publishes the one object that it continues to use
//! (`held`), as a hazard pointer. The release store that makes the number even publishes the hazard
//! pointer too, so a destroyer that sees the thread outside sees the object that it uses. Leaving
//! is a release store and the destroyer's read of the number an acquire load, so the user's last
//! access happens before the free. Entering is a release store, too (an identical instruction on
//! x86): a destroyer that loads the number of a later entry thereby also synchronizes with the
//! leave before that entry.

#[path = "epoch/deferred_work.rs"]
mod deferred_work;
#[path = "epoch/fork.rs"] // also where tests/models compiles this file
mod fork;

pub use self::deferred_work::until_done;
pub use fork::{ForkGuard, another_was_inside, aside, depth, forget_other_threads, is_aside};

use crate::sys::sync::lock::Mutex;
use crate::sys::sync::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
    global, thread_local, tls, yield_now,
};
use std::mem::ManuallyDrop;
use std::ptr;
use std::time::{Duration, Instant};

/// Epoch state of one thread (its record). The alignment ensures that the records of two threads
/// never share a cache line (or a pair of lines that the processor prefetches together).
#[derive(Default)]
#[repr(align(128))]
pub(super) struct ThreadRecord {
    /// Sequence number, which is odd while the thread is inside the epoch (pinned).
    seq: AtomicU64,
    /// Number of nested entries, which are made while the thread is already inside the epoch. Only
    /// the thread that owns the record accesses it.
    nested: AtomicU32,
    /// Number of waiting calls made by this thread that are outside the epoch but hold pins
    /// (counted references).
    blocked: AtomicU32,
    /// Hazard pointer: object that a call made by this thread continues to use while the call waits
    /// outside the epoch.
    held: AtomicPtr<()>,
    /// Number of user callbacks that run outside the epoch in library calls made by this thread.
    /// Each has a [`CallbackGuard`].
    running: AtomicU32,
    /// Number of existing `ForkGuard`s that [`aside`] has created in this thread.
    aside: AtomicU32,
    /// True while a thread owns the record.
    owned: AtomicBool,
    /// True while an exiting thread, whose thread-local data is already destroyed, owns the record
    /// for one call only.
    borrowed: AtomicBool,
    /// True if entering the epoch needs a memory fence instruction: a copy of `NEEDS_FENCE`, stored
    /// here because every entry accesses the record in any case.
    needs_fence: AtomicBool,
    /// Free slots that the owner of the record (a thread) retains for reuse; all belong to one slot
    /// map. Only the owner accesses them. A later owner sees the slots that are left, as it sees
    /// all other writes of the earlier owner.
    spare: SpareSlots,
    /// Number of records that were created before this record.
    number: usize,
}

/// Free slots of one slot map in a list that belongs to one thread and is stored in the thread's
/// `ThreadRecord`. Only that thread accesses the list.
#[derive(Default)]
pub struct SpareSlots {
    /// Address of the `slot_map` to which the slots belong, used only for comparison.
    pub(super) table: AtomicPtr<()>,
    pub(super) first: AtomicPtr<()>,
    pub(super) count: AtomicU32,
}

impl SpareSlots {
    /// Returns true if these slots belong to `table`.
    pub(super) fn is_of<T>(&self, table: &T) -> bool {
        ptr::eq(self.table.load(Ordering::Relaxed).cast(), table)
    }

    /// Empties the list of a thread that does not exist in this forked child, and that may have
    /// been changing the list at the fork.
    pub(super) fn forget(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.first.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

global! {
    /// True if [`light_fence`] must execute a memory fence instruction, because the membarrier
    /// system call is not available.
    static NEEDS_FENCE: AtomicBool = AtomicBool::new(true);
}
global! {
    static RECORDS: Mutex<Vec<&'static ThreadRecord>> = Mutex::new(Vec::new());
}

global! {
    /// Retired objects, each of which is freed once the threads that may still use it have left the
    /// epoch.
    static LIMBO: Mutex<Vec<Waiting>> = Mutex::new(Vec::new());
}
global! {
    /// Total number of retired objects in `LIMBO`, deferred functions (`deferred_work`) and thread
    /// records that are borrowed for one call. A thread that leaves the epoch reads only this
    /// number to detect deferred work.
    static ERRANDS: AtomicUsize = AtomicUsize::new(0);
}

struct Waiting {
    /// Address of the object, used only for comparison.
    object: usize,
    users: Vec<(&'static ThreadRecord, u64)>,
    free: Box<dyn FnOnce() + Send>,
}

impl ThreadRecord {
    /// Returns true if the record's thread is inside a library call or waits in one.
    fn is_in_call(&self) -> bool {
        self.seq.load(Ordering::Acquire) % 2 == 1
            || self.blocked.load(Ordering::Acquire) > 0
            || self.running.load(Ordering::Acquire) > 0
            || !self.held.load(Ordering::Acquire).is_null()
    }
}

/// Returns true if the record's thread may still use `object`, which was reachable when the
/// record's sequence number was `seq`.
fn uses(record: &ThreadRecord, seq: u64, object: usize) -> bool {
    let inside = seq % 2 == 1 && record.seq.load(Ordering::Acquire) == seq;
    inside || record.held.load(Ordering::Acquire).addr() == object
}

thread_local! {
    static OWNER: RecordGuard = const { RecordGuard };
}

/// Returns the calling thread's record, or null if the thread has none.
fn mine() -> *const ThreadRecord {
    tls::get().cast()
}

/// Returns the address of the calling thread's `ThreadRecord`, or 0 if the thread has no record
/// yet. No two live threads have the same record. After the calling thread has ended, a later
/// thread may get the same record; the later thread then sees all writes of the earlier one.
pub fn thread_mark() -> usize {
    mine().addr()
}

/// Returns the calling thread's list of free slots, or `None` before the thread has a
/// `ThreadRecord`.
#[inline]
pub fn spare_slots() -> Option<&'static SpareSlots> {
    // SAFETY: the thread pointer is only ever null or a leaked, hence valid, record.
    unsafe { mine().as_ref() }.map(|record| &record.spare)
}

/// Guard that releases the thread's [`ThreadRecord`] when the thread ends.
struct RecordGuard;

impl Drop for RecordGuard {
    fn drop(&mut self) {
        let mine = mine();
        tls::set(ptr::null());
        // SAFETY: the thread pointer is only ever null or a leaked, hence valid, record.
        if let Some(record) = unsafe { mine.as_ref() } {
            record.owned.store(false, Ordering::Release);
        }
    }
}

/// Executes the light half of an asymmetric fence. The light half costs next to nothing. If one
/// thread stores before the light half and loads after it, and another thread stores before the
/// heavy half and loads after it, at least one of the two loads sees the store of the other thread.
pub fn light_fence() {
    compiler_fence(Ordering::SeqCst);
    if NEEDS_FENCE.load(Ordering::Relaxed) {
        fence(Ordering::SeqCst);
    }
}

/// Executes the heavy half of an asymmetric fence: makes every running thread of the process
/// execute a full memory barrier.
pub fn heavy_fence() {
    fence(Ordering::SeqCst);
    if !NEEDS_FENCE.load(Ordering::Relaxed) {
        // SAFETY: the syscall takes plain numbers and accesses no memory of this process.
        let _ = unsafe {
            libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0)
        };
    }
}

/// Registers the process for membarrier. Must be called before the first entry into the epoch, and
/// again in a forked child.
pub fn prepare() {
    let records = RECORDS.lock();
    // Miri does not support this system call, so it uses fences.
    if !cfg!(miri) {
        let command = libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
        // SAFETY: the syscall takes plain numbers and accesses no memory of this process.
        let refused = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
        NEEDS_FENCE.store(refused != 0, Ordering::SeqCst);
    }
    let needs_fence = NEEDS_FENCE.load(Ordering::Relaxed);
    records.iter().for_each(|record| record.needs_fence.store(needs_fence, Ordering::SeqCst));
}

#[cold]
fn adopt_record() -> &'static ThreadRecord {
    let mut records = RECORDS.lock();
    let free = records.iter().copied().find(|record| {
        record.owned.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    });
    let record = free.unwrap_or_else(|| {
        let record: &'static ThreadRecord = Box::leak(Box::new(ThreadRecord {
            owned: AtomicBool::new(true),
            needs_fence: AtomicBool::new(NEEDS_FENCE.load(Ordering::Relaxed)),
            number: records.len(),
            ..ThreadRecord::default()
        }));
        records.push(record);
        record
    });
    drop(records);
    // In a thread-exit destructor that runs after that of OWNER, OWNER is destroyed already. The
    // record is then borrowed for this one call only.
    if OWNER.try_with(|_| ()).is_err() {
        record.borrowed.store(true, Ordering::Relaxed);
        ERRANDS.fetch_add(1, Ordering::Relaxed);
    }
    tls::set(ptr::from_ref(record).cast());
    record
}

/// Guard that keeps the calling thread inside the epoch (pinned). References that a handle table
/// returns live no longer than the guard.
pub struct Guard {
    record: &'static ThreadRecord,
}

/// Enters the epoch (pins the thread). The cost is one store to the thread's record. Entries nest.
#[must_use]
#[inline]
pub fn enter() -> Guard {
    let guard = enter_cheaply();
    if guard.record.needs_fence.load(Ordering::Relaxed) {
        fence(Ordering::SeqCst);
    }
    guard
}

/// Enters the epoch without executing a memory fence instruction. The instruction is unnecessary
/// where [`is_cheap`] returns true. A caller that finds, once inside, that [`is_cheap`] returns
/// false must leave the epoch before it uses any object.
#[must_use]
#[inline]
pub fn enter_cheaply() -> Guard {
    // SAFETY: the thread pointer is only ever null or a leaked, hence valid, record.
    let record = unsafe { mine().as_ref() }.unwrap_or_else(adopt_record);
    let seq = record.seq.load(Ordering::Relaxed);
    if seq % 2 == 1 {
        return enter_nested(record);
    }
    record.seq.store(seq + 1, Ordering::Release);
    compiler_fence(Ordering::SeqCst);
    Guard { record }
}

/// Returns true if the calling thread is inside the epoch (a reclamation critical section).
pub fn is_inside() -> bool {
    // SAFETY: the thread pointer is only ever null or a leaked, hence valid, record.
    unsafe { mine().as_ref() }.is_some_and(|record| record.seq.load(Ordering::Relaxed) % 2 == 1)
}

/// Returns true if entering the epoch needs no memory fence instruction, so that [`step_in`] and
/// [`enter_cheaply`] may be used.
pub fn is_cheap() -> bool {
    !NEEDS_FENCE.load(Ordering::Relaxed)
}

/// Enters the epoch for a few nanoseconds, until the result is dropped. Returns `None` if this
/// thread has no `ThreadRecord` yet or is already inside the epoch. Call only where a value read
/// inside the epoch shows, as in `runtime::open_state`, that [`is_cheap`] returned true: then the
/// compiler fence suffices. Dropping the result does not run deferred work; other threads run that
/// work, or this thread does when it leaves the epoch after its next [`enter`].
#[inline]
pub fn step_in() -> Option<Visit> {
    // SAFETY: the thread pointer is only ever null or a leaked, hence valid, record.
    let record = unsafe { mine().as_ref() }?;
    let seq = record.seq.load(Ordering::Relaxed);
    if seq % 2 == 1 {
        return None;
    }
    record.seq.store(seq + 1, Ordering::Release);
    compiler_fence(Ordering::SeqCst);
    // `Visit::drop` leaves the epoch by its own store, in place of the guard's.
    Some(Visit { inside: ManuallyDrop::new(Guard { record }), seq })
}

/// Guard of a short epoch critical section, which lasts from [`step_in`] until this guard is
/// dropped. Guards created in the meantime must be dropped first.
pub struct Visit {
    inside: ManuallyDrop<Guard>,
    seq: u64,
}

impl std::ops::Deref for Visit {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.inside
    }
}

impl Visit {
    /// Leaves the epoch for a call that may wait, and protects one object with the thread's hazard
    /// pointer, like [`Guard::into_hazard`]. Returns `None` if an enclosing library call made by
    /// this thread uses the hazard pointer.
    pub(super) fn into_hazard(self, object: *const ()) -> Option<HazardPointer> {
        HazardPointer::publish(self.inside.record, object)
    }

    /// Leaves the epoch to run a user callback. Until the returned guard is dropped, the thread
    /// counts as being in a call. The guard does not keep any objects alive.
    #[inline]
    pub(crate) fn into_running(self) -> CallbackGuard {
        let record = self.inside.record;
        // Before the number becomes even: a thread that sees it even sees this store (release).
        record.running.store(record.running.load(Ordering::Relaxed) + 1, Ordering::Release);
        CallbackGuard { record }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.inside.record.seq.store(self.seq.wrapping_add(2), Ordering::Release);
    }
}

/// State of a thread that left the epoch ([`Visit`]) to run a user callback within a library call.
/// Dropping the guard neither enters the epoch again nor runs deferred work; other threads run that
/// work, or this thread does when it leaves the epoch after its next [`enter`].
pub struct CallbackGuard {
    record: &'static ThreadRecord,
}

impl Drop for CallbackGuard {
    #[inline]
    fn drop(&mut self) {
        let running = self.record.running.load(Ordering::Relaxed);
        self.record.running.store(running.wrapping_sub(1), Ordering::Release);
    }
}

#[cold]
fn enter_nested(record: &'static ThreadRecord) -> Guard {
    record.nested.store(record.nested.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    Guard { record }
}

/// Leaves one level of nesting. The last guard to be dropped leaves the epoch, in whatever order
/// the guards are dropped.
#[cold]
fn leave_nested(record: &ThreadRecord) {
    record.nested.store(record.nested.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
}

impl Guard {
    /// Returns the calling thread's number, a small integer that no other live thread has. The
    /// guarantees of [`thread_mark`] about later threads hold for this number too.
    pub fn thread_number(&self) -> usize {
        self.record.number
    }

    /// Returns the calling thread's list of free slots; see [`spare_slots`].
    pub fn spare_slots(&self) -> Option<&'static SpareSlots> {
        Some(&self.record.spare)
    }

    /// Leaves the epoch for a call that will wait. The thread still counts as being in a call. The
    /// caller must hold pins (`Arc`s) on everything that it continues to use.
    #[must_use]
    #[inline]
    pub fn into_blocking(self) -> Blocking {
        let record = self.record;
        record.blocked.store(record.blocked.load(Ordering::Relaxed) + 1, Ordering::Release);
        Blocking { record }
    }

    /// Leaves the epoch and protects one object with the hazard pointer in the thread's record. The
    /// thread still counts as being in a call. Returns the guard as `Err` if an enclosing library
    /// call made by this thread uses the hazard pointer.
    pub(super) fn into_hazard(self, object: *const ()) -> Result<HazardPointer, Guard> {
        if self.record.nested.load(Ordering::Relaxed) != 0 {
            return Err(self);
        }
        HazardPointer::publish(self.record, object).ok_or(self)
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        let record = self.record;
        if record.nested.load(Ordering::Relaxed) != 0 {
            return leave_nested(record);
        }
        record.seq.store(record.seq.load(Ordering::Relaxed) + 1, Ordering::Release);
        if ERRANDS.load(Ordering::Relaxed) != 0 {
            run_errands(record);
        }
    }
}

/// Runs deferred work in a thread that leaves the epoch: frees retired objects, runs deferred
/// functions (`deferred_work`), and releases the thread's record if it was borrowed for one call.
#[cold]
fn run_errands(record: &'static ThreadRecord) {
    // A fork during this work leaves the limbo and locks of freed objects locked in the child.
    let errands = ForkGuard::of(record);
    collect();
    deferred_work::run();
    drop(errands);
}

/// Releases a thread record that was borrowed for one call only.
fn give_back(record: &ThreadRecord) {
    if record.borrowed.load(Ordering::Relaxed) && !record.may_hold_locks() {
        record.borrowed.store(false, Ordering::Relaxed);
        tls::set(ptr::null());
        ERRANDS.fetch_sub(1, Ordering::Relaxed);
        record.owned.store(false, Ordering::Release);
    }
}

/// Guard of a thread's hazard pointer. The hazard pointer protects one object while a call waits
/// outside the epoch.
pub(super) struct HazardPointer {
    record: &'static ThreadRecord,
}

impl HazardPointer {
    /// Stores an object in the thread's hazard pointer. The caller does this before the sequence
    /// number becomes even: a thread that sees the even number sees the object (release). Returns
    /// `None` if the hazard pointer is in use.
    #[inline]
    fn publish(record: &'static ThreadRecord, object: *const ()) -> Option<HazardPointer> {
        if !record.held.load(Ordering::Relaxed).is_null() {
            return None;
        }
        record.held.store(object.cast_mut(), Ordering::Release);
        Some(HazardPointer { record })
    }
}

impl Drop for HazardPointer {
    #[inline]
    fn drop(&mut self) {
        self.record.held.store(ptr::null_mut(), Ordering::Release);
        if ERRANDS.load(Ordering::Relaxed) != 0 {
            run_errands(self.record);
        }
    }
}

/// Guard that counts the thread as being in a call while the call waits outside the epoch.
pub struct Blocking {
    record: &'static ThreadRecord,
}

impl Drop for Blocking {
    fn drop(&mut self) {
        let blocked = self.record.blocked.load(Ordering::Relaxed);
        self.record.blocked.store(blocked - 1, Ordering::Release);
        if ERRANDS.load(Ordering::Relaxed) != 0 {
            run_errands(self.record);
        }
    }
}

/// Runs `free` after every thread that may use the object has left the epoch or cleared its hazard
/// pointer. The object must already be unlinked, so that no new user finds it.
pub(super) fn retire(object: *const (), free: impl FnOnce() + Send + 'static) {
    let object = object.addr();
    let users = users_of(object);
    if users.is_empty() {
        return free();
    }
    LIMBO.lock().push(Waiting { object, users, free: Box::new(free) });
    ERRANDS.fetch_add(1, Ordering::Relaxed);
}

/// Returns the threads that may use an unlinked object, with their entries into the epoch.
fn users_of(object: usize) -> Vec<(&'static ThreadRecord, u64)> {
    heavy_fence();
    RECORDS
        .lock()
        .iter()
        .filter_map(|&record| {
            // The destroying call itself is one entry of its own thread and holds no reference.
            let own_call = ptr::eq(record, mine()) && record.nested.load(Ordering::Relaxed) == 0;
            let seq = if own_call { 0 } else { record.seq.load(Ordering::Acquire) };
            uses(record, seq, object).then_some((record, seq))
        })
        .collect()
}

/// Frees the retired objects that no thread uses any more.
#[cold]
pub fn collect() {
    let Some(mut limbo) = LIMBO.try_lock() else { return };
    let (waiting, ready): (Vec<_>, Vec<_>) = std::mem::take(&mut *limbo)
        .into_iter()
        .partition(|w| w.users.iter().any(|(record, seq)| uses(record, *seq, w.object)));
    *limbo = waiting;
    ERRANDS.fetch_sub(ready.len(), Ordering::Relaxed);
    drop(limbo);
    ready.into_iter().for_each(|waiting| (waiting.free)());
}

/// Waits until all other threads that are inside the epoch at the time of the call have left it,
/// but no longer than `limit`; returns true if all have left. These threads then no longer use
/// anything that was closed before this call. The calling thread must not be inside the epoch.
pub fn let_others_leave(limit: Duration) -> bool {
    heavy_fence();
    let inside: Vec<_> = RECORDS
        .lock()
        .iter()
        .map(|&record| (record, record.seq.load(Ordering::Acquire)))
        .filter(|(record, seq)| seq % 2 == 1 && !ptr::eq(*record, mine()))
        .collect();
    let begin = Instant::now();
    inside.iter().all(|(record, seq)| {
        while record.seq.load(Ordering::Acquire) == *seq {
            if begin.elapsed() > limit {
                return false;
            }
            yield_now();
        }
        true
    })
}

/// Returns true if any thread is inside a library call or waits in one: another thread, or the
/// calling thread in an enclosing call. The calling thread must not have entered the epoch for the
/// present call.
pub fn anyone_inside() -> bool {
    heavy_fence();
    RECORDS.lock().iter().any(|record| record.is_in_call())
}
