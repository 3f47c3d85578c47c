//! Messages in device memory that the host cannot access, staged through host memory.
//!
//! A message of more than `PART` bytes is pipelined if the transport can send a buffer that is
//! still being written (`Pipeline::isend_pipelined`) and reports the number of bytes that have
//! arrived. A pipelined message is divided into chunks, and the next chunk is copied while the
//! previous chunk is in flight. The chunks form one message, so the peer need not divide it into
//! the same chunks, and the peer's buffer may be in any memory. A message that is not pipelined is
//! copied as a whole before the send and after the receive.
//!
//! Some transports transfer large messages in device memory without staging (`gpu_direct`). Then no
//! bytes are copied, unless the sender or the receiver does not support this.
//!
//! Not here: classification of memory (`memory::device_only`), requests (`request`), collectives
//! (`coll::coll_staging`).

use super::op_handle::OpHandle;
use super::staging_memory::{StagingMemory, host_memory};
use super::{cancel, gpu_direct};
use crate::abi::comm::communicator::DTL_PROC_NULL;
use crate::abi::status::*;
use crate::abi::word::DTL_MEMORY_SHARED;
use crate::error::{Error, Result, fail};
use crate::runtime::comm::failure::absence;
use crate::runtime::comm::flight_recorder::Ticket;
use crate::runtime::comm::shared_transport::Class;
use crate::runtime::comm::{Comm, progress};
use crate::runtime::component::{
    Completion, DataLocation, DeviceBuffer, HostShadow, PipelinedSource, SendMode,
};
use crate::runtime::enums::describe;
use crate::runtime::memory::{Allocation, device_only, host_alloc, kind_info, transfer};
use crate::runtime::{explain, registry};
use crate::sys::handles::epoch;
use crate::sys::memory::buf::{Region, Scratch};
use crate::sys::sync::wait::{Backoff, Deadline};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

/// Completion of a message, and the result of its copies between device and host.
type Ended = (Completion, Result<()>);

/// Size, in bytes, of the chunks into which a pipelined message is divided.
const PART: usize = 1 << 20;
/// Maximum number of chunks of a pipelined message that one poll copies.
const TURN: usize = 2;

/// Returns the host memory through which a message in the device buffer `device` is staged; empty
/// if `path` is `Host`, which needs no staging.
fn memory_for(path: &BufferPath, device: Region) -> Result<StagingMemory> {
    match path {
        BufferPath::Host => Ok(StagingMemory::default()),
        BufferPath::Direct(_) => host_memory(device.len()).map(StagingMemory::Own),
        BufferPath::Staged | BufferPath::Pipelined => StagingMemory::beside(device),
    }
}

/// Data path of a message between its buffer and the transport.
pub(crate) enum BufferPath {
    /// The buffer itself is passed to the transport. It may be host memory, or device memory that
    /// the transport accepts.
    Host,
    /// The whole message is staged through host memory in one copy.
    Staged,
    /// The message is staged through host memory in chunks; one chunk is copied while other chunks
    /// are in flight.
    Pipelined,
    /// The transport transfers the device memory directly. If this is not possible for a message,
    /// the message is staged through host memory.
    Direct(Arc<HostShadow>),
}

impl BufferPath {
    /// Determines whether and how a send of `data` is staged through host memory.
    pub(crate) fn of_send(
        comm: &Comm,
        data: Region,
        dest: i32,
        mode: SendMode,
    ) -> Result<BufferPath> {
        if !device_only::may_be(data) {
            return Ok(BufferPath::Host);
        }
        if dest == DTL_PROC_NULL {
            return device_only::check(data).map(|()| BufferPath::Host);
        }
        let in_parts = data.len() > PART && mode == SendMode::Standard;
        let is_self = comm.to_world(dest) == comm.link.transport.rank();
        Self::of_hidden(comm, data, !is_self, in_parts)
    }

    /// Determines whether and how a receive into `into` is staged through host memory.
    #[inline]
    pub(crate) fn of_recv(comm: &Comm, into: Region) -> Result<BufferPath> {
        if device_only::may_be(into) {
            Self::of_hidden(comm, into, true, true)
        } else {
            Ok(BufferPath::Host)
        }
    }

