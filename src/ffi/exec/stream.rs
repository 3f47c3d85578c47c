//! Streams: in-order queues of work on a device.

use crate::abi::handle::{dtl_backend_t, dtl_event_t, dtl_stream_t};
use crate::abi::runtime::dtl_task_fn_t;
use crate::abi::status::{DTL_ERROR_TIMEOUT, dtl_status_t};
use crate::error::{Result, fail};
use crate::ffi::args::Out;
use crate::ffi::guard::Entry;
use crate::runtime::device;
use crate::runtime::exec::event::Event;
use crate::runtime::exec::handles;
use crate::runtime::exec::stream::Stream;
use crate::sys::{
    handles::{epoch::Guard, handle_table::HazardRef},
    memory::buf::Addr,
    sync::wait::Deadline,
};
use std::ffi::c_void;
use std::sync::Arc;

pub(crate) fn find(inside: &Guard, stream: dtl_stream_t) -> Result<&Stream> {
    handles::find(inside, handles::stream_id(inside, stream)?)
}

fn hold(inside: Guard, stream: dtl_stream_t) -> Result<HazardRef<Stream>> {
    let id = handles::stream_id(&inside, stream)?;
    handles::hold(inside, id)
}

fn pin(inside: &Guard, stream: dtl_stream_t) -> Result<Arc<Stream>> {
    handles::pin(inside, handles::stream_id(inside, stream)?)
}

/// Creates a stream on a device. A backend without streams of its own gets one of the library's: a
/// host thread, made by the first work that is queued, does the work in order.
///
/// A failure of queued work is kept by the stream: work behind it still runs, events recorded
/// behind it carry it, and the next dtl_stream_wait returns it, once. On a backend's own
/// stream, too, whatever the backend's events know: failures of callbacks, kernels from functions
/// and copies that the library does there.
///
/// @param device  0 ... count-1; 0 for a backend without devices.
/// @param flags   must be 0.
/// @param out     the stream; destroy it with dtl_stream_destroy.
/// @return DTL_ERROR_OUT_OF_BOUNDS: no such device. DTL_ERROR_UNAVAILABLE: the backend cannot run.
/// Equivalent: cudaStreamCreate.
/// dtl:out owned(dtl_stream_destroy)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_stream_create(
    backend: dtl_backend_t,
    device: i32,
    flags: u64,
    out: *mut dtl_stream_t,
) -> dtl_status_t {
    Entry("dtl_stream_create").call(|inside| {
        let out = Out::new(out, "out")?;
        let backend = handles::backend_of(inside, backend)?;
        handles::check_device(&backend, device)?;
        let stream = Stream::create(backend, device, flags)?;
        out.put(handles::insert(stream).map(|id| dtl_stream_t { id }))
    })
}

/// Destroys a stream after its work is finished. The call waits for that, except where the stream's
/// own work makes the call. A failure that no call has returned is dropped. The null stream and
/// default streams: nothing happens. A wrapped stream: only the handle is destroyed.
///
/// Threads: any; threads that use the stream meanwhile get DTL_ERROR_INVALID_HANDLE or
/// DTL_ERROR_CANCELED. Equivalent: cudaStreamDestroy (which does not wait).
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_stream_destroy(stream: dtl_stream_t) -> dtl_status_t {
    Entry("dtl_stream_destroy").wait(
        |inside| handles::remove_stream(inside, stream.id),
        |stream| {
            if let Some(stream) = stream {
                stream.close();
            }
            Ok(())
        },
    )
}

/// Waits for all work queued so far.
///
/// @param timeout_ns  nanoseconds; 0 = return at once, DTL_TIMEOUT_INFINITE = no limit. On streams
///                    of a backend that can neither query streams nor record events the limit has
///                    no effect.
/// @return the first failure of that work since the last call; it is reported once.
///         DTL_ERROR_TIMEOUT: not done in time; the work goes on. DTL_ERROR_INVALID_STATE: called
///         by the stream's own work.
/// Equivalent: cudaStreamSynchronize.
/// dtl:call blocks(timeout_ns)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_stream_wait(stream: dtl_stream_t, timeout_ns: u64) -> dtl_status_t {
    Entry("dtl_stream_wait")
        .hold(hold, stream, |stream: &Stream| stream.wait(Deadline::after(timeout_ns)))
}

/// Reports whether all work queued so far is done. Returns at once, except on streams of a backend
/// that can neither query streams nor record events: there it waits for the stream. Called from
/// work of the stream itself, it reports 0.
///
/// @param out_done  1 = done, 0 = not yet.
/// @return a failure of that work; it stays to be reported by dtl_stream_wait.
/// Equivalent: cudaStreamQuery.
/// dtl:out_done bool
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_stream_query(
    stream: dtl_stream_t,
    out_done: *mut i32,
) -> dtl_status_t {
    Entry("dtl_stream_query").call(|inside| {
        Out::new(out_done, "out_done")?.put(find(inside, stream)?.query().map(i32::from))
    })
}

/// Makes work queued from now on wait for an event's latest record; recording it again later does
/// not change this wait. The event may be of another stream or backend. Its failure becomes the
/// stream's. Returns at once, except for a backend whose streams cannot wait for events: then this
/// call waits.
///
/// Equivalent: cudaStreamWaitEvent.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_stream_wait_event(stream: dtl_stream_t, event: dtl_event_t) -> dtl_status_t {
    Entry("dtl_stream_wait_event").wait(
        |inside| Ok((pin(inside, stream)?, handles::pin::<Event>(inside, event.id)?)),
        |(stream, event)| stream.wait_event(&event),
    )
}

