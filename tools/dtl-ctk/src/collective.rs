//! Calls to the library for one step: blocking and nonblocking collectives, and exchanges around a
//! ring.

use crate::case::{Op, Step};
use crate::kit::outcome::{Called, Error, Failure, call};
use crate::plan::Plan;
use crate::user;
use dtl_sys::*;
use std::ffi::c_void;
use std::ptr;

/// `form!(request, blocking, nonblocking, (arguments))` calls the nonblocking function if `request`
/// is `Some(out)`, where `out` is the address at which the function stores the new request;
/// otherwise the blocking function. The plan's buffers have the lengths that its counts and
/// displacements require. They live until the operation is complete, because the owner of the plan
/// waits for the request.
macro_rules! form {
    ($request:expr, $blocking:ident, $starting:ident, ($($argument:expr),*)) => {
        match $request {
            None => call!($blocking($($argument),*)),
            Some(out) => call!($starting($($argument,)* out)),
        }
    };
}

/// Returns DTL_IN_PLACE.
pub(crate) fn in_place() -> *mut c_void {
    ptr::without_provenance_mut(usize::MAX)
}

fn start_of<T>(list: &[T]) -> *const T {
    if list.is_empty() { ptr::null() } else { list.as_ptr() }
}

/// Runs a collective, or starts it and returns its request.
pub(crate) fn call(
    comm: dtl_comm_t,
    step: &Step,
    plan: &mut Plan,
) -> Called<Option<dtl_request_t>> {
    let mut request = DTL_REQUEST_NULL;
    let out = step.nonblocking.then_some(&raw mut request);
    if step.op.reduces() { fold(comm, step, plan, out) } else { move_data(comm, step, plan, out) }?;
    Ok(step.nonblocking.then_some(request))
}

/// Returns the addresses of the send and the receive buffer as passed to the call.
fn buffers(plan: &mut Plan) -> (*const c_void, *mut c_void) {
    let recv = if plan.recv.is_empty() { ptr::null_mut() } else { plan.recv.as_mut_ptr().cast() };
    let recv = if plan.recv_in_place { in_place() } else { recv };
    let send =
        if plan.send_in_place { in_place().cast_const() } else { start_of(&plan.send).cast() };
    (send, recv)
}

type Out = Option<*mut dtl_request_t>;

fn fold(comm: dtl_comm_t, step: &Step, plan: &mut Plan, out: Out) -> Called {
    let (s, r) = buffers(plan);
    let (count, root) = (plan.count, plan.root);
    let (dtype, op) = (step.dtype(), user::operation(step.reduction));
    match step.op {
        Op::Reduce => {
            form!(out, dtl_comm_reduce, dtl_comm_ireduce, (comm, s, r, count, dtype, op, root))
        }
        Op::Allreduce => {
            form!(out, dtl_comm_allreduce, dtl_comm_iallreduce, (comm, s, r, count, dtype, op))
        }
        Op::Scan => form!(out, dtl_comm_scan, dtl_comm_iscan, (comm, s, r, count, dtype, op)),
        Op::Exscan => form!(out, dtl_comm_exscan, dtl_comm_iexscan, (comm, s, r, count, dtype, op)),
        Op::ReduceScatter => {
            let counts = start_of(&plan.rcounts);
            form!(
                out,
                dtl_comm_reduce_scatter,
                dtl_comm_ireduce_scatter,
                (comm, s, r, counts, dtype, op)
            )
        }
        _ => form!(
            out,
            dtl_comm_reduce_scatter_block,
            dtl_comm_ireduce_scatter_block,
            (comm, s, r, count, dtype, op)
        ),
    }
}

