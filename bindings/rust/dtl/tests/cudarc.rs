//! Tests of streams and device memory of cudarc, with a CUDA driver or the fake one (tests/cuda).
//!
//! Needs libdtl.so.0.2: DTL_LIB_DIR=$PWD/build/stage/lib cargo test -p dtl-binding -F cudarc.

#![cfg(feature = "cudarc")]
#![allow(clippy::unwrap_used, reason = "a call that fails fails the test")]
#![allow(clippy::print_stderr, reason = "a test that is skipped has a reason")]

use cudarc::driver::CudaContext;
use dtl_binding::interop::cudarc::{DeviceSlice, DeviceSliceMut, stream};
use dtl_binding::{Backend, Buffer, Comm, Event, Open, SUM, Stream, scope, sys};
use std::sync::Arc;

/// Returns the context of the first device; `None` without a CUDA driver.
fn context() -> Option<Arc<CudaContext>> {
    match Backend::require("cuda") {
        Ok(_) => Some(CudaContext::new(0).unwrap()),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn alone() -> Comm {
    Comm::open(&Open { kind: "self", place: Some((0, 1)), ..Open::default() }).unwrap()
}

#[test]
fn slices_are_buffers_of_messages_and_collectives() {
    let Some(context) = context() else { return };
    let (comm, queue) = (alone(), context.new_stream().unwrap());
    let mine = queue.clone_htod(&[1.5_f32; 3000]).unwrap();
    let mut got = queue.alloc_zeros::<f32>(3000).unwrap();
    let lent = DeviceSlice::new(&mine).unwrap();
    assert_eq!(lent.count(), 3000);
    let mut taken = DeviceSliceMut::new(&mut got).unwrap();
    scope(|s| {
        let receive = s.irecv(&comm, &mut taken, 0, 1)?;
        s.isend(&comm, &lent, 0, 1)?.wait()?;
        assert_eq!(receive.wait()?.received.count::<f32>(), 3000);
        Ok::<(), dtl_binding::Error>(())
    })
    .unwrap();
    // Any stream has the new values: the call has ended.
    let other = context.new_stream().unwrap();
    assert_eq!(other.clone_dtoh(&got).unwrap(), [1.5; 3000]);
    comm.allreduce(&lent, &mut DeviceSliceMut::new(&mut got).unwrap(), SUM).unwrap();
    // Views, and a slice of the host on one side.
    let mut host = [0.0_f32; 10];
    comm.allreduce(&DeviceSlice::new(&got.slice(5..15)).unwrap(), &mut host, SUM).unwrap();
    assert_eq!(host, [1.5; 10]);
    let mut view = got.slice_mut(2990..);
    comm.allreduce(&[9.0_f32; 10], &mut DeviceSliceMut::new(&mut view).unwrap(), SUM).unwrap();
    assert_eq!(DeviceSlice::new(&view).unwrap().count(), 10);
    assert_eq!(queue.clone_dtoh(&got).unwrap()[2989..2992], [1.5, 9.0, 9.0]);
    comm.send(&DeviceSlice::new(&mine.slice(0..0)).unwrap(), 0, 2).unwrap();
    assert_eq!(comm.recv(&mut host, 0, 2).unwrap().size_bytes, 0);
}

#[test]
fn slices_are_copied_from_and_to_memory_of_the_library() {
    let Some(context) = context() else { return };
    let queue = context.default_stream();
    let mut slice = queue.clone_htod(&[7_u32, 8, 9]).unwrap();
    let host = Backend::find("host").unwrap();
    let mut memory = host.alloc(sys::DTL_MEMORY_HOST, 64, 0).unwrap();
    memory.write(4, &DeviceSlice::new(&slice).unwrap()).unwrap();
    memory.fill(8, 0, 4).unwrap();
    memory.read(4, &mut DeviceSliceMut::new(&mut slice).unwrap()).unwrap();
    assert_eq!(queue.clone_dtoh(&slice).unwrap(), [7, 0, 9]);
    let error = memory.write(60, &DeviceSlice::new(&slice).unwrap()).unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_OUT_OF_BOUNDS, "{error}");
}

#[test]
fn a_stream_is_wrapped() {
    let Some(context) = context() else { return };
    let native = context.new_stream().unwrap();
    let wrapped = stream(&native).unwrap();
    let event = Event::new(Backend::find("cuda").unwrap(), 0).unwrap();
    event.record(&wrapped).unwrap();
    event.wait(sys::DTL_TIMEOUT_INFINITE).unwrap();
    wrapped.synchronize().unwrap();
    let raw = wrapped.raw();
    assert_eq!(Arc::strong_count(&native), 2);
    drop(wrapped);
    assert_eq!(Arc::strong_count(&native), 1);
    let stale = Stream::from_raw(raw).synchronize().unwrap_err();
    assert_eq!(stale.status, sys::DTL_ERROR_INVALID_HANDLE);
    stream(&context.default_stream()).unwrap().synchronize().unwrap();
    let error = stream(&context.per_thread_stream()).unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_INVALID_ARGUMENT, "{error}");
}

#[test]
fn device_memory_is_exported_as_a_dma_buf() {
    let Some(_context) = context() else { return };
    let cuda = Backend::find("cuda").unwrap();
    cuda.device(0).make_current().unwrap();
    let memory = cuda.alloc(sys::DTL_MEMORY_SHARED, 1 << 16, 0).unwrap();
    let exported = match memory.export_dmabuf(100, 1000) {
        Ok(exported) => exported,
        // A driver with closed kernel modules.
        Err(error) if error.status == sys::DTL_ERROR_NOT_SUPPORTED => {
            eprintln!("skipped: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(exported.offset % 4, 100 % 4);
    assert!(exported.fd.try_clone().is_ok());
    let error = memory.export_dmabuf(1 << 16, 1).unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_OUT_OF_BOUNDS, "{error}");
}
