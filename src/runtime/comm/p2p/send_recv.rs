//! Point to point: blocking send, receive and exchange over what a transport starts.

use super::cancel;
use super::p2p_staging::{self, BufferPath, Staged};
use super::posted::Posted;
use crate::abi::comm::communicator::*;
use crate::abi::status::*;
use crate::error::{Error, Result, fail};
use crate::runtime::comm::op_desc::{Kind, Tagged};
use crate::runtime::comm::shared_transport::Class;
use crate::runtime::comm::{Comm, progress};
use crate::runtime::component::{Completion, OpId, PipelinedSource, RecvMode, SendMode};
use crate::runtime::memory::device_only;
use crate::sys::memory::buf::{Region, Scratch};
use crate::sys::sync::backoff::Backoff;
use crate::sys::sync::clock::Deadline;
use crate::sys::sync::hints::usually;
use std::sync::Arc;

/// A started operation.
#[derive(Clone, Copy)]
pub(in crate::runtime::comm) enum OpHandle {
    /// With DTL_PROC_NULL: over before it began.
    Nothing,
    /// A send that was over at once.
    Sent,
    /// An operation that the transport has begun.
    Op(OpId),
    /// A receive from any rank that the transport has begun: a death ends it.
    FromAny(OpId),
    /// An operation of a persistent request that the transport has begun.
    Kept(OpId),
}

impl OpHandle {
    /// Returns a send that a transport has begun.
    #[inline(always)] // row: send_recv_8
    pub(super) fn send(begun: OpId) -> OpHandle {
        if begun == OpId::COMPLETED { OpHandle::Sent } else { OpHandle::Op(begun) }
    }

    /// Returns a receive that a transport has begun.
    #[inline(always)] // row: send_recv_8
    pub(super) fn recv(begun: OpId, source: i32) -> OpHandle {
        if source == DTL_ANY_SOURCE { OpHandle::FromAny(begun) } else { OpHandle::Op(begun) }
    }

    /// Returns the operation marked as one of a persistent request.
    pub(in crate::runtime::comm) fn kept(self) -> OpHandle {
        match self {
            OpHandle::Op(op) => OpHandle::Kept(op),
            OpHandle::Sent => OpHandle::Nothing,
            other => other,
        }
    }

    pub(in crate::runtime::comm) fn op(self) -> Option<OpId> {
        match self {
            OpHandle::Op(op) | OpHandle::FromAny(op) | OpHandle::Kept(op) => Some(op),
            OpHandle::Nothing | OpHandle::Sent => None,
        }
    }
}

impl Comm {
    /// Whether a message needs no check: its rank and tag are numbers in their ranges, the host
    /// reaches its memory, and the communicator is open.
    #[inline(always)] // row: send_recv_8
    pub(super) fn is_plain(&self, data: Region, peer: i32, tag: i32) -> bool {
        // Neither is negative, and no tag above DTL_TAG_MAX, which is all ones; ranks that are do
        // not exist.
        let is_known = (peer | tag) as u32 <= DTL_TAG_MAX as u32 && self.standing.admits(peer);
        usually(is_known) && !device_only::may_be(data)
    }

    #[inline(always)] // row: send_recv_8
    pub(in crate::runtime::comm) fn start_send(
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
        let (transport, dest, word) =
            (self.link.part(), self.to_world(dest), self.match_bits(class, tag));
        transport.start_send(data, dest, word, mode, false).map(OpHandle::send)
    }

