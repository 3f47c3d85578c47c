//! Persistent operations, created once and started repeatedly, of transports that support them.
//!
//! Not here: the persistent request, and the start of an ordinary operation for transports without
//! persistent operations (`request`).

use super::op_handle::OpHandle;
use crate::abi::comm::communicator::{DTL_ANY_SOURCE, DTL_PROC_NULL};
use crate::error::Result;
use crate::runtime::comm::Comm;
use crate::runtime::comm::shared_transport::{Class, SharedTransport};
use crate::runtime::component::{OpId, PersistentOps};
use crate::sys::handles::handle_table::OwningRef;
use crate::sys::memory::buf::Region;
use std::sync::Arc;

/// Persistent operation of the transport. It is freed together with its request.
pub(crate) struct Persistent {
    group: OwningRef<dyn PersistentOps, SharedTransport>,
    op: OpId,
    started: fn(OpId) -> OpHandle,
}

impl Comm {
    /// Creates a persistent send in the transport. `None`: each start posts an ordinary send.
    pub(crate) fn make_send(
        &self,
        data: Region,
        dest: i32,
        tag: i32,
    ) -> Result<Option<Persistent>> {
        if dest == DTL_PROC_NULL {
            return Ok(None);
        }
        let Some(group) = self.persistent_ops() else { return Ok(None) };
        let made =
            group.part().make_send(data, self.to_world(dest), self.match_bits(Class::User, tag));
        persistent(group, made, OpHandle::Op)
    }

    /// Creates a persistent receive in the transport. `None`: each start posts an ordinary receive.
    pub(crate) fn make_recv(
        &self,
        data: Region,
        source: i32,
        tag: i32,
    ) -> Result<Option<Persistent>> {
        if source == DTL_PROC_NULL {
            return Ok(None);
        }
        let Some(group) = self.persistent_ops() else { return Ok(None) };
        let made = group.part().make_recv(data, self.selector(Class::User, source, tag));
        let started = if source == DTL_ANY_SOURCE { OpHandle::FromAny } else { OpHandle::Op };
        persistent(group, made, started)
    }

    fn persistent_ops(&self) -> Option<OwningRef<dyn PersistentOps, SharedTransport>> {
        OwningRef::find(Arc::clone(&self.link), |link| link.transport.groups().persistent)
    }
}

fn persistent(
    group: OwningRef<dyn PersistentOps, SharedTransport>,
    made: Option<Result<OpId>>,
    started: fn(OpId) -> OpHandle,
) -> Result<Option<Persistent>> {
    made.transpose().map(|op| op.map(|op| Persistent { group, op, started }))
}

impl Persistent {
    /// Starts the persistent operation, which must be inactive. Returns the started operation.
    pub(crate) fn start(&self) -> Result<OpHandle> {
        self.group.part().start(self.op).map(|()| (self.started)(self.op))
    }
}

impl Drop for Persistent {
    fn drop(&mut self) {
        if let Err(error) = self.group.part().end(self.op) {
            crate::runtime::log::warning!("ending a persistent request: {error}");
        }
    }
}
