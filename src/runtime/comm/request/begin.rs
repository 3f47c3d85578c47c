//! How messages are started: the usual one as short as can be.

use super::super::call::Kind;
use super::super::p2p::Data;
use super::super::{Class, Comm, staging};
use super::{Plan, other, started, under_way};
use crate::abi::handle::dtl_request_t;
use crate::error::Result;
use crate::runtime::backend::SendMode;
use crate::runtime::memory::hidden;

/// What is started with its tag, in one word: in the upper half what it is, as [`Kind`] numbers it.
#[derive(Clone, Copy)]
pub struct Tagged(u64);

impl Tagged {
    /// A send that is over when its buffer may be used again.
    #[must_use]
    #[inline(always)]
    pub fn send(tag: i32) -> Tagged {
        Tagged(u64::from(tag as u32) | (Kind::Send as u64) << 32)
    }

    /// A receive.
    #[must_use]
    #[inline(always)]
    pub fn recv(tag: i32) -> Tagged {
        Tagged(u64::from(tag as u32) | (Kind::Recv as u64) << 32)
    }

    /// The tag.
    #[must_use]
    #[inline(always)]
    pub fn tag(self) -> i32 {
        self.0 as u32 as i32
    }

    /// Which it is.
    #[must_use]
    #[inline(always)]
    pub fn is_recv(self) -> bool {
        self.0 >> 32 != Kind::Send as u64
    }

    #[inline(always)]
    fn kind(self) -> Kind {
        if self.is_recv() { Kind::Recv } else { Kind::Send }
    }
}

/// Starts the usual message.
#[inline(always)]
pub fn begin(comm: &Comm, what: Tagged, data: Data, peer: i32) -> Result<dtl_request_t> {
    let (tag, kind) = (what.tag(), what.kind());
    let ticket = comm.recorder.begin_untraced(&data.call(kind, peer, tag));
    let begun = if what.is_recv() {
        comm.recv_from(Class::User, data.bytes, peer, tag)
    } else {
        comm.send_to(Class::User, data.bytes, peer, tag, SendMode::Standard)
    };
    under_way(comm, begun, ticket, (kind, peer))
}

/// Starts any message: from any rank or to none, with any tag, of memory that the host may not reach, or wrong.
pub fn begin_any(comm: &Comm, what: Tagged, data: Data, peer: i32) -> Result<dtl_request_t> {
    any(comm, &Plan { data, peer, tag: what.tag(), kind: what.kind() })
}

/// Starts a send that is over when a receive has begun.
pub fn issend(comm: &Comm, data: Data, dest: i32, tag: i32) -> Result<dtl_request_t> {
    any(comm, &Plan { data, peer: dest, tag, kind: Kind::Ssend })
}

fn any(comm: &Comm, plan: &Plan) -> Result<dtl_request_t> {
    plan.check(comm)?;
    if hidden::may_be(plan.data.bytes) && staging::is_staged(comm, plan.data.bytes)? {
        return other::staged(comm, plan);
    }
    started(comm, plan, || plan.start(comm))
}
