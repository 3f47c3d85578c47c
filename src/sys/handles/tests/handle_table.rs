//! Tests of `handle_table`.

use super::*;

#[test]
fn a_slot_shows_the_object_of_its_handle() {
    static TABLE: HandleTable<u64> = HandleTable::new();
    let guard = epoch::enter();
    let fixed = encode(3, 0, 0);
    let slot = TABLE.slot_ref(fixed);
    assert_eq!(slot.get(&guard, fixed), None, "not there yet");
    assert!(TABLE.put_fixed(3, 0, Arc::new(7)));
    assert_eq!(slot.get(&guard, fixed), Some(&7));
    let object = Arc::new(8);
    let handle = TABLE.insert(3, Arc::clone(&object)).unwrap();
    let cell = crate::sys::handles::handle_table::SlotRefCell::default();
    assert!(cell.get().get(&guard, handle).is_none());
    cell.set(TABLE.slot_ref(handle), handle);
    assert_eq!((cell.handle(), cell.get().get(&guard, handle)), (handle, Some(&8)));
    assert!(TABLE.remove(&guard, handle).is_some());
    assert!(cell.get().get(&guard, handle).is_none());
    let next = TABLE.insert(3, object).unwrap();
    let found = TABLE.slot_ref(next).get(&guard, next);
    assert_eq!((index_of(next), found), (index_of(handle), Some(&8)));
    assert!(
        cell.get().get(&guard, handle).is_none(),
        "in the same slot, at the same address, but under another handle"
    );
}

#[test]
fn handles_of_several_chunks_find_their_own_objects() {
    let table = HandleTable::new();
    let guard = epoch::enter();
    let handles: Vec<_> = (0..3 * CHUNK).map(|n| table.insert(3, Arc::new(n)).unwrap()).collect();
    assert!(handles.iter().enumerate().all(|(n, handle)| table.get(&guard, *handle) == Some(&n)));
}

#[test]
fn a_handle_dies_with_its_object() {
    let table = HandleTable::new();
    let guard = epoch::enter();
    let handle = table.insert(3, Arc::new(7)).unwrap();
    assert_eq!(table.get(&guard, handle), Some(&7));
    assert_eq!(table.get(&guard, handle ^ 1 << 56), None, "another type");
    assert!(
        table.is_live(handle)
            && !table.is_live(handle ^ 1 << 56)
            && !table.is_live(handle + (1 << 36))
    );
    assert_eq!(table.remove(&guard, handle).as_deref(), Some(&7));
    assert_eq!(table.get(&guard, handle), None);
    assert!(!table.is_live(handle));
    assert_eq!(table.remove(&guard, handle), None, "destroyed twice");
    let again = table.insert(3, Arc::new(8)).unwrap();
    assert_ne!(again, handle);
    assert_eq!(table.get(&guard, handle), None, "the slot serves another generation");
}

#[test]
fn a_fixed_handle_can_be_opened_again() {
    let table = HandleTable::new();
    let guard = epoch::enter();
    let fixed = 3_u64 << 56;
    assert!(table.put_fixed(3, 0, Arc::new(1)));
    assert!(!table.put_fixed(3, 0, Arc::new(2)));
    assert_eq!(table.get(&guard, fixed), Some(&1));
    assert_eq!(table.remove(&guard, fixed).as_deref(), Some(&1));
    assert_eq!(table.get(&guard, fixed), None);
    assert!(table.put_fixed(3, 0, Arc::new(3)));
    assert_eq!(table.get(&guard, fixed), Some(&3));
}

#[test]
fn an_object_in_use_outlives_its_handle() {
    let table: HandleTable<Mutex<u32>> = HandleTable::new();
    let object = Arc::new(Mutex::new(5));
    let watch = Arc::downgrade(&object);
    let outer = epoch::enter();
    let handle = table.insert(3, object).unwrap();
    let user = table.get(&outer, handle).unwrap();
    let inner = epoch::enter();
    drop(table.remove(&inner, handle));
    drop(inner);
    assert_eq!(*user.lock(), 5, "still held by the outer call");
    drop(outer);
    assert!(goes(&watch), "freed after the last user left");
}

