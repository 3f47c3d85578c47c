//! Requests: operations in flight under a handle. A completed request's handle is stale.

use super::p2p::{self, Started};
use super::{Class, Comm, withdraw};
use crate::abi::comm::{DTL_ANY_SOURCE, dtl_recv_info_t};
use crate::abi::handle::dtl_request_t;
use crate::abi::status::*;
use crate::error::{Error, Result, fail};
use crate::runtime::backend::{Done, recv_info};
use crate::runtime::invalid_handle;
use crate::sys::buf::Region;
use crate::sys::clock::Deadline;
use crate::sys::epoch::{self, Guard};
use crate::sys::lock::Mutex;
use crate::sys::park::Backoff;
use crate::sys::slab::Table;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Type byte of request handles.
pub const TAG: u8 = 7;

static TABLE: Table<Request> = Table::new(TAG, 0);

/// An operation in flight.
pub struct Request {
    comm: Arc<Comm>,
    /// "send to" or "receive from", and whom: for error texts.
    what: &'static str,
    peer: i32,
    /// `None` once it is over: whoever saw it end took it.
    started: Mutex<Option<Started>>,
}

fn insert(comm: Arc<Comm>, what: &'static str, peer: i32, started: Started) -> Result<dtl_request_t> {
    let request = Arc::new(Request { comm, what, peer, started: Mutex::new(Some(started)) });
    if let Some(id) = TABLE.insert(Arc::clone(&request)) {
        return Ok(dtl_request_t { id });
    }
    // Nobody could wait for it: it is taken back, so that the buffer is the caller's again.
    if request.comm.transport(Class::User).can_cancel() {
        drop(request.take_back());
    }
    fail!(DTL_ERROR_LIMIT, "too many requests in flight: complete some first")
}

/// Starts a send.
pub fn isend(comm: Arc<Comm>, data: Region, dest: i32, tag: i32) -> Result<dtl_request_t> {
    p2p::check_send(&comm, dest, tag)?;
    let started = comm.start_send(Class::User, data, dest, tag)?;
    insert(comm, "send to", dest, started)
}

/// Starts a receive.
pub fn irecv(comm: Arc<Comm>, data: Region, source: i32, tag: i32) -> Result<dtl_request_t> {
    p2p::check_recv(&comm, source, tag)?;
    let started = comm.start_recv(Class::User, data, source, tag)?;
    insert(comm, "receive from", source, started)
}

/// A share of a handle's request.
pub fn pin(inside: &Guard, handle: dtl_request_t) -> Result<Arc<Request>> {
    TABLE.pin(inside, handle.id).ok_or_else(|| invalid_handle("request", TAG, handle.id))
}

impl Request {
    /// Asks after the operation. `Ok(Some)`: it is over and this caller is the one to hear of it.
    fn poll(&self) -> Result<Option<Done>> {
        let mut started = self.started.lock();
        let Some(op) = *started else { return Err(self.completed_elsewhere()) };
        let done = self.comm.poll(Class::User, op)?;
        if done.is_some() {
            *started = None;
        }
        Ok(done)
    }

    /// Takes the operation back (the communicator is gone); `None` = withdrawn.
    fn take_back(&self) -> Result<Option<Done>> {
        match self.started.lock().take() {
            Some(Started::Op(op)) => withdraw(self.comm.transport(Class::User), op),
            Some(Started::Nothing) => Ok(Some(p2p::NOBODY)),
            Some(Started::Over(done)) => Ok(Some(done)),
            None => Err(self.completed_elsewhere()),
        }
    }

    #[cold]
    fn completed_elsewhere(&self) -> Error {
        if self.comm.closed.load(Ordering::Acquire) {
            return self.comm.gave_up();
        }
        Error::new(DTL_ERROR_INVALID_HANDLE, "the request was completed by another thread meanwhile")
    }

    /// What it is, for error texts.
    fn name(&self) -> String {
        if self.peer == DTL_ANY_SOURCE {
            format!("{} any rank", self.what)
        } else {
            format!("{} rank {}", self.what, self.peer)
        }
    }

    fn outcome(&self, done: &Done) -> Result<()> {
        self.comm.check_done(done, self.what, self.peer)
    }
}

fn forget(handle: dtl_request_t) {
    drop(TABLE.remove(&epoch::enter(), handle.id));
}

/// A finished request: what it tells, and its error if it failed.
pub type Outcome = (dtl_recv_info_t, Result<()>);

/// Waits for a request. `Err` = it is still alive (TIMEOUT) or asking failed.
pub fn wait(request: &Request, handle: dtl_request_t, timeout_ns: u64) -> Result<Outcome> {
    let deadline = Deadline::after(timeout_ns);
    let mut backoff = Backoff::new();
    loop {
        if let Some(outcome) = test(request, handle)? {
            return Ok(outcome);
        }
        request.comm.pause(Class::User, &mut backoff);
        if backoff.is_long() || timeout_ns == 0 {
            if request.comm.closed.load(Ordering::Relaxed) {
                forget(handle);
                return match request.take_back()? {
                    Some(done) => Ok((recv_info(&done), request.outcome(&done))),
                    None => Err(request.comm.gave_up()),
                };
            }
            super::progress::others(&request.comm);
            if deadline.passed() {
                return fail!(
                    DTL_ERROR_TIMEOUT,
                    "the request ({}) is not done after {} ms: it goes on, wait again or cancel it",
                    request.name(),
                    timeout_ns / 1_000_000
                );
            }
        }
    }
}

