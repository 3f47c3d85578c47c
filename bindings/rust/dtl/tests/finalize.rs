//! Test of the state of objects after the library is finalized. It runs in a separate process.
//!
//! Needs libdtl.so.0.2: DTL_LIB_DIR=$PWD/build/stage/lib cargo test -p dtl-binding.

#![allow(clippy::unwrap_used, reason = "a call that fails fails the test")]

use dtl_binding::{Backend, Comm, Dtype, Error, Library, Open, Stream, call, sys};
use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;
use std::time::Duration;

#[derive(Clone, Copy, Dtype)]
#[repr(C)]
struct Pair {
    first: u64,
    second: u64,
}

/// What an operation returned that was started while the library was being finalized.
static LATE: Mutex<Option<Error>> = Mutex::new(None);

/// Waits until the library is being finalized, and starts an operation in a scope.
extern "C" fn late(_user: *mut c_void) -> sys::dtl_status_t {
    while Backend::find("host").is_ok() {
        std::thread::yield_now();
    }
    let (comm, byte) = (Comm::from_raw(sys::DTL_COMM_SELF), 1_u8);
    let outcome = dtl_binding::scope(|s| s.isend(&comm, &byte, 0, 1).map(drop));
    *LATE.lock().unwrap() = outcome.err();
    sys::DTL_SUCCESS
}

#[test]
fn objects_become_stale() {
    let (library, second) = (Library::init().unwrap(), Library::init().unwrap());
    let host = Backend::find("host").unwrap();
    let memory = host.alloc(sys::DTL_MEMORY_HOST, 8, 0).unwrap();
    let stream = Stream::new(host.device(0)).unwrap();
    let comm = Comm::open(&Open { kind: "self", place: Some((0, 1)), ..Open::default() }).unwrap();
    let (mut byte, mut pair) = (0_u8, Pair { first: 1, second: 2 });
    let dtype = Pair::dtype().unwrap();
    dtl_binding::scope(|s| {
        let _request = s.irecv(&comm, &mut byte, 0, 1).unwrap();
        // In a scope, the library is not finalized.
        let error = Library::init().unwrap().finalize().unwrap_err();
        assert_eq!(error.status, sys::DTL_ERROR_BUSY);
        drop(second);
    });
    stream.synchronize().unwrap();
    // Nor while its memory exists.
    let error = Library::init().unwrap().finalize().unwrap_err();
    assert!(error.text.starts_with("1 scopes, epochs or allocations exist"), "{error}");
    memory.free().unwrap();
    library.finalize().unwrap();
    assert_eq!(stream.synchronize().unwrap_err().status, sys::DTL_ERROR_INVALID_STATE);
    drop((comm, stream));

    let library = Library::init().unwrap();
    // A user-defined dtype is created again.
    let comm = Comm::open(&Open { kind: "self", place: Some((0, 1)), ..Open::default() }).unwrap();
    comm.bcast(&mut pair, 0).unwrap();
    assert_eq!((pair.first, pair.second), (1, 2));
    assert_ne!(Pair::dtype().unwrap(), dtype);
    assert_eq!(host.name(&library).unwrap_err().status, sys::DTL_ERROR_INVALID_HANDLE);
    assert_eq!(Backend::find("host").unwrap().name(&library).unwrap(), "host");
    // The finalization waits for work that opens a scope.
    let stream = Stream::new(Backend::find("host").unwrap().device(0)).unwrap();
    let none = ptr::null_mut();
    // SAFETY: the function needs no data.
    unsafe { call!(dtl_stream_host_callback(stream.raw(), Some(late), none)) }.unwrap();
    library.finalize().unwrap();
    let error = LATE.lock().unwrap().take().unwrap();
    assert_eq!(error.status, sys::DTL_ERROR_INVALID_STATE);
    assert!(error.text.contains("being finalized"), "{error}");
    drop(comm);
    a_busy_finalization_is_repeated();
}

/// A finalization fails while another thread is in a call.
fn a_busy_finalization_is_repeated() {
    let library = Library::init().unwrap();
    let comms = Comm::threads(2, 30_000_000_000).unwrap();
    let [first, second] = &comms[..] else { unreachable!() };
    let mut byte = 0_u8;
    std::thread::scope(|threads| {
        threads.spawn(|| first.recv(&mut byte, 1, 1).unwrap());
        std::thread::sleep(Duration::from_millis(200));
        let error = library.finalize().unwrap_err();
        assert_eq!(error.status, sys::DTL_ERROR_BUSY, "{error}");
        second.send(&1_u8, 0, 1).unwrap();
    });
    Library::init().unwrap().finalize().unwrap();
    assert_eq!(first.rank().unwrap_err().status, sys::DTL_ERROR_INVALID_STATE);
}
