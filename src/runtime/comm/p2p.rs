//! Point to point: blocking send, receive and exchange over a transport's isend, irecv, test.

use super::{Class, Comm, withdraw};
use crate::abi::comm::*;
use crate::abi::status::*;
use crate::error::{Error, Result, fail};
use crate::runtime::backend::{Done, OpId, recv_info};
use crate::sys::buf::{Region, Scratch};
use crate::sys::clock::Deadline;
use crate::sys::park::Backoff;
use std::sync::atomic::Ordering;

/// What a receive from (or send to) DTL_PROC_NULL tells.
pub(super) const NOBODY: Done =
    Done { source: DTL_PROC_NULL, status: DTL_SUCCESS, word: DTL_ANY_TAG as u32 as u64, size: 0 };

/// A started operation.
#[derive(Clone, Copy)]
pub(super) enum Started {
    /// With DTL_PROC_NULL: over before it began.
    Nothing,
    /// In the transport's hands.
    Op(OpId),
    /// Over, and nobody has heard of it yet.
    Over(Done),
}

impl Comm {
    pub(super) fn start_send(&self, class: Class, data: Region, dest: i32, tag: i32) -> Result<Started> {
        if dest == DTL_PROC_NULL {
            return Ok(Started::Nothing);
        }
        self.transport(class).isend(data, dest, self.word(class, tag)).map(Started::Op)
    }

    pub(super) fn start_recv(&self, class: Class, data: Region, source: i32, tag: i32) -> Result<Started> {
        if source == DTL_PROC_NULL {
            return Ok(Started::Nothing);
        }
        self.transport(class).irecv(data, self.selector(class, source, tag)).map(Started::Op)
    }

    /// Asks after an operation, making progress.
    pub(super) fn poll(&self, class: Class, started: Started) -> Result<Option<Done>> {
        match started {
            Started::Nothing => Ok(Some(NOBODY)),
            Started::Over(done) => Ok(Some(done)),
            Started::Op(op) => self.transport(class).test(op),
        }
    }

    /// Waits for an operation. At the deadline, or when the communicator is destroyed, it is
    /// withdrawn, so that nothing touches its buffer after the return; one that cannot be
    /// withdrawn any more finishes first.
    pub(super) fn complete(&self, started: Started, deadline: Deadline) -> Result<Done> {
        let transport = self.transport(Class::User);
        let mut backoff = Backoff::new();
        loop {
            if let Some(done) = self.poll(Class::User, started)? {
                return Ok(done);
            }
            self.pause(Class::User, &mut backoff);
            if !backoff.is_long() {
                continue;
            }
            // What can neither be withdrawn nor has a limit works on the caller's own buffer.
            let closed = self.closed.load(Ordering::Relaxed);
            if deadline.passed() || closed && (transport.can_cancel() || deadline.is_finite()) {
                break;
            }
            super::progress::others(self);
        }
        let Started::Op(op) = started else { return Ok(NOBODY) };
        if !transport.can_cancel() {
            return Err(self.gave_up());
        }
        match withdraw(transport, op)? {
            Some(done) => Ok(done),
            None => Err(self.gave_up()),
        }
    }

    /// The error of a wait that ended without its operation.
    #[cold]
    pub(super) fn gave_up(&self) -> Error {
        if self.closed.load(Ordering::Relaxed) {
            return Error::new(DTL_ERROR_CANCELED, "the communicator was destroyed by another thread");
        }
        let millis = self.timeout_ns / 1_000_000;
        Error::new(
            DTL_ERROR_TIMEOUT,
            format!("nothing matched within {millis} ms (the communicator's time limit)"),
        )
    }

    /// Turns an unsuccessful completion into an error that names the peer.
    pub(super) fn check_done(&self, done: &Done, what: &str, peer: i32) -> Result<()> {
        if done.status == DTL_SUCCESS { Ok(()) } else { Err(self.bad_done(done, what, peer)) }
    }

    #[cold]
    fn bad_done(&self, done: &Done, what: &str, peer: i32) -> Error {
        let peer = if peer == DTL_ANY_SOURCE { "any rank".to_owned() } else { format!("rank {peer}") };
        let text = match done.status {
            DTL_ERROR_TRUNCATED => {
                format!(
                    "{what} {peer}: the message has {} bytes, more than the buffer: it was cut",
                    done.size
                )
            }
            DTL_ERROR_RANK_FAILURE => {
                format!(
                    "{what} {peer}: it cannot complete because of rank(s) {} (died or left)",
                    self.failed_text()
                )
            }
            status => {
                let meaning = crate::error::status_message(status).to_string_lossy();
                match self.transport(Class::User).failure_text() {
                    Some(said) => format!("{what} {peer}: {meaning}: {said}"),
                    None => format!("{what} {peer}: {meaning}"),
                }
            }
        };
        Error::new(done.status, text)
    }

    /// Whether an operation's buffer must be the library's own: a transport that cannot withdraw
    /// could touch the caller's after a timeout.
    fn needs_bounce(&self, deadline: Deadline) -> bool {
        deadline.is_finite() && !self.transport(Class::User).can_cancel()
    }
}

