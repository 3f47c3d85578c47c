//! Tests of the handles, groups and locks of a slot map, with one thread and with several.

use super::*;

#[test]
fn a_handle_dies_with_its_object() {
    static POOL: SlotMap<u64> = SlotMap::new();
    let pool = &POOL;
    let handle = pool.put(epoch::spare_slots(), 5, 1, || 7).ok().unwrap();
    assert_eq!(pool.with(handle, |n| SlotAction::Keep(**n)), Ok(7));
    assert!(pool.is_live(handle) && !pool.is_live(handle ^ 1 << 56));
    assert_eq!(pool.with(handle, |n| SlotAction::End(**n)), Ok(7));
    assert!(!pool.is_live(handle));
    assert_eq!(pool.with(handle, |n| SlotAction::Keep(**n)), Err(LookupFailure::Stale));
    let again = pool.put(epoch::spare_slots(), 5, 2, || 8).ok().unwrap();
    assert_ne!(again, handle);
    assert_eq!(pool.try_look(handle).err(), Some(LookupFailure::Stale));
    assert_eq!(*pool.try_look(again).ok().unwrap(), 8);
    let looked_at = pool.try_look(again).ok().unwrap();
    assert_eq!(
        (pool.group_of(again), pool.group_of(handle), looked_at.group()),
        (Some(2), None, 2)
    );
    drop(looked_at);
    assert_eq!((pool.handles(), pool.handles_of(2)), (vec![again], vec![again]));
    assert!(pool.handles_of(1).is_empty());
    pool.try_look(again).ok().unwrap().forget(epoch::spare_slots());
    assert!(!pool.is_live(again) && pool.handles().is_empty());
}

#[test]
fn an_object_that_is_looked_at_is_busy_and_may_use_the_table_at_its_end() {
    static POOL: SlotMap<Ends> = SlotMap::new();
    struct Ends(Option<u64>);
    impl Drop for Ends {
        fn drop(&mut self) {
            if let Some(handle) = self.0 {
                assert_eq!(POOL.with(handle, |_| SlotAction::End(())), Ok(()));
            }
        }
    }
    drop(epoch::enter()); // so that the thread has a mark, as in every call
    let other = POOL.put(epoch::spare_slots(), 5, 0, || Ends(None)).ok().unwrap();
    let handle = POOL.put(epoch::spare_slots(), 5, 0, || Ends(Some(other))).ok().unwrap();
    let busy = POOL.with(handle, |_| {
        SlotAction::Keep(POOL.try_look(handle).err() == Some(LookupFailure::Busy))
    });
    assert_eq!(busy, Ok(true));
    let again =
        POOL.with(handle, |_| SlotAction::Keep(POOL.with(handle, |_| SlotAction::Keep(())).err()));
    assert_eq!(again, Ok(Some(LookupFailure::Own)), "not waited for");
    assert_eq!(POOL.with(handle, |_| SlotAction::End(())), Ok(()));
    assert!(POOL.handles().is_empty());
}

#[test]
fn many_threads_put_and_end() {
    static POOL: SlotMap<u64> = SlotMap::new();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            scope.spawn(move || {
                for round in 0..if cfg!(miri) { 30 } else { 5000 } {
                    let number = thread << 32 | round;
                    let handle = POOL.put(epoch::spare_slots(), 5, number, || number).ok().unwrap();
                    assert_eq!(POOL.with(handle, |n| SlotAction::End(**n)), Ok(number));
                }
            });
        }
    });
    assert!(POOL.handles().is_empty());
}
