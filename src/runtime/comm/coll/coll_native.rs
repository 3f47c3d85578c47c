//! Implementation of collectives by native collectives of the transport (for example MPI), or by
//! the library of the communicator's device (`coll_device`). Each is executed as one operation.
//!
//! A blocking native collective completes in the call that starts it. A `Run` (state of a
//! collective in progress, `coll_exec`) is created only for a collective that is still in progress
//! when its start returns.

use super::coll_exec::{CallMode, CollSetup, StartedColl};
use super::schedule::Advance;
use super::{Buffer, CollArgs, CollCall};
use crate::abi::status::DTL_SUCCESS;
use crate::abi::word::dtl_reduce_op_t;
use crate::error::{Error, Result, fail};
use crate::hints::{self, usually};
use crate::runtime::comm::op_desc::{Kind, OpDesc};
use crate::runtime::comm::p2p::gpu_direct;
use crate::runtime::comm::p2p::send_recv::Data;
use crate::runtime::comm::{Comm, progress, progress_count};
use crate::runtime::component::{Completion, Hold, MemoryPlace, NativeCollectives, OpId};
use crate::runtime::memory::{Allocation, device_only};
use crate::runtime::types;
use crate::sys::handles::handle_table::HazardRef;
use crate::sys::memory::buf::{Addr, Region};

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
        return start_taken(comm, native, args);
    };
    let call = OpDesc::of(args);
    let turn = comm.enter(&call)?;
    let CollSetup { ticket, call, .. } = comm.begin(call, turn);
    let ended = progress::while_blocked(|| blocking.run(args));
    comm.recorder.end(ticket);
    match ended {
        Some(Ok(())) => {
            comm.leave(turn);
            comm.explain_native(call.kind, false);
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

/// Executor of a native collective.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Executor {
    /// The transport of the communicator. `can_cancel`: it can cancel the collective.
    Transport { can_cancel: bool },
    /// The collective library of the communicator's device (`coll_device`).
    DeviceLibrary,
}

/// Device memory in which a native collective takes place.
pub(crate) struct OnDevice {
    place: MemoryPlace,
    /// Objects that keep the buffers accessible to the transport.
    holds: Vec<Hold>,
}

/// Starts a native collective on device memory that the transport accesses. Returns `None` if the
/// buffers are in other memory or the transport does not execute the collective there.
pub(super) fn begin_on_device(comm: &Comm, args: &CollArgs) -> Result<Option<StartedColl>> {
    let (Some(native), Some(direct)) = (&comm.native_collectives, comm.link.direct()) else {
        return Ok(None);
    };
    let buffers = args.send.ranges().iter().chain(args.recv.ranges());
    let buffers = || buffers.clone().filter(|buffer| !buffer.is_empty());
    let Some(place) = place_of(buffers())?.filter(|_| args.neighbors.is_none()) else {
        return Ok(None);
    };
    let mut memory = Box::new(OnDevice { place, holds: Vec::new() });
    match native.part().refuses(&call_of(comm, args, Some(&memory))) {
        Ok(None) => {}
        Ok(Some(_)) => return Ok(None),
        Err(error) => return Err(not_taken(comm, args, error)),
    }
    for buffer in buffers() {
        let held = gpu_direct::hold(comm, direct, *buffer, false)?;
        let Some((hold, _)) = held else { return Ok(None) };
        memory.holds.push(hold);
    }
    let by = Executor::Transport { can_cancel: native.part().can_cancel() };
    start(comm, by, args, Some(memory)).map(Some)
}

/// Returns the place of device memory that contains all buffers; `None` if the host can access one
/// of them, or if they are in different places.
fn place_of<'a>(buffers: impl Iterator<Item = &'a Region>) -> Result<Option<MemoryPlace>> {
    let mut first = None;
    for buffer in buffers {
        let found = device_only::allocation_of(*buffer)?;
        let Some(Allocation { backend, kind, device, hidden: true, imported: false, .. }) = found
        else {
            return Ok(None);
        };
        let place = MemoryPlace { backend, kind, device };
        if *first.get_or_insert(place) != place {
            return Ok(None);
        }
    }
    Ok(first)
}

