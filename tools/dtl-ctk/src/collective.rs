//! Calls of the library for one step: collectives of both forms, and exchanges round a ring.

use crate::api::{Failure, check};
use crate::case::{Op, Step};
use crate::plan::Plan;
use crate::user;
use dtl_sys::*;
use std::ffi::c_void;
use std::ptr;

/// `call!(blocking, starting, request, arguments...)`: the form that is asked for.
macro_rules! call {
    ($blocking:ident, $starting:ident, $request:expr, $comm:expr $(, $argument:expr)*) => {
        match $request {
            // SAFETY: the plan's buffers are as long as its counts and places say, and live until
            // the step has been ended (the owner of the plan waits for the request).
            None => check(stringify!($blocking), unsafe { $blocking($comm $(, $argument)*) }),
            Some(out) => {
                // SAFETY: as above; `out` is a local of the caller's.
                check(stringify!($starting), unsafe { $starting($comm $(, $argument)*, out) })
            }
        }
    };
}

/// DTL_IN_PLACE.
pub(crate) fn in_place() -> *mut c_void {
    ptr::without_provenance_mut(usize::MAX)
}

fn start_of<T>(list: &[T]) -> *const T {
    if list.is_empty() { ptr::null() } else { list.as_ptr() }
}

/// Runs a collective, or begins it: then its request is what comes back.
pub(crate) fn call(
    comm: dtl_comm_t,
    step: &Step,
    plan: &mut Plan,
) -> Result<Option<dtl_request_t>, Failure> {
    let mut request = DTL_REQUEST_NULL;
    let out = step.nonblocking.then_some(&raw mut request);
    if step.op.reduces() { fold(comm, step, plan, out) } else { move_data(comm, step, plan, out) }?;
    Ok(step.nonblocking.then_some(request))
}

/// Addresses of the two buffers, as the call gets them.
fn buffers(plan: &mut Plan) -> (*const c_void, *mut c_void) {
    let recv = if plan.recv.is_empty() { ptr::null_mut() } else { plan.recv.as_mut_ptr().cast() };
    let recv = if plan.recv_in_place { in_place() } else { recv };
    let send =
        if plan.send_in_place { in_place().cast_const() } else { start_of(&plan.send).cast() };
    (send, recv)
}

fn fold(
    comm: dtl_comm_t,
    step: &Step,
    plan: &mut Plan,
    out: Option<*mut dtl_request_t>,
) -> Result<(), Failure> {
    let (s, r) = buffers(plan);
    let (count, dtype, op) = (plan.count, step.dtype(), user::operation(step.reduction));
    match step.op {
        Op::Reduce => {
            call!(dtl_comm_reduce, dtl_comm_ireduce, out, comm, s, r, count, dtype, op, plan.root)
        }
        Op::Allreduce => {
            call!(dtl_comm_allreduce, dtl_comm_iallreduce, out, comm, s, r, count, dtype, op)
        }
        Op::Scan => call!(dtl_comm_scan, dtl_comm_iscan, out, comm, s, r, count, dtype, op),
        Op::Exscan => call!(dtl_comm_exscan, dtl_comm_iexscan, out, comm, s, r, count, dtype, op),
        Op::ReduceScatter => {
            let counts = start_of(&plan.rcounts);
            call!(
                dtl_comm_reduce_scatter,
                dtl_comm_ireduce_scatter,
                out,
                comm,
                s,
                r,
                counts,
                dtype,
                op
            )
        }
        _ => {
            use {dtl_comm_ireduce_scatter_block as start, dtl_comm_reduce_scatter_block as wait};
            call!(wait, start, out, comm, s, r, count, dtype, op)
        }
    }
}

