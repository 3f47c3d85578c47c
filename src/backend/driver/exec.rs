//! Tokens that identify the streams and events of a driver backend to the runtime. The token of a
//! stream owns a reference to a [`Stream`]. The token of an event points to an object that stores
//! the event's latest [`EventRecord`], because an application may record an event repeatedly and on
//! any device, while a driver's event belongs to one device.

use super::{DeviceBackend, Driver, Event as _, EventRecord, Queue as _, Stream, token};
use crate::abi::devices::exec::DTL_EVENT_NO_TIMING;
use crate::error::{Result, fail, failure};
use crate::runtime::component::{Exec, ExecGroups, HostExec, TaskCall, Token};
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::Mutex;
use std::sync::Arc;

/// Event that the runtime identifies by a token, with its latest [`EventRecord`] (`None` if the
/// event has not been recorded).
struct EventHandle<D: Driver> {
    is_timed: bool,
    latest: Mutex<Option<Arc<EventRecord<D>>>>,
}

/// Returns the event that `token` points to.
fn event_of<'a, D: Driver>(token: Token) -> &'a EventHandle<D> {
    // SAFETY: `event_create` returned the token, and the runtime uses the token only until it
    // destroys the event.
    unsafe { &*token.ptr().cast::<EventHandle<D>>() }
}

fn latest<D: Driver>(token: Token) -> Option<Arc<EventRecord<D>>> {
    event_of::<D>(token).latest.lock().clone()
}

/// Returns the stream that `token` points to.
pub fn stream_of<'a, D: Driver>(token: Token) -> &'a Stream<D> {
    // SAFETY: `into_token` returned the token, and the runtime uses the token only until it
    // destroys or unwraps the stream.
    unsafe { &*token.ptr().cast::<Stream<D>>() }
}

/// Returns a new reference to the stream that `token` points to.
fn share_of<D: Driver>(token: Token) -> Arc<Stream<D>> {
    let stream = token.ptr().cast::<Stream<D>>().cast_const();
    // SAFETY: `into_token` returned the token, which still owns a reference.
    unsafe { Arc::increment_strong_count(stream) };
    // SAFETY: the increment above created the reference that is returned.
    unsafe { Arc::from_raw(stream) }
}

fn into_token<D: Driver>(stream: Arc<Stream<D>>) -> Token {
    Addr::new(Arc::into_raw(stream).cast_mut().cast())
}

/// Converts a token back into the stream reference that the token owns.
fn from_token<D: Driver>(token: Token) -> Arc<Stream<D>> {
    // SAFETY: `into_token` returned the token. The runtime passes the token to this function once
    // and does not use it again.
    unsafe { Arc::from_raw(token.ptr().cast::<Stream<D>>().cast_const()) }
}

impl<D: Driver> Exec for Arc<DeviceBackend<D>> {
    fn groups(&self) -> ExecGroups {
        ExecGroups { streams: true, events: true }
    }

    fn host(&self) -> Option<&dyn HostExec> {
        None
    }

    fn stream_priorities(&self, device: i32) -> Result<(i32, i32)> {
        self.driver.get()?.priorities(device)
    }

    fn stream_create(&self, device: i32, _flags: u64, priority: i32) -> Result<Token> {
        self.driver.get()?.create_stream(device, priority).map(into_token)
    }

    fn stream_wrap(&self, device: i32, native: Addr) -> Result<Token> {
        self.driver.get()?.wrap_stream(device, native).map(into_token)
    }

    fn stream_native(&self, stream: Token) -> Addr {
        stream_of::<D>(stream).queue.native()
    }

    fn stream_destroy(&self, stream: Token) -> Result<()> {
        from_token::<D>(stream).close();
        Ok(())
    }

    fn stream_unwrap(&self, stream: Token, is_native_valid: bool) {
        // If the wrapped native stream belongs to a stream of the library, that stream remains in
        // use.
        let is_wrapped = stream_of::<D>(stream).queue.is_wrapped();
        match (is_native_valid, is_wrapped) {
            (true, true) => stream_of::<D>(stream).settle(),
            (true, false) => {}
            (false, true) => from_token::<D>(stream).end(),
            (false, false) => drop(from_token::<D>(stream)),
        }
    }

    fn stream_synchronize(&self, stream: Token) -> Result<()> {
        stream_of::<D>(stream).synchronize()
    }

    fn stream_query(&self, stream: Token) -> Result<Option<bool>> {
        stream_of::<D>(stream).query().map(Some)
    }

    fn stream_wait_event(&self, stream: Token, event: Token) -> Result<Option<()>> {
        latest(event)
            .map(|record| stream_of::<D>(stream).wait_for(record))
            .unwrap_or(Ok(()))
            .map(Some)
    }

    fn stream_host_callback(&self, stream: Token, (task, user): TaskCall) -> Result<Option<()>> {
        stream_of::<D>(stream).call(task, user)
    }

    fn event_create(&self, flags: u64) -> Result<Token> {
        self.driver.get()?;
        let is_timed = flags & DTL_EVENT_NO_TIMING == 0;
        Ok(token(EventHandle::<D> { is_timed, latest: Mutex::new(None) }))
    }

    fn event_destroy(&self, event: Token) -> Result<()> {
        // SAFETY: `event_create` returned the token. The runtime destroys the event once and does
        // not use the token again.
        drop(unsafe { Box::from_raw(event.ptr().cast::<EventHandle<D>>()) });
        Ok(())
    }

    fn event_record(&self, event: Token, stream: Token) -> Result<()> {
        let (event, stream) = (event_of::<D>(event), share_of::<D>(stream));
        let mut latest = event.latest.lock();
        if let Some(record) = latest.as_mut().and_then(Arc::get_mut) {
            if record.renew(&stream)? {
                return Ok(());
            }
        }
        let before = latest.replace(Arc::new(EventRecord::new(&stream, event.is_timed)?));
        drop(latest);
        drop(before); // after unlocking: may be the last reference to a stream
        Ok(())
    }

    fn event_query(&self, event: Token) -> Result<bool> {
        latest::<D>(event).map_or(Ok(true), |record| record.is_done())
    }

    fn event_sync(&self, event: Token) -> Result<Option<()>> {
        latest::<D>(event).map_or(Ok(()), |record| record.wait()).map(Some)
    }

    fn event_elapsed(&self, start: Token, stop: Token) -> Result<Option<u64>> {
        let record = |token, role| match latest::<D>(token) {
            Some(record) => Ok(record),
            None => {
                fail!(
                    DTL_ERROR_INVALID_STATE,
                    "the {role} event was never recorded; record it first"
                )
            }
        };
        let (from, to) = (record(start, "start")?, record(stop, "stop")?);
        let Some(elapsed) = from.event.nanoseconds_to(&to.event)? else {
            let role = if from.is_done()? { "stop" } else { "start" };
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "the {role} event is still pending; wait for it first"
            );
        };
        u64::try_from(elapsed).map(Some).map_err(|_| {
            failure!(DTL_ERROR_INVALID_ARGUMENT, "the stop event came before the start; swap them")
        })
    }
}