    /// Starts a standard send of bytes that are still being written. `None`: the transport cannot.
    pub(in crate::runtime::comm) fn start_pipelined(
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
    pub(in crate::runtime::comm) fn start_recv(
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

    /// Sends a message: within the transport, if nothing else needs progress meanwhile.
    #[inline(always)] // row: send_recv_8
    fn send_message(&self, data: Region, dest: i32, tag: i32, mode: SendMode) -> Result<()> {
        let (transport, word) = (self.link.part(), self.match_bits(Class::User, tag));
        match transport.start_send(data, self.to_world(dest), word, mode, progress::may_block())? {
            OpId::COMPLETED => Ok(()),
            op => self.wait_for_send(op, dest),
        }
    }

    #[inline(never)]
    fn wait_for_send(&self, op: OpId, dest: i32) -> Result<()> {
        let done = self.complete(OpHandle::Op(op), dest, self.deadline())?;
        self.check_done(&done, "send to", dest)
    }

    /// Receives a message: within the transport, if nothing else needs progress meanwhile, or if it
    /// is there.
    #[inline(always)] // row: send_recv_8
    fn receive(&self, data: Region, source: i32, tag: i32, told: &mut Completion) -> Result<()> {
        let select = self.selector(Class::User, source, tag);
        let mode = if progress::may_block() { RecvMode::Block(told) } else { RecvMode::Poll(told) };
        match self.link.part().start_recv(data, select, mode)? {
            OpId::COMPLETED => {
                self.localize(told);
                Ok(())
            }
            op => self.wait_for_receive(op, source, told),
        }
    }

    #[inline(never)]
    fn wait_for_receive(&self, op: OpId, source: i32, told: &mut Completion) -> Result<()> {
        *told = self.complete(OpHandle::recv(op, source), source, self.deadline())?;
        Ok(())
    }

    /// Asks after an operation, making progress.
    #[inline(always)] // row: send_recv_8
    pub(in crate::runtime::comm) fn poll(&self, started: OpHandle) -> Result<Option<Completion>> {
        let (op, is_from_any) = match started {
            OpHandle::Op(op) | OpHandle::Kept(op) => (op, false),
            OpHandle::FromAny(op) => (op, true),
            OpHandle::Nothing => return Ok(Some(Completion::NOBODY)),
            OpHandle::Sent => return Ok(Some(self.sent())),
        };
        match self.link.transport.outcome(op)? {
            Some(done) => Ok(Some(self.localized(done))),
            // It may have been the dead rank's message that this receive waits for.
            None if is_from_any && self.has_died() => self.fail_from_any(op).map(Some),
            None => Ok(None),
        }
    }

    /// Fills the completion of a send that is over, if it is needed. None of its values matters.
    #[inline(always)] // row: send_recv_8
    pub(in crate::runtime::comm) fn tell_sent(&self, told: &mut Completion) {
        if !told.is_unasked() {
            *told = self.sent();
        }
    }

    pub(in crate::runtime::comm) fn sent(&self) -> Completion {
        Completion { source: self.rank, status: DTL_SUCCESS, match_bits: 0, size: 0 }
    }

    #[cold]
    fn fail_from_any(&self, op: OpId) -> Result<Completion> {
        let failed = Completion {
            source: DTL_ANY_SOURCE,
            status: DTL_ERROR_RANK_FAILURE,
            match_bits: 0,
            size: 0,
        };
        Ok(self.link.cancel(op)?.map_or(failed, |done| self.localized(done)))
    }

    /// Waits for an operation with a rank, or from any. At the deadline, when the communicator
    /// ends, or if the rank turns out to be absent, it is cancelled, so that nothing touches its
    /// buffer after the return; one that has been matched finishes first.
    pub(in crate::runtime::comm) fn complete(
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
        match self.cancel_started(started)? {
            Some(done) => Ok(done),
            None => Err(self.gave_up()),
        }
    }

    /// The error of a wait that ended without its operation.
    #[cold]
    pub(in crate::runtime::comm) fn gave_up(&self) -> Error {
        if !self.is_open() {
            return self.ended();
        }
        let millis = self.timeout_ns / 1_000_000;
        Error::new(
            DTL_ERROR_TIMEOUT,
            format!("nothing matched within {millis} ms (the communicator's time limit)"),
        )
    }

    /// Turns an unsuccessful completion into an error that names the peer.
    #[inline(always)] // row: send_recv_8
    pub(in crate::runtime::comm) fn check_done(
        &self,
        done: &Completion,
        what: &str,
        peer: i32,
    ) -> Result<()> {
        if done.status == DTL_SUCCESS { Ok(()) } else { Err(self.bad_done(done, what, peer)) }
    }

    #[cold]
    fn bad_done(&self, done: &Completion, what: &str, peer: i32) -> Error {
        let name =
            if peer == DTL_ANY_SOURCE { "any rank".to_owned() } else { format!("rank {peer}") };
        let text = match done.status {
            DTL_ERROR_TRUNCATED if done.size == 0 => {
                format!(
                    "{what} {name}: the message is longer than the buffer (how long, is not known)"
                )
            }
            DTL_ERROR_TRUNCATED => {
                format!(
                    "{what} {name}: the message has {} bytes, more than the buffer: it was cut",
                    done.size
                )
            }
            DTL_ERROR_CANCELED if what == "receive from" => {
                format!(
                    "{what} {name}: the request was cancelled, or the sender cancelled a message \
                     that was probed \
                     and not yet received (the sender's time limit passed, or its request was \
                     cancelled or \
                     destroyed)"
                )
            }
            DTL_ERROR_RANK_FAILURE => {
                format!("{what} {name}: it cannot complete {}", self.peer_gone_text(peer))
            }
            status => {
                let meaning = crate::error::status_message(status).to_string_lossy();
                match self.link.failure_text() {
                    Some(said) => format!("{what} {name}: {meaning}: {said}"),
                    None => format!("{what} {name}: {meaning}"),
                }
            }
        };
        Error::new(done.status, text)
    }
}

/// Checks a send's arguments.
#[inline(always)] // row: send_recv_8
pub fn check_send(comm: &Comm, dest: i32, tag: i32) -> Result<()> {
    comm.check_open()?;
    comm.check_peer("dest", dest, false)?;
    if (0..=DTL_TAG_MAX).contains(&tag) {
        return Ok(());
    }
    fail!(DTL_ERROR_INVALID_ARGUMENT, "tag {tag}: use 0 to {DTL_TAG_MAX}")
}

/// Checks a receive's arguments.
#[inline(always)] // row: send_recv_8
pub fn check_recv(comm: &Comm, source: i32, tag: i32) -> Result<()> {
    comm.check_open()?;
    comm.check_peer("source", source, true)?;
    if (0..=DTL_TAG_MAX).contains(&tag) || tag == DTL_ANY_TAG {
        return Ok(());
    }
    fail!(DTL_ERROR_INVALID_ARGUMENT, "tag {tag}: use 0 to {DTL_TAG_MAX}, or DTL_ANY_TAG")
}

/// A message's buffer, and the caller's count and type of its elements.
#[derive(Clone, Copy)]
pub struct Data {
    /// The bytes.
    pub bytes: Region,
    /// Elements.
    pub count: u64,
    /// Their type.
    pub dtype: i32,
}

impl Data {
    /// The recorder's words of an operation on it.
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

/// Sends a message in either mode and returns when the buffer may be used again.
#[inline(always)] // row: send_recv_8
pub fn send(comm: &Comm, data: Data, dest: i32, tag: i32, mode: SendMode) -> Result<()> {
    if !comm.is_plain(data.bytes, dest, tag) {
        return send_checked(comm, data, dest, tag, mode);
    }
    let ticket = comm.recorder.begin(data.words(send_kind(mode), dest, tag));
    let sent = comm.send_message(data.bytes, dest, tag, mode);
    comm.recorder.end(ticket);
    sent
}

/// Sends a message that may go to DTL_PROC_NULL, whose memory may be out of the host's reach, and
/// whose arguments may be wrong.
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
            let done = staged.complete(comm, dest, comm.deadline())?;
            comm.check_done(&done, "send to", dest)
        }
    })
}

