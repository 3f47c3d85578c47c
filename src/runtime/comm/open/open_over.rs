//! Opening of a communicator whose ranks use an existing communicator only to bootstrap: they
//! exchange addresses over the existing communicator, and do not use it afterwards.
//!
//! Not here: communicators that continue to use the existing communicator (`coll::coll_device`).

use super::{group, open_kind};
use crate::abi::comm::communicator::{DTL_COMM_DETERMINISTIC, dtl_comm_desc_t};
use crate::error::Result;
use crate::runtime::comm::Comm;
use crate::runtime::comm::coll::allgather_words;
use crate::runtime::comm::op_desc::Kind;
use crate::runtime::component::{BOOTSTRAP_NS, Exchange, OpenArgs, all_or_none, failed_elsewhere};
use crate::runtime::device;
use crate::runtime::registry::Backend;
use crate::sys::memory::buf::Addr;
use std::sync::Arc;

impl Exchange for Comm {
    fn rank(&self) -> i32 {
        self.rank
    }

    fn size(&self) -> i32 {
        self.size
    }

    fn allgather(&self, mine: &[u64]) -> Result<Vec<u64>> {
        allgather_words(self, Kind::Open, mine)
    }
}

/// Opens the communicator that `raw` describes, on all ranks or on none. The ranks use the
/// communicator `over` to bootstrap. If `raw` sets no time limit, the new communicator inherits the
/// time limit of `over`. Collective over the ranks of `over`: a rank that cannot use the backend
/// notifies the others.
pub(crate) fn make(
    backend: Arc<Backend>,
    over: &Arc<Comm>,
    raw: &dtl_comm_desc_t,
    settings: Addr,
) -> Result<Comm> {
    let dtl_comm_desc_t { flags, timeout_ns, .. } = *raw;
    let timeout_ns = if timeout_ns == 0 { over.timeout_ns } else { timeout_ns };
    let limit_ns = timeout_ns.min(BOOTSTRAP_NS);
    // An internal communicator of the same ranks, used only for this bootstrap.
    let mut copy = group::internal_dup(over, Kind::Open)?;
    copy.timeout_ns = limit_ns;
    all_or_none(&copy, backend.ready(), &[], |rank, status| {
        failed_elsewhere(rank, status, &format!("cannot use kind \"{}\"", backend.name()))
    })?;
    let is_deterministic = flags & DTL_COMM_DETERMINISTIC != 0 || over.link.is_deterministic;
    let args = OpenArgs {
        flags: if is_deterministic { flags | DTL_COMM_DETERMINISTIC } else { flags },
        named: Some((over.rank, over.size)),
        timeout_ns: limit_ns,
        settings,
        own_algorithms: timeout_ns != u64::MAX || is_deterministic,
        device_pci: device::selected_pci(),
        over: Some(Arc::new(copy)),
        ..OpenArgs::default()
    };
    open_kind::connect(backend, &args, timeout_ns)
}

#[cfg(test)]
#[path = "tests/open_over.rs"]
mod tests;
