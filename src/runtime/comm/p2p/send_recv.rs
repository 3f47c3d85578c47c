//! Blocking point-to-point messages: send, receive and exchange, implemented with the operations of
//! the transport.

use super::cancel;
use super::op_handle::OpHandle;
use super::p2p_staging::{self, BufferPath, Staged};
use crate::abi::comm::communicator::*;
use crate::abi::status::*;
use crate::error::{Error, Result, fail, failure};
use crate::hints::usually;
use crate::runtime::comm::failure::absence;
use crate::runtime::comm::op_desc::{Kind, Tagged, rank_name};
use crate::runtime::comm::posted::Posted;
use crate::runtime::comm::shared_transport::Class;
use crate::runtime::comm::{Comm, progress};
use crate::runtime::component::{
    Completion, Dest, OpId, PipelinedSource, RecvMode, RecvReduction, SendMode,
};
use crate::runtime::memory::device_only;
use crate::sys::memory::buf::{Region, Scratch};
use crate::sys::sync::wait::{Backoff, Deadline};
use std::sync::Arc;
use std::task::Poll;

impl Comm {
    /// Returns true if a message needs no further argument checks and no staging: its peer and tag
    /// are in range, the host can access its buffer, and the communicator is open.
    #[inline(always)] // row: send_recv_8
    pub(super) fn is_plain(&self, data: Region, peer: i32, tag: i32) -> bool {
        // The comparison proves that neither number is negative or above DTL_TAG_MAX, whose bits
        // are all ones. Ranks above DTL_TAG_MAX do not exist.
        let is_known = (peer | tag) as u32 <= DTL_TAG_MAX as u32 && self.standing.admits(peer);
        usually(is_known) && !device_only::may_be(data)
    }

    #[inline(always)] // row: send_recv_8
    pub(crate) fn start_send(
        &self,
        class: Class,
        data: Region,
        dest: i32,
        tag: i32,
        mode: SendMode,
    ) -> Result<OpHandle> {
        if dest == DTL_PROC_NULL {
            return Ok(OpHandle::Nothing);
        }
        let to = Dest { rank: self.to_world(dest), word: self.match_bits(class, tag) };
        self.link.part().start_send(data, to, mode, false).map(OpHandle::send)
    }

    /// Starts a standard-mode send of a buffer whose bytes are still being written. Returns `None`
    /// if the transport does not support such sends.
    pub(crate) fn start_pipelined(
        &self,
        data: Region,
        dest: i32,
        tag: i32,
        by: &Arc<PipelinedSource>,
    ) -> Option<Result<OpHandle>> {
        let word = self.match_bits(Class::User, tag);
        let pipeline = self.link.transport.groups().pipeline?;
        let begun = pipeline.isend_pipelined(data, self.to_world(dest), word, by)?;
        Some(begun.map(OpHandle::Op))
    }

    #[inline(always)] // row: send_recv_8
    pub(crate) fn start_recv(
        &self,
        class: Class,
        data: Region,
        source: i32,
        tag: i32,
    ) -> Result<OpHandle> {
        if source == DTL_PROC_NULL {
            return Ok(OpHandle::Nothing);
        }
        let select = self.selector(class, source, tag);
        let op = self.link.part().start_recv(data, select, RecvMode::Request)?;
        Ok(OpHandle::recv(op, source))
    }

    /// Starts a receive into `data` that reduces the message by `by` as it arrives. Returns `None`
    /// if the transport does not support such receives.
    pub(crate) fn start_recv_reduce(
        &self,
        data: Region,
        source: i32,
        tag: i32,
        by: RecvReduction,
    ) -> Option<Result<OpHandle>> {
        let select = self.selector(Class::Collective, source, tag);
        let op = self.link.transport.groups().reducing?.irecv_reduce(data, select, by);
        Some(op.map(OpHandle::Op))
    }