/// Asks after a request; `Some` = it is over and its handle stale.
pub fn test(request: &Request, handle: dtl_request_t) -> Result<Option<Outcome>> {
    let Some(done) = request.poll()? else { return Ok(None) };
    forget(handle);
    Ok(Some((recv_info(&done), request.outcome(&done))))
}

/// Tries to withdraw the operation; the request then completes through wait or test.
pub fn cancel(request: &Request) -> Result<()> {
    let transport = request.comm.transport(Class::User);
    if !transport.can_cancel() {
        return fail!(DTL_ERROR_NOT_SUPPORTED, "this communicator's transport cannot withdraw operations");
    }
    match *request.started.lock() {
        Some(Started::Op(op)) => transport.cancel(op),
        Some(Started::Nothing | Started::Over(_)) => Ok(()),
        None => Err(request.completed_elsewhere()),
    }
}

/// Waits for all of them; finished ones' handles become null in the array and their infos are
/// filled in. The first failure's error is the result, after all are over or time is up.
pub fn wait_all(
    inside: impl Fn(dtl_request_t) -> Result<Arc<Request>>,
    requests: &mut [dtl_request_t],
    timeout_ns: u64,
    mut tell: impl FnMut(usize, dtl_recv_info_t),
) -> Result<()> {
    let mut alive = Vec::with_capacity(requests.len());
    for (index, handle) in requests.iter().enumerate().filter(|(_, handle)| handle.id != 0) {
        let request = inside(*handle).map_err(|error| error.within(&format!("requests[{index}]")))?;
        alive.push((index, *handle, request));
    }
    let deadline = Deadline::after(timeout_ns);
    let (mut first_failure, mut late) = (Ok(()), Ok(()));
    for (index, handle, request) in &alive {
        // Once time is up, the rest are asked once each.
        let outcome = wait(request, *handle, deadline.left_ns());
        let named = |error: Error| error.within(&format!("requests[{index}]"));
        let (info, result) = match outcome {
            Ok(outcome) => outcome,
            Err(error) if error.status() == DTL_ERROR_TIMEOUT => {
                late = late.and_then(|()| Err(named(error)));
                continue;
            }
            Err(error) => {
                let info = dtl_recv_info_t { status: error.status(), ..recv_info(&p2p::NOBODY) };
                (info, Err(error))
            }
        };
        // One that could not be asked is alive: its handle stays the caller's.
        let is_over = TABLE.pin(&epoch::enter(), handle.id).is_none();
        if let Some(slot) = requests.get_mut(*index).filter(|_| is_over) {
            *slot = dtl_request_t::NULL;
        }
        tell(*index, info);
        first_failure = first_failure.and_then(|()| result.map_err(named));
    }
    first_failure.and(late)
}

/// The live requests of a communicator.
fn of(comm: &Arc<Comm>) -> impl Iterator<Item = (u64, Arc<Request>)> {
    let is_its = |request: &Arc<Request>| Arc::ptr_eq(&request.comm, comm);
    let all = TABLE.handles().into_iter();
    all.filter_map(move |id| Some((id, TABLE.pin(&epoch::enter(), id).filter(is_its)?)))
}

/// Moves a communicator's operations on by testing one that is not done yet: that moves them all.
pub(super) fn progress(comm: &Arc<Comm>) {
    for (_, request) in of(comm) {
        // Who holds the lock tests it.
        let Some(mut started) = request.started.try_lock() else { return };
        let Some(Started::Op(op)) = *started else { continue };
        match comm.transport(Class::User).test(op) {
            Ok(Some(done)) => *started = Some(Started::Over(done)),
            _ => return,
        }
    }
}

/// Before a communicator goes: whether its requests can be taken back.
pub(super) fn check_withdrawable(comm: &Arc<Comm>) -> Result<()> {
    match of(comm).next() {
        Some((_, request)) if !comm.transport(Class::User).can_cancel() => fail!(
            DTL_ERROR_BUSY,
            "a request ({}) is in flight and this transport cannot withdraw it: wait for it first",
            request.name()
        ),
        _ => Ok(()),
    }
}

/// Takes the requests' operations back, so that no buffer is touched afterwards. Their handles
/// become stale.
pub(super) fn withdraw_all(comm: &Arc<Comm>) -> Result<()> {
    for (id, request) in of(comm) {
        let mut started = request.started.lock();
        if let Some(Started::Op(op)) = started.take() {
            withdraw(comm.transport(Class::User), op)?;
        }
        drop(started);
        forget(dtl_request_t { id });
    }
    Ok(())
}

/// At finalize: requests go with their communicators.
pub fn destroy_all() {
    let inside = epoch::enter();
    for id in TABLE.handles() {
        let Some(request) = TABLE.remove(&inside, id) else { continue };
        if let Some(Started::Op(op)) = request.started.lock().take() {
            let transport = request.comm.transport(Class::User);
            if transport.can_cancel() {
                drop(withdraw(transport, op));
            }
        }
    }
}

/// In a forked child: the handles go.
pub fn forget_all() {
    let inside = epoch::enter();
    for id in TABLE.handles() {
        std::mem::forget(TABLE.remove(&inside, id));
    }
}
