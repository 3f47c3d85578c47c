//! Streams and events: tokens to what `lane` has.
//!
//! A stream's token is a share of a [`Lane`]. An event's is a pointer to what is below: it belongs
//! to no device, a CUevent does.

use super::Cuda;
use super::stream::{Lane, Record};
use super::symbols::{CU_EVENT_DEFAULT, CU_EVENT_DISABLE_TIMING};
use crate::abi::exec::DTL_EVENT_NO_TIMING;
use crate::abi::runtime::dtl_task_fn_t;
use crate::error::{Result, fail};
use crate::runtime::backend::{Exec, ExecGroups, Token};
use crate::sys::buf::Addr;
use crate::sys::lock::Mutex;
use std::sync::Arc;

/// An event: its latest record.
struct Event {
    /// How its CUevents are made.
    flags: i64,
    record: Mutex<Option<Arc<Record>>>,
}

/// The event of a token.
fn event<'a>(token: Token) -> &'a Event {
    // SAFETY: a token of `event_create`, which the runtime uses only until it destroys the event.
    unsafe { &*token.ptr().cast::<Event>() }
}

fn record_of(token: Token) -> Option<Arc<Record>> {
    event(token).record.lock().clone()
}

/// The stream of a token.
pub(super) fn lane<'a>(token: Token) -> &'a Lane {
    // SAFETY: a token of `give`, which the runtime uses only until it gives the stream up.
    unsafe { &*token.ptr().cast::<Lane>() }
}

/// A share of the stream of a token.
fn share(token: Token) -> Arc<Lane> {
    let lane = token.ptr().cast::<Lane>().cast_const();
    // SAFETY: a token of `give`, whose share is still there.
    unsafe { Arc::increment_strong_count(lane) };
    // SAFETY: the share that was just made.
    unsafe { Arc::from_raw(lane) }
}

fn give(lane: Lane) -> Token {
    Addr::new(Arc::into_raw(Arc::new(lane)).cast_mut().cast())
}

fn give_up(token: Token) {
    // SAFETY: a token of `give`, given up once and used no more.
    let lane = unsafe { Arc::from_raw(token.ptr().cast::<Lane>().cast_const()) };
    lane.close();
}

impl Exec for Arc<Cuda> {
    fn groups(&self) -> ExecGroups {
        ExecGroups { streams: true, events: true, host: false }
    }

    fn stream_create(&self, device: i32, _flags: u64) -> Result<Token> {
        Lane::create(self.driver.get()?, device).map(give)
    }

    fn stream_wrap(&self, device: i32, native: Addr) -> Result<Token> {
        Lane::of_program(self.driver.get()?, device, native).map(give)
    }

    fn stream_native(&self, stream: Token) -> Addr {
        lane(stream).stream
    }

    fn stream_destroy(&self, stream: Token) -> Result<()> {
        give_up(stream);
        Ok(())
    }

    fn stream_unwrap(&self, stream: Token) {
        give_up(stream);
    }

    fn stream_synchronize(&self, stream: Token) -> Result<()> {
        lane(stream).synchronize()
    }

    fn stream_query(&self, stream: Token) -> Option<Result<bool>> {
        Some(lane(stream).query())
    }

    fn stream_wait_event(&self, stream: Token, event: Token) -> Option<Result<()>> {
        Some(record_of(event).map_or(Ok(()), |record| lane(stream).wait_for(record)))
    }

    fn stream_host_callback(
        &self,
        stream: Token,
        task: dtl_task_fn_t,
        user: Addr,
    ) -> Option<Result<()>> {
        lane(stream).call(task, user)
    }

    fn event_create(&self, flags: u64) -> Result<Token> {
        self.driver.get()?;
        let is_timed = flags & DTL_EVENT_NO_TIMING == 0;
        let flags = if is_timed { CU_EVENT_DEFAULT } else { CU_EVENT_DISABLE_TIMING };
        let event = Event { flags, record: Mutex::new(None) };
        Ok(Addr::new(Box::into_raw(Box::new(event)).cast()))
    }

    fn event_destroy(&self, event: Token) -> Result<()> {
        // SAFETY: a token of `event_create`, destroyed once and used no more.
        drop(unsafe { Box::from_raw(event.ptr().cast::<Event>()) });
        Ok(())
    }

    fn event_record(&self, token: Token, stream: Token) -> Result<()> {
        let (event, lane) = (event(token), share(stream));
        let mut latest = event.record.lock();
        if let Some(record) =
            latest.as_mut().and_then(Arc::get_mut).filter(|record| record.fits(&lane))
        {
            return record.renew(lane);
        }
        *latest = Some(Arc::new(Record::new(lane, event.flags)?));
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
    let record = |token, role| match record_of(token) {
        Some(record) => Ok(record),
        None => {
            fail!(DTL_ERROR_INVALID_STATE, "the {role} event was never recorded; record it first")
        }
    };
    let (from, to) = (record(start, "start")?, record(stop, "stop")?);
    let Some(elapsed) = from.until(&to)? else {
        let role = if from.is_done()? { "stop" } else { "start" };
        return fail!(
            DTL_ERROR_INVALID_STATE,
            "the {role} event is still pending; wait for it first"
        );
    };
    match u64::try_from(elapsed) {
        Ok(elapsed) => Ok(elapsed),
        Err(_) => {
            fail!(DTL_ERROR_INVALID_ARGUMENT, "the stop event came before the start; swap them")
        }
    }
}