    /// Sends a message. Blocks inside the transport if no other transport or request of this
    /// process needs progress during the send.
    #[inline(always)] // row: send_recv_8
    fn send_message(&self, data: Region, dest: i32, tag: i32, mode: SendMode) -> Result<()> {
        let to = Dest { rank: self.to_world(dest), word: self.match_bits(Class::User, tag) };
        match self.link.part().start_send(data, to, mode, progress::may_block())? {
            OpId::COMPLETED => Ok(()),
            op => self.wait_for_send(op, dest),
        }
    }

    #[inline(never)]
    fn wait_for_send(&self, op: OpId, dest: i32) -> Result<()> {
        let mut done = self.complete(OpHandle::Op(op), dest, self.deadline())?;
        self.check_done(&mut done, "send to", dest)
    }

    /// Receives a message and fills in its completion. Blocks inside the transport if no other
    /// transport or request of this process needs progress during the receive. Otherwise polls,
    /// unless the message has already arrived.
    #[inline(always)] // row: send_recv_8
    fn receive(
        &self,
        data: Region,
        source: i32,
        tag: i32,
        completion: &mut Completion,
    ) -> Result<()> {
        let select = self.selector(Class::User, source, tag);
        let mode = if progress::may_block() {
            RecvMode::Block(completion)
        } else {
            RecvMode::Poll(completion)
        };
        match self.link.part().start_recv(data, select, mode)? {
            OpId::COMPLETED => {
                self.localize(completion);
                Ok(())
            }
            op => self.wait_for_receive(op, source, completion),
        }
    }

    #[inline(never)]
    fn wait_for_receive(&self, op: OpId, source: i32, completion: &mut Completion) -> Result<()> {
        *completion = self.complete(OpHandle::recv(op, source), source, self.deadline())?;
        Ok(())
    }

    /// Makes progress and polls an operation. Returns `None` if the operation is in flight.
    #[inline(always)] // row: send_recv_8
    pub(crate) fn poll(&self, started: OpHandle) -> Result<Option<Completion>> {
        let (op, is_from_any) = match started {
            OpHandle::Op(op) | OpHandle::Kept(op) => (op, false),
            OpHandle::FromAny(op) => (op, true),
            OpHandle::Nothing => return Ok(Some(Completion::NOBODY)),
            OpHandle::Sent => return Ok(Some(self.sent())),
        };
        match self.link.transport.outcome(op)? {
            Some(done) => Ok(Some(self.localized(done))),
            // This receive may wait for a message of the rank that died.
            None if is_from_any && self.has_died() => self.fail_from_any(op).map(Some),
            None => Ok(None),
        }
    }

    /// Polls an operation with rank `peer`. If `peer` has left the communicator, completes the
    /// operation as if `peer` had died.
    pub(crate) fn poll_peer(&self, started: OpHandle, peer: i32) -> Result<Option<Completion>> {
        match self.poll(started)? {
            None => self.end_if_absent(started, peer),
            done => Ok(done),
        }
    }

    /// If rank `peer` has left the communicator, cancels the operation and completes it as if
    /// `peer` had died.
    pub(crate) fn end_if_absent(&self, started: OpHandle, peer: i32) -> Result<Option<Completion>> {
        if !self.is_absent(peer) {
            return Ok(None);
        }
        self.catch_up(peer);
        // Pending: the message has been matched and will complete.
        Ok(match self.try_cancel_started(started)? {
            Poll::Ready(None) if !self.is_open() => return Err(self.ended()),
            Poll::Ready(done) => done.or(Some(absence::failed(peer))),
            Poll::Pending => None,
        })
    }

    /// Fills in the completion of a completed send if the caller has requested the completion. For
    /// a send, the fields other than the status are not significant.
    #[inline(always)] // row: send_recv_8
    pub(crate) fn fill_sent(&self, completion: &mut Completion) {
        if !completion.is_unasked() {
            *completion = self.sent();
        }
    }

    pub(crate) fn sent(&self) -> Completion {
        Completion { source: self.rank, status: DTL_SUCCESS, match_bits: 0, size: 0 }
    }

