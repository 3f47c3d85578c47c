//! Blocking waits for requests, and nonblocking tests of requests: for one, all, any or some of the
//! requests.

use super::{Outcome, PollState, RequestState};
use crate::abi::handle::dtl_request_t;
use crate::abi::status::*;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::comm::communicator::destroyed;
use crate::runtime::comm::diagnostics::hang_report::{self, DeadlineQuery};
use crate::runtime::comm::op_desc::Kind;
use crate::runtime::comm::p2p::request;
use crate::runtime::comm::{Comm, progress};
use crate::runtime::component::Completion;
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::sync::wait::{Backoff, Deadline};

fn at(index: usize) -> impl Fn(Error) -> Error {
    move |error| error.within(&format!("requests[{index}]"))
}

/// Returns an empty outcome for a test or wait to fill. All of its fields are zero, so that the
/// generated code need not load it from memory.
#[inline(always)] // row: wait
pub fn empty_outcome() -> Outcome {
    (Completion { source: 0, status: DTL_SUCCESS, match_bits: 0, size: 0 }, Ok(()))
}

/// Minimum time limit, in nanoseconds, of waits whose first poll may take a few microseconds; the
/// first poll of a wait with a shorter limit returns immediately.
const SHORT_NS: u64 = 100_000;

/// Polls a request. If `timeout_ns` is at least `SHORT_NS`, the poll may take a few microseconds.
/// Returns true if the request is complete. The outcome is then stored in the caller's `Outcome`,
/// and the handle is stale unless the request is persistent.
#[inline(always)] // row: wait
pub fn is_over(
    inside: &Guard,
    handle: dtl_request_t,
    timeout_ns: u64,
    out: &mut Outcome,
) -> Result<bool> {
    let state = request::poll_request(inside, handle, out, timeout_ns >= SHORT_NS)?;
    Ok(matches!(state, RequestState::Over | RequestState::AtRest))
}

/// Polls a request (nonblocking). Returns true if the request is complete. The outcome is then
/// stored in the caller's `Outcome`, and the handle is stale unless the request is persistent.
pub fn test(inside: &Guard, handle: dtl_request_t, out: &mut Outcome) -> Result<bool> {
    match request::poll_request(inside, handle, out, false)? {
        RequestState::Over | RequestState::AtRest => Ok(true),
        RequestState::Active | RequestState::Closed => {
            progress::running();
            let comm = request::comm_here(inside, handle);
            let is_due = |comm: &&Comm| hang_report::looked_in_vain(comm) || !comm.is_open();
            if let Some(comm) = comm.filter(is_due) {
                request::end_if_absent(comm, handle);
            }
            Ok(false)
        }
        RequestState::Stale => Err(request::stale(handle)),
    }
}

/// Waits for a request that a preceding poll has found active, and stores the outcome in `out`.
/// Must be called outside of a reclamation epoch.
pub fn wait_on(handle: dtl_request_t, timeout_ns: u64, out: &mut Outcome) -> Result<()> {
    let deadline = Deadline::after(timeout_ns);
    let mut backoff = Backoff::new();
    let Some(comm) = request::comm_of(handle) else {
        return Err(if request::is_alive(handle) { destroyed() } else { completed_elsewhere() });
    };
    let mut asking = None;
    loop {
        comm.pause(&mut backoff);
        if backoff.is_long() || timeout_ns == 0 {
            if !comm.is_open() {
                if let Some(outcome) = request::end_with_comm(&comm, handle)? {
                    *out = outcome;
                    return Ok(());
                }
            }
            if request::is_in_own_hands(handle) {
                return Err(request::in_own_hands(handle));
            }
            progress::others(&comm);
            request::end_if_absent(&comm, handle);
            if deadline.passed() {
                return Err(late(&comm, handle, timeout_ns, asking.flatten()));
            }
            if let Some(inquiry) =
                asking.get_or_insert_with(|| inquiry(handle, timeout_ns, deadline))
            {
                inquiry.send_when_due(&comm, None);
            }
        }
        let state = request::poll_request(&epoch::enter(), handle, out, false)?;
        match state {
            RequestState::Over | RequestState::AtRest => return Ok(()),
            RequestState::Active | RequestState::Closed => {}
            RequestState::Stale if !comm.is_open() => return Err(comm.ended()),
            RequestState::Stale => return Err(completed_elsewhere()),
        }
    }
}

#[cold]
fn completed_elsewhere() -> Error {
    failure!(DTL_ERROR_INVALID_HANDLE, "the request was completed by another thread meanwhile")
}

/// Minimum time limit, in nanoseconds, of a wait that queries the other ranks for their states, in
/// order to report them on a timeout. Only waits for collectives send such queries.
const REPORTED_NS: u64 = 100_000_000;