fn move_data(
    comm: dtl_comm_t,
    step: &Step,
    plan: &mut Plan,
    out: Option<*mut dtl_request_t>,
) -> Result<(), Failure> {
    let (s, r) = buffers(plan);
    let (count, dtype, root) = (plan.count, step.dtype(), plan.root);
    let (sc, sd) = (start_of(&plan.scounts), start_of(&plan.sdispls));
    let (rc, rd) = (start_of(&plan.rcounts), start_of(&plan.rdispls));
    match step.op {
        Op::Barrier => match out {
            None => check("dtl_comm_barrier", dtl_comm_barrier(comm)),
            // SAFETY: `out` is a local of the caller's.
            Some(out) => check("dtl_comm_ibarrier", unsafe { dtl_comm_ibarrier(comm, out) }),
        },
        Op::Bcast => call!(dtl_comm_bcast, dtl_comm_ibcast, out, comm, r, count, dtype, root),
        Op::Gather => call!(dtl_comm_gather, dtl_comm_igather, out, comm, s, count, r, dtype, root),
        Op::Gatherv => {
            call!(dtl_comm_gatherv, dtl_comm_igatherv, out, comm, s, count, r, rc, rd, dtype, root)
        }
        Op::Scatter => {
            call!(dtl_comm_scatter, dtl_comm_iscatter, out, comm, s, count, r, dtype, root)
        }
        Op::Scatterv => {
            call!(
                dtl_comm_scatterv,
                dtl_comm_iscatterv,
                out,
                comm,
                s,
                sc,
                sd,
                r,
                count,
                dtype,
                root
            )
        }
        Op::Allgather => {
            call!(dtl_comm_allgather, dtl_comm_iallgather, out, comm, s, count, r, dtype)
        }
        Op::Allgatherv => {
            call!(dtl_comm_allgatherv, dtl_comm_iallgatherv, out, comm, s, count, r, rc, rd, dtype)
        }
        Op::Alltoall => call!(dtl_comm_alltoall, dtl_comm_ialltoall, out, comm, s, count, r, dtype),
        Op::Alltoallv => {
            call!(dtl_comm_alltoallv, dtl_comm_ialltoallv, out, comm, s, sc, sd, r, rc, rd, dtype)
        }
        _ => {
            use {dtl_comm_ineighbor_alltoallv as start, dtl_comm_neighbor_alltoallv as wait};
            let (dests, sources) = (start_of(&plan.dests), start_of(&plan.sources));
            let (to, from) = (plan.dests.len() as u64, plan.sources.len() as u64);
            call!(wait, start, out, comm, to, dests, s, sc, sd, from, sources, r, rc, rd, dtype)
        }
    }
}

/// An exchange round the ring, and what it told of the message received.
pub(crate) fn shift(comm: dtl_comm_t, step: &Step, plan: &mut Plan) -> Result<(), Failure> {
    let mut info = crate::api::no_info();
    let (s, r) = buffers(plan);
    let (dest, source, tag) = (plan.dests[0], plan.sources[0], step.gap as i32);
    let out = &raw mut info;
    let (status, expected) = if step.op == Op::Replace {
        let count = plan.count;
        // SAFETY: the plan's buffer has `count` elements; `info` is a local.
        let status = unsafe {
            dtl_comm_sendrecv_replace(comm, r, count, step.dtype(), dest, tag, source, tag, out)
        };
        (status, count)
    } else {
        let (sends, receives) = (plan.scounts[0], plan.rcounts[0]);
        // SAFETY: the plan's buffers have as many elements as are named; `info` is a local.
        let status = unsafe {
            dtl_comm_sendrecv(
                comm,
                s,
                sends,
                dest,
                tag,
                r,
                receives,
                source,
                tag,
                step.dtype(),
                out,
            )
        };
        (status, receives)
    };
    check(step.op.name(), status)?;
    expect_info(&info, source, tag, expected * step.ty.size as u64)
}

fn expect_info(info: &dtl_recv_info_t, source: i32, tag: i32, bytes: u64) -> Result<(), Failure> {
    let nobody = source == DTL_PROC_NULL;
    let (tag, bytes) = if nobody { (DTL_ANY_TAG, 0) } else { (tag, bytes) };
    let told = (info.source, info.tag, info.size_bytes, info.status);
    let right = (source, tag, bytes, DTL_SUCCESS);
    if told == right {
        return Ok(());
    }
    Err(Failure::wrong(format!(
        "it tells (source, tag, bytes, status) {told:?}, expected {right:?}"
    )))
}