/// The default stream of a device: what DTL_STREAM_NULL means where that device is current. Made
/// at its first use; destroying it does nothing.
///
/// @param device  0 ... count-1.
/// @return DTL_ERROR_OUT_OF_BOUNDS: no such device.
/// dtl:out borrowed
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_stream_default(
    backend: dtl_backend_t,
    device: i32,
    out: *mut dtl_stream_t,
) -> dtl_status_t {
    Entry("dtl_stream_default").call(|inside| {
        let out = Out::new(out, "out")?;
        let backend = handles::backend_of(inside, backend)?;
        out.put(handles::default_stream(inside, &backend, device).map(|id| dtl_stream_t { id }))
    })
}

/// Makes a handle for a stream that the program made with the backend's own interface (a CUstream,
/// a cl_command_queue) on the calling thread's current device. The stream stays the program's: it
/// must live until the handle is destroyed and its work is done, and is never destroyed here.
///
/// @param native  as the backend defines it; NULL if that means a stream there.
/// @param out     the handle; give it back with dtl_stream_destroy.
/// @return DTL_ERROR_NOT_SUPPORTED: the backend has no streams of its own.
/// dtl:out owned(dtl_stream_destroy)
/// dtl:native opaque opt until(last_use)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_stream_wrap(
    backend: dtl_backend_t,
    native: *mut c_void,
    out: *mut dtl_stream_t,
) -> dtl_status_t {
    Entry("dtl_stream_wrap").call(|inside| {
        let out = Out::new(out, "out")?;
        let backend = handles::backend_of(inside, backend)?;
        let device = device::get_or_first(&backend)?;
        let stream = Stream::wrap(backend, device, Addr::new(native))?;
        out.put(handles::insert(stream).map(|id| dtl_stream_t { id }))
    })
}

/// The backend's own pointer for a stream, for calls of its own interface. Lives as long as the
/// stream.
///
/// @return DTL_ERROR_NOT_SUPPORTED: the backend has no streams of its own.
/// dtl:out_native borrowed lives(object)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_stream_native(
    stream: dtl_stream_t,
    out_native: *mut *mut c_void,
) -> dtl_status_t {
    Entry("dtl_stream_native").call(|inside| {
        Out::new(out_native, "out_native")?.put(find(inside, stream)?.native().map(Addr::ptr))
    })
}

/// Calls fn(user) once the work queued before is done; work queued later waits for it. It is called
/// even if work before it failed. Its status, unless DTL_SUCCESS, is a failure of the stream.
///
/// @param fn  Thread: the stream's. Locks held: none. It may block and may call dtl_ functions,
///            except to wait for this stream or an event behind itself; it must not throw. On a
///            backend's stream the backend's rules come on top (CUDA: no calls that reach CUDA).
/// Equivalent: cudaLaunchHostFunc.
/// dtl:user opaque until(stream)
/// dtl:fn until(stream)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_stream_host_callback(
    stream: dtl_stream_t,
    r#fn: dtl_task_fn_t,
    user: *mut c_void,
) -> dtl_status_t {
    Entry("dtl_stream_host_callback").wait(
        |inside| {
            if r#fn.is_none() {
                return fail!(DTL_ERROR_NULL_POINTER, "fn is NULL; pass the function to call");
            }
            pin(inside, stream)
        },
        |stream| stream.host_callback(r#fn, Addr::new(user)),
    )
}

/// Waits for all work on a device: the backend's own way if it has one, and every stream that was
/// made here on it.
///
/// @param timeout_ns  nanoseconds; 0 = return at once, DTL_TIMEOUT_INFINITE = no limit. The limit
///                    covers the streams made here (see dtl_stream_wait), but not work that the
///                    program queued through the backend's own interface.
/// @return the first failure found. DTL_ERROR_OUT_OF_BOUNDS: no such device. DTL_ERROR_TIMEOUT: not
///         done in time; the work goes on.
/// Equivalent: cudaDeviceSynchronize.
/// dtl:call blocks(timeout_ns)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_device_wait(
    backend: dtl_backend_t,
    device: i32,
    timeout_ns: u64,
) -> dtl_status_t {
    Entry("dtl_device_wait").wait(
        |inside| {
            let backend = handles::backend_of(inside, backend)?;
            handles::check_device(&backend, device)?;
            let streams = handles::streams_of(inside, &backend, device);
            Ok((backend, streams))
        },
        |(backend, streams)| {
            let deadline = Deadline::after(timeout_ns);
            let wait_streams =
                || streams.iter().map(|stream| stream.wait(deadline)).fold(Ok(()), Result::and);
            let wait_device = || {
                let own = backend.device.as_ref().and_then(|devices| devices.synchronize(device));
                own.unwrap_or(Ok(()))
            };
            if !deadline.is_finite() {
                return wait_device().and(wait_streams());
            }
            // The slot has no time limit, so it is called once the streams are done.
            match wait_streams() {
                Err(error) if error.status() == DTL_ERROR_TIMEOUT => Err(error),
                waited => wait_device().and(waited),
            }
        },
    )
}
