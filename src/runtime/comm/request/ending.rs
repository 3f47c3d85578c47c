//! The end of requests with what they belong to: a communicator that is destroyed, the library, a fork's parent.

use super::super::Comm;
use super::super::owner::Owner;
use super::{Life, Operation, TABLE};
use crate::error::{Result, fail};
use crate::sys::epoch;
use crate::sys::pool::Then;

/// Refuses while a collective of the communicator runs that nobody can take back.
pub(in crate::runtime::comm) fn check_revocable(comm: &Comm) -> Result<()> {
    let owner = Owner::of(comm);
    for id in TABLE.handles() {
        let stays = TABLE.with(id, |request| {
            let is_stuck = match &request.life {
                Life::Active(Operation::Other(other)) => other.is_irrevocable(),
                _ => false,
            };
            Then::Keep((is_stuck && request.comm == owner).then(|| request.name()))
        });
        if let Some(name) = stays.flatten() {
            return fail!(
                DTL_ERROR_BUSY,
                "a collective ({name}) that was started runs in {} and cannot be withdrawn: wait for it first",
                comm.kind_name()
            );
        }
    }
    Ok(())
}

/// Takes a communicator's operations back, so that no buffer is touched afterwards. The handles of its
/// requests become stale; with `all`, also of those that cannot be taken back.
pub(in crate::runtime::comm) fn withdraw_all(comm: &Comm, all: bool) -> Result<()> {
    let owner = Owner::of(comm);
    for id in TABLE.handles() {
        let withdrawn = TABLE.with(id, |request| {
            if request.comm != owner {
                return Then::Keep(Ok(()));
            }
            match request.take_back(comm) {
                Err(error) if !all => Then::Keep(Err(error)),
                _ => Then::End(Ok(())),
            }
        });
        withdrawn.unwrap_or(Ok(()))?;
    }
    Ok(())
}

/// At finalize: requests go with their communicators.
pub fn destroy_all() {
    let inside = epoch::enter();
    for id in TABLE.handles() {
        TABLE.with(id, |request| {
            if let Some(comm) = request.comm.get(&inside) {
                drop(request.take_back(comm));
            }
            Then::End(())
        });
    }
}

/// In a forked child: the handles go.
pub fn forget_all() {
    TABLE.forget_all();
}
