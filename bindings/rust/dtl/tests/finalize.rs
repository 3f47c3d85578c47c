//! Test of the state of objects after the library is finalized. It runs in a separate process.
//!
//! Needs libdtl.so.0.2: DTL_LIB_DIR=$PWD/build/stage/lib cargo test -p dtl-binding.

use dtl_binding::{Backend, Comm, Library, Open, Stream, sys};

#[test]
fn objects_become_stale() {
    let (library, second) = (Library::init().unwrap(), Library::init().unwrap());
    let host = Backend::find("host").unwrap();
    let memory = host.alloc(sys::DTL_MEMORY_HOST, 8, 0).unwrap();
    let stream = Stream::new(host.device(0)).unwrap();
    let comm = Comm::open(&Open { kind: "self", place: Some((0, 1)), ..Open::default() }).unwrap();
    let request = comm.irecv::<u8>(1, 0, 1).unwrap();
    drop(second);
    stream.synchronize().unwrap();
    library.finalize().unwrap();
    assert_eq!(stream.synchronize().unwrap_err().status, sys::DTL_ERROR_INVALID_STATE);
    drop((request, comm, stream, memory));

    let library = Library::init().unwrap();
    assert_eq!(host.name(&library).unwrap_err().status, sys::DTL_ERROR_INVALID_HANDLE);
    assert_eq!(Backend::find("host").unwrap().name(&library).unwrap(), "host");
    library.finalize().unwrap();
}
