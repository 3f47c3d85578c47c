//! Tests of buffers that are not released: the call must not return to safe
//! code. The registered kind "keeps" never completes a collective.
//!
//! Needs libdtl.so.0.2: DTL_LIB_DIR=$PWD/build/stage/lib cargo test -p dtl-binding.

#![allow(clippy::unwrap_used, reason = "a call that fails fails the test")]
#![allow(clippy::indexing_slicing, reason = "ranks of the test are indexes")]

use dtl_binding::{Comm, Library, Open, Window, call, sys};
use std::ffi::c_void;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::ptr;
use std::time::Duration;
use sys::dtl_status_t;

/// Names the part of the test that a child process runs.
const CHILD: &str = "DTL_TEST_LEND_CHILD";

unsafe extern "C" fn open(
    _self: *mut c_void,
    _args: *const sys::dtl_comm_open_t,
    out: *mut *mut c_void,
    out_rank: *mut i32,
    out_size: *mut i32,
) -> dtl_status_t {
    // SAFETY: the library passes the output.
    unsafe { *out = ptr::without_provenance_mut(1) };
    // SAFETY: the library passes the output.
    unsafe { *out_rank = 0 };
    // SAFETY: the library passes the output.
    unsafe { *out_size = 1 };
    sys::DTL_SUCCESS
}

unsafe extern "C" fn close(_self: *mut c_void, _comm: *mut c_void) -> dtl_status_t {
    sys::DTL_SUCCESS
}

unsafe extern "C" fn isend(
    _self: *mut c_void,
    _comm: *mut c_void,
    _buf: *const c_void,
    _size: u64,
    _dest: i32,
    _word: u64,
    _out: *mut u64,
) -> dtl_status_t {
    sys::DTL_ERROR_NOT_SUPPORTED
}

unsafe extern "C" fn irecv(
    _self: *mut c_void,
    _comm: *mut c_void,
    _buf: *mut c_void,
    _size: u64,
    _source: i32,
    _word: u64,
    _ignore: u64,
    _out: *mut u64,
) -> dtl_status_t {
    sys::DTL_ERROR_NOT_SUPPORTED
}

unsafe extern "C" fn test(
    _self: *mut c_void,
    _comm: *mut c_void,
    _op: u64,
    out_done: *mut i32,
    _out_result: *mut sys::dtl_comm_done_t,
) -> dtl_status_t {
    // SAFETY: the library passes the output.
    unsafe { *out_done = 0 };
    sys::DTL_SUCCESS
}

unsafe extern "C" fn coll_supports(
    _self: *mut c_void,
    _comm: *mut c_void,
    _args: *const sys::dtl_coll_args_t,
    out_yes: *mut i32,
) -> dtl_status_t {
    // SAFETY: the library passes the output.
    unsafe { *out_yes = 1 };
    sys::DTL_SUCCESS
}

unsafe extern "C" fn coll_start(
    _self: *mut c_void,
    _comm: *mut c_void,
    _args: *const sys::dtl_coll_args_t,
    out_op: *mut u64,
) -> dtl_status_t {
    // SAFETY: the library passes the output.
    unsafe { *out_op = 1 };
    sys::DTL_SUCCESS
}

/// Calls a collective whose buffers are never released.
fn child() {
    let _library = Library::init().unwrap();
    let comm = sys::dtl_comm_vtable_t {
        open: Some(open),
        close: Some(close),
        isend: Some(isend),
        irecv: Some(irecv),
        test: Some(test),
        coll_supports: Some(coll_supports),
        coll_start: Some(coll_start),
        ..sys::DTL_COMM_VTABLE_INIT
    };
    let table = sys::dtl_backend_vtable_t { comm: &raw const comm, ..sys::DTL_BACKEND_VTABLE_INIT };
    let (mut backend, name) = (sys::DTL_BACKEND_NULL, c"keeps".as_ptr());
    let (table, out) = (&raw const table, &raw mut backend);
    // SAFETY: the tables live through the call, and the slots have the contract of the header.
    unsafe { call!(dtl_backend_register(name, table, ptr::null_mut(), 0, out)) }.unwrap();
    let how = Open {
        kind: "keeps",
        place: Some((0, 1)),
        job: Some("lend"),
        timeout_ns: 20_000_000,
        ..Open::default()
    };
    let comm = Comm::open(&how).unwrap();
    let mut sum = 0_u64;
    let outcome = comm.allreduce(&1_u64, &mut sum, dtl_binding::SUM);
    unreachable!("returned with a buffer in use: {outcome:?}");
}