/// Receives a message; its status may be TRUNCATED or RANK_FAILURE.
#[inline(always)] // row: send_recv_8
pub fn recv(comm: &Comm, data: Data, source: i32, tag: i32, told: &mut Completion) -> Result<()> {
    if !comm.is_plain(data.bytes, source, tag) {
        return recv_checked(comm, data, source, tag, told);
    }
    // Not by `during`: its closure would be a function of its own.
    let ticket = comm.recorder.begin(data.words(Kind::Recv, source, tag));
    let received = comm.receive(data.bytes, source, tag, told);
    comm.recorder.end(ticket);
    received
}

/// Receives a message that may come from any rank or DTL_PROC_NULL, with any tag, whose memory may
/// be out of the host's reach, and whose arguments may be wrong.
#[cold]
#[inline(never)]
fn recv_checked(
    comm: &Comm,
    data: Data,
    source: i32,
    tag: i32,
    told: &mut Completion,
) -> Result<()> {
    check_recv(comm, source, tag)?;
    let path = BufferPath::of_recv(comm, data.bytes)?;
    comm.recorder.during(data.words(Kind::Recv, source, tag), || {
        match path {
            BufferPath::Host if source == DTL_PROC_NULL => *told = Completion::NOBODY,
            BufferPath::Host => return comm.receive(data.bytes, source, tag, told),
            path => {
                let mut staged = Staged::recv(comm, path, data.bytes, source, tag)?;
                *told = staged.complete(comm, source, comm.deadline())?;
            }
        }
        Ok(())
    })
}

/// A message's buffer, peer and tag.
pub type Side = (Data, i32, i32);

/// Sends and receives at the same time, so that a ring of exchanges cannot deadlock.
pub fn sendrecv(comm: &Comm, out: Side, into: Side) -> Result<Completion> {
    check_send(comm, out.1, out.2)?;
    check_recv(comm, into.1, into.2)?;
    if out.0.bytes.overlaps(into.0.bytes) {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "the send and receive buffers overlap");
    }
    exchange(comm, out, into)
}

/// Sends and receives with one buffer: the received message replaces the sent one.
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
            .and_then(|done| comm.check_done(&done, "send to", dest));
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

/// Sends and receives with buffers that the host may not reach: the send's parts and the receive's
/// are copied in turn.
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
            .and_then(|done| comm.check_done(&done, "send to", dest));
        match sent {
            Ok(()) => receiving.complete(comm, source, deadline),
            Err(error) => receiving.cancel_and_wait(comm).and(Err(error)),
        }
    })
}

/// The error of a finished receive, if it has one.
#[inline(always)] // row: send_recv_8
pub fn received(comm: &Comm, done: &Completion, source: i32) -> Result<()> {
    comm.check_done(done, "receive from", source)
}