    #[cold]
    fn fail_from_any(&self, op: OpId) -> Result<Completion> {
        let failed = absence::failed(DTL_ANY_SOURCE);
        Ok(self.link.cancel(op)?.map_or(failed, |done| self.localized(done)))
    }

    /// Waits for an operation with rank `peer` or with any rank. Cancels the operation when the
    /// deadline passes, when the communicator is closed or revoked, or when `peer` has left the
    /// communicator, so that no buffer is accessed after the return. If the operation has been
    /// matched, waits until it completes.
    pub(crate) fn complete(
        &self,
        started: OpHandle,
        peer: i32,
        deadline: Deadline,
    ) -> Result<Completion> {
        let mut backoff = Backoff::new();
        loop {
            match self.poll(started) {
                Ok(None) => self.pause(&mut backoff),
                Ok(Some(done)) => return Ok(done),
                Err(error) => {
                    let back = self.cancel_started(started);
                    return Err(if back.is_ok() { error } else { cancel::kept(&error) });
                }
            }
            if !backoff.is_long() {
                continue;
            }
            if deadline.passed() || !self.is_open() {
                break;
            }
            progress::others(self);
            if let Some(failed) = self.end_if_absent(started, peer)? {
                return Ok(failed);
            }
        }
        self.cancel_started(started)?.ok_or_else(|| self.gave_up(peer))
    }

    /// Returns the error for a wait for `peer` that ended before its operation completed.
    #[cold]
    pub(crate) fn gave_up(&self, peer: i32) -> Error {
        if !self.is_open() {
            return self.ended();
        }
        let millis = self.timeout_ns / 1_000_000;
        failure!(
            DTL_ERROR_TIMEOUT,
            "no match with {} within {millis} ms (the communicator's time limit)",
            rank_name(peer)
        )
    }

    /// Returns an error that names the operation `what` and the peer if `done` is the completion of
    /// a failed operation. Sets the status of `done` to that of the error.
    #[inline(always)] // row: send_recv_8
    pub(crate) fn check_done(&self, done: &mut Completion, what: &str, peer: i32) -> Result<()> {
        if done.status == DTL_SUCCESS { Ok(()) } else { Err(self.bad_done(done, what, peer)) }
    }

    #[cold]
    fn bad_done(&self, done: &mut Completion, what: &str, peer: i32) -> Error {
        let text = match done.status {
            DTL_ERROR_TRUNCATED if done.size == 0 => {
                "the message is longer than the buffer (how long, is not known)".to_owned()
            }
            DTL_ERROR_TRUNCATED => {
                format!("the message has {} bytes, more than the buffer: it was cut", done.size)
            }
            DTL_ERROR_CANCELED if what == "receive from" => "the request was cancelled, or the \
                sender cancelled a message that was probed and not yet received (the sender's time \
                limit passed, or its request was cancelled or destroyed)"
                .to_owned(),
            DTL_ERROR_RANK_FAILURE => format!("it cannot complete {}", self.peer_gone_text(peer)),
            status => {
                let meaning = crate::error::status_message(status).to_string_lossy();
                format!("{meaning}{}", self.failed_why())
            }
        };
        let error = Error::new(done.status, text).within(&format!("{what} {}", rank_name(peer)));
        let error = self.revoked_or(error);
        done.status = error.status();
        error
    }
}

/// Checks the arguments of a send.
#[inline(always)] // row: send_recv_8
pub fn check_send(comm: &Comm, dest: i32, tag: i32) -> Result<()> {
    comm.check_open()?;
    comm.check_peer("dest", dest, false)?;
    if (0..=DTL_TAG_MAX).contains(&tag) {
        return Ok(());
    }
    fail!(DTL_ERROR_INVALID_ARGUMENT, "tag {tag}: use 0 to {DTL_TAG_MAX}")
}

