//! Handle table of communicators: lookup, pinning for a call, insertion, destruction.

use super::comm_state::CommState;
use super::comm_table::{OPEN, SELF, TABLE, TAG, WORLD};
use super::diagnostics::hang_report;
use super::failure::missing_ranks::{HERE, of_shrink};
use super::open::{attribute, buffers, open_kind};
use crate::abi::handle::dtl_comm_t;
use crate::error::{Error, Result};
use crate::runtime::comm::p2p::{cancel, matched_message, request};
use crate::runtime::comm::{Comm, progress};
use crate::runtime::{invalid_handle, log};
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::handles::handle_table::HazardRef;
use crate::sys::sync::wait::Backoff;
use std::sync::Arc;
use std::time::Duration;

/// Pins and returns the communicator with the given handle. A predefined communicator is opened at
/// its first use.
pub fn pin(inside: &Guard, handle: dtl_comm_t) -> Result<Arc<Comm>> {
    if let Some(comm) = TABLE.pin(inside, handle.id) {
        return Ok(comm);
    }
    match handle.id {
        WORLD => open_kind::predefined(inside, 0, handle),
        SELF => open_kind::predefined(inside, 1, handle),
        _ => Err(unknown(handle)),
    }
}

fn unknown(handle: dtl_comm_t) -> Error {
    invalid_handle("communicator", TAG, handle.id)
}

/// Returns the communicator with the given handle, borrowed for the lifetime of the guard `inside`.
/// A predefined communicator is opened at its first use.
#[inline]
pub fn get(inside: &Guard, handle: dtl_comm_t) -> Result<&Comm> {
    TABLE.get(inside, handle.id).map_or_else(|| open_and_get(inside, handle), Ok)
}

#[cold]
fn open_and_get(inside: &Guard, handle: dtl_comm_t) -> Result<&Comm> {
    drop(pin(inside, handle)?);
    TABLE.get(inside, handle.id).ok_or_else(|| unknown(handle))
}

/// Returns the communicator with the given handle, for a call that waits. A predefined communicator
/// is opened at its first use.
pub fn hold(inside: Guard, handle: dtl_comm_t) -> Result<HazardRef<Comm>> {
    let inside = match TABLE.hold(inside, handle.id) {
        Ok(held) => return Ok(held),
        Err(inside) => inside,
    };
    drop(pin(&inside, handle)?);
    TABLE.hold(inside, handle.id).map_err(|_| unknown(handle))
}

/// Maximum time for which `destroy` waits for calls by other threads that may be starting an
/// operation.
const LONGEST_START: Duration = Duration::from_secs(1);

/// Pins the communicator to destroy. Returns `None` for null and predefined handles, which are not
/// destroyed.
pub fn pin_to_destroy(inside: &Guard, handle: dtl_comm_t) -> Result<Option<Arc<Comm>>> {
    if [0, WORLD, SELF].contains(&handle.id) {
        return Ok(None);
    }
    TABLE.pin(inside, handle.id).map(Some).ok_or_else(|| unknown(handle))
}

/// Destroys a communicator. Waiting calls return CANCELED, operations in flight are canceled, and
/// the transport closes when the last communicator that uses it is destroyed. The caller must not
/// hold an epoch guard.
pub fn destroy(comm: &Arc<Comm>) -> Result<()> {
    comm.check_outside("dtl_comm_destroy")?;
    request::check_revocable(comm)?;
    let has_failed = has_failed(comm);
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
        // Checked after the state is set: a revocation by another thread leaves a closed
        // communicator closed, and would be lost if it came between a check and `set`.
        if comm.reports.revocation().is_some() {
            comm.standing.revoke();
        }
        return Err(error);
    }
    buffers::end_all(comm);
    comm.device.iter().for_each(|part| part.comm.leave());
    leave(comm, has_failed);
    let handle = comm.handle();
    let removed = TABLE.remove(&epoch::enter(), handle.id).ok_or_else(|| unknown(handle))?;
    removed.attributes.delete_all(handle);
    Ok(())
}

/// Returns true if the communicator has failed, so that its ranks may destroy it at different
/// times. Without a failure all ranks destroy the communicator collectively.
fn has_failed(comm: &Comm) -> bool {
    comm.standing.state() == CommState::Revoked || comm.is_broken() || comm.has_died()
}

/// Informs the other ranks that this rank is destroying the communicator: sets a flag in its
/// shared-memory mailbox and, if the communicator has failed, sends notices (internal messages).
/// After a completed shrink, the flag is not set: no rank waits for this rank on the communicator
/// any more, and a rank that has not completed the shrink would read the flag and exclude this rank
/// from the shrunk communicator, of which this rank is a member.
fn leave(comm: &Comm, has_failed: bool) {
    let (completed, is_pending) = comm.shrinking.lock().state();
    if let Some(mailboxes) = comm.mailboxes.as_ref().filter(|_| completed == 0) {
        mailboxes.mailbox.leave();
    }
    if !has_failed {
        return;
    }
    if completed == 0 || is_pending {
        hang_report::absent(comm, HERE);
    }
    if is_pending {
        hang_report::absent(comm, of_shrink(completed));
    }
    // Waits while a function of the transport blocks in another thread.
    let mut backoff = Backoff::new();
    while hang_report::send_notices(comm) {
        comm.pause(&mut backoff);
    }
    hang_report::retire(comm);
}

impl Drop for Comm {
    fn drop(&mut self) {
        // No thread uses the communicator any more. No request is left, unless a call was starting
        // an operation for longer than `destroy` waited.
        request::end_all(self);
        buffers::end_all(self);
        OPEN.remove(std::ptr::from_ref(self).addr());
    }
}

/// Deletes the attributes of all communicators at finalize, before the communicators are destroyed,
/// and then deletes all attribute keys.
pub fn delete_attributes() {
    let inside = epoch::enter();
    let comms = TABLE.handles().into_iter().filter_map(|id| TABLE.pin(&inside, id));
    comms.collect::<Vec<_>>().iter().for_each(|comm| comm.attributes.delete_all(comm.handle()));
    attribute::forget_all();
}

/// Closes and removes all communicators when the library is finalized. If a communicator has
/// failed, first informs its other ranks that this rank leaves.
pub fn destroy_all() {
    TABLE.drain(&epoch::enter()).for_each(|comm| {
        if has_failed(&comm) {
            leave(&comm, true);
        }
        comm.standing.set(CommState::Closed);
    });
}

/// Invalidates all communicator handles in a forked child. Does not close shared memory and
/// sockets, because they belong to the parent.
pub fn forget_all() {
    progress::forget();
    TABLE.drain(&epoch::enter()).for_each(std::mem::forget);
}
