//! How messages are started: the usual one as short as can be.

use super::super::p2p::{Data, Started};
use super::super::recorder::Kind;
use super::super::{Class, Comm, staging};
use super::{Plan, other, started};
use crate::abi::handle::dtl_request_t;
use crate::error::Result;
use crate::runtime::backend::SendMode;
use crate::runtime::memory::hidden;
use crate::sys::buf::Region;

/// What is started.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// A send that is over when its buffer may be used again.
    Send,
    /// A send that is over when a receive has begun.
    Ssend,
    /// A receive.
    Recv,
}

/// The same with its tag, in one word.
#[derive(Clone, Copy)]
pub struct Tagged(u64);

impl Tagged {
    /// What was put together.
    #[must_use]
    #[inline(always)]
    pub fn parts(self) -> (Message, i32) {
        let message = match self.0 >> 32 {
            0 => Message::Send,
            1 => Message::Ssend,
            _ => Message::Recv,
        };
        (message, self.0 as u32 as i32)
    }
}

impl Message {
    /// With a tag.
    #[must_use]
    #[inline(always)]
    pub fn with(self, tag: i32) -> Tagged {
        Tagged(u64::from(tag as u32) | (self as u64) << 32)
    }

    #[inline(always)]
    fn kind(self) -> Kind {
        match self {
            Message::Send => Kind::Send,
            Message::Ssend => Kind::Ssend,
            Message::Recv => Kind::Recv,
        }
    }
}

/// Starts a message.
#[inline(always)]
pub fn begin(comm: &Comm, message: Message, data: Data, peer: i32, tag: i32) -> Result<dtl_request_t> {
    let plan = Plan { data, peer, tag, kind: message.kind() };
    if comm.is_usual(data.bytes, peer, tag) {
        return started(comm, &plan, || plan.start_usual(comm));
    }
    unusual(comm, data.bytes, (data.count, data.dtype), (peer, tag), plan.kind)
}

/// Starts what is not the usual message: from any rank or to none, with any tag, of memory that the host may not reach, or wrong.
/// In pieces that fit into registers, as the usual message would have to make room for them otherwise.
#[inline(never)]
fn unusual(
    comm: &Comm,
    bytes: Region,
    (count, dtype): (u64, i32),
    (peer, tag): (i32, i32),
    kind: Kind,
) -> Result<dtl_request_t> {
    let data = Data { bytes, count, dtype };
    let plan = Plan { data, peer, tag, kind };
    plan.check(comm)?;
    if hidden::may_be(data.bytes) && staging::is_staged(comm, data.bytes)? {
        return other::staged(comm, &plan);
    }
    started(comm, &plan, || plan.start(comm))
}

impl Plan {
    /// Starts what goes to a rank or comes from one.
    #[inline(always)]
    fn start_usual(&self, comm: &Comm) -> Result<Started> {
        let (bytes, peer, tag) = (self.data.bytes, self.peer, self.tag);
        if self.kind == Kind::Recv {
            return comm.recv_from(Class::User, bytes, peer, tag);
        }
        let mode = if self.kind == Kind::Ssend { SendMode::Synchronous } else { SendMode::Standard };
        comm.send_to(Class::User, bytes, peer, tag, mode)
    }
}
