//! Models of the handle table and the epoch: get, pin and hold against remove and insert.
//!
//! membarrier is not used here, so both sides use the full fence. `sys::handles::epoch` explains
//! why this model covers both variants.

use super::handles::epoch;
use super::handles::handle_table::HandleTable;
use super::handles::slot_map::{Locked, SlotAction, SlotMap};
use super::sync::Arc as Share;
use crate::Model;
use crate::runtime::comm::biased_trylock::BiasedTryLock;
use crate::sys::{handles::handle_table::Rcu, sync::spin_lock::SpinLock};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub const ALL: &[Model] = &[
    ("table: get against remove", || used_against_remove(get)),
    ("table: pin against remove", || used_against_remove(pin)),
    ("table: hold against remove", || used_against_remove(hold)),
    ("table: slot against remove", slot_against_remove),
    ("table: slot against remove and insert", || slot_against_reuse(false)),
    ("table: slot against remove and the same handle again", || slot_against_reuse(true)),
    ("table: get against remove and insert", get_against_reuse),
    ("table: hold against remove and insert", hold_against_reuse),
    ("table: get against a fixed handle that is opened again", fixed_again),
    ("table: get against the first insert", get_against_first_insert),
    ("table: get of a handle that is guessed", guessed),
    ("table: get of a handle whose object is new", guessed_new),
    ("table: two removes, one wins", two_removes),
    ("epoch: who is inside is seen", inside_is_seen),
    ("published: get against replace", read_against_replace),
    ("published: two gets around two replaces", reads_go_forward),
    ("pool: two that end one object", pool_ends_once),
    ("pool: a stale handle against end and put", pool_reuse),
    ("pool: get of a handle that is guessed", pool_guessed),
    ("pool: two take slots and give them back", pool_slots_go_round),
    ("pool: two looks, one after the other", pool_looks_follow),
    ("pool: the group of an object against end and put", pool_group),
    ("spin lock: two threads and one that only tries", spin_lock),
    ("turn: two that come first", || turns(false)),
    ("turn: the first thread and another", || turns(true)),
];

const TAG: u8 = 3;

/// Object whose drop writes to the cell, so that loom detects a use that has not ended by then.
struct Object {
    number: UnsafeCell<u64>,
    drops: Arc<AtomicUsize>,
}

impl Object {
    /// The value is written after the creation, because loom treats the initial value of a cell as
    /// unordered with nothing: a thread that sees the object but not this write has read too early.
    fn new(number: u64, drops: &Arc<AtomicUsize>) -> Object {
        let object = Object { number: UnsafeCell::new(0), drops: Arc::clone(drops) };
        // SAFETY: nobody else has it yet.
        object.number.with_mut(|cell| unsafe { *cell = number });
        object
    }

