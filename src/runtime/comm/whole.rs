//! Collectives that a transport has of its own (an MPI's), in one piece.
//!
//! For who waits, one is over as it begins: a run (`run`) is made only of those that go on.

use super::begun::{Begun, Caller};
use super::call::{Call, Kind};
use super::collective::Sent;
use super::p2p::Data;
use super::run::Beginning;
use super::schedule::Advance;
use super::{Comm, progress, types};
use crate::abi::status::DTL_SUCCESS;
use crate::abi::word::dtl_reduce_op_t;
use crate::error::{Error, Result};
use crate::runtime::backend::{Collective, NativeCollectives, OpId};
use crate::runtime::memory::hidden;
use crate::sys::buf::{Addr, Region};
use crate::sys::cache::{self, usually};
use crate::sys::handle_ref::HazardRef;

/// Where a collective runs whose arguments are checked.
pub(super) trait Place {
    /// Begins it: in one piece if it is run so there, else `by_steps`, the library's own, on memory
    /// that the host reaches.
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
        match &comm.native_collectives {
            Some(native) => comm.begin_whole(native.part(), call, whole(), by_steps),
            None => by_steps(),
        }
    }
}

impl Caller<'_> {
    /// Begins one that the transport perhaps has; if not, `by_steps` does.
    #[inline(always)]
    fn begin_whole(
        self,
        native: &dyn NativeCollectives,
        call: &Call,
        what: Collective,
        by_steps: impl FnOnce() -> Result<Begun>,
    ) -> Result<Begun> {
        if !self.waits() {
            return if native.takes(&what) { self.start_whole(call, what) } else { by_steps() };
        }
        let turn = self.enter(call)?;
        let Beginning { ticket, call, .. } = self.begin(*call, turn);
        let ended = progress::while_blocked(|| native.collective(&what));
        self.recorder.end(ticket);
        match ended {
            Some(Ok(())) => {
                self.leave(turn);
                Ok(Begun::Over(call.kind))
            }
            Some(Err(error)) => failed(&self, Beginning { ticket, call, turn }, what, error),
            None => {
                // Its number is used on no rank.
                self.leave(turn);
                by_steps()
            }
        }
    }

    #[inline(never)]
    fn start_whole(self, call: &Call, what: Collective) -> Result<Begun> {
        let turn = self.enter(call)?;
        Ok(Begun::Going(self.begin(*call, turn).whole(what)))
    }
}

/// The usual allreduce: of memory that the host reaches, by the transport's own operation, while
/// nothing else wants to be moved on. `None`: it is not that, and nothing was done.
#[inline(always)]
pub fn allreduce(
    comm: &HazardRef<Comm>,
    send: Sent,
    recv: Data,
    op: dtl_reduce_op_t,
) -> Option<Result<()>> {
    let by = comm.reductions?.get(recv.dtype, op)?;
    let native = comm.native_collectives.as_ref()?.part();
    let count = i32::try_from(recv.bytes.len()).ok().map(|_| recv.count as i32)?;
    let is_apart = send.is_none_or(|send| send.is_apart(recv.bytes));
    if !usually(is_apart && !hidden::is_any() && progress::is_idle()) {
        return None;
    }
    let turn = comm.try_enter(comm.mark())?;
    let call = comm.numbered(Call::new(Kind::Allreduce).with(recv.count, recv.dtype).op(op));
    let ticket = comm.recorder.begin_usual(comm.mark(), call.words());
    let from = send.map_or(Addr::NULL, Region::addr);
    let ended = native.allreduce(from, recv.bytes.addr(), count, by);
    comm.recorder.end(ticket);
    if let Err(error) = ended {
        cache::rarely();
        return Some(allreduce_failed(
            comm,
            Beginning { ticket, call, turn },
            (send, recv.bytes),
            error,
        ));
    }
    comm.leave(turn);
    Some(Ok(()))
}

#[cold]
#[inline(never)]
fn allreduce_failed(
    comm: &Comm,
    begun: Beginning,
    (send, recv): (Sent, Region),
    error: Error,
) -> Result<()> {
    let by = types::reduction(begun.call.dtype, begun.call.op)?;
    failed(comm, begun, Collective::Allreduce { send, recv, by }, error).map(|_| ())
}

#[cold]
#[inline(never)]
fn failed(comm: &Comm, begun: Beginning, what: Collective, error: Error) -> Result<Begun> {
    let error = error.within(begun.call.kind.name());
    let turn = begun.turn;
    begun.whole(what).fail(comm, &error);
    comm.leave(turn);
    Err(error)
}

/// Starts it if it is not in flight, and asks after it.
pub(super) fn advance(comm: &Comm, what: &Collective, op: &mut Option<OpId>) -> Result<Advance> {
    let (transport, native) = (&comm.link.transport, &comm.native_collectives);
    let id = match (*op, native) {
        (Some(id), _) => id,
        (None, Some(native)) => *op.insert(native.part().start_collective(what)?),
        (None, None) => return Ok(Advance::Done),
    };
    let Some(done) = transport.outcome(id)? else { return Ok(Advance::Waiting) };
    *op = None;
    if done.status == DTL_SUCCESS {
        return Ok(Advance::Done);
    }
    let said = comm.link.failure_text().unwrap_or_else(|| "no reason given".to_owned());
    Err(Error::new(done.status, said))
}
