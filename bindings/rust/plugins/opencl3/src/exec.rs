//! Streams (command queues) and events. Only the event of a command reports its failure, so a stream
//! keeps the events of its commands until they have ended.

use crate::{Named, OpenCl, invalid, lock, queue};
use dtl_binding::{Error, Result, driver::*, sys};
use opencl3::event::{CL_COMPLETE, Event, create_user_event, set_user_event_status};
use opencl3::{command_queue::CommandQueue, error_codes::ClError};
use std::sync::{Arc, Mutex};

type Commands = Vec<Arc<Event>>;

/// A stream.
pub(super) struct Stream {
    queue: CommandQueue,
    device: i32,
    /// Commands that may still fail, in order.
    commands: Mutex<Commands>,
    callbacks: CallbackThreads,
}

/// Returns the execution status of a command: CL_COMPLETE, more if it has not ended, or its error.
fn status(event: &Event) -> i32 {
    event.command_execution_status().map_or_else(|error| error.0, |status| status.0)
}

/// Returns true if all commands have ended; the failure of the first that failed.
fn is_done(commands: &Commands) -> Result<bool> {
    let codes: Vec<i32> = commands.iter().map(|event| status(event)).collect();
    let failure = codes.iter().find(|code| **code < 0);
    failure.map_or(Ok(()), |code| Err(ClError(*code))).named("a queued command")?;
    Ok(codes.iter().all(|code| *code == CL_COMPLETE))
}

impl Stream {
    /// Queues a command.
    pub(super) fn add(&self, enqueue: impl FnOnce(&CommandQueue) -> Result<Event>) -> Result {
        let mut commands = lock(&self.commands);
        commands.retain(|event| status(event) != CL_COMPLETE);
        commands.push(Arc::new(enqueue(&self.queue)?));
        self.queue.flush().named("clFlush")
    }

    /// Queues a marker. Returns its event and the commands before it.
    fn marker(&self) -> Result<(Event, Commands)> {
        let commands = lock(&self.commands);
        // SAFETY: the wait list is empty.
        let event = unsafe { self.queue.enqueue_marker_with_wait_list(&[]) }.named("a marker")?;
        self.queue.flush().named("clFlush")?;
        Ok((event, commands.clone()))
    }

    /// Makes later commands wait for an event.
    fn barrier(&self, event: &Event) -> Result {
        self.add(|queue| {
            // SAFETY: an event of the queue's context.
            unsafe { queue.enqueue_barrier_with_wait_list(&[event.get()]) }.named("a barrier")
        })
    }
}

impl Streams for OpenCl {
    type Stream = Stream;

    fn create_stream(&self, device: i32, _flags: u64) -> Result<Stream> {
        let queue = queue(&self.platform()?.context, self.device(device)?)?;
        let (commands, callbacks) = Default::default();
        Ok(Stream { queue, device, commands, callbacks })
    }

    fn synchronize(&self, stream: &Stream) -> Result {
        if stream.callbacks.has_current() {
            let text = "a callback cannot wait for its stream: wait in another thread";
            return Err(Error::new(sys::DTL_ERROR_INVALID_STATE, text));
        }
        let (marker, commands) = stream.marker()?;
        let waited = marker.wait();
        // A failure is reported once.
        lock(&stream.commands).retain(|left| !commands.iter().any(|one| Arc::ptr_eq(one, left)));
        is_done(&commands)?;
        waited.named("clWaitForEvents")
    }

    const QUERY: Option<fn(&Self, &Stream) -> Result<bool>> =
        Some(|_, stream| is_done(&lock(&stream.commands)));

    const HOST_CALLBACK: Option<fn(&Self, &Stream, Callback) -> Result> =
        Some(|this, stream, callback| {
            let done = create_user_event(this.platform()?.context.get());
            let done = Arc::new(Event::new(done.named("clCreateUserEvent")?));
            let complete = |done: &Event| set_user_event_status(done.get(), CL_COMPLETE);
            let (before, _) = stream.marker()?;
            stream.barrier(&done)?;
            let own = Arc::clone(&done);
            let spawned = stream.callbacks.spawn(move || {
                let _ = before.wait(); // its failure is that of the work before
                callback.call();
                let _ = complete(&own);
            });
            // The queue must not wait for ever.
            spawned.inspect_err(|_| complete(&done).unwrap_or_default())
        });
}

/// A point in a stream.
pub(super) struct Record {
    marker: Event,
    before: Commands,
    device: i32,
}

/// An event: what was recorded last.
type Recorded = Mutex<Option<Arc<Record>>>;

impl Events for OpenCl {
    type Event = Recorded;

    fn create_event(&self, _flags: u64) -> Result<Recorded> {
        Ok(Mutex::default())
    }

    fn record(&self, event: &Recorded, stream: &Stream) -> Result {
        let (marker, before) = stream.marker()?;
        *lock(event) = Some(Arc::new(Record { marker, before, device: stream.device }));
        Ok(())
    }

    fn query(&self, event: &Recorded) -> Result<bool> {
        let Some(record) = lock(event).clone() else { return Ok(true) };
        Ok(status(&record.marker) <= CL_COMPLETE && is_done(&record.before)?)
    }

    const STREAM_WAIT: Option<fn(&Self, &Stream, &Recorded) -> Result> =
        Some(|_, stream, event| {
            let Some(record) = lock(event).clone() else { return Ok(()) };
            stream.barrier(&record.marker)?;
            // The stream inherits the failures before the event.
            lock(&stream.commands).extend(record.before.iter().cloned());
            Ok(())
        });

    const ELAPSED: Option<fn(&Self, &Recorded, &Recorded) -> Result<u64>> =
        Some(|_, start, stop| {
            let get = |event: &Recorded| lock(event).clone().ok_or_else(|| invalid("no record"));
            let (start, stop) = (get(start)?, get(stop)?);
            if start.device != stop.device {
                return Err(invalid("the events are of two devices, whose clocks differ"));
            }
            let start = start.marker.profiling_command_end().named("the time of an event")?;
            let stop = stop.marker.profiling_command_end().named("the time of an event")?;
            stop.checked_sub(start).ok_or_else(|| invalid("the stop is before the start"))
        });
}