/// Checks a send's arguments.
pub fn check_send(comm: &Comm, dest: i32, tag: i32) -> Result<()> {
    comm.check_open()?;
    comm.check_peer("dest", dest, false)?;
    if (0..=DTL_TAG_MAX).contains(&tag) {
        return Ok(());
    }
    fail!(DTL_ERROR_INVALID_ARGUMENT, "tag {tag}: use 0 to {DTL_TAG_MAX}")
}

/// Checks a receive's arguments.
pub fn check_recv(comm: &Comm, source: i32, tag: i32) -> Result<()> {
    comm.check_open()?;
    comm.check_peer("source", source, true)?;
    if (0..=DTL_TAG_MAX).contains(&tag) || tag == DTL_ANY_TAG {
        return Ok(());
    }
    fail!(DTL_ERROR_INVALID_ARGUMENT, "tag {tag}: use 0 to {DTL_TAG_MAX}, or DTL_ANY_TAG")
}

/// Sends and returns when the buffer may be used again.
pub fn send(comm: &Comm, data: Region, dest: i32, tag: i32) -> Result<()> {
    check_send(comm, dest, tag)?;
    let deadline = comm.deadline();
    if comm.needs_bounce(deadline) {
        return send_copy(comm, data, dest, tag, deadline);
    }
    let started = comm.start_send(Class::User, data, dest, tag)?;
    let done = comm.complete(started, deadline)?;
    comm.check_done(&done, "send to", dest)
}

/// Receives; `Ok(done)` may say TRUNCATED or RANK_FAILURE.
pub fn recv(comm: &Comm, data: Region, source: i32, tag: i32) -> Result<Done> {
    check_recv(comm, source, tag)?;
    let deadline = comm.deadline();
    if comm.needs_bounce(deadline) {
        return recv_copy(comm, data, source, tag, deadline);
    }
    let started = comm.start_recv(Class::User, data, source, tag)?;
    comm.complete(started, deadline)
}

/// Sends from a buffer of the library's own, which is given up (kept for ever) if the time limit
/// passes: the transport may still read it.
fn send_copy(comm: &Comm, data: Region, dest: i32, tag: i32, deadline: Deadline) -> Result<()> {
    let copy = Scratch::copy_of(data).ok_or_else(no_bounce)?;
    let started = comm.start_send(Class::User, copy.region(), dest, tag)?;
    match comm.complete(started, deadline) {
        Ok(done) => comm.check_done(&done, "send to", dest),
        Err(error) => {
            std::mem::forget(copy);
            Err(error)
        }
    }
}

fn recv_copy(comm: &Comm, data: Region, source: i32, tag: i32, deadline: Deadline) -> Result<Done> {
    let copy = Scratch::new(data.len()).ok_or_else(no_bounce)?;
    let started = comm.start_recv(Class::User, copy.region(), source, tag)?;
    match comm.complete(started, deadline) {
        Ok(done) => {
            data.copy_from(copy.region().part(0, done.size as usize));
            Ok(done)
        }
        Err(error) => {
            std::mem::forget(copy);
            Err(error)
        }
    }
}

#[cold]
fn no_bounce() -> Error {
    Error::new(
        DTL_ERROR_OUT_OF_MEMORY,
        "no memory for a copy of the message (this transport cannot withdraw operations)",
    )
}

/// Sends and receives at the same time, so that a ring of exchanges cannot deadlock.
pub fn sendrecv(
    comm: &Comm,
    (sdata, dest, stag): (Region, i32, i32),
    (rdata, source, rtag): (Region, i32, i32),
) -> Result<Done> {
    check_send(comm, dest, stag)?;
    check_recv(comm, source, rtag)?;
    if sdata.overlaps(rdata) {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "the send and receive buffers overlap");
    }
    let deadline = comm.deadline();
    // Also without a time limit: when the send fails, the receive may still be in flight.
    if comm.transport(Class::User).can_cancel() {
        return exchange(comm, (sdata, dest, stag), (rdata, source, rtag), deadline);
    }
    let out = Scratch::copy_of(sdata).ok_or_else(no_bounce)?;
    let into = Scratch::new(rdata.len()).ok_or_else(no_bounce)?;
    match exchange(comm, (out.region(), dest, stag), (into.region(), source, rtag), deadline) {
        Ok(done) => {
            rdata.copy_from(into.region().part(0, done.size as usize));
            Ok(done)
        }
        Err(error) => {
            std::mem::forget((out, into));
            Err(error)
        }
    }
}

fn exchange(
    comm: &Comm,
    (sdata, dest, stag): (Region, i32, i32),
    (rdata, source, rtag): (Region, i32, i32),
    deadline: Deadline,
) -> Result<Done> {
    let receiving = comm.start_recv(Class::User, rdata, source, rtag)?;
    let sent =
        comm.start_send(Class::User, sdata, dest, stag).and_then(|sending| comm.complete(sending, deadline));
    match sent.and_then(|done| comm.check_done(&done, "send to", dest)) {
        Ok(()) => comm.complete(receiving, deadline),
        Err(error) => {
            let transport = comm.transport(Class::User);
            if let (Started::Op(op), true) = (receiving, transport.can_cancel()) {
                withdraw(transport, op)?;
            }
            Err(error)
        }
    }
}

/// The information of a finished receive, and its error if it has one.
pub fn received(comm: &Comm, done: &Done, source: i32) -> (dtl_recv_info_t, Result<()>) {
    (recv_info(done), comm.check_done(done, "receive from", source))
}
