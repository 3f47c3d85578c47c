//! End of requests before their operations complete: the program destroys a request or its
//! communicator, the library is finalized, or the process is a forked child.
//!
//! A matched message may take a long time to complete. No thread holds a request's lock during that
//! time.

use super::{
    Outcome, Request, RequestOp, RequestPhase, TABLE, comm_of, in_own_hands, is_alive, missed_by,
    outcome, stale,
};
use crate::abi::handle::dtl_request_t;
use crate::error::{Result, fail};
use crate::runtime::comm::Comm;
use crate::runtime::comm::comm_state::CommState;
use crate::runtime::comm::communicator::destroyed;
use crate::runtime::comm::failure::absence;
use crate::runtime::comm::p2p::{cancel, request};
use crate::sys::handles::epoch;
use crate::sys::handles::slot_map::{LookupFailure, SlotAction};
use std::task::Poll;

/// Returns the handles of the communicator's requests. Does not acquire the locks of the requests.
fn handles_of(comm: &Comm) -> Vec<u64> {
    match comm.slot.handle() {
        0 => Vec::new(),
        group => TABLE.handles_of(group),
    }
}

/// Fails with DTL_ERROR_BUSY if a collective that cannot be canceled is in progress on the
/// communicator.
pub(crate) fn check_revocable(comm: &Comm) -> Result<()> {
    for id in handles_of(comm) {
        let stays = TABLE
            .with(id, |request| SlotAction::Keep(request.is_irrevocable().then(|| request.name())));
        if let Err(LookupFailure::Own) = stays {
            return Err(in_own_hands(dtl_request_t { id }));
        }
        if let Ok(Some(name)) = stays {
            return fail!(
                DTL_ERROR_BUSY,
                "a collective ({name}) that was started runs in {} and cannot be withdrawn: wait \
                 for it first",
                comm.kind_name()
            );
        }
    }
    Ok(())
}

/// Cancels the operations of all requests of a communicator, so that their buffers are not accessed
/// afterwards. The handles of these requests become stale. Returns Pending if some operations are
/// matched but not complete.
pub(crate) fn cancel_all(comm: &Comm) -> Result<Poll<()>> {
    let mut all = Poll::Ready(());
    for id in handles_of(comm) {
        let withdrawn = TABLE.with(id, |request| try_end(request, comm));
        match withdrawn {
            Ok(Ok(Poll::Pending)) => all = Poll::Pending,
            Ok(Err(error)) => return Err(error),
            Err(LookupFailure::Own) => return Err(in_own_hands(dtl_request_t { id })),
            Ok(Ok(Poll::Ready(()))) | Err(_) => {}
        }
    }
    Ok(all)
}

/// Cancels the operation of an active request whose communicator is closed or revoked. Fails if the
/// operation was canceled; returns its outcome if it completed. Returns `None` if the operation
/// cannot be canceled, or if it is matched but not complete; the operation then stays in flight.
pub(crate) fn end_with_comm(comm: &Comm, handle: dtl_request_t) -> Result<Option<Outcome>> {
    let mut is_kept = false;
    let taken = TABLE.with(handle.id, |request| {
        is_kept = request.is_irrevocable();
        let taken = request.cancel(comm);
        if matches!(taken, Ok(Poll::Ready(_))) && request.again.is_none() {
            SlotAction::End(taken)
        } else {
            SlotAction::Keep(taken)
        }
    });
    match taken {
        Ok(Ok(Poll::Pending) | Err(_)) => Ok(None),
        Ok(Ok(Poll::Ready(Some(outcome)))) => Ok(Some(outcome)),
        Ok(Ok(Poll::Ready(None))) if is_kept => Err(cancel::kept(&comm.ended())),
        Ok(Ok(Poll::Ready(None))) => Err(comm.ended()),
        Err(LookupFailure::Stale) => Err(destroyed()),
        Err(_) => Err(in_own_hands(handle)),
    }
}

