//! Streams as resources: one stream on each device, and the events that mark the end of a task and
//! measure its time.

use crate::abi::handle::dtl_backend_t;
use crate::error::{Result, fail};
use crate::runtime::exec::event::Event;
use crate::runtime::exec::handles;
use crate::runtime::exec::stream::Stream;
use crate::runtime::registry::{self, Backend};
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::sync::lock::Mutex;
use std::sync::Arc;

/// Creates a stream on each device of `backend`. If `backend` is null, creates a stream on each
/// device of every backend that the automatic choice ("auto") considers. Returns the handles of the
/// streams.
pub(super) fn of_all_devices(inside: &Guard, backend: dtl_backend_t) -> Result<Vec<u64>> {
    let mut made = Vec::new();
    if backend.id != 0 {
        let backend = handles::backend_of(inside, backend)?;
        add_streams(&backend, &mut made).inspect_err(|_| close_streams(&made))?;
        return Ok(made);
    }
    let mut reasons = Vec::new();
    for backend in registry::all(inside) {
        if backend.device.is_none() || backend.auto_priority == i32::MIN {
            continue;
        }
        let owner = handles::backend_of(inside, backend.handle());
        let there = owner.and_then(|owner| add_streams(&owner, &mut made));
        if let Err(error) = there {
            reasons.push(error.text().to_owned());
        }
    }
    if made.is_empty() {
        return fail!(DTL_ERROR_UNAVAILABLE, "no device was found: {}", reasons.join("; "));
    }
    Ok(made)
}

fn add_streams(backend: &Arc<Backend>, made: &mut Vec<u64>) -> Result<()> {
    let devices = if backend.device.is_some() { backend.device()?.count()? } else { 1 };
    for device in 0..devices {
        made.push(handles::insert(Stream::create(Arc::clone(backend), device, 0)?)?);
    }
    Ok(())
}

/// Waits for the work on streams that a policy created, and destroys the streams. If work may be
/// pending, the caller must be outside of the epoch (the critical section of the epoch-based
/// reclamation), because the function then waits.
pub(super) fn close_streams(streams: &[u64]) {
    let take = |&id| handles::remove_stream(&epoch::enter(), id).ok().flatten();
    let gone: Vec<_> = streams.iter().filter_map(take).collect();
    gone.iter().for_each(|stream| stream.close());
}

/// Checks that the backend can measure the time between events on `stream`. Called once, when a
/// policy that needs task times is initialized.
pub(super) fn check_timing(stream: &Stream) -> Result<()> {
    let (start, stop) = (
        Event::create(Arc::clone(stream.backend()), 0)?,
        Event::create(Arc::clone(stream.backend()), 0)?,
    );
    stream.record(&start)?;
    stream.record(&stop)?;
    stop.sync()?;
    start.elapsed_ns(&stop).map(|_| ())
}

/// Events that can be reused for tasks on one resource. They belong to the backend of the
/// resource's stream.
#[derive(Default)]
pub(super) struct Events(Mutex<Vec<Arc<Event>>>);

impl Events {
    /// Records an event at the current end of `stream`, reusing an unused event if possible.
    /// Returns the event.
    pub(super) fn recorded(&self, stream: &Stream) -> Result<Arc<Event>> {
        let unused = self.0.lock().pop();
        let event = match unused {
            Some(event) => event,
            None => Arc::new(Event::create(Arc::clone(stream.backend()), 0)?),
        };
        stream.record(&event)?;
        Ok(event)
    }

    /// Stores an event that is no longer in use, so that it can be reused.
    pub(super) fn keep(&self, event: Arc<Event>) {
        self.0.lock().push(event);
    }
}