fn move_data(comm: dtl_comm_t, step: &Step, plan: &mut Plan, out: Out) -> Called {
    let (s, r) = buffers(plan);
    let (count, dtype, root) = (plan.count, step.dtype(), plan.root);
    let (sc, sd) = (start_of(&plan.scounts), start_of(&plan.sdispls));
    let (rc, rd) = (start_of(&plan.rcounts), start_of(&plan.rdispls));
    match step.op {
        Op::Barrier => form!(out, dtl_comm_barrier, dtl_comm_ibarrier, (comm)),
        Op::Bcast => form!(out, dtl_comm_bcast, dtl_comm_ibcast, (comm, r, count, dtype, root)),
        Op::Gather => {
            form!(out, dtl_comm_gather, dtl_comm_igather, (comm, s, count, r, dtype, root))
        }
        Op::Gatherv => {
            form!(
                out,
                dtl_comm_gatherv,
                dtl_comm_igatherv,
                (comm, s, count, r, rc, rd, dtype, root)
            )
        }
        Op::Scatter => {
            form!(out, dtl_comm_scatter, dtl_comm_iscatter, (comm, s, count, r, dtype, root))
        }
        Op::Scatterv => form!(
            out,
            dtl_comm_scatterv,
            dtl_comm_iscatterv,
            (comm, s, sc, sd, r, count, dtype, root)
        ),
        Op::Allgather => {
            form!(out, dtl_comm_allgather, dtl_comm_iallgather, (comm, s, count, r, dtype))
        }
        Op::Allgatherv => {
            form!(
                out,
                dtl_comm_allgatherv,
                dtl_comm_iallgatherv,
                (comm, s, count, r, rc, rd, dtype)
            )
        }
        Op::Alltoall => {
            form!(out, dtl_comm_alltoall, dtl_comm_ialltoall, (comm, s, count, r, dtype))
        }
        Op::Alltoallv => {
            form!(out, dtl_comm_alltoallv, dtl_comm_ialltoallv, (comm, s, sc, sd, r, rc, rd, dtype))
        }
        _ => {
            let (dests, sources) = (start_of(&plan.dests), start_of(&plan.sources));
            let (to, from) = (plan.dests.len() as u64, plan.sources.len() as u64);
            form!(
                out,
                dtl_comm_neighbor_alltoallv,
                dtl_comm_ineighbor_alltoallv,
                (comm, dests, to, s, sc, sd, sources, from, r, rc, rd, dtype)
            )
        }
    }
}

/// Exchanges messages around a ring with sendrecv and checks the envelope of the received message.
pub(crate) fn shift(comm: dtl_comm_t, step: &Step, plan: &mut Plan) -> Result<(), Failure> {
    let mut info = crate::api::no_info();
    let (s, r) = buffers(plan);
    let (dest, source, tag) = (plan.dests[0], plan.sources[0], step.gap as i32);
    let (out, dtype) = (&raw mut info, step.dtype());
    let (ended, expected) = if step.op == Op::Replace {
        let count = plan.count;
        let ended =
            call!(dtl_comm_sendrecv_replace(comm, r, count, dtype, dest, tag, source, tag, out));
        (ended, count)
    } else {
        let (sends, receives) = (plan.scounts[0], plan.rcounts[0]);
        let ended = call!(dtl_comm_sendrecv(
            comm, s, sends, dest, tag, r, receives, source, tag, dtype, out
        ));
        (ended, receives)
    };
    ended.map_err(|refused| Error { call: step.op.name(), ..refused })?;
    expect_info(&info, source, tag, expected * step.ty.size as u64)
}

fn expect_info(info: &dtl_recv_info_t, source: i32, tag: i32, bytes: u64) -> Result<(), Failure> {
    let nobody = source == DTL_PROC_NULL;
    let (tag, bytes) = if nobody { (DTL_ANY_TAG, 0) } else { (tag, bytes) };
    let told = (info.source, info.tag, info.size_bytes, info.status);
    let right = (source, tag, bytes, DTL_SUCCESS);
    let wrong = || format!("it tells (source, tag, bytes, status) {told:?}, expected {right:?}");
    if told == right { Ok(()) } else { Err(Failure::wrong(wrong())) }
}