/// If the request is a message, and its peer has left the communicator or the communicator is
/// revoked, completes the request with that failure. The next test or wait returns this completion.
pub(crate) fn end_if_absent(comm: &Comm, handle: dtl_request_t) {
    let Ok(mut request) = TABLE.try_look(handle.id) else { return };
    request.set_owner();
    let is_message = match &request.life {
        RequestPhase::Active(RequestOp::Started(..)) => true,
        RequestPhase::Active(RequestOp::Other(other)) => other.is_message(),
        _ => false,
    };
    let (kind, peer) = (request.what.kind(), request.peer);
    let is_revoked = || comm.standing.state() == CommState::Revoked;
    if !is_message || !(is_revoked() || comm.is_absent(peer)) {
        return;
    }
    comm.catch_up(peer);
    if let Ok(Poll::Ready(ended)) = request.cancel(comm) {
        let failed = || match is_revoked() {
            true => request::failed(comm.ended()),
            false => outcome(comm, (kind, peer), absence::failed(peer)),
        };
        request.life = RequestPhase::Over(ended.unwrap_or_else(failed));
    }
}

/// Completes the messages of a revoked communicator with that failure. A send that waits for its
/// receive no longer delays later messages to the same rank.
pub(crate) fn end_messages(comm: &Comm) {
    handles_of(comm).into_iter().for_each(|id| end_if_absent(comm, dtl_request_t { id }));
}

/// Destroys a request. An operation in flight is canceled; if it has been matched, this call waits
/// until it completes. Fails with DTL_ERROR_BUSY for a collective or one-sided operation in flight,
/// which cannot be canceled. Ignores the null handle. Must be called outside of a reclamation
/// epoch, because a matched message may take a long time to complete.
pub fn destroy(handle: dtl_request_t) -> Result<()> {
    if handle.id == 0 {
        return Ok(());
    }
    let Some(comm) = comm_of(handle) else {
        return Err(if is_alive(handle) { destroyed() } else { stale(handle) });
    };
    let mut was_there = false;
    cancel::until(&comm.link, || {
        let ended = TABLE.with(handle.id, |request| try_destroy(request, &comm));
        match ended {
            Ok(ended) => {
                was_there = true;
                ended
            }
            // The thread that waited for the request has obtained its outcome.
            Err(LookupFailure::Stale) if was_there => Ok(Poll::Ready(())),
            Err(missed) => Err(missed_by(handle, &missed)),
        }
    })
}

fn try_destroy(request: &mut Request, comm: &Comm) -> SlotAction<Result<Poll<()>>> {
    if matches!(&request.life, RequestPhase::Active(RequestOp::Other(other)) if !other.is_message())
    {
        let name = request.name();
        return SlotAction::Keep(fail!(
            DTL_ERROR_BUSY,
            "what was started ({name}) cannot be withdrawn: wait for it"
        ));
    }
    try_end(request, comm)
}

/// Cancels the operation of a request and removes the request from the handle table. If the
/// cancellation fails or is pending, the request remains in the table.
fn try_end(request: &mut Request, comm: &Comm) -> SlotAction<Result<Poll<()>>> {
    match request.cancel(comm) {
        Ok(Poll::Ready(_)) => SlotAction::End(Ok(Poll::Ready(()))),
        Ok(Poll::Pending) => SlotAction::Keep(Ok(Poll::Pending)),
        Err(error) => SlotAction::Keep(Err(error)),
    }
}

/// Maximum number of attempts to lock a request that another call is polling.
const PATIENCE: usize = 64;

/// Ends all requests of a communicator that is dropped, including those whose operation cannot be
/// canceled. This function may run while the same thread polls a request of another communicator,
/// if that thread made progress on `comm` and holds the last reference to it. Therefore the wait
/// for a call that is polling a request is bounded. A call that polls a request of `comm` finds no
/// communicator and returns immediately.
pub(crate) fn end_all(comm: &Comm) {
    for id in handles_of(comm) {
        for _ in 0..PATIENCE {
            match TABLE.try_look(id) {
                Ok(mut request) => {
                    drop(cancel::until(&comm.link, || request.cancel(comm)));
                    request.end(epoch::spare_slots());
                    break;
                }
                Err(LookupFailure::Stale) => break,
                Err(_) => std::thread::yield_now(),
            }
        }
    }
}

/// Ends all requests at finalize, which also destroys their communicators.
pub fn destroy_all() {
    let inside = epoch::enter();
    for id in TABLE.handles() {
        let _ended = TABLE.with(id, |request| {
            if let Some(comm) = request.comm(&inside) {
                drop(cancel::until(&comm.link, || request.cancel(comm)));
            }
            SlotAction::End(())
        });
    }
}

/// Invalidates all request handles in a forked child.
pub fn forget_all() {
    TABLE.forget_all();
}
