//! Tests of waits for several requests, and of one-sided operations between fences.
//!
//! Needs libdtl.so.0.2: DTL_LIB_DIR=$PWD/build/stage/lib cargo test -p dtl-binding.

#![allow(clippy::unwrap_used, reason = "a call that fails fails the test")]

use dtl_binding::{Comm, Open, SUM, Window, scope, sys, wait_any, wait_some};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;

const NO_LIMIT: u64 = sys::DTL_TIMEOUT_INFINITE;

fn alone() -> Comm {
    Comm::open(&Open { kind: "self", place: Some((0, 1)), ..Open::default() }).unwrap()
}

/// Runs `body` on each of two ranks, with its rank.
fn on_two_ranks(timeout_ns: u64, body: impl Fn(&Comm, i32) + Sync) {
    let ranks = Comm::threads(2, timeout_ns).unwrap();
    std::thread::scope(|threads| {
        for comm in &ranks {
            threads.spawn(|| body(comm, comm.rank().unwrap()));
        }
    });
}

#[test]
fn any_returns_what_is_complete_and_then_none() {
    let comm = alone();
    let mut buffers = [[0_i32; 4]; 3];
    scope(|s| {
        let mut receives: Vec<_> = (1..)
            .zip(&mut buffers)
            .map(|(tag, buffer)| s.irecv(&comm, buffer, 0, tag).unwrap())
            .collect();
        let late = wait_any(&mut receives, 0).unwrap_err();
        assert_eq!((late.call, late.status.0), ("dtl_request_wait_any", sys::DTL_ERROR_TIMEOUT));
        for tag in [3, 1, 2] {
            s.isend(&comm, &[5; 4], 0, tag).unwrap().wait().unwrap();
            let first = wait_any(&mut receives, NO_LIMIT).unwrap().unwrap();
            assert_eq!(first.index as i32, tag - 1);
            let completed = first.result.unwrap();
            assert_eq!((completed.received.tag, *completed.buffer), (tag, [5; 4]));
            // The others wait.
            let error = receives[first.index].test().unwrap_err();
            assert_eq!(error.status, sys::DTL_ERROR_INVALID_STATE);
        }
        assert!(wait_any(&mut receives, NO_LIMIT).unwrap().is_none());
        assert!(wait_some(&mut receives, NO_LIMIT).unwrap().is_empty());
        assert!(wait_any::<[i32; 4]>(&mut [], NO_LIMIT).unwrap().is_none());
    });
}

#[test]
fn some_has_the_failure_of_each_request() {
    let comm = alone();
    let (mut numbers, mut short, mut shorter, mut open) = ([0_u64; 2], 0_u32, 0_u16, 0_u8);
    scope(|s| {
        let mut requests = [
            s.irecv(&comm, &mut short, 0, 1).unwrap().without_buffer(),
            s.irecv(&comm, &mut open, 0, 9).unwrap().without_buffer(),
            s.irecv(&comm, &mut numbers, 0, 2).unwrap().without_buffer(),
            s.irecv(&comm, &mut shorter, 0, 3).unwrap().without_buffer(),
        ];
        for tag in 1..4 {
            s.isend(&comm, &[7_u64; 2], 0, tag).unwrap().wait().unwrap();
        }
        let mut ended = Vec::new();
        while ended.len() < 3 {
            ended.extend(wait_some(&mut requests, NO_LIMIT).unwrap());
        }
        ended.sort_by_key(|ended| ended.index);
        let indices: Vec<_> = ended.iter().map(|ended| ended.index).collect();
        assert_eq!(indices, [0, 2, 3]);
        assert!(format!("{:?}", ended[0]).contains("DTL_ERROR_TRUNCATED"), "{:?}", ended[0]);
        for failed in [&ended[0], &ended[2]] {
            let error = failed.result.as_ref().unwrap_err();
            assert_eq!(error.status, sys::DTL_ERROR_TRUNCATED, "{error}");
            assert!(error.text.contains("requests["), "{error}");
        }
        assert_eq!(ended[1].result.as_ref().unwrap().received.size_bytes, 16);
        let late = wait_some(&mut requests, 0).unwrap_err();
        assert_eq!(late.status, sys::DTL_ERROR_TIMEOUT);
        // A failure of the request is not one of the wait.
        requests[1].cancel().unwrap();
        let canceled = wait_any(&mut requests, NO_LIMIT).unwrap().unwrap();
        assert_eq!(canceled.index, 1);
        assert_eq!(canceled.result.unwrap_err().status, sys::DTL_ERROR_CANCELED);
    });
    assert_eq!(numbers, [7; 2]);
}