/// Creates the query for the state of the other ranks, which a wait reports if it times out.
/// Returns `None` if the wait does not report this state.
#[cold]
fn inquiry(handle: dtl_request_t, timeout_ns: u64, limit: Deadline) -> Option<DeadlineQuery> {
    let is_collective = || request::name_of(handle).1.is_some_and(Kind::is_collective);
    (limit.is_finite() && timeout_ns >= REPORTED_NS && is_collective())
        .then(|| DeadlineQuery::before(limit, timeout_ns))
}

#[cold]
fn late(
    comm: &Comm,
    handle: dtl_request_t,
    timeout_ns: u64,
    inquiry: Option<DeadlineQuery>,
) -> Error {
    let (name, kind) = request::name_of(handle);
    let advice = match kind {
        _ if inquiry.is_some() => "",
        Some(kind) if kind.is_collective() => "; dtl_comm_dump tells where the other ranks are",
        // Operations on a window cannot be canceled.
        Some(Kind::Put | Kind::Get) => "",
        _ => " or cancel it",
    };
    let millis = timeout_ns.saturating_add(500_000) / 1_000_000;
    let error = failure!(
        DTL_ERROR_TIMEOUT,
        "the request ({name}) is not done after {millis} ms: it goes on, wait again{advice}"
    );
    let Some(inquiry) = inquiry else { return error };
    inquiry.end(comm, None);
    hang_report::attach(comm, &error, None)
}

/// Waits for all requests. For each completed request, sets its handle in the array to null (unless
/// the request is persistent) and passes its completion to the callback, with those fields that the
/// completion `empty` requests. Returns the error of the first failed request, after all requests
/// are complete or the time limit has passed.
pub fn wait_all(
    requests: &mut [dtl_request_t],
    timeout_ns: u64,
    empty: Completion,
    mut tell: impl FnMut(usize, &Completion),
) -> Result<()> {
    check_all(requests)?;
    let deadline = Deadline::after(timeout_ns);
    let (mut first_failure, mut late) = (Ok(()), Ok(()));
    let mut end = |index, (done, result): Outcome| {
        tell(index, &done);
        if let (Ok(()), Err(error)) = (&first_failure, result) {
            first_failure = Err(at(index)(error));
        }
    };
    let mut index = 0;
    while let Some(rest) = requests.get_mut(index..).filter(|rest| !rest.is_empty()) {
        let (limits, left) = ((usize::MAX, false), deadline.left_ns());
        let asked = (left >= SHORT_NS, empty);
        let polled = request::end_in_order(&epoch::enter(), rest, limits, asked, |at, outcome| {
            end(index + at, outcome);
        });
        if polled.count > 0 {
            index += polled.count;
            continue;
        }
        index += 1;
        let Some(handle) = rest.first_mut() else { continue };
        // Once the time limit has passed, each remaining request is polled once. A handle may be
        // stale: it was listed twice, or another thread has completed the request meanwhile.
        let mut outcome = empty_outcome();
        let is_over = test(&epoch::enter(), *handle, &mut outcome);
        let waited = is_over.and_then(|is_over| match is_over {
            true => Ok(()),
            false => wait_on(*handle, left, &mut outcome),
        });
        let outcome = match waited {
            Ok(()) => outcome,
            Err(error) if error.status() == DTL_ERROR_TIMEOUT => {
                late = late.and_then(|()| Err(at(index - 1)(error)));
                continue;
            }
            Err(error) => request::failed(error),
        };
        clear_if_over(handle);
        end(index - 1, outcome);
    }
    first_failure.and(late)
}

/// Checks, before any wait, that every handle is null or valid.
#[inline]
fn check_all(requests: &[dtl_request_t]) -> Result<()> {
    (0..).zip(requests).try_for_each(|(index, handle)| {
        let is_known = handle.id == 0 || request::is_alive(*handle);
        if is_known { Ok(()) } else { Err(at(index)(request::stale(*handle))) }
    })
}

/// Sets the handle to null, unless it still refers to a request (because the request is persistent
/// or could not be polled).
#[inline]
fn clear_if_over(handle: &mut dtl_request_t) {
    if !request::is_alive(*handle) {
        *handle = dtl_request_t { id: 0 };
    }
}

