//! Matched messages: messages that a matched probe has dequeued, so that exactly one later receive
//! obtains each of them.

use super::op_handle::OpHandle;
use super::p2p_staging::{BufferPath, Staged};
use super::probe;
use super::send_recv::{self, Data};
use crate::abi::comm::communicator::DTL_PROC_NULL;
use crate::abi::handle::dtl_message_t;
use crate::error::{Result, failure};
use crate::runtime::comm::Comm;
use crate::runtime::comm::op_desc::Kind;
use crate::runtime::comm::shared_transport::Class;
use crate::runtime::component::{Completion, OpId};
use crate::runtime::invalid_handle;
use crate::runtime::memory::device_only;
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::handles::handle_table::HandleTable;
use crate::sys::memory::buf::Region;
use crate::sys::sync::wait::{self, Deadline};
use std::sync::Arc;

/// Value of the type byte in message handles.
pub const TAG: u8 = 8;

static TABLE: HandleTable<MatchedMessage> = HandleTable::new();

/// Matched message.
pub struct MatchedMessage {
    pub(super) comm: Arc<Comm>,
    /// Operation ID that identifies the message to the transport; `None` for a message from
    /// DTL_PROC_NULL.
    taken: Option<OpId>,
    pub(super) source: i32,
    tag: i32,
}

/// Handle of a matched message, and the completion that its receive will return.
pub type Found = (dtl_message_t, Completion);

/// Nonblocking matched probe: dequeues the first message that a receive would match, if any.
pub fn improbe(comm: &Arc<Comm>, source: i32, tag: i32) -> Result<Option<Found>> {
    send_recv::check_recv(comm, source, tag)?;
    if source == DTL_PROC_NULL {
        let message = MatchedMessage { comm: Arc::clone(comm), taken: None, source, tag };
        return Ok(Some((insert(message)?, Completion::NOBODY)));
    }
    let look = || comm.link.transport.take(comm.selector(Class::User, source, tag));
    let Some(matched) = probe::find(comm, source, look)? else { return Ok(None) };
    let done = comm.localized(matched.done);
    let message = MatchedMessage {
        comm: Arc::clone(comm),
        taken: Some(matched.message),
        source: done.source,
        tag,
    };
    Ok(Some((insert(message)?, done)))
}

/// Blocking matched probe: waits for a message that a receive would match, and dequeues it.
pub fn mprobe(comm: &Arc<Comm>, source: i32, tag: i32) -> Result<Found> {
    probe::until(comm, source, || improbe(comm, source, tag))
}

fn insert(message: MatchedMessage) -> Result<dtl_message_t> {
    let id = TABLE.insert(TAG, Arc::new(message)).ok_or_else(|| {
        failure!(DTL_ERROR_LIMIT, "too many probed messages that were not received: receive some")
    })?;
    Ok(dtl_message_t { id })
}

/// Returns true if `id` is the handle of a matched message.
pub fn is_live(id: u64) -> bool {
    TABLE.is_live(id)
}

/// Removes a matched message from the handle table for a receive into the buffer `data`. Only one
/// receive obtains the message. Fails without removing the message if the buffer is invalid.
pub fn claim(inside: &Guard, handle: dtl_message_t, data: &Data) -> Result<Arc<MatchedMessage>> {
    device_only::check(data.bytes)?;
    TABLE.remove(inside, handle.id).ok_or_else(|| invalid_handle("message", TAG, handle.id))
}

/// Receives a matched message. Returns the completion, whose status may be TRUNCATED, and the
/// communicator.
pub fn mrecv(message: &MatchedMessage, data: Data) -> Result<(Completion, Arc<Comm>)> {
    let comm = &message.comm;
    let done = comm.recorder.during(data.words(Kind::Recv, message.source, message.tag), || {
        if device_only::is_any() {
            start_staged(message, data)?.complete(comm, message.source, comm.deadline())
        } else {
            comm.complete(start(message, data.bytes)?, message.source, comm.deadline())
        }
    })?;
    Ok((done, Arc::clone(comm)))
}

/// Starts the receive of a matched message into `into`.
pub(crate) fn start(message: &MatchedMessage, into: Region) -> Result<OpHandle> {
    if let Err(error) = message.comm.check_open() {
        message.discard(Deadline::after(LONGEST_END_NS));
        return Err(error);
    }
    match message.taken {
        Some(taken) => message.comm.link.transport.receive_matched(taken, into).map(OpHandle::Op),
        None => Ok(OpHandle::Nothing),
    }
}

/// Starts the receive of a matched message into memory that the host may not be able to access.
#[cold]
pub(crate) fn start_staged(message: &MatchedMessage, data: Data) -> Result<Staged> {
    let path = BufferPath::of_matched(&message.comm, data.bytes)?;
    Staged::recv_with(path, data.bytes, |into, _| start(message, into))
}

/// Discards a communicator's matched messages that have not been received.
pub(crate) fn drop_all(comm: &Arc<Comm>) {
    let limit = Deadline::after(LONGEST_END_NS);
    for id in TABLE.handles() {
        let inside = epoch::enter();
        if TABLE.get(&inside, id).is_some_and(|message| Arc::ptr_eq(&message.comm, comm)) {
            let message = TABLE.remove(&inside, id);
            drop(inside);
            message.into_iter().for_each(|message| message.discard(limit));
        }
    }
}

/// Maximum total time, in nanoseconds, of a wait for the receives that discard matched messages.
/// The transport completes the remaining receives later.
const LONGEST_END_NS: u64 = 100_000_000;

impl MatchedMessage {
    /// Discards the message by receiving it into an empty buffer, so that the send, which may have
    /// been issued by this rank, completes.
    fn discard(&self, limit: Deadline) {
        let Some(taken) = self.taken else { return };
        let transport = &self.comm.link.transport;
        // If the transport fails to start the receive, the message is not waited for.
        let Ok(op) = transport.receive_matched(taken, Region::EMPTY) else { return };
        let _ = wait::poll(limit, || transport.outcome(op));
    }
}

/// Discards all matched messages at finalize. Must be called before the requests are destroyed,
/// because sends of this process may wait until these messages are received.
pub fn destroy_all() {
    let limit = Deadline::after(LONGEST_END_NS);
    for id in TABLE.handles() {
        let message = TABLE.remove(&epoch::enter(), id);
        message.into_iter().for_each(|message| message.discard(limit));
    }
}

/// Invalidates all message handles in a forked child.
pub fn forget_all() {
    TABLE.drain(&epoch::enter()).for_each(std::mem::forget);
}
