//! Progress of requests that no call waits for.

use super::{PollState, Request, RequestOp, RequestPhase, TABLE, is_alive};
use crate::abi::handle::dtl_request_t;
use crate::error::Result;
use crate::runtime::comm::Comm;
use crate::runtime::comm::progress::Progress;
use crate::sys::handles::epoch;
use crate::sys::handles::slot_map::{LookupFailure, SlotMap};

/// Makes progress on a request and returns its state; `None` if the handle is stale. If the request
/// is complete, its outcome stays stored in the request.
pub(crate) fn standing(handle: dtl_request_t) -> Result<Option<PollState>> {
    standing_if(handle, |_, _| true)
}

impl Progress for SlotMap<Request> {
    fn progress(&self, handle: dtl_request_t, is_library_thread: bool) {
        let may = |request: &Request, comm: &Comm| {
            !is_library_thread
                || comm.link.transport.properties().allows_progress_thread
                    && !matches!(&request.life, RequestPhase::Active(RequestOp::Other(other))
                        if other.calls_program())
        };
        // A failure is returned to the thread that waits for the request.
        drop(standing_if(handle, may));
    }

    fn is_alive(&self, handle: dtl_request_t) -> bool {
        is_alive(handle)
    }

    fn is_at_rest(&self, handle: dtl_request_t) -> bool {
        match TABLE.try_look(handle.id) {
            Ok(request) => !matches!(request.life, RequestPhase::Active(_)),
            Err(missed) => missed == LookupFailure::Stale,
        }
    }
}

fn standing_if(
    handle: dtl_request_t,
    may: impl Fn(&Request, &Comm) -> bool,
) -> Result<Option<PollState>> {
    let inside = epoch::enter();
    let mut request = match TABLE.try_look(handle.id) {
        Ok(request) => request,
        Err(LookupFailure::Stale) => return Ok(None),
        Err(_) => return Ok(Some(PollState::Active)),
    };
    request.set_owner();
    match request.comm(&inside) {
        Some(comm) if may(&request, comm) => request.settle(comm).map(Some),
        _ => Ok(Some(PollState::Active)),
    }
}
