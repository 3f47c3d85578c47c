//! Events: points in the work of a stream.

use super::stream;
use crate::abi::handle::{dtl_backend_t, dtl_event_t, dtl_stream_t};
use crate::abi::status::dtl_status_t;
use crate::error::Result;
use crate::ffi::args::Out;
use crate::ffi::guard::Entry;
use crate::runtime::exec::event::Event;
use crate::runtime::exec::handles;
use crate::sys::handles::epoch::Guard;

fn find(inside: &Guard, event: dtl_event_t) -> Result<&Event> {
    handles::find(inside, event.id)
}

/// Creates an event, to be recorded on streams of the same backend.
///
/// @param flags  0, or DTL_EVENT_NO_TIMING (cheaper where the hardware takes the time).
/// @param out    the event; destroy it with dtl_event_destroy.
/// Equivalent: cudaEventCreateWithFlags.
/// dtl:flags flags(DTL_EVENT_NO_TIMING)
/// dtl:out owned(dtl_event_destroy)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_event_create(
    backend: dtl_backend_t,
    flags: u64,
    out: *mut dtl_event_t,
) -> dtl_status_t {
    Entry("dtl_event_create").call(|inside| {
        let out = Out::new(out, "out")?;
        let event = Event::create(handles::backend_of(inside, backend)?, flags)?;
        out.put(handles::insert(event).map(|id| dtl_event_t { id }))
    })
}

/// Destroys an event at once, recorded or not. Waits for it that are queued on streams stay in
/// effect. The null event: nothing happens.
///
/// Threads: any; threads that wait for the event get DTL_ERROR_CANCELED (those inside a backend's
/// own wait return when it does). Equivalent: cudaEventDestroy.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_event_destroy(event: dtl_event_t) -> dtl_status_t {
    Entry("dtl_event_destroy").call(|inside| {
        if let Some(event) = handles::remove::<Event>(inside, event.id)? {
            event.cancel_waiters();
        }
        Ok(())
    })
}

/// Marks the stream's present end. An earlier record is replaced for calls that come later; those
/// that already wait go on waiting for the record they found. Returns at once, except on a
/// backend's streams that have no events: there it waits for the stream.
///
/// @return DTL_ERROR_INVALID_ARGUMENT: event and stream are of different backends that do not mix.
/// Equivalent: cudaEventRecord.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_event_record(event: dtl_event_t, stream: dtl_stream_t) -> dtl_status_t {
    Entry("dtl_event_record")
        .call(|inside| stream::find(inside, stream)?.record(find(inside, event)?))
}

/// Waits until the work before the record is done. An event never recorded is done.
///
/// @param timeout_ns  nanoseconds; 0 = return at once, DTL_TIMEOUT_INFINITE = no limit.
/// @return the first failure of that work that no call had returned before the record.
///         DTL_ERROR_TIMEOUT: not done in time; the event is unchanged. DTL_ERROR_CANCELED: another
///         thread destroyed the event. DTL_ERROR_INVALID_STATE: called by a callback or task that
///         the event is recorded behind, so that it would wait for itself.
/// Equivalent: cudaEventSynchronize.
/// dtl:call blocks(timeout_ns)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_event_wait(event: dtl_event_t, timeout_ns: u64) -> dtl_status_t {
    Entry("dtl_event_wait").hold(handles::hold, event.id, |event: &Event| event.wait(timeout_ns))
}

/// Reports whether the work before the record is done. Does not wait.
///
/// @param out_done  1 = done, 0 = not yet. An event never recorded is done.
/// @return the failure of that work, as dtl_event_wait.
/// Equivalent: cudaEventQuery.
/// dtl:out_done bool
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_event_query(event: dtl_event_t, out_done: *mut i32) -> dtl_status_t {
    Entry("dtl_event_query").call(|inside| {
        Out::new(out_done, "out_done")?.put(find(inside, event)?.query().map(i32::from))
    })
}

/// Nanoseconds between the records of two events that are done.
///
/// @return DTL_ERROR_INVALID_STATE: one was never recorded or is not done (wait for it first).
///         DTL_ERROR_INVALID_ARGUMENT: stop came before start, one has DTL_EVENT_NO_TIMING, or
///         they are of different backends. DTL_ERROR_NOT_SUPPORTED: the backend does not time.
/// Equivalent: cudaEventElapsedTime (which gives milliseconds).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_event_elapsed_ns(
    start: dtl_event_t,
    stop: dtl_event_t,
    out_ns: *mut u64,
) -> dtl_status_t {
    Entry("dtl_event_elapsed_ns").call(|inside| {
        Out::new(out_ns, "out_ns")?.put(find(inside, start)?.elapsed_ns(find(inside, stop)?))
    })
}