#[test]
fn a_scope_ends_what_no_wait_has_returned() {
    let comm = alone();
    let (mut first, mut second) = ([0_u8; 8], [0_u8; 8]);
    scope(|s| {
        let mut both =
            [s.irecv(&comm, &mut first, 0, 1).unwrap(), s.irecv(&comm, &mut second, 0, 2).unwrap()];
        s.isend(&comm, &[1_u8; 8], 0, 2).unwrap().wait().unwrap();
        assert_eq!(wait_any(&mut both, NO_LIMIT).unwrap().unwrap().index, 1);
        std::mem::forget(both);
    });
    // The leaked receive was cancelled: it takes no message.
    comm.send(&[9_u8; 8], 0, 1).unwrap();
    assert_eq!((first, second), ([0; 8], [1; 8]));
    comm.recv(&mut first, 0, 1).unwrap();
    assert_eq!(first, [9; 8]);
}

#[test]
fn fences_complete_their_operations() {
    on_two_ranks(NO_LIMIT, |comm, rank| {
        let (other, mine) = (1 - rank, [i64::from(rank) + 1; 4]);
        let window = Window::allocate(comm, 64, 8).unwrap();
        let early = window.fenced(|epoch| epoch.put(&mine, other, 0)).unwrap_err();
        assert_eq!(early.status, sys::DTL_ERROR_INVALID_STATE, "{early}");
        let (mut theirs, mut before) = ([0; 4], 0);
        window.fenced(|epoch| epoch.put(&mine, other, 0)).unwrap();
        window.fenced(|epoch| epoch.get(&mut theirs, rank, 0)).unwrap();
        assert_eq!(theirs, [i64::from(other) + 1; 4]);
        window
            .fenced(|epoch| {
                epoch.accumulate(&[10_i64], 0, 7, SUM)?;
                epoch.fetch_op(&0_i64, &mut before, other, 0, SUM)
            })
            .unwrap();
        assert_eq!(before, i64::from(rank) + 1);
        let mut sum = 0_i64;
        window.fenced(|epoch| epoch.get(&mut sum, 0, 7)).unwrap();
        assert_eq!(sum, 20);
        // A failure of the closure, and a panic, end the epoch with a fence.
        let far = window.fenced(|epoch| epoch.put(&mine, other, 7)).unwrap_err();
        assert_eq!(far.status, sys::DTL_ERROR_OUT_OF_BOUNDS, "{far}");
        let nobody = window.fenced(|epoch| epoch.put(&mine, 2, 0)).unwrap_err();
        assert_eq!(nobody.status, sys::DTL_ERROR_INVALID_RANK, "{nobody}");
        let unwinding = || window.fenced::<_, ()>(|_| panic!("unwinds"));
        catch_unwind(AssertUnwindSafe(unwinding)).unwrap_err();
        window.destroy().unwrap();
    });
}

#[test]
fn a_failed_fence_releases_the_buffers() {
    let done = Barrier::new(2);
    on_two_ranks(50_000_000, |comm, rank| {
        let window = Window::allocate(comm, 8, 8).unwrap();
        window.fence().unwrap();
        if rank == 0 {
            // The other rank does not come.
            let (value, mut got) = (7_u64, 0_u64);
            let late = window.fenced(|epoch| {
                epoch.put(&value, 1, 0)?;
                epoch.get(&mut got, 0, 0)?;
                epoch.put(&value, sys::DTL_PROC_NULL, 0)
            });
            let error = late.unwrap_err();
            assert_eq!((error.call, error.status.0), ("dtl_win_fence", sys::DTL_ERROR_TIMEOUT));
            // The lock of each target has completed its operations.
            window.lock(sys::DTL_LOCK_SHARED, 1, |epoch| epoch.get(&mut got, 1, 0)).unwrap();
            assert_eq!(got, value);
            let again = window.fenced(|epoch| epoch.put(&value, 1, 0)).unwrap_err();
            assert_eq!(again.status, sys::DTL_ERROR_INVALID_STATE, "{again}");
        }
        done.wait();
    });
}

#[test]
fn a_fence_that_is_revoked_fails() {
    let (put, revoked) = (Barrier::new(2), Barrier::new(2));
    on_two_ranks(NO_LIMIT, |comm, rank| {
        let window = Window::allocate(comm, 8, 8).unwrap();
        window.fence().unwrap();
        if rank == 1 {
            put.wait();
            comm.revoke().unwrap();
            revoked.wait();
            return;
        }
        let gone = window.fenced(|epoch| {
            epoch.put(&1_u64, 1, 0)?;
            put.wait();
            revoked.wait();
            Ok(())
        });
        // No target can be locked, but where ranks share memory each operation was complete.
        let error = gone.unwrap_err();
        assert_eq!((error.call, error.status.0), ("dtl_win_fence", sys::DTL_ERROR_REVOKED));
    });
}
