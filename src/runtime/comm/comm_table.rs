//! Tables of communicators: handle table, and list of open communicators on which waiting calls
//! make progress.

use super::progress_list::ProgressList;
use crate::abi::handle::dtl_comm_t;
use crate::error::{Result, failure};
use crate::runtime::comm::Comm;
use crate::sys::handles::epoch::Visit;
use crate::sys::handles::handle_table::{EpochRef, HandleTable, HazardRef};
use std::sync::Arc;

/// Type code of communicators, the highest byte of a communicator handle. DTL_COMM_WORLD and
/// DTL_COMM_SELF are the handles with this type code and the table indices 0 and 1.
pub(crate) const TAG: u8 = 6;
pub(crate) const WORLD: u64 = (TAG as u64) << 56;
pub(crate) const SELF: u64 = WORLD | 1 << 36;

pub(crate) static TABLE: HandleTable<Comm> = HandleTable::new();

/// Open communicators. Waiting calls make progress on them.
pub(crate) static OPEN: ProgressList<Comm> = ProgressList::new();

/// Returns true if `id` is a communicator's handle. Predefined handles are valid even before their
/// communicators are opened.
pub fn is_live(id: u64) -> bool {
    [WORLD, SELF].contains(&id) || TABLE.is_live(id)
}

/// Fast path: returns the communicator with the given handle, for a call that will not wait.
/// Returns `None` if the call must use the general path (`comm_handles::get`).
pub fn visit(visit: Visit, handle: dtl_comm_t) -> Option<EpochRef<Comm>> {
    TABLE.visit(visit, handle.id)
}

/// Fast path: returns the communicator with the given handle, for a call that will wait. Returns
/// `None` if the call must use the general path (`comm_handles::hold`), for example because an
/// outer call on this thread also waits.
#[inline]
pub fn keep(visit: Visit, handle: dtl_comm_t) -> Option<HazardRef<Comm>> {
    TABLE.visit(visit, handle.id)?.into_hazard()
}

/// Inserts a communicator into the handle table, registers it for progress, and returns its handle.
pub(super) fn insert(comm: Comm) -> Result<dtl_comm_t> {
    let comm = Arc::new(comm);
    OPEN.add(&comm);
    put(&comm)
}

/// Inserts a communicator, without registration for progress, and returns its handle.
pub(crate) fn put(comm: &Arc<Comm>) -> Result<dtl_comm_t> {
    let id = TABLE.insert(TAG, Arc::clone(comm)).ok_or_else(|| {
        failure!(DTL_ERROR_LIMIT, "no handle left for another communicator: destroy some")
    })?;
    // No other thread has this handle yet.
    comm.slot.set(TABLE.slot_ref(id), id);
    comm.recorder.belongs_to(id);
    Ok(dtl_comm_t { id })
}
