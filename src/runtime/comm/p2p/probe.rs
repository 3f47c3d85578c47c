//! Probing for messages without receiving them, and waiting for a probe to succeed.

use super::send_recv;
use crate::abi::comm::communicator::*;
use crate::error::{Result, fail, failure};
use crate::runtime::comm::diagnostics::hang_report;
use crate::runtime::comm::op_desc::{Kind, OpDesc};
use crate::runtime::comm::shared_transport::Class;
use crate::runtime::comm::{Comm, progress};
use crate::runtime::component::Completion;
use crate::sys::sync::wait::Backoff;

/// Blocking probe: waits for a message that a receive would match. The message stays queued.
pub fn probe(comm: &Comm, source: i32, tag: i32) -> Result<Completion> {
    let call = OpDesc { peer: source, tag, ..OpDesc::new(Kind::Probe) };
    comm.recorder.during(call.words(), || until(comm, source, || iprobe(comm, source, tag)))
}

/// Checks, without blocking, for a message that a receive with this source and tag would match. The
/// message stays queued.
pub fn iprobe(comm: &Comm, source: i32, tag: i32) -> Result<Option<Completion>> {
    send_recv::check_recv(comm, source, tag)?;
    if source == DTL_PROC_NULL {
        return Ok(Some(Completion::NOBODY));
    }
    let look = || comm.link.transport.probe(comm.selector(Class::User, source, tag));
    Ok(find(comm, source, look)?.map(|done| comm.localized(done)))
}

/// Probes for a message from `source` by calling `look`. If there is no message, fails with
/// RANK_FAILURE if `source` has left the communicator, because such a rank sends no more messages.
/// Also fails if `source` is DTL_ANY_SOURCE and any rank has died, because the awaited message may
/// be one that the dead rank can no longer send.
pub(crate) fn find<T>(
    comm: &Comm,
    source: i32,
    look: impl Fn() -> Result<Option<T>>,
) -> Result<Option<T>> {
    find_or_fail(comm, source, look).map_err(|error| comm.revoked_or(error))
}

fn find_or_fail<T>(
    comm: &Comm,
    source: i32,
    look: impl Fn() -> Result<Option<T>>,
) -> Result<Option<T>> {
    if let Some(found) = look()? {
        return Ok(Some(found));
    }
    progress::running();
    hang_report::looked_in_vain(comm);
    if source == DTL_ANY_SOURCE && comm.has_died() {
        return fail!(
            DTL_ERROR_RANK_FAILURE,
            "no message from any rank, and rank(s) {} {}{}",
            comm.failed_text(),
            comm.failed_how(),
            comm.failed_why()
        );
    }
    if !comm.is_absent(source) {
        return Ok(None);
    }
    // The rank may have sent messages before it left.
    comm.catch_up(source);
    let found = look()?;
    found.map(Some).ok_or_else(|| {
        if !comm.is_open() {
            return comm.ended();
        }
        let why = comm.peer_gone_text(source);
        failure!(DTL_ERROR_RANK_FAILURE, "no message, and none can come {why}")
    })
}

/// Repeats `look`, which probes for a message, until it finds one. Fails when the communicator's
/// time limit expires, or if the communicator is closed or revoked.
pub(crate) fn until<T>(
    comm: &Comm,
    source: i32,
    look: impl Fn() -> Result<Option<T>>,
) -> Result<T> {
    let (deadline, mut backoff) = (comm.deadline(), Backoff::new());
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        comm.pause(&mut backoff);
        if backoff.is_long() {
            if deadline.passed() || !comm.is_open() {
                return Err(comm.gave_up(source));
            }
            progress::others(comm);
        }
    }
}