    fn number(&self) -> u64 {
        // SAFETY: loom fails the model if it is written meanwhile.
        self.number.with(|number| unsafe { *number })
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: loom fails the model if it is read meanwhile.
        self.number.with_mut(|number| unsafe { *number = u64::MAX });
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: loom watches over the cell.
unsafe impl Sync for Object {}

/// Table, and the number of its objects that were dropped.
#[derive(Clone)]
struct World {
    table: Arc<HandleTable<Object>>,
    drops: Arc<AtomicUsize>,
}

impl World {
    fn new() -> World {
        World { table: Arc::new(HandleTable::new()), drops: Arc::default() }
    }

    fn object(&self, number: u64) -> Share<Object> {
        Share::new(Object::new(number, &self.drops))
    }

    fn insert(&self, number: u64) -> u64 {
        self.table.insert(TAG, self.object(number)).unwrap()
    }

    fn remove(&self, handle: u64) -> bool {
        let inside = epoch::enter();
        self.table.remove(&inside, handle).is_some()
    }

    /// Checks, after all threads have ended, that removed objects were dropped.
    fn settled(&self, drops: usize) {
        epoch::collect();
        assert_eq!(self.drops.load(Ordering::Relaxed), drops, "objects that have gone");
    }
}

type Use = fn(&HandleTable<Object>, u64) -> Option<u64>;

fn get(table: &HandleTable<Object>, handle: u64) -> Option<u64> {
    let inside = epoch::enter();
    table.get(&inside, handle).map(Object::number)
}

fn pin(table: &HandleTable<Object>, handle: u64) -> Option<u64> {
    let share = table.pin(&epoch::enter(), handle)?;
    Some(share.number())
}

fn hold(table: &HandleTable<Object>, handle: u64) -> Option<u64> {
    let held = table.hold(epoch::enter(), handle).ok()?;
    Some(held.number())
}

/// Gets the object through its slot.
fn at_slot(table: &Arc<HandleTable<Object>>, handle: u64) -> impl FnOnce() -> Option<u64> + use<> {
    // SAFETY: as long as `table`, which every caller outlives.
    let kept: &'static HandleTable<Object> = unsafe { &*Arc::as_ptr(table) };
    let (slot, table) = (kept.slot_ref(handle), Arc::clone(table));
    move || {
        let inside = epoch::enter();
        let found = slot.get(&inside, handle).map(Object::number);
        drop(table);
        found
    }
}

fn slot_against_remove() {
    let world = World::new();
    let handle = world.insert(1);
    let look = at_slot(&world.table, handle);
    let user = thread::spawn(move || assert!(matches!(look(), None | Some(1))));
    assert!(world.remove(handle));
    user.join().unwrap();
    world.settled(1);
}

/// Checks that the next object of a slot is not mistaken for the first (unless it has the same
/// handle), and that neither is used after its drop.
fn slot_against_reuse(is_fixed: bool) {
    let world = World::new();
    // Made first, or it might get the memory of the one that goes.
    let next = world.object(2);
    let fixed = u64::from(TAG) << 56;
    let put = |object| {
        if is_fixed {
            world.table.put_fixed(TAG, 0, object).then_some(fixed)
        } else {
            world.table.insert(TAG, object)
        }
    };
    let handle = put(world.object(1)).unwrap();
    let look = at_slot(&world.table, handle);
    let user = thread::spawn(move || {
        let found = look();
        assert!(matches!(found, None | Some(1)) || (is_fixed && found == Some(2)));
    });
    assert!(world.remove(handle));
    let later = put(next).unwrap();
    user.join().unwrap();
    assert!(world.remove(later));
    world.settled(2);
}

fn used_against_remove(using: Use) {
    let world = World::new();
    let handle = world.insert(1);
    let table = Arc::clone(&world.table);
    let user = thread::spawn(move || {
        assert!(matches!(using(&table, handle), None | Some(1)));
    });
    assert!(world.remove(handle));
    user.join().unwrap();
    world.settled(1);
}

/// Checks that a reader sees a complete value, which stays until the reader has left.
fn read_against_replace() {
    let drops = Arc::<AtomicUsize>::default();
    let object = |number| Object::new(number, &drops);
    let published = Arc::new(Rcu::new(object(1)));
    let read = Arc::clone(&published);
    let user = thread::spawn(move || {
        let inside = epoch::enter();
        let found = read.get(&inside);
        assert!(matches!(found.number(), 1 | 2));
        assert!(matches!(found.number(), 1 | 2), "still there");
    });
    published.replace(object(2), epoch::enter());
    user.join().unwrap();
    epoch::collect();
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    assert_eq!(published.get(&epoch::enter()).number(), 2);
}

/// Checks that a later read never returns an earlier value.
fn reads_go_forward() {
    let drops = Arc::<AtomicUsize>::default();
    let object = |number| Object::new(number, &drops);
    let published = Arc::new(Rcu::new(object(1)));
    let read = Arc::clone(&published);
    let user = thread::spawn(move || {
        let first = read.get(&epoch::enter()).number();
        assert!(first <= read.get(&epoch::enter()).number());
    });
    // The value is made behind the entry, whose fence would release it as well.
    let inside = epoch::enter();
    published.replace(object(2), inside);
    published.replace(object(3), epoch::enter());
    user.join().unwrap();
    epoch::collect();
    assert_eq!(drops.load(Ordering::Relaxed), 2);
}

/// Checks that an old handle never returns the next object of its slot.
fn used_against_reuse(using: Use) {
    let world = World::new();
    let handle = world.insert(1);
    let table = Arc::clone(&world.table);
    let user = thread::spawn(move || {
        assert!(matches!(using(&table, handle), None | Some(1)));
    });
    assert!(world.remove(handle));
    let next = world.insert(2);
    user.join().unwrap();
    assert_ne!(handle, next);
    assert!(world.remove(next));
    world.settled(2);
}

fn get_against_reuse() {
    used_against_reuse(get);
}

fn hold_against_reuse() {
    used_against_reuse(hold);
}

fn fixed_again() {
    let world = World::new();
    let fixed = u64::from(TAG) << 56;
    assert!(world.table.put_fixed(TAG, 0, world.object(1)));
    let table = Arc::clone(&world.table);
    let user = thread::spawn(move || {
        assert!(matches!(get(&table, fixed), None | Some(1 | 2)));
    });
    assert!(world.remove(fixed));
    assert!(world.table.put_fixed(TAG, 0, world.object(2)));
    assert!(world.remove(fixed));
    user.join().unwrap();
    world.settled(2);
}

/// Checks that a handle that is guessed, or passed on without ordering, returns nothing or a
/// complete object.
fn get_against_first_insert() {
    let world = World::new();
    let table = Arc::clone(&world.table);
    // Index 0 is that of a fixed handle.
    let first = u64::from(TAG) << 56 | 1 << 36 | 1;
    let user = thread::spawn(move || {
        assert!(matches!(get(&table, first), None | Some(1)));
    });
    assert_eq!(world.insert(1), first);
    user.join().unwrap();
    assert!(world.remove(first));
    world.settled(1);
}

/// Checks that the next handle of a slot, used before it was returned to any thread, never returns
/// the previous object of the slot.
fn guessed() {
    let world = World::new();
    // Made first, or it would get the memory of the one that goes.
    let second = world.object(2);
    let handle = world.insert(1);
    assert!(world.remove(handle));
    let (table, next) = (Arc::clone(&world.table), handle + 1);
    let user = thread::spawn(move || {
        assert!(matches!(get(&table, next), None | Some(2)));
    });
    assert_eq!(world.table.insert(TAG, second), Some(next));
    user.join().unwrap();
    assert!(world.remove(next));
    world.settled(2);
}

/// Uses a guessed handle in an existing chunk while its object is being created.
fn guessed_new() {
    let world = World::new();
    let handle = world.insert(1);
    let (table, next) = (Arc::clone(&world.table), handle + (1 << 36));
    let user = thread::spawn(move || {
        assert!(matches!(get(&table, next), None | Some(2)));
    });
    assert_eq!(world.insert(2), next);
    user.join().unwrap();
    assert!(world.remove(handle) && world.remove(next));
    world.settled(2);
}

fn two_removes() {
    let world = World::new();
    let handle = world.insert(1);
    let other = world.clone();
    let remover = thread::spawn(move || other.remove(handle));
    let here = world.remove(handle);
    let there = remover.join().unwrap();
    assert!(here != there, "removed {} times", usize::from(here) + usize::from(there));
    world.settled(1);
}

/// Finalize checks for threads inside after it has closed the library: a thread that entered before
/// is detected, or sees the library closed.
fn inside_is_seen() {
    let closed = Arc::new(super::sync::AtomicBool::new(false));
    let used = Arc::new(UnsafeCell::new(0_u64));
    let (gate, state) = (Arc::clone(&closed), Share::new(Watched(used)));
    let mine = Share::clone(&state);
    let user = thread::spawn(move || {
        let _inside = epoch::enter();
        if !gate.load(super::sync::Ordering::Relaxed) {
            state.read();
        }
    });
    closed.store(true, super::sync::Ordering::Relaxed);
    if !epoch::anyone_inside() {
        mine.write();
    }
    user.join().unwrap();
}

/// State of the library, which finalize destroys.
struct Watched(Arc<UnsafeCell<u64>>);

impl Watched {
    fn read(&self) {
        // SAFETY: loom fails the model if it is written meanwhile.
        self.0.with(|state| unsafe { assert_eq!(*state, 0) });
    }

    fn write(&self) {
        // SAFETY: loom fails the model if it is read meanwhile.
        self.0.with_mut(|state| unsafe { *state = 1 });
    }
}

// SAFETY: loom watches over the cell.
unsafe impl Sync for Watched {}
// SAFETY: as above.
unsafe impl Send for Watched {}

/// Creates an object of a slot map. Its end and its changes are writes that loom tracks.
fn numbered(number: u64) -> Object {
    Object::new(number, &Arc::default())
}

/// Runs two of these functions concurrently on one slot map.
fn both(
    pool: &'static SlotMap<Object>,
    here: impl FnOnce(&'static SlotMap<Object>) -> usize,
    there: impl FnOnce(&'static SlotMap<Object>) -> usize + Send + 'static,
) -> usize {
    let thread = thread::spawn(move || there(pool));
    here(pool) + thread.join().unwrap()
}

/// Runs a model with a slot map of its own. In the library, slot maps live forever.
fn with_pool(model: impl FnOnce(&'static SlotMap<Object>)) {
    let pool = Box::new(SlotMap::new());
    // SAFETY: the threads that use it are joined before the model returns.
    model(unsafe { &*std::ptr::from_ref(&*pool) });
}

/// Inserts an object that was just written.
fn put(pool: &'static SlotMap<Object>, number: u64) -> u64 {
    let object = numbered(0);
    // SAFETY: nobody else has it yet.
    object.number.with_mut(|at| unsafe { *at = number });
    pool.put(None, TAG, number, || object).ok().unwrap()
}

fn pool_ends_once() {
    with_pool(|pool| {
        let handle = put(pool, 7);
        let end = move |pool: &'static SlotMap<Object>| {
            usize::from(pool.with(handle, |object| SlotAction::End(object.number())) == Ok(7))
        };
        assert_eq!(both(pool, end, end), 1);
        assert!(!pool.is_live(handle));
    });
}

/// Checks that an old handle never reaches the next object of its slot, which is inserted at once.
fn pool_reuse() {
    with_pool(|pool| {
        let handle = put(pool, 7);
        let look = move |pool: &'static SlotMap<Object>| match pool.try_look(handle) {
            Ok(object) => {
                assert_eq!(object.number(), 7);
                1
            }
            Err(_) => 0,
        };
        let reuse = move |pool: &'static SlotMap<Object>| {
            assert_eq!(pool.with(handle, |_| SlotAction::End(())), Ok(()));
            let again = put(pool, 8);
            assert_eq!(pool.with(again, |object| SlotAction::Keep(object.number())), Ok(8));
            0
        };
        assert!(both(pool, look, reuse) <= 1);
    });
}

/// Checks the group that is read without the lock: it is that of the object, or the object does not
/// exist.
fn pool_group() {
    with_pool(|pool| {
        let handle = put(pool, 7);
        let ask = move |pool: &'static SlotMap<Object>| {
            let group = pool.group_of(handle);
            assert!(group.is_none_or(|group| group == 7));
            usize::from(group.is_some())
        };
        let reuse = move |pool: &'static SlotMap<Object>| {
            assert_eq!(pool.with(handle, |_| SlotAction::End(())), Ok(()));
            let again = put(pool, 8);
            assert_eq!(pool.group_of(again), Some(8));
            0
        };
        assert!(both(pool, ask, reuse) <= 1);
    });
}