    /// Determines whether and how the receive of a matched message is staged through host memory.
    /// The result is never `Direct`, because the library itself accesses the bytes of a matched
    /// message.
    pub(crate) fn of_matched(comm: &Comm, into: Region) -> Result<BufferPath> {
        Ok(if is_hidden(comm, into)? { Self::through_host(comm, true) } else { BufferPath::Host })
    }

    #[cold]
    fn of_hidden(
        comm: &Comm,
        buffer: Region,
        may_be_direct: bool,
        in_parts: bool,
    ) -> Result<BufferPath> {
        if !is_staged(comm, buffer)? {
            return Ok(BufferPath::Host);
        }
        let shadow = if may_be_direct { gpu_direct::host_shadow(comm, buffer)? } else { None };
        Ok(shadow.map_or_else(|| Self::through_host(comm, in_parts), BufferPath::Direct))
    }

    fn through_host(comm: &Comm, in_parts: bool) -> BufferPath {
        let sends_parts = in_parts && comm.link.transport.groups().pipeline.is_some();
        if sends_parts { BufferPath::Pipelined } else { BufferPath::Staged }
    }

    /// Returns true if the buffer itself is passed to the transport.
    pub(crate) fn is_host(&self) -> bool {
        matches!(self, BufferPath::Host)
    }
}

/// Accessibility of a buffer to the host and to the transport.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// The host can access the buffer.
    Plain,
    /// The host cannot access the buffer, but the transport can send and receive it.
    Direct,
    /// Neither the host nor the transport can access the buffer.
    Staged,
}

/// Returns true if a buffer has to be staged. Called only while the process has allocations that
/// the host cannot access.
#[cold]
pub(crate) fn is_staged(comm: &Comm, buffer: Region) -> Result<bool> {
    Ok(reach_of(comm, buffer)? == Reach::Staged)
}

/// Returns true if the host cannot access the buffer. Such a buffer is staged if the library itself
/// accesses the bytes, as in collectives and matched messages.
#[cold]
pub(crate) fn is_hidden(comm: &Comm, buffer: Region) -> Result<bool> {
    Ok(reach_of(comm, buffer)? != Reach::Plain)
}

/// Returns true if the host cannot access the buffer. Called at the start of a message whose buffer
/// was specified in an earlier call. `was` is true if the host could not access the buffer during
/// that call. Fails if `was` is true but the host can now access the buffer, because the buffer has
/// then been freed.
#[cold]
pub(crate) fn is_still_hidden(comm: &Comm, buffer: Region, was: bool) -> Result<bool> {
    let is_so = is_hidden(comm, buffer)?;
    if was && !is_so {
        return fail!(
            DTL_ERROR_INVALID_STATE,
            "the device buffer of a message was freed before the message began"
        );
    }
    Ok(is_so)
}

fn reach_of(comm: &Comm, buffer: Region) -> Result<Reach> {
    if !device_only::may_be(buffer) {
        return Ok(Reach::Plain);
    }
    let Some(allocation) = device_only::allocation_of(buffer)? else { return Ok(Reach::Plain) };
    let reach = match allocation.hidden {
        false => Reach::Plain,
        true if is_direct(comm, &allocation) => Reach::Direct,
        true => Reach::Staged,
    };
    explain_once(comm, &allocation, reach);
    Ok(reach)
}

/// Returns true if the transport accepts the device memory of `allocation`. The memory must belong
/// to the device backend that the transport supports. Other processes must be able to open the
/// memory, because the receiving process opens it. Memory from a memory pool of the driver cannot
/// be opened safely, and memory that was imported from another process cannot be opened at all.
fn is_direct(comm: &Comm, allocation: &Allocation) -> bool {
    comm.link.direct == Some(allocation.backend)
        && allocation.kind == DTL_MEMORY_SHARED
        && !allocation.imported
}

