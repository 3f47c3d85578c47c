//! Waiting for requests: one, all, any, some; and asking without waiting.

use super::progress;
use super::request::{self, Outcome, Request, Standing};
use crate::abi::comm::dtl_recv_info_t;
use crate::abi::handle::dtl_request_t;
use crate::abi::status::*;
use crate::error::{Error, Result, fail};
use crate::runtime::backend::recv_info;
use crate::sys::clock::Deadline;
use crate::sys::epoch;
use crate::sys::park::Backoff;
use std::sync::Arc;

fn pinned(requests: &[dtl_request_t], index: usize) -> Result<Option<Arc<Request>>> {
    match requests.get(index) {
        Some(handle) if handle.id != 0 => request::pin(&epoch::enter(), *handle).map(Some),
        _ => Ok(None),
    }
}

fn at(index: usize) -> impl Fn(Error) -> Error {
    move |error| error.within(&format!("requests[{index}]"))
}

/// Asks after a request; `Some` = it is over, and its handle stale unless it is persistent.
pub fn test(request: &Request, handle: dtl_request_t) -> Result<Option<Outcome>> {
    match request.settle()? {
        Standing::Over => request.take_outcome(handle).map(Some),
        Standing::AtRest => Ok(Some((recv_info(&super::p2p::NOBODY), Ok(())))),
        Standing::Active => Ok(None),
    }
}

/// Waits for a request. `Err` = it is still alive (TIMEOUT) or asking failed.
pub fn wait(request: &Request, handle: dtl_request_t, timeout_ns: u64) -> Result<Outcome> {
    let deadline = Deadline::after(timeout_ns);
    let mut backoff = Backoff::new();
    loop {
        if let Some(outcome) = test(request, handle)? {
            return Ok(outcome);
        }
        request.comm().pause(&mut backoff);
        if backoff.is_long() || timeout_ns == 0 {
            if !request.comm().is_open() {
                return ended(request, handle);
            }
            progress::others(request.comm());
            if deadline.passed() {
                return fail!(
                    DTL_ERROR_TIMEOUT,
                    "the request ({}) is not done after {} ms: it goes on, wait again{}",
                    request.name(),
                    timeout_ns / 1_000_000,
                    if request.is_collective() {
                        "; dtl_comm_dump tells where the other ranks are"
                    } else {
                        " or cancel it"
                    }
                );
            }
        }
    }
}

/// The communicator is gone: the operation is taken back.
fn ended(request: &Request, handle: dtl_request_t) -> Result<Outcome> {
    if !request.is_persistent() {
        request::forget(handle);
    }
    match request.take_back()? {
        Some(outcome) => Ok(outcome),
        None => Err(request.comm().ended()),
    }
}

/// Waits for all of them; finished ones' handles become null in the array (unless persistent) and
/// their infos are filled in. The first failure's error is the result, after all are over or time
/// is up.
pub fn wait_all(
    requests: &mut [dtl_request_t],
    timeout_ns: u64,
    mut tell: impl FnMut(usize, dtl_recv_info_t),
) -> Result<()> {
    check_all(requests)?;
    let deadline = Deadline::after(timeout_ns);
    let (mut first_failure, mut late) = (Ok(()), Ok(()));
    for index in 0..requests.len() {
        let handle = handle_at(requests, index);
        let outcome = match pinned(requests, index) {
            Ok(None) => continue,
            // Once time is up, the rest are asked once each.
            Ok(Some(request)) => wait(&request, handle, deadline.left_ns()),
            // It was listed twice, or another thread has completed it meanwhile.
            Err(error) => Err(error),
        };
        let (info, result) = match outcome {
            Ok(outcome) => outcome,
            Err(error) if error.status() == DTL_ERROR_TIMEOUT => {
                late = late.and_then(|()| Err(at(index)(error)));
                continue;
            }
            Err(error) => request::failed(error),
        };
        clear_if_over(requests, index);
        tell(index, info);
        first_failure = first_failure.and_then(|()| result.map_err(at(index)));
    }
    first_failure.and(late)
}

