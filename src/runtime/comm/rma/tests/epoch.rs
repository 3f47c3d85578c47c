//! Tests of `epoch`.

use super::*;

/// Begins to acquire a lock and records that the target has granted it. Returns false if
/// `begin_lock` rejects the lock.
fn lock(epochs: &Epochs, target: Option<i32>) -> bool {
    let begun = epochs.begin_lock("lock", target).is_ok();
    if begun {
        epochs.locked(target);
    }
    begun
}

fn unlock(epochs: &Epochs, target: Option<i32>) -> bool {
    let begun = epochs.begin_unlock("unlock", target).is_ok();
    if begun {
        epochs.unlocked(target);
    }
    begun
}

fn fence(epochs: &Epochs) -> bool {
    let begun = epochs.begin_fence("fence").is_ok();
    if begun {
        epochs.end_fence(true);
    }
    begun
}

fn check_ended(epochs: &Epochs) -> Result<()> {
    epochs.check_unlocked("destroy")?;
    epochs.check_fence("destroy")
}

#[test]
fn a_fence_opens_all_and_a_lock_one() {
    let epochs = Epochs::new(3);
    assert!(!epochs.admits(1) && check_ended(&epochs).is_ok());
    assert!(fence(&epochs) && check_ended(&epochs).is_ok());
    assert!(epochs.admits(2) && check_ended(&epochs).is_err());
    assert!(!lock(&epochs, Some(0)) && epochs.check_flush("flush", None).is_err());
    assert!(fence(&epochs) && lock(&epochs, Some(1)));
    assert!(epochs.admits(1) && !epochs.admits(2));
    assert!(!lock(&epochs, Some(1)) && !lock(&epochs, None) && !unlock(&epochs, None));
    assert!(lock(&epochs, Some(2)) && unlock(&epochs, Some(2)));
    assert!(
        !fence(&epochs) && !unlock(&epochs, Some(2)) && epochs.check_unlocked("destroy").is_err()
    );
    assert!(
        epochs.check_flush("flush", Some(1)).is_ok()
            && epochs.check_flush("flush", Some(0)).is_err()
    );
    assert!(unlock(&epochs, Some(1)) && lock(&epochs, None));
    assert!(epochs.admits(0) && !lock(&epochs, Some(0)) && !lock(&epochs, None));
    assert!(!unlock(&epochs, Some(0)) && unlock(&epochs, None));
    assert!(!epochs.admits(0) && check_ended(&epochs).is_ok());
}

#[test]
fn what_one_thread_claims_no_other_gets() {
    let epochs = Epochs::new(3);
    assert!(epochs.begin_lock("lock", Some(1)).is_ok());
    assert!(
        !epochs.admits(1) && !lock(&epochs, Some(1)) && !lock(&epochs, None) && !fence(&epochs)
    );
    assert!(lock(&epochs, Some(2)) && !unlock(&epochs, Some(1)));
    epochs.unlocked(Some(1));
    assert!(lock(&epochs, Some(1)) && epochs.begin_unlock("unlock", Some(1)).is_ok());
    assert!(!unlock(&epochs, Some(1)) && !epochs.admits(1));
    epochs.locked(Some(1));
    assert!(
        unlock(&epochs, Some(1)) && unlock(&epochs, Some(2)) && epochs.begin_fence("fence").is_ok()
    );
    assert!(!lock(&epochs, Some(0)) && !lock(&epochs, None) && !fence(&epochs));
    epochs.end_fence(true);
    assert!(epochs.begin_lock("lock", None).is_ok() && !fence(&epochs) && !unlock(&epochs, None));
    epochs.unlocked(None);
    assert!(epochs.admits(0), "a lock that was not granted leaves the fence's epoch");
}

#[test]
fn after_a_failed_fence_there_are_locks() {
    let epochs = Epochs::new(2);
    assert!(fence(&epochs) && epochs.admits(0) && epochs.begin_fence("fence").is_ok());
    epochs.end_fence(false);
    assert!(!epochs.admits(0) && epochs.is_broken() && !fence(&epochs));
    assert!(lock(&epochs, Some(0)) && lock(&epochs, Some(1)));
    let mut taken = Vec::new();
    epochs.take_all(|targets| taken.push(targets));
    assert_eq!(taken, [0..1, 1..2]);
    assert!(!unlock(&epochs, Some(0)), "they are taken once");
}
