//! Starting messages. The fast path is as short as possible.

use super::{Plan, TABLE, kept, non_p2p, not_begun, of_message, started};
use crate::abi::handle::{dtl_comm_t, dtl_request_t};
use crate::error::Result;
use crate::runtime::comm::Comm;
use crate::runtime::comm::op_desc::{Kind, Tagged};
use crate::runtime::comm::p2p::p2p_staging::BufferPath;
use crate::runtime::comm::p2p::send_recv::{Data, Found, Started};
use crate::runtime::component::{RecvMode, Selector, SendMode};
use crate::sys::sync::hints;

/// Starts the usual message.
#[inline(always)]
pub fn begin(
    (comm, place): &Found,
    handle: dtl_comm_t,
    what: Tagged,
    data: Data,
    peer: i32,
) -> Result<dtl_request_t> {
    let words = what.words(peer, data.count, data.dtype);
    let ticket = comm.recorder.begin_usual(comm.inside().mark(), words);
    let (transport, bytes) = (comm.link.part(), data.bytes);
    let (outer, word) = (comm.outer(peer), comm.usual_word(what.tag()));
    let begun = if what.is_recv() {
        let select = Selector { source: outer, word, ignore: 0 };
        transport.start_recv(bytes, select, RecvMode::Request)
    } else {
        transport.start_send(bytes, outer, word, SendMode::Standard, false)
    };
    let place = *place;
    match begun {
        Ok(op) => {
            let request = move || of_message(place, Started::of(op), ticket, (what, peer));
            kept(comm, TABLE.put_inside(comm.inside(), handle.id, request))
        }
        Err(error) => {
            hints::rarely();
            Err(not_begun(comm, ticket, error))
        }
    }
}

/// Starts any message: from any rank or to none, with any tag, of memory that the host may not
/// reach, or wrong.
pub fn begin_any(comm: &Comm, what: Tagged, data: Data, peer: i32) -> Result<dtl_request_t> {
    any(comm, &Plan { data, peer, tag: what.tag(), kind: what.kind() })
}

/// Starts a send that is over when a receive has begun.
pub fn issend(comm: &Comm, data: Data, dest: i32, tag: i32) -> Result<dtl_request_t> {
    any(comm, &Plan { data, peer: dest, tag, kind: Kind::Ssend })
}

fn any(comm: &Comm, plan: &Plan) -> Result<dtl_request_t> {
    plan.check(comm)?;
    match plan.path(comm)? {
        BufferPath::Host => started(comm, plan, || plan.start(comm)),
        path => non_p2p::staged(comm, plan, path),
    }
}
