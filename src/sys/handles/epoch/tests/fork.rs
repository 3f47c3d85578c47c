//! Tests of `fork`.

use super::super::{enter, retire};
use super::*;
use std::sync::mpsc;
use std::time::Duration;

/// Returns the calling thread's own `ThreadRecord`, which tests in other threads do not change.
fn own_record() -> &'static ThreadRecord {
    // SAFETY: a leaked record.
    unsafe { mine().as_ref() }.expect("the thread has entered before")
}

#[test]
fn a_thread_that_frees_what_was_destroyed_is_seen_by_a_fork() {
    const SOON: Duration = Duration::from_secs(60);
    let (tell_record, record) = mpsc::channel();
    let (go_on, may_leave) = mpsc::channel::<()>();
    let (begin, has_begun) = mpsc::channel();
    let (end, may_end) = mpsc::channel::<()>();
    let user = std::thread::spawn(move || {
        let inside = enter();
        tell_record.send(own_record()).expect("the test waits");
        may_leave.recv().expect("the test lives");
        drop(inside); // the last user: it frees the object
        own_record().may_hold_locks()
    });
    let record = record.recv().expect("the thread lives");
    let object = Box::into_raw(Box::new(7_u64));
    let kept = object.expose_provenance();
    retire(object.cast_const().cast(), move || {
        begin.send(()).expect("the test waits");
        may_end.recv_timeout(SOON).expect("the test lives");
        // SAFETY: allocated above, and freed here only.
        drop(unsafe { Box::from_raw(ptr::with_exposed_provenance_mut::<u64>(kept)) });
    });
    go_on.send(()).expect("the thread lives");
    // The thread of another test may do this work: then this thread shows nothing of it.
    has_begun.recv_timeout(SOON).expect("somebody frees it");
    let users_state = (record.is_in_call(), record.may_hold_locks());
    let somebody = RECORDS.lock().iter().any(|record| record.aside.load(Ordering::Acquire) > 0);
    end.send(()).expect("it waits");
    assert!(!users_state.0, "outside: it keeps nothing alive");
    assert!(somebody, "a thread that frees is seen");
    assert!(!user.join().expect("it ends"), "and is gone afterwards");
}

#[test]
fn asides_nest() {
    drop(enter());
    let record = own_record();
    let outer = aside();
    drop(aside());
    assert!(record.may_hold_locks() && !record.is_in_call());
    drop(outer);
    assert!(!record.may_hold_locks());
}