/// Returns true if the object to which `watch` refers is freed within 2000 calls to
/// `epoch::collect`. One call may not suffice, because a thread of another test may be running
/// `collect` at the same time.
fn goes<T>(watch: &std::sync::Weak<T>) -> bool {
    let gone = |_| {
        epoch::collect();
        std::thread::sleep(std::time::Duration::from_millis(1));
        watch.upgrade().is_none()
    };
    (0..2000).any(gone)
}

#[test]
fn a_held_object_outlives_its_handle() {
    let table: HandleTable<u32> = HandleTable::new();
    let object = Arc::new(5);
    let watch = Arc::downgrade(&object);
    let handle = table.insert(3, object).unwrap();
    let held = table.hold(epoch::enter(), handle).ok().unwrap();
    let nested = table.hold(epoch::enter(), handle).ok().unwrap();
    assert_eq!((held.is_counted(), nested.is_counted()), (false, true));
    drop(table.remove(&epoch::enter(), handle));
    drop(nested);
    epoch::collect();
    assert_eq!(*held, 5, "a thread waits with it");
    assert!(table.hold(epoch::enter(), handle).is_err(), "stale for everybody else");
    drop(held);
    assert!(goes(&watch), "freed after its holder let go");
}

/// Object that overwrites its value when dropped, so that a later use is detected. Drops are
/// counted.
struct Canary(u64, Arc<AtomicU64>);

impl Drop for Canary {
    fn drop(&mut self) {
        // SAFETY: an exclusive reference to an integer; volatile, so that the write is not
        // optimized away.
        unsafe { ptr::from_mut(&mut self.0).write_volatile(0xDEAD) };
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// Calls `round`, which creates and destroys objects and stores their handles in its second
/// argument, while two threads use the last stored handle. Checks that the threads never find a
/// dropped object and that all objects are dropped in the end.
fn race(rounds: u64, table: &HandleTable<Canary>, round: impl Fn(Arc<Canary>, &AtomicU64)) {
    let (current, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let drops = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while done.load(Ordering::Relaxed) == 0 {
                    let handle = current.load(Ordering::Relaxed);
                    if let Some(canary) = table.get(&epoch::enter(), handle) {
                        assert_eq!(canary.0, 0x5EED);
                    }
                    if let Ok(canary) = table.hold(epoch::enter(), handle) {
                        assert_eq!(canary.0, 0x5EED);
                    }
                }
            });
        }
        for _ in 0..rounds {
            round(Arc::new(Canary(0x5EED, Arc::clone(&drops))), &current);
        }
        done.store(1, Ordering::Relaxed);
    });
    for _ in 0..1000 {
        epoch::collect(); // other tests of this process may keep the limbo for a moment
        if drops.load(Ordering::Relaxed) == rounds {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(drops.load(Ordering::Relaxed), rounds);
}

/// Returns the number of rounds: 100 under Miri, a tenth of `most` without optimization (where
/// `most` rounds would take a minute), otherwise `most`.
fn rounds(most: u64) -> u64 {
    match (cfg!(miri), cfg!(debug_assertions)) {
        (true, _) => 100,
        (_, true) => most / 10,
        _ => most,
    }
}

#[test]
fn destroy_may_race_use() {
    let table = HandleTable::new();
    race(rounds(1_000_000), &table, |canary, current| {
        let handle = table.insert(3, canary).unwrap();
        current.store(handle, Ordering::Relaxed);
        let guard = epoch::enter();
        assert!(table.remove(&guard, handle).is_some());
    });
}

#[test]
fn reopening_a_fixed_handle_may_race_use() {
    let table = HandleTable::new();
    let fixed = 3_u64 << 56;
    race(rounds(200_000), &table, |canary, current| {
        current.store(fixed, Ordering::Relaxed);
        assert!(table.put_fixed(3, 0, canary));
        let guard = epoch::enter();
        assert!(table.remove(&guard, fixed).is_some());
    });
}