pub(super) fn call_of<'a>(comm: &Comm, args: &'a CollArgs, on: Option<&OnDevice>) -> CollCall<'a> {
    CollCall {
        args,
        context: comm.context,
        is_deterministic: comm.link.is_deterministic,
        place: on.map(|memory| memory.place),
    }
}

/// Starts a native collective of the transport that is polled for completion. Returns `None` if the
/// transport does not support it.
#[inline(never)]
fn start_taken(
    comm: &Comm,
    native: &dyn NativeCollectives,
    args: &CollArgs,
) -> Result<Option<StartedColl>> {
    match native.refuses(&call_of(comm, args, None)) {
        Ok(Some(_)) => Ok(None),
        Ok(None) => {
            let by = Executor::Transport { can_cancel: native.can_cancel() };
            start(comm, by, args, None).map(Some)
        }
        Err(error) => Err(not_taken(comm, args, error)),
    }
}

/// Fails a collective for which [`NativeCollectives::refuses`] has returned an error, and returns
/// the error for the caller.
#[cold]
#[inline(never)]
fn not_taken(comm: &Comm, args: &CollArgs, error: Error) -> Error {
    let call = OpDesc::of(args);
    match comm.enter(&call) {
        Ok(turn) => failed(comm, comm.begin(call, turn), args, error),
        Err(error) => error,
    }
}

/// Starts a native collective that is polled for completion and that its executor supports.
pub(super) fn start(
    comm: &Comm,
    by: Executor,
    args: &CollArgs,
    memory: Option<Box<OnDevice>>,
) -> Result<StartedColl> {
    let call = OpDesc::of(args);
    let turn = comm.enter(&call)?;
    // Without blocking forms, every rank takes this path, or none does.
    let is_backend = || {
        comm.native_collectives.as_ref().is_some_and(|native| native.part().blocking().is_none())
    };
    let call = match by {
        Executor::DeviceLibrary => call.on_device(),
        Executor::Transport { .. } if is_backend() => call.by_backend(),
        Executor::Transport { .. } => call,
    };
    let begun = comm.begin(call, turn);
    comm.explain_native(args.kind, by == Executor::DeviceLibrary);
    Ok(StartedColl::Going(begun.native(args.clone(), by, memory)))
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
    comm.explain_native(Kind::Allreduce, false);
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
    begun.native(args.clone(), Executor::Transport { can_cancel: false }, None).fail(comm, &error);
    comm.leave(turn);
    error
}

/// Starts the native collective if it is not in flight, and polls it for completion.
pub(crate) fn advance(
    comm: &Comm,
    args: &CollArgs,
    by: Executor,
    memory: Option<&OnDevice>,
    op: &mut Option<OpId>,
) -> Result<Advance> {
    let call = || call_of(comm, args, memory);
    let done = match (by, &comm.native_collectives, &comm.device) {
        (Executor::Transport { .. }, Some(native), _) => {
            let id = begun(op, || native.part().start(&call()))?;
            comm.link.transport.outcome(id)?
        }
        (Executor::DeviceLibrary, _, Some(part)) => {
            let id = begun(op, || part.comm.start(&call()))?;
            if part.comm.test(id)? { Some(Completion::NOBODY) } else { None }
        }
        _ => return fail!(DTL_ERROR_INTERNAL, "a native collective has no executor"),
    };
    let Some(done) = done else { return Ok(Advance::Waiting) };
    *op = None;
    if done.status == DTL_SUCCESS {
        return Ok(Advance::Done);
    }
    let reason = comm.link.failure_text().unwrap_or_else(|| "no reason given".to_owned());
    Err(Error::new(done.status, reason))
}

/// Returns the operation `op`, which `start` starts if it is `None`.
fn begun(op: &mut Option<OpId>, start: impl FnOnce() -> Result<OpId>) -> Result<OpId> {
    Ok(match *op {
        Some(id) => id,
        None => *op.insert(start()?),
    })
}
