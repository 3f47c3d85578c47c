//! Tests of command queues and buffers of opencl3, with a driver such as PoCL.
//!
//! Needs libdtl.so.0.2: DTL_LIB_DIR=$PWD/build/stage/lib cargo test -p dtl-binding -F opencl3.

#![cfg(feature = "opencl3")]
#![allow(clippy::unwrap_used, reason = "a call that fails fails the test")]
#![allow(clippy::print_stderr, reason = "a test that is skipped has a reason")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a launch is one expression of opencl3")]

use dtl_binding::interop::opencl3::{Mapped, context, stream};
use dtl_binding::{Backend, Comm, Device, Event, Open, SUM, Stream, sys};
use opencl3::command_queue::{CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CommandQueue};
use opencl3::context::Context;
use opencl3::device::Device as ClDevice;
use opencl3::kernel::{ExecuteKernel, Kernel};
use opencl3::memory::{Buffer, CL_MEM_HOST_NO_ACCESS, CL_MEM_READ_WRITE};
use opencl3::program::Program;
use std::ptr;
use std::sync::Arc;

const SOURCE: &str = "
    kernel void add(global int *to, int what) { to[get_global_id(0)] += what; }
";

/// Returns the first device of backend "opencl"; `None` without an OpenCL driver.
fn device() -> Option<Device> {
    match Backend::require("opencl") {
        Ok(backend) => Some(backend.device(0)),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn queue_of(context: &Context, properties: u64) -> Arc<CommandQueue> {
    Arc::new(CommandQueue::create_default_with_properties(context, properties, 0).unwrap())
}

fn buffer_of(context: &Context, flags: u64, count: usize) -> Buffer<i32> {
    // SAFETY: no memory of the host is named.
    unsafe { Buffer::create(context, flags, count, ptr::null_mut()) }.unwrap()
}

#[test]
fn a_queue_is_a_stream_and_a_buffer_is_mapped() {
    let Some(device) = device() else { return };
    let context = context(device).unwrap();
    let queue = queue_of(&context, 0);
    let program = Program::create_and_build_from_source(&context, SOURCE, "").unwrap();
    let kernel = Kernel::create(&program, "add").unwrap();
    let mut buffer = buffer_of(&context, CL_MEM_READ_WRITE, 100);
    let alone = Comm::open(&Open { kind: "self", place: Some((0, 1)), ..Open::default() }).unwrap();
    // SAFETY: nothing else uses the buffer.
    let mut mapped = unsafe { Mapped::new(&queue, &mut buffer) }.unwrap();
    assert_eq!(mapped.len(), 100);
    dtl_binding::scope(|s| {
        let receive = s.irecv(&alone, &mut *mapped, 0, 1).unwrap();
        s.isend(&alone, &[5_i32; 100], 0, 1).unwrap().wait().unwrap();
        receive.wait().unwrap();
    });
    drop(mapped);
    let run = |add: i32| {
        // SAFETY: a buffer of 100 integers, and an integer, for 100 work items.
        unsafe {
            ExecuteKernel::new(&kernel)
                .set_arg(&buffer)
                .set_arg(&add)
                .set_global_work_size(100)
                .enqueue_nd_range(&queue)
        }
        .unwrap();
    };
    run(10);
    // Work of both crates is in one order.
    let wrapped = stream(&queue).unwrap();
    let event = Event::new(device.backend, sys::DTL_EVENT_NO_TIMING).unwrap();
    event.record(&wrapped).unwrap();
    event.wait(sys::DTL_TIMEOUT_INFINITE).unwrap();
    run(1);
    drop(wrapped);
    // SAFETY: nothing else uses the buffer.
    let mut mapped = unsafe { Mapped::new(&queue, &mut buffer) }.unwrap();
    assert_eq!(*mapped, [16; 100]);
    alone.allreduce_in_place(&mut *mapped, SUM).unwrap();
    assert!(format!("{mapped:?}").contains("count: 100"));
}

#[test]
fn memory_of_the_library_is_an_argument_of_a_kernel() {
    let Some(device) = device() else { return };
    device.make_current().unwrap();
    let context = context(device).unwrap();
    let queue = queue_of(&context, 0);
    let program = Program::create_and_build_from_source(&context, SOURCE, "").unwrap();
    let kernel = Kernel::create(&program, "add").unwrap();
    let mut memory = device.backend.alloc(sys::DTL_MEMORY_DEVICE, 64, 0).unwrap();
    memory.write(0, &[7_i32; 16]).unwrap();
    // SAFETY: shared virtual memory of 16 integers, for 16 work items; it outlives the commands.
    unsafe {
        ExecuteKernel::new(&kernel)
            .set_arg_svm(memory.as_ptr().cast::<i32>())
            .set_arg(&3_i32)
            .set_global_work_size(16)
            .enqueue_nd_range(&queue)
    }
    .unwrap();
    queue.finish().unwrap();
    let mut out = [0_i32; 16];
    memory.read(0, &mut out).unwrap();
    assert_eq!(out, [10; 16]);
    // Not device memory that is exported.
    let error = memory.export_dmabuf(0, 64).unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_NOT_SUPPORTED, "{error}");
    let error = memory.export_dmabuf(60, 5).unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_OUT_OF_BOUNDS, "{error}");
}

#[test]
fn other_queues_and_buffers_are_refused() {
    let Some(device) = device() else { return };
    let own = context(device).unwrap();
    let error = stream(&queue_of(&own, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)).unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_INVALID_ARGUMENT, "{error}");
    let foreign = Context::from_device(&ClDevice::new(own.default_device())).unwrap();
    let error = stream(&queue_of(&foreign, 0)).unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_INVALID_ARGUMENT, "{error}");
    assert!(error.text.contains("another context"), "{error}");
    let error = context(Backend::find("host").unwrap().device(0)).unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_INVALID_ARGUMENT, "{error}");
    let (queue, mut hidden) = (queue_of(&own, 0), buffer_of(&own, CL_MEM_HOST_NO_ACCESS, 4));
    // SAFETY: nothing else uses the buffer.
    let error = unsafe { Mapped::new(&queue, &mut hidden) }.unwrap_err();
    assert_eq!((error.call, error.status.0), ("clEnqueueMapBuffer", sys::DTL_ERROR_OPENCL));
    let unordered = queue_of(&own, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    let mut buffer = buffer_of(&own, CL_MEM_READ_WRITE, 4);
    // SAFETY: nothing else uses the buffer.
    let error = unsafe { Mapped::new(&unordered, &mut buffer) }.unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_INVALID_ARGUMENT, "{error}");
    assert!(error.text.contains("out of order"), "{error}");
}

#[test]
fn a_queue_outlives_its_stream() {
    let Some(device) = device() else { return };
    let queue = queue_of(&context(device).unwrap(), 0);
    let wrapped = stream(&queue).unwrap();
    drop(queue);
    wrapped.synchronize().unwrap();
    let mut native = ptr::null_mut();
    // SAFETY: the output is a local.
    unsafe { dtl_binding::call!(dtl_stream_native(wrapped.raw(), &raw mut native)) }.unwrap();
    assert!(!native.is_null());
    let raw = wrapped.raw();
    drop(wrapped);
    let stale = Stream::from_raw(raw).synchronize().unwrap_err();
    assert_eq!(stale.status, sys::DTL_ERROR_INVALID_HANDLE);
}
