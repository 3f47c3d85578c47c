//! Collectives that a transport has of its own (an MPI's), in one piece.
//!
//! For who waits, one is over as it begins: a run (`run`) is made only of those that go on.

use super::begun::{Begun, Caller};
use super::call::Call;
use super::run::Beginning;
use super::schedule::Advance;
use super::{Comm, progress};
use crate::abi::status::DTL_SUCCESS;
use crate::error::{Error, Result};
use crate::runtime::backend::{Collective, OpId};
use std::sync::atomic::Ordering;

/// Where a collective runs whose arguments are checked.
pub(super) trait Place {
    /// Begins it: in one piece if it is run so there, else `by_steps`, the library's own, on memory that the host reaches.
    fn begin(
        comm: Caller<'_>,
        call: &Call,
        whole: impl FnOnce() -> Collective,
        by_steps: impl FnOnce() -> Result<Begun>,
    ) -> Result<Begun>;
}

/// On memory that the host reaches.
pub(super) struct OnHost;

impl Place for OnHost {
    #[inline(always)]
    fn begin(
        comm: Caller<'_>,
        call: &Call,
        whole: impl FnOnce() -> Collective,
        by_steps: impl FnOnce() -> Result<Begun>,
    ) -> Result<Begun> {
        if comm.has_collectives { comm.begin_whole(call, whole(), by_steps) } else { by_steps() }
    }
}

impl Caller<'_> {
    /// Begins one that the transport perhaps has; if not, `by_steps` does.
    #[inline(always)]
    fn begin_whole(
        self,
        call: &Call,
        what: Collective,
        by_steps: impl FnOnce() -> Result<Begun>,
    ) -> Result<Begun> {
        if !self.waits() {
            return if self.link.transport.takes(&what) { self.start_whole(call, what) } else { by_steps() };
        }
        self.enter(call)?;
        let Beginning { ticket, call } = self.begin(*call);
        let ended = progress::while_blocked(|| self.link.part().collective(&what));
        self.recorder.end(ticket);
        match ended {
            Some(Ok(())) => {
                self.in_collective.store(false, Ordering::Release);
                Ok(Begun::Over(call.kind))
            }
            Some(Err(error)) => failed(&self, Beginning { ticket, call }, what, error),
            None => {
                // Its number is used on no rank.
                self.in_collective.store(false, Ordering::Release);
                by_steps()
            }
        }
    }

    #[inline(never)]
    fn start_whole(self, call: &Call, what: Collective) -> Result<Begun> {
        self.enter(call)?;
        Ok(Begun::Going(self.begin(*call).whole(what)))
    }
}

#[cold]
#[inline(never)]
fn failed(comm: &Comm, begun: Beginning, what: Collective, error: Error) -> Result<Begun> {
    let error = error.within(begun.call.kind.name());
    begun.whole(what).fail(comm, &error);
    comm.in_collective.store(false, Ordering::Release);
    Err(error)
}

/// Starts it if it is not in flight, and asks after it.
pub(super) fn advance(comm: &Comm, what: &Collective, op: &mut Option<OpId>) -> Result<Advance> {
    let transport = &comm.link.transport;
    let id = match *op {
        Some(id) => id,
        None => *op.insert(transport.start_collective(what)?),
    };
    let Some(done) = transport.outcome(id)? else { return Ok(Advance::Waiting) };
    *op = None;
    if done.status == DTL_SUCCESS {
        return Ok(Advance::Done);
    }
    let said = transport.failure_text().unwrap_or_else(|| "no reason given".to_owned());
    Err(Error::new(done.status, said))
}