/// Checks the arguments of a receive.
#[inline(always)] // row: send_recv_8
pub fn check_recv(comm: &Comm, source: i32, tag: i32) -> Result<()> {
    comm.check_open()?;
    comm.check_peer("source", source, true)?;
    if (0..=DTL_TAG_MAX).contains(&tag) || tag == DTL_ANY_TAG {
        return Ok(());
    }
    fail!(DTL_ERROR_INVALID_ARGUMENT, "tag {tag}: use 0 to {DTL_TAG_MAX}, or DTL_ANY_TAG")
}

/// Message buffer, with the element count and the datatype that the caller specified.
#[derive(Clone, Copy)]
pub struct Data {
    /// Bytes of the buffer.
    pub bytes: Region,
    /// Number of elements.
    pub count: u64,
    /// Datatype of the elements.
    pub dtype: i32,
}

impl Data {
    /// Returns the encoded entry of the flight recorder for an operation on this buffer.
    #[inline(always)] // row: send_recv_8
    pub(super) fn words(&self, kind: Kind, peer: i32, tag: i32) -> [u64; 3] {
        Tagged::new(kind, tag).words(peer, self.count, self.dtype)
    }
}

#[inline(always)] // row: send_recv_8
fn send_kind(mode: SendMode) -> Kind {
    match mode {
        SendMode::Standard | SendMode::Notice => Kind::Send,
        SendMode::Synchronous => Kind::Ssend,
    }
}

/// Sends a message in the given mode. Returns when the buffer may be reused.
#[inline(always)] // row: send_recv_8
pub fn send(comm: &Comm, data: Data, dest: i32, tag: i32, mode: SendMode) -> Result<()> {
    if !comm.is_plain(data.bytes, dest, tag) {
        return send_checked(comm, data, dest, tag, mode);
    }
    let ticket = comm.recorder.begin(data.words(send_kind(mode), dest, tag));
    let sent = comm.send_message(data.bytes, dest, tag, mode);
    comm.recorder.end(ticket);
    sent.map_err(|error| comm.recorder.name(ticket, error))
}

/// Slow path of `send`: `dest` may be DTL_PROC_NULL, the host may be unable to access the buffer,
/// and the arguments may be invalid.
#[cold]
#[inline(never)]
fn send_checked(comm: &Comm, data: Data, dest: i32, tag: i32, mode: SendMode) -> Result<()> {
    check_send(comm, dest, tag)?;
    let path = BufferPath::of_send(comm, data.bytes, dest, mode)?;
    comm.recorder.during(data.words(send_kind(mode), dest, tag), || match path {
        BufferPath::Host if dest == DTL_PROC_NULL => Ok(()),
        BufferPath::Host => comm.send_message(data.bytes, dest, tag, mode),
        path => {
            let mut staged = Staged::send(comm, path, data.bytes, (dest, tag, mode))?;
            let mut done = staged.complete(comm, dest, comm.deadline())?;
            comm.check_done(&mut done, "send to", dest)
        }
    })
}

/// Receives a message and fills in its completion, whose status may be TRUNCATED or RANK_FAILURE.
#[inline(always)] // row: send_recv_8
pub fn recv(
    comm: &Comm,
    data: Data,
    source: i32,
    tag: i32,
    completion: &mut Completion,
) -> Result<()> {
    if !comm.is_plain(data.bytes, source, tag) {
        return recv_checked(comm, data, source, tag, completion);
    }
    // Not written with `during`, because its closure would not be inlined.
    let ticket = comm.recorder.begin(data.words(Kind::Recv, source, tag));
    let received = comm.receive(data.bytes, source, tag, completion);
    comm.recorder.end(ticket);
    received.map_err(|error| comm.recorder.name(ticket, error))
}

