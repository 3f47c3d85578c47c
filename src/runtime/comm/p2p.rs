//! Point to point: blocking send, receive and exchange over a transport's isend, irecv, test.

use super::{Class, Comm, withdraw};
use crate::abi::comm::*;
use crate::abi::status::*;
use crate::error::{Error, Result, fail};
use crate::runtime::backend::{Done, OpId, SendMode, recv_info};
use crate::sys::buf::Region;
use crate::sys::clock::Deadline;
use crate::sys::park::Backoff;
use std::sync::atomic::Ordering;

/// What a receive from (or send to) DTL_PROC_NULL tells.
pub(super) const NOBODY: Done = Done { source: DTL_PROC_NULL, status: DTL_SUCCESS, word: 0, size: 0 };

/// A started operation.
#[derive(Clone, Copy)]
pub(super) enum Started {
    /// With DTL_PROC_NULL: over before it began.
    Nothing,
    /// In the transport's hands.
    Op(OpId),
}

impl Comm {
    pub(super) fn start_send(&self, class: Class, data: Region, dest: i32, tag: i32) -> Result<Started> {
        if dest == DTL_PROC_NULL {
            return Ok(Started::Nothing);
        }
        self.transport.isend(data, dest, Self::word(class, tag), SendMode::Standard).map(Started::Op)
    }

    pub(super) fn start_recv(&self, class: Class, data: Region, source: i32, tag: i32) -> Result<Started> {
        if source == DTL_PROC_NULL {
            return Ok(Started::Nothing);
        }
        self.transport.irecv(data, Self::selector(class, source, tag)).map(Started::Op)
    }

    /// Asks after an operation, making progress.
    pub(super) fn poll(&self, started: Started) -> Result<Option<Done>> {
        match started {
            Started::Nothing => Ok(Some(NOBODY)),
            Started::Op(op) => self.transport.test(op),
        }
    }

    /// Waits for an operation. At the deadline, or when the communicator is destroyed, it is
    /// withdrawn, so that nothing touches its buffer after the return; one that cannot be
    /// withdrawn any more finishes first.
    pub(super) fn complete(&self, started: Started, deadline: Deadline) -> Result<Done> {
        let mut backoff = Backoff::new();
        loop {
            if let Some(done) = self.poll(started)? {
                return Ok(done);
            }
            backoff.pause();
            if !backoff.is_long() {
                continue;
            }
            if deadline.passed() || self.closed.load(Ordering::Relaxed) {
                break;
            }
            super::progress::others(self);
        }
        let Started::Op(op) = started else { return Ok(NOBODY) };
        match withdraw(self.transport.as_ref(), op)? {
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
                match self.transport.failure_text() {
                    Some(said) => format!("{what} {peer}: {meaning}: {said}"),
                    None => format!("{what} {peer}: {meaning}"),
                }
            }
        };
        Error::new(done.status, text)
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
    let started = comm.start_send(Class::User, data, dest, tag)?;
    let done = comm.complete(started, deadline)?;
    comm.check_done(&done, "send to", dest)
}

/// Receives; `Ok(done)` may say TRUNCATED or RANK_FAILURE.
pub fn recv(comm: &Comm, data: Region, source: i32, tag: i32) -> Result<Done> {
    check_recv(comm, source, tag)?;
    let deadline = comm.deadline();
    let started = comm.start_recv(Class::User, data, source, tag)?;
    comm.complete(started, deadline)
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
    let receiving = comm.start_recv(Class::User, rdata, source, rtag)?;
    let sent =
        comm.start_send(Class::User, sdata, dest, stag).and_then(|sending| comm.complete(sending, deadline));
    match sent.and_then(|done| comm.check_done(&done, "send to", dest)) {
        Ok(()) => comm.complete(receiving, deadline),
        Err(error) => {
            if let Started::Op(op) = receiving {
                withdraw(comm.transport.as_ref(), op)?;
            }
            Err(error)
        }
    }
}

/// The information of a finished receive, and its error if it has one.
pub fn received(comm: &Comm, done: &Done, source: i32) -> (dtl_recv_info_t, Result<()>) {
    (recv_info(done), comm.check_done(done, "receive from", source))
}