/// Records for `dtl_explain` how buffers of the given accessibility (`reach`) are transferred, once
/// per communicator and accessibility.
fn explain_once(comm: &Comm, allocation: &Allocation, reach: Reach) {
    let bit = 1 << reach as u8;
    if allocation.backend == host_alloc::backend()
        || comm.explained.fetch_or(bit, Ordering::Relaxed) & bit != 0
    {
        return;
    }
    let text = match reach {
        Reach::Plain => "direct, as the host reaches it".to_owned(),
        Reach::Direct => format!(
            "direct: {}; collectives are staged",
            comm.link.transport.properties().description
        ),
        Reach::Staged => staged_text(comm, allocation),
    };
    explain_how(comm, allocation, &text);
}

/// Returns the text in which `dtl_explain` describes the transfer of a buffer that neither the host
/// nor the transport can access.
fn staged_text(comm: &Comm, allocation: &Allocation) -> String {
    if let Some(direct) = comm.link.direct() {
        gpu_direct::text(direct)
    } else if comm.link.direct == Some(allocation.backend) {
        "staged through host memory, each message as a whole: only memory of kind SHARED that was \
         allocated here goes directly"
            .to_owned()
    } else if comm.link.transport.groups().pipeline.is_some() {
        format!(
            "staged through host memory, more than {} KiB in parts of that (pipelined)",
            PART >> 10
        )
    } else {
        "staged through host memory, each message as a whole: this kind cannot send one in parts"
            .to_owned()
    }
}

/// Records for `dtl_explain` that a buffer is staged although the transport supports direct
/// transfers of device memory. `refusal` is the reason if all buffers are staged from now on. If it
/// is `None`, only some allocations are staged, which is recorded once per communicator.
pub(crate) fn explain_staged(comm: &Comm, allocation: &Allocation, refusal: Option<String>) {
    const SOME: u8 = 1 << 7;
    let is_new = || comm.explained.fetch_or(SOME, Ordering::Relaxed) & SOME == 0;
    let text = match refusal {
        Some(why) => gpu_direct::refused(&why),
        None if is_new() => "staged through host memory where an allocation cannot be registered, \
            or not beside what is: each message as a whole"
            .to_owned(),
        None => return,
    };
    explain_how(comm, allocation, &text);
}

fn explain_how(comm: &Comm, allocation: &Allocation, text: &str) {
    let inside = epoch::enter();
    let Ok(backend) = registry::find(&inside, allocation.backend) else { return };
    let kind = match kind_info(backend, allocation.kind) {
        Ok(info) => {
            String::from_utf8_lossy(&info.name.map(|letter| letter as u8)).replace('\0', "")
        }
        Err(_) => describe(allocation.kind),
    };
    let topic =
        format!("messages of {} memory \"{kind}\" over {}", backend.name(), comm.kind_name());
    explain::chose(&topic, text);
}

/// Copies the bytes of a device buffer to new host memory, and returns that memory.
pub(crate) fn copy_out(device: Region) -> Result<Scratch> {
    let host = host_memory(device.len())?;
    transfer::stage_out(host.region(), device)?;
    Ok(host)
}

/// Message in flight whose buffer the host may not be able to access.
pub(crate) struct Staged {
    started: OpHandle,
    path: BufferPath,
    /// True if the message is a receive.
    receives: bool,
    device: Region,
    host: StagingMemory,
    /// Number of bytes copied so far between `device` and `host`, from the start of the buffer.
    copied: usize,
    /// Number of bytes that a pipelined send has copied, shared with the transport.
    filling: Option<Arc<PipelinedSource>>,
    /// Error of the copy that failed, if any.
    failed: Option<Error>,
    pub(crate) ticket: Option<Ticket>,
    is_over: bool,
}

impl Staged {
    fn new(path: BufferPath, receives: bool, device: Region, host: StagingMemory) -> Self {
        Staged {
            started: OpHandle::Nothing,
            path,
            receives,
            device,
            host,
            copied: 0,
            filling: None,
            failed: None,
            ticket: None,
            is_over: false,
        }
    }