/// Slow path of `recv`: `source` may be DTL_PROC_NULL, source and tag may be wildcards, the host
/// may be unable to access the buffer, and the arguments may be invalid.
#[cold]
#[inline(never)]
fn recv_checked(
    comm: &Comm,
    data: Data,
    source: i32,
    tag: i32,
    completion: &mut Completion,
) -> Result<()> {
    check_recv(comm, source, tag)?;
    let path = BufferPath::of_recv(comm, data.bytes)?;
    comm.recorder.during(data.words(Kind::Recv, source, tag), || {
        match path {
            BufferPath::Host if source == DTL_PROC_NULL => *completion = Completion::NOBODY,
            BufferPath::Host => return comm.receive(data.bytes, source, tag, completion),
            path => {
                let mut staged = Staged::recv(comm, path, data.bytes, source, tag)?;
                *completion = staged.complete(comm, source, comm.deadline())?;
            }
        }
        Ok(())
    })
}

/// Buffer, peer and tag of a message.
pub type Side = (Data, i32, i32);

/// Sends and receives concurrently, so that a ring of exchanges cannot deadlock.
pub fn sendrecv(comm: &Comm, out: Side, into: Side) -> Result<Completion> {
    check_send(comm, out.1, out.2)?;
    check_recv(comm, into.1, into.2)?;
    if out.0.bytes.overlaps(into.0.bytes) {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "the send and receive buffers overlap");
    }
    exchange(comm, out, into)
}

/// Sends and receives with one buffer: the received message replaces the sent message.
pub fn sendrecv_replace(
    comm: &Comm,
    data: Data,
    to: (i32, i32),
    from: (i32, i32),
) -> Result<Completion> {
    check_send(comm, to.0, to.1)?;
    check_recv(comm, from.0, from.1)?;
    let is_hidden = device_only::may_be(data.bytes) && p2p_staging::is_hidden(comm, data.bytes)?;
    let copy = if is_hidden {
        Some(p2p_staging::copy_out(data.bytes)?)
    } else {
        Scratch::copy_of(data.bytes)
    };
    let copy = Posted::lent(&comm.link, copy, "a copy of the message")?;
    let sent = Data { bytes: copy.region(), ..data };
    exchange(comm, (sent, to.0, to.1), (data, from.0, from.1))
}

fn exchange(
    comm: &Comm,
    (out, dest, stag): Side,
    (into, source, rtag): Side,
) -> Result<Completion> {
    if device_only::may_be(out.bytes) || device_only::may_be(into.bytes) {
        return exchange_staged(comm, (out, dest, stag), (into, source, rtag));
    }
    let deadline = comm.deadline();
    comm.recorder.during(out.words(Kind::Sendrecv, dest, stag), || {
        let receiving = comm.start_recv(Class::User, into.bytes, source, rtag)?;
        let sent = comm
            .start_send(Class::User, out.bytes, dest, stag, SendMode::Standard)
            .and_then(|sending| comm.complete(sending, dest, deadline))
            .and_then(|mut done| comm.check_done(&mut done, "send to", dest));
        match sent {
            Ok(()) => comm.complete(receiving, source, deadline),
            Err(error) => {
                if let Some(op) = receiving.op() {
                    comm.link.cancel(op)?;
                }
                Err(error)
            }
        }
    })
}

/// Sends and receives with buffers that the host may not be able to access. Completes the send
/// before it copies any received data to the receive buffer.
#[cold]
fn exchange_staged(
    comm: &Comm,
    (out, dest, stag): Side,
    (into, source, rtag): Side,
) -> Result<Completion> {
    let deadline = comm.deadline();
    comm.recorder.during(out.words(Kind::Sendrecv, dest, stag), || {
        let path = BufferPath::of_recv(comm, into.bytes)?;
        let mut receiving = Staged::recv(comm, path, into.bytes, source, rtag)?;
        let mode = SendMode::Standard;
        let sent = BufferPath::of_send(comm, out.bytes, dest, mode)
            .and_then(|path| Staged::send(comm, path, out.bytes, (dest, stag, mode)))
            .and_then(|mut sending| sending.complete(comm, dest, deadline))
            .and_then(|mut done| comm.check_done(&mut done, "send to", dest));
        match sent {
            Ok(()) => receiving.complete(comm, source, deadline),
            Err(error) => receiving.cancel_and_wait(comm).and(Err(error)),
        }
    })
}