/// Polls all requests. If all requests are complete, passes every completion to `tell` and returns
/// true and the error of the first failed request. Otherwise returns false and does not call
/// `tell`.
pub fn test_all(
    requests: &mut [dtl_request_t],
    mut tell: impl FnMut(usize, &Completion),
) -> Result<(bool, Result<()>)> {
    check_all(requests)?;
    let inside = epoch::enter();
    let (mut index, mut is_active) = (0, false);
    while let Some(&handle) = requests.get(index) {
        let state = match handle.id {
            0 => Some(PollState::AtRest),
            _ if is_active => Some(PollState::Active),
            _ => request::standing(handle).map_err(at(index))?,
        };
        match state {
            None => return Err(at(index)(request::stale(handle))),
            Some(PollState::Active) => {
                if let Some(comm) = request::comm_of(handle) {
                    progress::others(&comm);
                    request::end_if_absent(&comm, handle);
                }
                return Ok((false, Ok(())));
            }
            Some(PollState::AtRest | PollState::Over) => index += 1,
        }
        // The first request is polled by itself: most calls find it incomplete.
        let Some(rest) = requests.get_mut(index..) else { break };
        let polled = request::settle_in_order(&inside, rest);
        (index, is_active) = (index + polled.count, polled.active > 0);
    }
    let mut first_failure = Ok(());
    for (index, handle) in requests.iter_mut().enumerate().filter(|(_, handle)| handle.id != 0) {
        // The request is complete. Another thread may poll it now, but none reverts the completion.
        let mut out = empty_outcome();
        let (done, result) = match request::poll_request(&inside, *handle, &mut out, false) {
            Ok(RequestState::Over) => out,
            Ok(RequestState::AtRest | RequestState::Active | RequestState::Closed) => continue,
            // The handle was listed twice, or another thread has completed the request meanwhile.
            Ok(RequestState::Stale) => request::failed(request::stale(*handle)),
            Err(error) => request::failed(error),
        };
        clear_if_over(handle);
        tell(index, &done);
        first_failure = first_failure.and_then(|()| result.map_err(at(index)));
    }
    Ok((true, first_failure))
}

/// Passes the outcomes of at most `most` completed requests to the callback `out`. Returns the
/// number of these requests and the number of active requests found.
fn take_over(
    requests: &mut [dtl_request_t],
    most: usize,
    out: &mut impl FnMut(usize, Outcome),
) -> Result<(usize, usize)> {
    let (mut taken, mut active, mut next) = (0, 0, 0);
    while taken < most && next < requests.len() {
        let Some(rest) = requests.get_mut(next..) else { break };
        let (index, limits) = (next, (most - taken, true));
        let asked = (false, empty_outcome().0);
        let batch = request::end_in_order(&epoch::enter(), rest, limits, asked, |at, outcome| {
            out(index + at, outcome);
        });
        (taken, active, next) = (taken + batch.ended, active + batch.active, next + batch.count);
        if batch.count > 0 {
            continue;
        }
        next += 1;
        let Some(handle) = rest.first_mut() else { continue };
        let mut outcome = empty_outcome();
        let polled = request::poll_request(&epoch::enter(), *handle, &mut outcome, false);
        let outcome = match polled {
            Ok(RequestState::AtRest) => continue,
            Ok(RequestState::Active) => {
                active += 1;
                continue;
            }
            Ok(RequestState::Over) => outcome,
            Ok(RequestState::Closed) => {
                let comm = request::comm_of(*handle).ok_or_else(destroyed);
                // `None`: not cancelable (yet).
                match comm.and_then(|comm| request::end_with_comm(&comm, *handle)) {
                    Ok(None) => {
                        active += 1;
                        continue;
                    }
                    Ok(Some(outcome)) => outcome,
                    Err(error) => request::failed(error),
                }
            }
            // Listed twice, or completed by another thread meanwhile. Returning an error instead
            // would lose the outcomes that were taken before.
            Ok(RequestState::Stale) => request::failed(request::stale(*handle)),
            Err(error) => request::failed(error),
        };
        clear_if_over(handle);
        out(index, outcome);
        taken += 1;
    }
    Ok((taken, active))
}

/// Waits until at least one request is complete. Passes the outcomes of at most `most` completed
/// requests to the callback and returns the number of these requests; 0 if all requests are
/// inactive or null.
pub fn wait_some(
    requests: &mut [dtl_request_t],
    most: usize,
    timeout_ns: u64,
    mut out: impl FnMut(usize, Outcome),
) -> Result<usize> {
    check_all(requests)?;
    let deadline = Deadline::after(timeout_ns);
    let mut backoff = Backoff::new();
    loop {
        let (taken, active) = take_over(requests, most, &mut out)?;
        if taken > 0 || active == 0 {
            return Ok(taken);
        }
        let first = requests.iter().find_map(|handle| request::comm_of(*handle));
        match &first {
            Some(comm) => comm.pause(&mut backoff),
            None => backoff.pause(),
        }
        if backoff.is_long() || timeout_ns == 0 {
            let is_own = |handle: &&dtl_request_t| request::is_in_own_hands(**handle);
            if let (true, Some(own)) = (active == 1, requests.iter().find(is_own)) {
                return Err(request::in_own_hands(*own));
            }
            if let Some(comm) = &first {
                progress::others(comm);
            }
            for handle in &*requests {
                if let Some(comm) = request::comm_of(*handle) {
                    request::end_if_absent(&comm, *handle);
                }
            }
            if deadline.passed() {
                return fail!(
                    DTL_ERROR_TIMEOUT,
                    "none of {active} active requests is done after {} ms: they go on, wait again \
                     or cancel those that can be cancelled",
                    timeout_ns / 1_000_000
                );
            }
        }
    }
}