    /// Starts a send. If the first copy fails, no message is sent.
    pub(crate) fn send(
        comm: &Comm,
        path: BufferPath,
        data: Region,
        (dest, tag, mode): (i32, i32, SendMode),
    ) -> Result<Staged> {
        let host = memory_for(&path, data)?;
        let room = host.region();
        let mut staged = Staged::new(path, false, data, host);
        match &staged.path {
            BufferPath::Host => {
                staged.started = comm.start_send(Class::User, data, dest, tag, mode)?;
                return Ok(staged);
            }
            BufferPath::Direct(shadow) => {
                let data = DeviceBuffer { host: room, shadow };
                staged.started = comm.start_send_shadow(data, (dest, tag, mode))?;
                return Ok(staged);
            }
            BufferPath::Pipelined => {
                transfer::stage_out(room.part(0, PART), data.part(0, PART))?;
                staged.copied = PART;
                let filling = Arc::new(PipelinedSource::new(PART));
                if let Some(started) = comm.start_pipelined(room, dest, tag, &filling) {
                    (staged.started, staged.filling) = (started?, Some(filling));
                    return Ok(staged);
                }
            }
            BufferPath::Staged => {}
        }
        let (at, len) = (staged.copied, data.len());
        transfer::stage_out(room.part(at, len), data.part(at, len))?;
        staged.copied = len;
        staged.started = comm.start_send(Class::User, room, dest, tag, mode)?;
        Ok(staged)
    }

    /// Starts a receive. `path` determines whether and how the message is staged through host
    /// memory.
    pub(crate) fn recv(
        comm: &Comm,
        path: BufferPath,
        into: Region,
        source: i32,
        tag: i32,
    ) -> Result<Staged> {
        Self::recv_with(path, into, |into, path| match path {
            BufferPath::Direct(shadow) => {
                comm.start_recv_shadow(DeviceBuffer { host: into, shadow }, source, tag)
            }
            _ => comm.start_recv(Class::User, into, source, tag),
        })
    }

    /// Starts a receive by calling `start` with `path` and with the memory into which the transport
    /// receives.
    pub(crate) fn recv_with(
        path: BufferPath,
        into: Region,
        start: impl FnOnce(Region, &BufferPath) -> Result<OpHandle>,
    ) -> Result<Staged> {
        let host = memory_for(&path, into)?;
        let room = if path.is_host() { into } else { host.region() };
        let mut staged = Staged::new(path, true, into, host);
        staged.started = start(room, &staged.path)?;
        Ok(staged)
    }

    /// Makes progress on the message. Once the message is complete, returns its completion and the
    /// result of its copies between device and host. Returns an error if the poll fails; the
    /// message is then still in flight.
    pub(crate) fn poll(&mut self, comm: &Comm) -> Result<Option<Ended>> {
        for _ in 0..TURN {
            let is_moved = self.copy_some(comm);
            if let Some(done) = comm.poll(self.started)? {
                self.is_over = true;
                return Ok(Some(self.end(done)));
            }
            if !is_moved {
                break;
            }
        }
        Ok(None)
    }

    /// Copies the next chunk between device and host memory, if any; for a receive, only if that
    /// chunk has arrived. Returns true if there was a chunk to copy.
    fn copy_some(&mut self, comm: &Comm) -> bool {
        match &self.path {
            // A direct send copies its whole buffer if the transport needs it in host memory.
            BufferPath::Direct(shadow) if shadow.bytes() == DataLocation::Wanted => {
                let shadow = Arc::clone(shadow);
                self.copy_to(self.device.len());
                shadow.copied(self.failed.is_none());
                return true;
            }
            BufferPath::Host | BufferPath::Staged | BufferPath::Direct(_) => return false,
            BufferPath::Pipelined => {}
        }
        let end = self.copied + PART.min(self.device.len() - self.copied);
        let is_due = self.failed.is_none()
            && end > self.copied
            && match self.started {
                _ if !self.receives => self.filling.is_some(),
                OpHandle::Op(op) | OpHandle::FromAny(op) if end - self.copied == PART => {
                    comm.link.transport.groups().pipeline.map_or(0, |pipeline| pipeline.arrived(op))
                        >= end
                }
                _ => false,
            };
        if is_due {
            self.copy_to(end);
            if let Some(filling) = &self.filling {
                match &self.failed {
                    None => filling.reach(end),
                    Some(error) => filling.fail(error.status()),
                }
            }
        }
        is_due
    }

