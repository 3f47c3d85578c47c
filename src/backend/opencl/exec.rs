//! Streams and events: tokens to what `lane` has.
//!
//! A stream's token is its `cl_command_queue`, so that programs can use OpenCL beside the library.
//! An event's is a pointer to what is below: one event can be recorded often, an OpenCL event is a
//! single point.

use super::OpenCl;
use super::lane::{Lane, Record};
use super::queue::Queue;
use crate::abi::runtime::dtl_task_fn_t;
use crate::error::{Result, fail};
use crate::runtime::backend::{Exec, ExecGroups, Token};
use crate::sys::buf::Addr;
use crate::sys::lock::Mutex;
use std::sync::Arc;

/// An event: its latest record.
struct Event(Mutex<Option<Arc<Record>>>);

/// The event of a token.
fn event<'a>(token: Token) -> &'a Event {
    // SAFETY: a token of `event_create`, which the runtime uses only until it destroys the event.
    unsafe { &*token.ptr().cast::<Event>() }
}

fn record_of(token: Token) -> Option<Arc<Record>> {
    event(token).0.lock().clone()
}

impl OpenCl {
    /// The stream of a token. One that is not known is a queue of the program's.
    pub(super) fn lane(&self, token: Token) -> Result<Arc<Lane>> {
        if let Some(lane) = self.lanes.read().get(&token.get()) {
            return Ok(Arc::clone(lane));
        }
        let lane = Arc::new(Lane::new(Queue::of_program(&*self.driver.get()?, token)?, true));
        Ok(Arc::clone(self.lanes.write().entry(token.get()).or_insert(lane)))
    }

    fn forget(&self, token: Token, only_wrapped: bool) -> Option<Arc<Lane>> {
        let mut lanes = self.lanes.write();
        let goes = lanes.get(&token.get()).is_some_and(|lane| lane.wrapped || !only_wrapped);
        if goes { lanes.remove(&token.get()) } else { None }
    }
}

impl Exec for Arc<OpenCl> {
    fn groups(&self) -> ExecGroups {
        ExecGroups { streams: true, events: true, host: false }
    }

    fn stream_create(&self, device: i32, _flags: u64) -> Result<Token> {
        let queue = Queue::create(&*self.driver.get()?, device)?;
        let token = queue.id();
        self.lanes.write().insert(token.get(), Arc::new(Lane::new(queue, false)));
        Ok(token)
    }

    fn stream_wrap(&self, _device: i32, native: Token) -> Result<Token> {
        self.lane(native).map(|_| native)
    }

    fn stream_destroy(&self, stream: Token) -> Result<()> {
        if let Some(lane) = self.forget(stream, false) {
            lane.close();
        }
        Ok(())
    }

    fn stream_unwrap(&self, stream: Token) {
        if let Some(lane) = self.forget(stream, true) {
            lane.close();
        }
    }

    fn stream_synchronize(&self, stream: Token) -> Result<()> {
        self.lane(stream)?.synchronize()
    }

    fn stream_query(&self, stream: Token) -> Option<Result<bool>> {
        Some(self.lane(stream).and_then(|lane| lane.query()))
    }

    fn stream_wait_event(&self, stream: Token, event: Token) -> Option<Result<()>> {
        let wait = |record| self.lane(stream)?.wait_for(record);
        Some(record_of(event).map_or(Ok(()), wait))
    }

    fn stream_host_callback(
        &self,
        stream: Token,
        task: dtl_task_fn_t,
        user: Addr,
    ) -> Option<Result<()>> {
        Some(self.lane(stream).and_then(|lane| lane.call(task, user)))
    }

    fn event_create(&self, _flags: u64) -> Result<Token> {
        Ok(Addr::new(Box::into_raw(Box::new(Event(Mutex::new(None)))).cast()))
    }

    fn event_destroy(&self, event: Token) -> Result<()> {
        // SAFETY: a token of `event_create`, destroyed once and used no more.
        drop(unsafe { Box::from_raw(event.ptr().cast::<Event>()) });
        Ok(())
    }

    fn event_record(&self, token: Token, stream: Token) -> Result<()> {
        let record = self.lane(stream)?.record()?;
        let before = event(token).0.lock().replace(record);
        drop(before); // not under the lock: it may be the last share of a stream
        Ok(())
    }

    fn event_query(&self, event: Token) -> Result<bool> {
        record_of(event).map_or(Ok(true), |record| record.is_done())
    }

    fn event_sync(&self, event: Token) -> Option<Result<()>> {
        Some(record_of(event).map_or(Ok(()), |record| record.wait()))
    }

    fn event_elapsed(&self, start: Token, stop: Token) -> Option<Result<u64>> {
        Some(elapsed(start, stop))
    }
}

fn elapsed(start: Token, stop: Token) -> Result<u64> {
    let time = |token, role| {
        let Some(record) = record_of(token) else {
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "the {role} event was never recorded; record it first"
            );
        };
        let Some(time) = record.time()? else {
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "the {role} event is still pending; wait for it first"
            );
        };
        Ok(time)
    };
    let ((device, from), (other, to)) = (time(start, "start")?, time(stop, "stop")?);
    if device != other {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "the events are of devices {device} and {other}, whose clocks differ; record both on \
             one device"
        );
    }
    match to.checked_sub(from) {
        Some(elapsed) => Ok(elapsed),
        None => {
            fail!(DTL_ERROR_INVALID_ARGUMENT, "the stop event came before the start; swap them")
        }
    }
}