/// Checks that the next handle of a slot, used before it was returned to any thread, returns a
/// complete object or none.
fn pool_guessed() {
    with_pool(|pool| {
        let handle = put(pool, 1);
        assert_eq!(pool.with(handle, |_| SlotAction::End(())), Ok(()));
        let guess = handle + 1;
        let look = move |pool: &'static SlotMap<Object>| match pool
            .with(guess, |object| SlotAction::Keep(object.number()))
        {
            Ok(seen) => {
                assert_eq!(seen, 7);
                1
            }
            Err(_) => 0,
        };
        let first = |pool: &'static SlotMap<Object>| usize::from(put(pool, 7) == 0);
        assert!(both(pool, first, look) <= 1);
    });
}

/// Two threads allocate used slots and free them again: no slot is allocated to both at the same
/// time.
fn pool_slots_go_round() {
    with_pool(|pool| {
        let used = [put(pool, 1), put(pool, 2)];
        used.iter()
            .for_each(|handle| assert_eq!(pool.with(*handle, |_| SlotAction::End(())), Ok(())));
        let round = |number: u64| {
            move |pool: &'static SlotMap<Object>| {
                let handle = put(pool, number);
                assert_eq!(
                    pool.with(handle, |object| SlotAction::End(object.number())),
                    Ok(number)
                );
                0
            }
        };
        both(pool, round(3), round(4));
    });
}

