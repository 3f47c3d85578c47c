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

#[inline]
fn find(inside: &Guard, event: dtl_event_t) -> Result<&Event> {
    handles::find(inside, event.id)
}

/// Creates an event, which can be recorded on streams of the same backend.
///
/// @param flags  0 or DTL_EVENT_NO_TIMING, which is cheaper on hardware that takes time stamps.
/// @param out    The event. The caller owns it; destroy it with dtl_event_destroy.
/// @return DTL_ERROR_INVALID_ARGUMENT: `flags` has unknown bits.
/// Threads: any. Does not block. Equivalent: cudaEventCreateWithFlags.
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

/// Destroys an event immediately, recorded or not. Waits for the event that are queued on streams
/// stay in effect. Destroying DTL_EVENT_NULL succeeds.
///
/// Threads: any. Threads that wait for the event get DTL_ERROR_CANCELED; threads inside a wait of
/// the backend return when that wait does.
/// Equivalent: cudaEventDestroy.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_event_destroy(event: dtl_event_t) -> dtl_status_t {
    Entry("dtl_event_destroy").call(|inside| {
        if let Some(event) = handles::remove::<Event>(inside, event.id)? {
            event.cancel_waiters();
        }
        Ok(())
    })
}

/// Records an event at the current end of a stream.
///
/// A later record replaces an earlier one for the calls that follow it. Waits in progress continue
/// to wait for the record that they found. An exception is a wait with a time limit for an event
/// that the backend implements: it follows the new record. Does not block, except on a backend that
/// has streams but no events. There the call waits for the stream.
///
/// @return DTL_ERROR_INVALID_ARGUMENT: event and stream belong to different backends. Only backends
///         that have neither streams nor events of their own can be mixed.
///         DTL_ERROR_INVALID_STATE: the call would wait for the stream whose work made it.
/// Equivalent: cudaEventRecord.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_event_record(event: dtl_event_t, stream: dtl_stream_t) -> dtl_status_t {
    Entry("dtl_event_record")
        .call(|inside| stream::find(inside, stream)?.record(find(inside, event)?))
}

/// Blocks until the work before the latest record of an event is complete. An event that was never
/// recorded is complete.
///
/// @param timeout_ns  In nanoseconds; 0 polls once, DTL_TIMEOUT_INFINITE sets no limit.
/// @return The first failure of that work that no call had returned before the record.
///         DTL_ERROR_TIMEOUT: the work is not complete in time. The event is unchanged.
///         DTL_ERROR_CANCELED: another thread destroyed the event.
///         DTL_ERROR_INVALID_STATE: the event is recorded behind the callback or task that made the
///         call, which would wait for itself.
/// Equivalent: cudaEventSynchronize.
/// dtl:call blocks(timeout_ns)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_event_wait(event: dtl_event_t, timeout_ns: u64) -> dtl_status_t {
    Entry("dtl_event_wait").hold(handles::hold, event.id, |event: &Event| event.wait(timeout_ns))
}

/// Reports whether the work before the latest record of an event is complete. Does not block.
///
/// @param out_done  1 = complete, 0 = not yet. An event that was never recorded is complete.
/// @return The first failure of that work that no call had returned before the record.
/// Equivalent: cudaEventQuery.
/// dtl:out_done bool
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_event_query(event: dtl_event_t, out_done: *mut i32) -> dtl_status_t {
    Entry("dtl_event_query").call(|inside| {
        Out::new(out_done, "out_done")?.put(find(inside, event)?.query().map(i32::from))
    })
}

/// Computes the time between the records of two complete events, in nanoseconds.
///
/// @param start   Event that was recorded first.
/// @param stop    Event of the same backend that was recorded later.
/// @param out_ns  Time from `start` to `stop` in nanoseconds.
/// @return DTL_ERROR_INVALID_STATE: one of the events was never recorded or is not complete. Wait
///         for it first.
///         DTL_ERROR_INVALID_ARGUMENT: `stop` came before `start`, one of the events has
///         DTL_EVENT_NO_TIMING, or they belong to different backends.
///         DTL_ERROR_NOT_SUPPORTED: the backend does not time its events.
/// Threads: any. Does not block. Equivalent: cudaEventElapsedTime, which returns milliseconds.
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
