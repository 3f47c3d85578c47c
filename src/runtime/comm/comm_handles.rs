//! Handle table of communicators: lookup, pinning for a call, insertion, destruction.

use super::absence;
use super::comm_state::CommState;
use super::open::{attribute, open_kind};
use crate::abi::handle::dtl_comm_t;
use crate::abi::status::DTL_ERROR_LIMIT;
use crate::error::{Error, Result, fail};
use crate::runtime::comm::p2p::{cancel, matched_message, request};
use crate::runtime::comm::{Comm, coll, progress};
use crate::runtime::{invalid_handle, log};
use crate::sys::handles::{
    epoch::{self, Guard, Visit},
    handle_table::{EpochRef, HandleTable, HazardRef},
};
use std::sync::Arc;
use std::time::Duration;

/// Type byte of communicator handles; DTL_COMM_WORLD and DTL_COMM_SELF are its indices 0 and 1.
pub const TAG: u8 = 6;
const WORLD: u64 = (TAG as u64) << 56;
const SELF: u64 = WORLD | 1 << 36;

pub(in crate::runtime::comm) static TABLE: HandleTable<Comm> = HandleTable::new(TAG, 2);

/// Pins and returns the communicator of `handle`, opening a predefined one at its first use.
pub fn pin(inside: &Guard, handle: dtl_comm_t) -> Result<Arc<Comm>> {
    if let Some(comm) = TABLE.pin(inside, handle.id) {
        return Ok(comm);
    }
    match handle.id {
        WORLD => open_kind::predefined(inside, 0, handle),
        SELF => open_kind::predefined(inside, 1, handle),
        id => Err(invalid_handle("communicator", TAG, id)),
    }
}

/// Returns true if `id` is a communicator's handle. Predefined handles are valid before opening.
pub fn is_live(id: u64) -> bool {
    [WORLD, SELF].contains(&id) || TABLE.is_live(id)
}

/// Returns the communicator of `handle`, borrowed for the lifetime of the guard `inside`. A
/// predefined communicator is opened at its first use.
pub fn get(inside: &Guard, handle: dtl_comm_t) -> Result<&Comm> {
    match TABLE.get(inside, handle.id) {
        Some(comm) => Ok(comm),
        None => open_and_get(inside, handle),
    }
}

#[cold]
fn open_and_get(inside: &Guard, handle: dtl_comm_t) -> Result<&Comm> {
    drop(pin(inside, handle)?);
    TABLE.get(inside, handle.id).ok_or_else(|| invalid_handle("communicator", TAG, handle.id))
}

/// Returns the communicator of `handle` for a waiting call, opening a predefined one at first use.
pub fn hold(inside: Guard, handle: dtl_comm_t) -> Result<HazardRef<Comm>> {
    let inside = match TABLE.hold(inside, handle.id) {
        Ok(held) => return Ok(held),
        Err(inside) => inside,
    };
    drop(pin(&inside, handle)?);
    TABLE.hold(inside, handle.id).map_err(|_| invalid_handle("communicator", TAG, handle.id))
}

/// Fast path: returns the communicator of `handle` for a call that will not wait. `None`: the call
/// must use the general path (`get`).
pub fn visit(visit: Visit, handle: dtl_comm_t) -> Option<EpochRef<Comm>> {
    TABLE.visit(visit, handle.id)
}

/// Fast path: returns the communicator of `handle` for a call that will wait. `None`: the call must
/// use the general path (`hold`), or an outer call on this thread also waits.
pub fn keep(visit: Visit, handle: dtl_comm_t) -> Option<HazardRef<Comm>> {
    TABLE.visit(visit, handle.id)?.into_hazard()
}

/// Inserts a communicator into the handle table, registers it for progress, and returns its handle.
pub fn insert(comm: Comm) -> Result<dtl_comm_t> {
    let comm = Arc::new(comm);
    progress::add(&comm);
    put(&comm)
}

/// Inserts a communicator, without registration for progress, and returns its handle.
pub(in crate::runtime::comm) fn put(comm: &Arc<Comm>) -> Result<dtl_comm_t> {
    match TABLE.insert(Arc::clone(comm)) {
        // No other thread has this handle yet.
        Some(id) => {
            comm.slot.set(TABLE.slot_ref(id), id);
            comm.recorder.belongs_to(id);
            Ok(dtl_comm_t { id })
        }
        None => Err(no_handle()),
    }
}

#[cold]
fn no_handle() -> Error {
    Error::new(DTL_ERROR_LIMIT, "no handle left for another communicator: destroy some")
}

/// Maximum time that a destroy waits for calls that may be starting an operation.
const LONGEST_START: Duration = Duration::from_secs(1);

/// Pins the communicator to destroy. `None`: null and predefined handles, which are not destroyed.
pub fn pin_to_destroy(inside: &Guard, handle: dtl_comm_t) -> Result<Option<Arc<Comm>>> {
    if [0, WORLD, SELF].contains(&handle.id) {
        return Ok(None);
    }
    let comm = TABLE.pin(inside, handle.id);
    comm.map(Some).ok_or_else(|| invalid_handle("communicator", TAG, handle.id))
}

/// Fails with BUSY if the current call runs inside a callback of the program that a collective on
/// `comm` has called. That collective cannot continue before the callback returns, so the call
/// would disturb the collective or deadlock.
pub(in crate::runtime::comm) fn check_outside(comm: &Comm, name: &str) -> Result<()> {
    if comm.in_collective.is_of(epoch::thread_mark()) {
        return fail!(
            DTL_ERROR_BUSY,
            "{name}: a collective on this communicator is further up this thread, and has called \
             the function of the \
             program that calls this: let that function return first"
        );
    }
    Ok(())
}

/// Destroys a communicator. Waiting calls return CANCELED, operations in flight are canceled, and
/// the link closes with the last communicator on it. Call outside of the epoch.
pub fn destroy(comm: &Arc<Comm>) -> Result<()> {
    check_outside(comm, "dtl_comm_destroy")?;
    request::check_revocable(comm)?;
    let has_failed = absence::has_failed(comm);
    // Set first, so that a thread that waits for a request of this communicator gets CANCELED.
    comm.standing.set(CommState::Closed);
    // A call that found the communicator open has inserted its request before it leaves the epoch.
    if !epoch::let_others_leave(LONGEST_START) {
        log::warning!("a communicator is destroyed while calls of other threads last");
    }
    let withdrawn = cancel::until(&comm.link, || {
        // A send to this rank itself may wait for a matched message.
        matched_message::drop_all(comm);
        request::cancel_all(comm)
    });
    if let Err(error) = withdrawn {
        // An operation remains in flight, so the communicator remains open.
        comm.standing.set(CommState::Open);
        return Err(error);
    }
    coll::coll_device::leave(comm);
    absence::leave(comm, has_failed);
    let handle = comm.handle();
    match TABLE.remove(&epoch::enter(), handle.id) {
        Some(comm) => {
            attribute::end_all(&comm, handle);
            Ok(())
        }
        None => Err(invalid_handle("communicator", TAG, handle.id)),
    }
}

/// Closes and removes every communicator at finalize.
pub fn destroy_all() {
    let inside = epoch::enter();
    for id in TABLE.handles() {
        if let Some(comm) = TABLE.pin(&inside, id) {
            comm.standing.set(CommState::Closed);
        }
        drop(TABLE.remove(&inside, id));
    }
}

/// Invalidates all handles in a forked child. Shared memory and sockets remain the parent's.
pub fn forget_all() {
    progress::forget();
    let inside = epoch::enter();
    for id in TABLE.handles() {
        std::mem::forget(TABLE.remove(&inside, id));
    }
}