/// Checks that a thread that uses an object sees the changes of the previous user.
fn pool_looks_follow() {
    with_pool(|pool| {
        let handle = put(pool, 7);
        let add = move |pool: &'static SlotMap<Object>| {
            let change = |object: &mut Locked<Object>| {
                // SAFETY: loom fails the model if another thread is here.
                object.number.with_mut(|number| unsafe { *number += 1 });
                SlotAction::Keep(())
            };
            usize::from(pool.with(handle, change).is_ok())
        };
        assert_eq!(both(pool, add, add), 2);
        assert_eq!(pool.with(handle, |object| SlotAction::Keep(object.number())), Ok(9));
    });
}

/// Checks mutual exclusion: loom detects two threads that access the number concurrently, and a
/// thread that does not see the last write.
fn spin_lock() {
    let lock = Arc::new(SpinLock::new(UnsafeCell::new(0_u32)));
    let add = |number: &UnsafeCell<u32>| {
        // SAFETY: what is tried: whoever has the lock is alone.
        number.with_mut(|at| unsafe { *at += 1 });
    };
    let other = Arc::clone(&lock);
    let there = thread::spawn(move || add(&other.lock()));
    let mut added = 2;
    match lock.try_lock() {
        Some(number) => add(&number),
        None => added = 1,
    }
    there.join().unwrap();
    // SAFETY: as above.
    lock.lock().with(|at| assert_eq!(unsafe { *at }, added));
}

/// Checks that the holder of the lock is alone and sees the work of the previous holder, and that
/// the lock is free at the end.
fn turns(has_first: bool) {
    let all = Arc::new((BiasedTryLock::default(), UnsafeCell::new(0_u32)));
    let add_in_turn = |all: &(BiasedTryLock, UnsafeCell<u32>), mark| {
        let (turn, number) = all;
        let Some(taken) = turn.try_take(mark) else { return 0 };
        // SAFETY: what is tried: whoever has the turn is alone.
        number.with_mut(|at| unsafe { *at += 1 });
        turn.give_back(taken);
        1
    };
    let (here, there) = (0x100, 0x200);
    let mut added = if has_first { add_in_turn(&all, here) } else { 0 };
    let other = Arc::clone(&all);
    let other = thread::spawn(move || add_in_turn(&other, there));
    added += add_in_turn(&all, here) + add_in_turn(&all, here);
    added += other.join().unwrap();
    assert_eq!(add_in_turn(&all, here) + add_in_turn(&all, there), 2, "free");
    // SAFETY: the other thread has ended.
    all.1.with(|at| assert_eq!(unsafe { *at }, added + 2));
}