/// Before anything is waited for: every handle must be null or alive.
fn check_all(requests: &[dtl_request_t]) -> Result<()> {
    (0..requests.len()).try_for_each(|index| pinned(requests, index).map(drop).map_err(at(index)))
}

fn handle_at(requests: &[dtl_request_t], index: usize) -> dtl_request_t {
    requests.get(index).copied().unwrap_or(dtl_request_t::NULL)
}

/// One that could not be asked, or is persistent, is alive: its handle stays the caller's.
fn clear_if_over(requests: &mut [dtl_request_t], index: usize) {
    if let Some(slot) = requests.get_mut(index).filter(|slot| !request::is_alive(**slot)) {
        *slot = dtl_request_t::NULL;
    }
}

/// Asks after all: true, everything told and the first failure if all are over, else nothing is told.
pub fn test_all(
    requests: &mut [dtl_request_t],
    mut tell: impl FnMut(usize, dtl_recv_info_t),
) -> Result<(bool, Result<()>)> {
    check_all(requests)?;
    for index in 0..requests.len() {
        let Some(request) = pinned(requests, index).map_err(at(index))? else { continue };
        if request.settle().map_err(at(index))? == Standing::Active {
            progress::others(request.comm());
            return Ok((false, Ok(())));
        }
    }
    let mut first_failure = Ok(());
    for index in 0..requests.len() {
        // Over since the look above: another thread may be looking just now, but nobody undoes it.
        let outcome = match pinned(requests, index) {
            Ok(None) => continue,
            Ok(Some(request)) => request.take_if_over(handle_at(requests, index)),
            // It was listed twice, or another thread has completed it meanwhile.
            Err(error) => Some(request::failed(error)),
        };
        let Some((info, result)) = outcome else { continue };
        clear_if_over(requests, index);
        tell(index, info);
        first_failure = first_failure.and_then(|()| result.map_err(at(index)));
    }
    Ok((true, first_failure))
}

/// Takes every request that is over; how many there were, and how many are active.
fn take_over(
    requests: &mut [dtl_request_t],
    most: usize,
    told: &mut impl FnMut(usize, Outcome),
) -> Result<(usize, usize)> {
    let (mut taken, mut active) = (0, 0);
    for index in 0..requests.len() {
        if taken == most {
            break;
        }
        let Some(request) = pinned(requests, index).map_err(at(index))? else { continue };
        match request.settle().map_err(at(index))? {
            Standing::AtRest => {}
            Standing::Active if !request.comm().is_open() => {
                let handle = handle_at(requests, index);
                told(index, ended(&request, handle).unwrap_or_else(request::failed));
                clear_if_over(requests, index);
                taken += 1;
            }
            Standing::Active => active += 1,
            Standing::Over => {
                let outcome = request.take_outcome(handle_at(requests, index)).map_err(at(index))?;
                clear_if_over(requests, index);
                told(index, outcome);
                taken += 1;
            }
        }
    }
    Ok((taken, active))
}

/// Waits until at least one is over and takes up to `most` of them. 0: none was active.
pub fn wait_some(
    requests: &mut [dtl_request_t],
    most: usize,
    timeout_ns: u64,
    mut told: impl FnMut(usize, Outcome),
) -> Result<usize> {
    check_all(requests)?;
    let deadline = Deadline::after(timeout_ns);
    let mut backoff = Backoff::new();
    loop {
        let (taken, active) = take_over(requests, most, &mut told)?;
        if taken > 0 || active == 0 {
            return Ok(taken);
        }
        let first = (0..requests.len()).find_map(|index| pinned(requests, index).ok().flatten());
        match &first {
            Some(request) => request.comm().pause(&mut backoff),
            None => backoff.pause(),
        }
        if backoff.is_long() || timeout_ns == 0 {
            if let Some(request) = &first {
                progress::others(request.comm());
            }
            if deadline.passed() {
                return fail!(
                    DTL_ERROR_TIMEOUT,
                    "none of {active} active requests is done after {} ms: they go on, wait again or cancel them",
                    timeout_ns / 1_000_000
                );
            }
        }
    }
}
