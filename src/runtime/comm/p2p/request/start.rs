//! Start of nonblocking messages.

use super::{PersistentArgs, non_p2p, started};
use crate::abi::handle::dtl_request_t;
use crate::error::Result;
use crate::runtime::comm::Comm;
use crate::runtime::comm::op_desc::Tagged;
use crate::runtime::comm::p2p::p2p_staging::BufferPath;
use crate::runtime::comm::p2p::send_recv::Data;
use crate::sys::handles::epoch::Guard;

/// Starts a send or receive and passes the handle of its request to `out`.
#[inline(always)] // row: message_8
pub fn begin(
    inside: &Guard,
    comm: &Comm,
    what: Tagged,
    (data, peer): (Data, i32),
    out: impl FnOnce(dtl_request_t),
) -> Result<()> {
    if !comm.is_plain(data.bytes, peer, what.tag()) {
        return begin_checked(inside, comm, &PersistentArgs { data, peer, what }).map(out);
    }
    begin_plain(inside, comm, &PersistentArgs { data, peer, what }).map(out)
}

#[inline(always)] // row: message_8
fn begin_plain(inside: &Guard, comm: &Comm, plan: &PersistentArgs) -> Result<dtl_request_t> {
    let ticket = comm.recorder.begin(plan.words());
    started(inside, comm, (plan.what, plan.peer), ticket, plan.start(comm))
}

/// Slow path of `begin`: the peer may be DTL_PROC_NULL, peer and tag may be wildcards, the host may
/// be unable to access the buffer, and the arguments may be invalid.
#[cold]
#[inline(never)]
fn begin_checked(inside: &Guard, comm: &Comm, plan: &PersistentArgs) -> Result<dtl_request_t> {
    plan.check(comm)?;
    match plan.path(comm)? {
        BufferPath::Host => begin_plain(inside, comm, plan),
        path => non_p2p::insert_staged(comm, plan, non_p2p::stage(comm, plan, path)?),
    }
}
