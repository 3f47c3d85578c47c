//! Persistent operations of transports that support them. A persistent operation is created once
//! and started repeatedly.
//!
//! Persistent requests are implemented in `request`, which also starts nonpersistent operations for
//! transports without persistent operations.

use super::op_handle::OpHandle;
use crate::abi::comm::communicator::DTL_PROC_NULL;
use crate::error::Result;
use crate::runtime::comm::Comm;
use crate::runtime::comm::shared_transport::{Class, SharedTransport};
use crate::runtime::component::{OpId, PersistentOps};
use crate::sys::handles::handle_table::OwningRef;
use crate::sys::memory::buf::Region;
use std::sync::Arc;

/// Persistent operation of the transport. It is freed when the request that owns it is freed.
pub(crate) struct Persistent {
    group: OwningRef<dyn PersistentOps, SharedTransport>,
    op: OpId,
    peer: i32,
}

impl Comm {
    /// Creates a persistent receive or send in the transport. Returns `None` if the transport
    /// cannot create one; each start of the persistent request then posts a nonpersistent
    /// operation.
    pub(crate) fn make_persistent(
        &self,
        data: Region,
        peer: i32,
        tag: i32,
        receives: bool,
    ) -> Result<Option<Persistent>> {
        if peer == DTL_PROC_NULL {
            return Ok(None);
        }
        let link = Arc::clone(&self.link);
        let group = OwningRef::find(link, |link| link.transport.groups().persistent);
        let Some(group) = group else { return Ok(None) };
        let made = if receives {
            group.part().make_recv(data, self.selector(Class::User, peer, tag))
        } else {
            group.part().make_send(data, self.to_world(peer), self.match_bits(Class::User, tag))
        };
        made.transpose().map(|op| op.map(|op| Persistent { group, op, peer }))
    }
}

impl Persistent {
    /// Starts the persistent operation, which must be inactive. Returns the started operation.
    pub(crate) fn start(&self) -> Result<OpHandle> {
        self.group.part().start(self.op).map(|()| OpHandle::recv(self.op, self.peer))
    }
}

impl Drop for Persistent {
    fn drop(&mut self) {
        crate::runtime::log::failure("ending a persistent request", self.group.part().end(self.op));
    }
}
