//! Models of the handle table and the epoch: get, pin and hold against remove and insert.
//!
//! The kernel is not asked for membarrier here, so both sides use the full fence; `sys::epoch` says
//! why that stands for both forms.

use super::epoch;
use super::pool::{Pool, Then, Tried};
use super::slab::Table;
use super::sync::Arc as Share;
use crate::Model;
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub const ALL: &[Model] = &[
    ("table: get against remove", || used_against_remove(get)),
    ("table: pin against remove", || used_against_remove(pin)),
    ("table: hold against remove", || used_against_remove(hold)),
    ("table: get against remove and insert", get_against_reuse),
    ("table: hold against remove and insert", hold_against_reuse),
    ("table: get against a fixed handle that is opened again", fixed_again),
    ("table: get against the first insert", get_against_first_insert),
    ("table: get of a handle that is guessed", guessed),
    ("table: two removes, one wins", two_removes),
    ("epoch: who is inside is seen", inside_is_seen),
    ("pool: two that end one object", pool_ends_once),
    ("pool: a stale handle against end and put", pool_reuse),
    ("pool: a look against the first put", pool_first_put),
];

const TAG: u8 = 3;

/// An object. Its end is a write to the cell, so loom sees a use that is not over by then.
struct Object {
    number: UnsafeCell<u64>,
    drops: Arc<AtomicUsize>,
}

impl Object {
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

/// A table and the number of objects of it that have gone.
#[derive(Clone)]
struct World {
    table: Arc<Table<Object>>,
    drops: Arc<AtomicUsize>,
}

impl World {
    fn new(reserved: usize) -> World {
        World { table: Arc::new(Table::new(TAG, reserved)), drops: Arc::default() }
    }

    fn object(&self, number: u64) -> Share<Object> {
        Share::new(Object { number: UnsafeCell::new(number), drops: Arc::clone(&self.drops) })
    }

    fn insert(&self, number: u64) -> u64 {
        self.table.insert(self.object(number)).unwrap()
    }

    fn remove(&self, handle: u64) -> bool {
        let inside = epoch::enter();
        self.table.remove(&inside, handle).is_some()
    }

    /// All threads are done: what was removed must be gone.
    fn settled(&self, drops: usize) {
        epoch::collect();
        assert_eq!(self.drops.load(Ordering::Relaxed), drops, "objects that have gone");
    }
}

type Use = fn(&Table<Object>, u64) -> Option<u64>;

fn get(table: &Table<Object>, handle: u64) -> Option<u64> {
    let inside = epoch::enter();
    table.get(&inside, handle).map(Object::number)
}

fn pin(table: &Table<Object>, handle: u64) -> Option<u64> {
    let share = table.pin(&epoch::enter(), handle)?;
    Some(share.number())
}

fn hold(table: &Table<Object>, handle: u64) -> Option<u64> {
    let held = table.hold(epoch::enter(), handle).ok()?;
    Some(held.number())
}

fn used_against_remove(using: Use) {
    let world = World::new(0);
    let handle = world.insert(1);
    let table = Arc::clone(&world.table);
    let user = thread::spawn(move || {
        assert!(matches!(using(&table, handle), None | Some(1)));
    });
    assert!(world.remove(handle));
    user.join().unwrap();
    world.settled(1);
}

/// The old handle never shows what its slot serves next.
fn used_against_reuse(using: Use) {
    let world = World::new(0);
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
    let world = World::new(1);
    let fixed = u64::from(TAG) << 56;
    assert!(world.table.put_fixed(0, world.object(1)));
    let table = Arc::clone(&world.table);
    let user = thread::spawn(move || {
        assert!(matches!(get(&table, fixed), None | Some(1 | 2)));
    });
    assert!(world.remove(fixed));
    assert!(world.table.put_fixed(0, world.object(2)));
    assert!(world.remove(fixed));
    user.join().unwrap();
    world.settled(2);
}

/// A handle that is guessed, or passed on without ordering, shows nothing or a whole object.
fn get_against_first_insert() {
    let world = World::new(0);
    let table = Arc::clone(&world.table);
    let first = u64::from(TAG) << 56 | 1;
    let user = thread::spawn(move || {
        assert!(matches!(get(&table, first), None | Some(1)));
    });
    assert_eq!(world.insert(1), first);
    user.join().unwrap();
    assert!(world.remove(first));
    world.settled(1);
}

/// A slot's next handle, tried before it is handed out, never shows what the slot served before.
fn guessed() {
    let world = World::new(0);
    // Made first, or it would get the memory of the one that goes.
    let second = world.object(2);
    let handle = world.insert(1);
    assert!(world.remove(handle));
    let (table, next) = (Arc::clone(&world.table), handle + 1);
    let user = thread::spawn(move || {
        assert!(matches!(get(&table, next), None | Some(2)));
    });
    assert_eq!(world.table.insert(second), Some(next));
    user.join().unwrap();
    assert!(world.remove(next));
    world.settled(2);
}

fn two_removes() {
    let world = World::new(0);
    let handle = world.insert(1);
    let other = world.clone();
    let remover = thread::spawn(move || other.remove(handle));
    let here = world.remove(handle);
    let there = remover.join().unwrap();
    assert!(here != there, "removed {} times", usize::from(here) + usize::from(there));
    world.settled(1);
}

/// Finalize asks whether anybody is inside after it has closed the gate: whoever got in before that
/// is seen, or sees the gate closed.
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

/// The library's state, which finalize takes down.
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

/// Runs two of them at the same time on one pool.
fn both(
    pool: &Arc<Pool<u64>>,
    here: impl FnOnce(&Pool<u64>) -> usize,
    there: impl FnOnce(&Pool<u64>) -> usize + Send + 'static,
) -> usize {
    let other = Arc::clone(pool);
    let thread = thread::spawn(move || there(&other));
    here(pool) + thread.join().unwrap()
}

fn pool_ends_once() {
    let pool = Arc::new(Pool::new(TAG));
    let handle = pool.put(7).unwrap();
    let end = move |pool: &Pool<u64>| usize::from(pool.with(handle, |n| Then::End(*n)) == Some(7));
    assert_eq!(both(&pool, end, end), 1);
    assert!(!pool.is_live(handle));
}

/// The slot serves another object at once: the old handle never reaches it.
fn pool_reuse() {
    let pool = Arc::new(Pool::new(TAG));
    let handle = pool.put(7).unwrap();
    let look = move |pool: &Pool<u64>| match pool.try_with(handle, |n| Then::Keep(*n)) {
        Tried::Kept(seen) => {
            assert_eq!(seen, 7);
            1
        }
        Tried::Stale | Tried::Busy => 0,
    };
    let reuse = move |pool: &Pool<u64>| {
        assert_eq!(pool.with(handle, |_| Then::End(())), Some(()));
        let again = pool.put(8).unwrap();
        assert_eq!(pool.with(again, |n| Then::Keep(*n)), Some(8));
        0
    };
    assert!(both(&pool, look, reuse) <= 1);
}

fn pool_first_put() {
    let pool = Arc::new(Pool::new(TAG));
    let guess = super::slab::encode(TAG, 0, 1);
    let look = move |pool: &Pool<u64>| match pool.with(guess, |n| Then::Keep(*n)) {
        Some(seen) => {
            assert_eq!(seen, 7);
            1
        }
        None => 0,
    };
    let put = |pool: &Pool<u64>| usize::from(pool.put(7).is_err());
    assert!(both(&pool, put, look) <= 1);
}
