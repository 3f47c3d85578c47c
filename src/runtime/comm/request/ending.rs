//! The end of requests with what they belong to: a communicator that is destroyed, the library, a fork's parent.

use super::super::Comm;
use super::{Life, Operation, TABLE};
use crate::error::{Result, fail};
use crate::sys::epoch;
use crate::sys::pool::{Missed, Then};

/// Refuses while a collective of the communicator runs that nobody can take back.
pub(in crate::runtime::comm) fn check_revocable(comm: &Comm) -> Result<()> {
    for id in TABLE.handles() {
        let stays = TABLE.with(id, |request| {
            let is_stuck = match &request.life {
                Life::Active(Operation::Other(other)) => other.is_irrevocable(),
                _ => false,
            };
            Then::Keep((is_stuck && request.is_of(comm)).then(|| request.name()))
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
/// requests become stale.
pub(in crate::runtime::comm) fn withdraw_all(comm: &Comm) -> Result<()> {
    for id in TABLE.handles() {
        let withdrawn = TABLE.with(id, |request| {
            if !request.is_of(comm) {
                return Then::Keep(Ok(()));
            }
            match request.take_back(comm) {
                Err(error) => Then::Keep(Err(error)),
                Ok(_) => Then::End(Ok(())),
            }
        });
        withdrawn.unwrap_or(Ok(()))?;
    }
    Ok(())
}

/// How often a request is asked for that somebody looks at.
const PATIENCE: usize = 64;

/// The same at a communicator's end, also of what cannot be taken back. It may come in the midst of a look at another's
/// request, whose thread moved this one on and has its last share: so nobody who looks is waited for for ever. Who looks at a
/// request of this one's finds no communicator, and is gone at once.
pub(in crate::runtime::comm) fn end_all(comm: &Comm) {
    for id in TABLE.handles() {
        for _ in 0..PATIENCE {
            match TABLE.try_look(id) {
                Ok(mut request) if request.is_of(comm) => {
                    drop(request.take_back(comm));
                    request.end();
                    break;
                }
                Ok(_) | Err(Missed::Stale) => break,
                Err(Missed::Busy) => std::thread::yield_now(),
            }
        }
    }
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
