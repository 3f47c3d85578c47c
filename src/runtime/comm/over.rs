//! Opening over another communicator a kind that moves messages itself: the ranks meet there, and then go their own way.
//!
//! Not here: kinds that stay beside the communicator that they are opened over (`on_device`).

use super::group::{self, allgather_words};
use super::recorder::Kind;
use super::{Comm, open};
use crate::abi::comm::{DTL_COMM_DETERMINISTIC, dtl_comm_desc_t};
use crate::error::{Result, fail, status_name};
use crate::runtime::backend::{Exchange, OpenArgs};
use crate::runtime::registry::Backend;
use crate::sys::buf::Addr;
use std::ffi::CString;
use std::sync::Arc;

/// A communicator of the library's own, of the same ranks, which nobody else uses.
struct Meeting(Comm);

impl Exchange for Meeting {
    fn rank(&self) -> i32 {
        self.0.rank
    }

    fn size(&self) -> i32 {
        self.0.size
    }

    fn allgather(&self, mine: &[u64]) -> Result<Vec<u64>> {
        allgather_words(&self.0, Kind::Open, mine)
    }
}

/// Opens one as described, on all ranks or on none; without a time limit it has that of `over`. Collective over the ranks of `over`, also for
/// who cannot use the backend: the others are told.
pub(super) fn make(backend: Arc<Backend>, over: &Arc<Comm>, raw: &dtl_comm_desc_t) -> Result<Comm> {
    let dtl_comm_desc_t { flags, timeout_ns, native, .. } = *raw;
    let timeout_ns = if timeout_ns == 0 { over.timeout_ns } else { timeout_ns };
    let limit_ns = timeout_ns.min(open::BOOTSTRAP_NS);
    let mut twin = group::twin(over, Kind::Open)?;
    twin.timeout_ns = limit_ns;
    let meeting = Meeting(twin);
    all_ready(&backend, &meeting)?;
    let is_deterministic = flags & DTL_COMM_DETERMINISTIC != 0 || over.link.is_deterministic;
    let args = OpenArgs {
        flags: if is_deterministic { flags | DTL_COMM_DETERMINISTIC } else { flags },
        named: Some((over.rank, over.size)),
        launched: None,
        job: CString::default(),
        is_only_open: false,
        timeout_ns: limit_ns,
        native: Addr::new(native),
        own_algorithms: timeout_ns != u64::MAX || is_deterministic,
        over: Some(Arc::new(meeting)),
    };
    open::connect(backend, &args, timeout_ns)
}

fn all_ready(backend: &Backend, meeting: &Meeting) -> Result<()> {
    let mine = backend.ready();
    let status = mine.as_ref().err().map_or(0, |error| u64::from(error.status() as u32));
    let all = meeting.allgather(&[status]);
    mine?;
    match (0..).zip(all?).find(|(_, status)| *status != 0) {
        None => Ok(()),
        Some((rank, status)) => fail!(
            DTL_ERROR_UNAVAILABLE,
            "rank {rank} cannot use kind \"{}\" ({}); see its own output",
            backend.name(),
            status_name(status as u32 as i32).to_string_lossy()
        ),
    }
}