    fn copy_to(&mut self, end: usize) {
        let (at, len) = (self.copied, end - self.copied);
        let (host, device) = (self.host.region().part(at, len), self.device.part(at, len));
        let copied = match self.receives {
            true => transfer::stage_in(device, host),
            false => transfer::stage_out(host, device),
        };
        match copied {
            Ok(()) => self.copied = end,
            Err(error) => self.failed = Some(error),
        }
    }

    fn end(&mut self, done: Completion) -> (Completion, Result<()>) {
        let is_staged = self.receives && !self.path.is_host();
        if is_staged && matches!(done.status, DTL_SUCCESS | DTL_ERROR_TRUNCATED) {
            let end = usize::try_from(done.size).unwrap_or(usize::MAX).min(self.device.len());
            let is_there = matches!(&self.path, BufferPath::Direct(shadow) if shadow.has_landed());
            if self.failed.is_none() && end > self.copied && !is_there {
                self.copy_to(end);
            }
        }
        match self.failed.take() {
            Some(error) if done.status != DTL_ERROR_CANCELED => {
                let error = error.within("the copy between device and host");
                (Completion { status: error.status(), ..done }, Err(error))
            }
            _ => (done, Ok(())),
        }
    }

    /// Requests that the transport cancel the message. `poll` then returns the completion of the
    /// message.
    pub(crate) fn cancel(&self, comm: &Comm) -> Result<()> {
        self.started.op().map_or(Ok(()), |op| comm.link.transport.cancel(op))
    }

    /// Cancels the message and waits until the transport releases its buffer. Returns `Some` if the
    /// message had been matched and is now complete.
    pub(crate) fn cancel_and_wait(&mut self, comm: &Comm) -> Result<Option<Ended>> {
        cancel::until(&comm.link, || self.try_cancel(comm))
    }

    /// Tries once to cancel the message (nonblocking). Returns `Ready(None)` if the message was
    /// canceled, `Ready(Some)` if it is complete, and `Pending` if it was matched and is not
    /// complete yet.
    pub(crate) fn try_cancel(&mut self, comm: &Comm) -> Result<Poll<Option<Ended>>> {
        let mut ended = self.poll(comm)?;
        if ended.is_none() {
            self.cancel(comm)?;
            ended = self.poll(comm)?;
        }
        Ok(ended.map_or(Poll::Pending, |ended| {
            Poll::Ready(Some(ended).filter(|(done, _)| done.status != DTL_ERROR_CANCELED))
        }))
    }

    /// Waits for the message, with the same time limit and cancellation rules as `Comm::complete`.
    pub(crate) fn complete(
        &mut self,
        comm: &Comm,
        peer: i32,
        deadline: Deadline,
    ) -> Result<Completion> {
        let mut backoff = Backoff::new();
        loop {
            let before = self.copied;
            if let Some((done, copied)) = self.poll(comm)? {
                return copied.map(|()| done);
            }
            if self.copied != before {
                backoff = Backoff::new();
            }
            comm.pause(&mut backoff);
            if !backoff.is_long() {
                continue;
            }
            if deadline.passed() || !comm.is_open() {
                break;
            }
            progress::others(comm);
            if comm.is_absent(peer) {
                comm.catch_up(peer);
                if let Poll::Ready(ended) = self.try_cancel(comm)? {
                    return ended
                        .map_or(Ok(absence::failed(peer)), |(done, copied)| copied.map(|()| done));
                }
            }
        }
        match self.cancel_and_wait(comm)? {
            Some((done, copied)) => copied.map(|()| done),
            None => Err(comm.gave_up(peer)),
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let is_started = self.started.op().is_some();
        if is_started && !self.is_over && !self.path.is_host() {
            if let BufferPath::Direct(shadow) = &self.path {
                shadow.give_up();
            }
            // The transport could not release the memory, so the memory is leaked; a program's own
            // buffer would also have to stay valid.
            std::mem::forget(std::mem::take(&mut self.host));
        }
    }
}