#[test]
fn a_buffer_that_is_not_released_ends_the_process() {
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["a_buffer_that_is_not_released_ends_the_process", "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "{text}");
    assert!(text.contains("dtl: dtl_comm_allreduce: "), "{text}");
    assert!(text.contains("has not given the buffer back"), "{text}");
    assert!(text.contains("call dtl_binding::sys::dtl_comm_allreduce"), "{text}");
}

/// Rank of the other test, in a process of its own.
const RANK: &str = "DTL_TEST_FENCE_RANK";

/// Puts to a rank that has ended, between two fences. Ranks share no memory of `dtl_win_create`, so
/// nobody knows whether the put still uses its buffer.
fn fence_rank(rank: i32) {
    let _library = Library::init().unwrap();
    let job = std::env::var("DTL_TEST_FENCE_JOB").unwrap();
    let how = Open { kind: "shm", place: Some((rank, 2)), job: Some(&job), ..Open::default() };
    let comm = Comm::open(&how).unwrap();
    let (mut memory, mut handle) = (vec![0_u64; 8], sys::DTL_WIN_NULL);
    let at = memory.as_mut_ptr().cast();
    // SAFETY: the memory outlives the window; the output is a local.
    unsafe { call!(dtl_win_create(comm.raw(), at, 64, 8, &raw mut handle)) }.unwrap();
    // SAFETY: nothing else destroys the window.
    let window = unsafe { Window::from_raw(handle) };
    window.fence().unwrap();
    if rank == 1 {
        std::process::exit(0);
    }
    let outcome = window.fenced(|epoch| epoch.put(&7_u64, 1, 0));
    unreachable!("returned with a buffer in use: {outcome:?}");
}

#[test]
fn a_fence_that_cannot_release_a_buffer_ends_the_process() {
    if let Ok(rank) = std::env::var(RANK) {
        return fence_rank(rank.parse().unwrap());
    }
    let start = |rank: &str| {
        Command::new(std::env::current_exe().unwrap())
            .args(["a_fence_that_cannot_release_a_buffer_ends_the_process", "--exact"])
            .arg("--nocapture")
            .env(RANK, rank)
            .env("DTL_TEST_FENCE_JOB", format!("fence-{}", std::process::id()))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let (zero, mut one) = (start("0"), start("1"));
    assert!(one.wait().unwrap().success());
    let output = zero.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "{text}");
    assert!(text.contains("dtl: dtl_win_lock: "), "{text}");
    assert!(text.contains("call dtl_binding::sys::dtl_win_lock"), "{text}");
}

/// Leaves a scope with a barrier in flight, which the other rank enters 6 s later.
fn late_barrier() {
    let comms = Comm::threads(2, 20_000_000_000).unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| dtl_binding::scope(|s| drop(s.ibarrier(&comms[0]).unwrap())));
        std::thread::sleep(Duration::from_secs(6));
        comms[1].barrier().unwrap();
    });
}

#[test]
fn a_scope_reports_a_long_wait_once() {
    const LATE: &str = "DTL_TEST_LATE_BARRIER";
    if std::env::var_os(LATE).is_some() {
        return late_barrier();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["a_scope_reports_a_long_wait_once", "--exact", "--nocapture"])
        .env(LATE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("dtl: dtl_request_wait: ").count(), 1, "{text}");
    assert!(text.contains("waits until the request is complete"), "{text}");
}
