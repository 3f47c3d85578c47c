//! Implementation of collectives by native collectives of the transport (for example MPI), each
//! executed as one operation.
//!
//! A blocking native collective completes in the call that starts it. A `Run` (state of a
//! collective in progress, `coll_exec`) is created only for a collective that is still in progress
//! when its start returns.

use super::coll_exec::{CallMode, CollSetup, StartedColl};
use super::schedule::Advance;
use super::{Buffer, CollArgs, CollCall};
use crate::abi::status::DTL_SUCCESS;
use crate::abi::word::dtl_reduce_op_t;
use crate::error::{Error, Result};
use crate::hints::{self, usually};
use crate::runtime::comm::op_desc::{Kind, OpDesc};
use crate::runtime::comm::p2p::send_recv::Data;
use crate::runtime::comm::{Comm, progress, progress_count};
use crate::runtime::component::{NativeCollectives, OpId};
use crate::runtime::memory::device_only;
use crate::runtime::types;
use crate::sys::{
    handles::handle_table::HazardRef,
    memory::buf::{Addr, Region},
};

/// Starts a native collective. Returns `None` if the transport does not support the collective.
#[inline(never)]
pub(super) fn begin(
    comm: &Comm,
    native: &dyn NativeCollectives,
    mode: CallMode,
    args: &CollArgs,
) -> Result<Option<StartedColl>> {
    // Neighborhood collectives are excluded: neighbors differ, so ranks could decide differently.
    if args.neighbors.is_some() {
        return Ok(None);
    }
    let Some(blocking) = native.blocking().filter(|_| mode == CallMode::Blocking) else {
        return start(comm, native, args);
    };
    let call = OpDesc::of(args);
    let turn = comm.enter(&call)?;
    let CollSetup { ticket, call, .. } = comm.begin(call, turn);
    let ended = progress::while_blocked(|| blocking.run(args));
    comm.recorder.end(ticket);
    match ended {
        Some(Ok(())) => {
            comm.leave(turn);
            Ok(Some(StartedColl::Over(call.kind)))
        }
        Some(Err(error)) => Err(failed(comm, CollSetup { ticket, call, turn }, args, error)),
        None => {
            // No rank uses the number of this collective.
            comm.leave(turn);
            Ok(None)
        }
    }
}

fn call_of<'a>(comm: &Comm, args: &'a CollArgs) -> CollCall<'a> {
    CollCall { args, context: comm.context, is_deterministic: comm.link.is_deterministic }
}

/// Starts a native collective that is polled for completion.
#[inline(never)]
fn start(
    comm: &Comm,
    native: &dyn NativeCollectives,
    args: &CollArgs,
) -> Result<Option<StartedColl>> {
    let taken = native.takes(&call_of(comm, args));
    if let Ok(false) = taken {
        return Ok(None);
    }
    let call = OpDesc::of(args);
    let turn = comm.enter(&call)?;
    let begun = comm.begin(call, turn);
    if let Err(error) = taken {
        return Err(failed(comm, begun, args, error));
    }
    comm.explain_native(args.kind);
    Ok(Some(StartedColl::Going(begun.native(args.clone(), native.can_cancel()))))
}

/// Executes a blocking allreduce on memory that the host can access, using the transport's native
/// operation. Returns `None`, without effect, if the call has to use the general path: for example,
/// if the transport has no such operation or if other objects need progress.
pub fn allreduce(
    comm: &HazardRef<Comm>,
    send: Option<Region>,
    recv: Data,
    op: dtl_reduce_op_t,
) -> Option<Result<()>> {
    let by = comm.reductions?.get(recv.dtype, op)?;
    let native = comm.native_collectives.as_ref()?.part().blocking()?;
    let count = i32::try_from(recv.bytes.len()).ok().map(|_| recv.count as i32)?;
    let is_apart = send.is_none_or(|send| send.is_apart(recv.bytes));
    if !usually(is_apart && !device_only::is_any() && progress_count::is_idle()) {
        return None;
    }
    let turn = comm.try_enter()?;
    let call = OpDesc { op, ..OpDesc::new(Kind::Allreduce).with(recv.count, recv.dtype) };
    let begun = comm.begin(call, turn);
    let from = send.map_or(Addr::NULL, Region::addr);
    let ended = native.allreduce(from, recv.bytes.addr(), count, by);
    comm.recorder.end(begun.ticket);
    if let Err(error) = ended {
        hints::rarely();
        return Some(allreduce_failed(comm, begun, (send, recv.bytes), error));
    }
    comm.leave(begun.turn);
    Some(Ok(()))
}

#[cold]
#[inline(never)]
fn allreduce_failed(
    comm: &Comm,
    begun: CollSetup,
    (send, recv): (Option<Region>, Region),
    error: Error,
) -> Result<()> {
    let args = CollArgs {
        in_place: send.is_none(),
        reduction: Some(types::reduction(begun.call.dtype, begun.call.op)?),
        send: Buffer::Whole(send.unwrap_or(recv)),
        recv: Buffer::Whole(recv),
        ..CollArgs::new(Kind::Allreduce)
    };
    Err(failed(comm, begun, &args, error))
}

#[cold]
#[inline(never)]
fn failed(comm: &Comm, begun: CollSetup, args: &CollArgs, error: Error) -> Error {
    let error = error.within(begun.call.kind.name());
    let turn = begun.turn;
    begun.native(args.clone(), false).fail(comm, &error);
    comm.leave(turn);
    error
}

/// Starts the native collective if it is not in flight, and polls it for completion.
pub(crate) fn advance(comm: &Comm, args: &CollArgs, op: &mut Option<OpId>) -> Result<Advance> {
    let (transport, native) = (&comm.link.transport, &comm.native_collectives);
    let id = match (*op, native) {
        (Some(id), _) => id,
        (None, Some(native)) => *op.insert(native.part().start(&call_of(comm, args))?),
        (None, None) => return Ok(Advance::Done),
    };
    let Some(done) = transport.outcome(id)? else { return Ok(Advance::Waiting) };
    *op = None;
    if done.status == DTL_SUCCESS {
        return Ok(Advance::Done);
    }
    let reason = comm.link.failure_text().unwrap_or_else(|| "no reason given".to_owned());
    Err(Error::new(done.status, reason))
}
