//! Two-sided messaging over a raw transport that can only send, receive and test. This module adds
//! matching by 64-bit match bits and masks, probing, synchronous sends and cancellation.
//!
//! [`Wire`] is the interface of the raw transport; this file also contains the lock that serializes
//! the calls to the protocol engine. Communicators of kind "rdma" and of registered backends use
//! this protocol, and so do MPI communicators with time limits or with the library's own
//! algorithms.
//!
//! In reading order:
//! - `frame`: format of frames
//! - `engine`: operations over a raw transport, the link of `p2p`
//! - `tx`: outgoing frames and payloads
//! - `rx`: incoming frames and payloads
//! - `recv_fast`: receives that create no operation
//! - `fault`: failed ranks and failed raw transports
//! - `device_mem`: messages in device memory
//! - `coll`: collectives of the raw transport
//! - `rma`: one-sided operations
//! - `rma_adapter`: implementation of the window trait of `runtime`
//! - `shutdown`: closing
//! - `mock`: mock `Wire` for tests

mod coll;
mod device_mem;
mod engine;
mod fault;
mod frame;
#[cfg(test)]
#[path = "tests/mock.rs"]
mod mock;
mod recv_fast;
mod rma;
mod rma_adapter;
mod rx;
mod shutdown;
#[cfg(test)]
mod tests;
mod tx;

use super::match_queues::Matcher;
use super::p2p::P2pEngine;
use super::peer_map::BYTES_PER_RANK;
use crate::abi::status::{DTL_ERROR_BUSY, dtl_status_t};
use crate::error::{Error, Result, fail, failure};
use crate::runtime::comm::coll::CollCall;
use crate::runtime::component::{
    Completion, Dest, Diagnostics, Groups, Liveness, Matched, NativeCollectives, OpId, Properties,
    RecvMode, Refusal, Rma, Selector, SendMode, ThreadCheck, Transport, Wakeup, Window, WindowPart,
    poll_of,
};
use crate::sys::memory::buf::Region;
use crate::sys::os::poller::Poller;
use crate::sys::sync::lock::Mutex;
use crate::sys::sync::wait::{self, Deadline};
use engine::Engine;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

pub use self::device_mem::{DeviceMapping, WireBuffers, WireDevices};
pub use self::frame::{eager_head, eager_word};
pub use self::rma::{Begin, WireWindows};

/// Tag of every frame. Payloads use other tags, all below 2^28.
const FRAME_WORD: u64 = 0;

/// Raw transport: a backend that sends, receives and tests, called by one thread at a time. It must
/// match source (or DTL_ANY_SOURCE) and all 28 bits of tag `word` exactly.
///
/// Messages from one rank with the same tag must match receives in the order in which the messages
/// were sent and the receives were posted. A rank may send to itself. Only `close` may block. If
/// `isend` or `irecv` returns BUSY, resources are exhausted for now: the caller retries later. An
/// error from `test` means that the call itself failed (for example, because this thread must not
/// use the `Wire`); the operation continues. If a rank fails, these must complete with
/// RANK_FAILURE: sends to it, receives from it, and at least one any-source receive (a pending one,
/// otherwise the next one posted), with the failed rank as `source` of its completion. Any-source
/// receives posted afterwards match messages from the ranks that have not failed.
pub trait Wire: Send {
    /// Returns the properties of the transport that is built on this `Wire`.
    fn properties(&self) -> &Arc<Properties>;
    /// Starts a send. The caller must keep the region valid until the send is complete.
    fn isend(&mut self, data: Region, dest: i32, word: u64) -> Result<OpId>;
    /// Starts a receive from `source` (or DTL_ANY_SOURCE) for tag `word`.
    fn irecv(&mut self, data: Region, source: i32, word: u64) -> Result<OpId>;
    /// Makes progress and tests `op`; returns its completion, or `None` if it is still in progress.
    fn test(&mut self, op: OpId) -> Result<Option<Completion>>;
    /// Returns true if `cancel` can cancel a pending receive.
    fn can_cancel(&self) -> bool {
        true
    }
    /// Requests cancellation of an operation. Its completion is still reported by `test`.
    fn cancel(&mut self, op: OpId) -> Result<()>;
    /// Returns an error if the calling thread must not use the `Wire`; see [`ThreadCheck::admit`].
    fn admit(&self) -> Result<()> {
        Ok(())
    }
    /// Returns whether a waiting thread may sleep. `seen` is initially 0. The `Wire` keeps the
    /// state of the waiting thread in `seen` between calls.
    fn doze(&mut self, _seen: &mut u64) -> SleepMode {
        SleepMode::No
    }
    /// Returns true if the other ranks are notified when this rank closes the `Wire`, as they are
    /// when a rank fails.
    fn notifies_on_close(&self) -> bool {
        false
    }
    /// Notifies the `Wire` that a message from `source` is awaited and has not arrived. For
    /// DTL_ANY_SOURCE, the call is repeated while a thread waits.
    fn awaits(&mut self, _source: i32) {}
    /// Returns the name of the component that completes operations, for error messages about
    /// impossible completions. The default is the transport's description.
    fn completes(&self) -> String {
        self.properties().description.to_string()
    }
    /// Returns a description, for users, of the current and the peak memory use; `None` if memory
    /// use is not tracked.
    fn memory(&self) -> Option<String> {
        None
    }
    /// Returns the error message of this thread's last failed operation, if there is one.
    fn failure_text(&self) -> Option<String>;
    /// Returns the reason why `rank` failed; `None` if reasons are not stored per rank.
    fn why_gone(&self, _rank: i32) -> Option<String> {
        None
    }
    /// Returns the methods for frames in memory of the `Wire`; `None` if it has no such memory.
    fn frames(&mut self) -> Option<&mut dyn WireFrames> {
        None
    }
    /// Returns the methods for device memory; `None` if device memory is not supported.
    fn devices(&mut self) -> Option<&mut dyn WireDevices> {
        None
    }
    /// Returns the methods for registration of the program's buffers; `None` if there is nothing to
    /// register.
    fn buffers(&mut self) -> Option<&mut dyn WireBuffers> {
        None
    }
    /// Returns the methods for one-sided communication, or the reason why it is not supported.
    fn windows(&mut self) -> Result<&mut dyn WireWindows, &'static str>;
    /// Returns the methods for collectives; `None` if the library's algorithms execute them all.
    fn collectives(&mut self) -> Option<&mut dyn WireCollectives> {
        None
    }
    /// Closes the transport; may block.
    fn close(&mut self) -> Result<()>;
}

/// Additional methods of a [`Wire`] that provides the frame buffers itself: frames are built in its
/// send buffers and read in its receive buffers. Payloads still use `isend` and `irecv`.
pub trait WireFrames {
    /// Sends header words and payload as one frame. The caller may reuse both once this method
    /// returns. Returns BUSY if no send buffer is free now.
    fn send(&mut self, head: &[u64; FRAME_WORDS], payload: Region, dest: i32) -> Result<()>;
    /// Returns the next frame. For each rank that failed or closed its `Wire`, returns one
    /// notification, after all frames from that rank. If nothing has arrived and `looks` is true,
    /// makes progress first.
    fn next(&mut self, looks: bool) -> Result<Option<RxFrame>>;
    /// Releases a frame's buffer after the frame has been read.
    fn give_back(&mut self, lent: &RxFrame);
}

/// Collectives of a [`Wire`]. One thread at a time calls these methods. `Wire::test` tests for
/// completion, `Wire::cancel` requests cancellation.
pub trait WireCollectives {
    /// Returns true if `start` executes the collective. The decision depends only on arguments that
    /// are equal on all ranks.
    fn takes(&mut self, call: &CollCall<'_>) -> Result<bool>;
    /// Starts a collective. BUSY means that the caller must retry later.
    fn start(&mut self, call: &CollCall<'_>) -> Result<OpId>;
}

/// Whether a waiting thread may sleep.
pub enum SleepMode {
    /// The thread must not sleep: no event would wake it.
    No,
    /// The thread must not sleep yet: an event occurred since the last call, so the thread must
    /// test again.
    News,
    /// The thread may sleep until the poller is readable or this many nanoseconds elapse. The
    /// thread does not hold the engine's lock while it sleeps: if another thread consumes the
    /// event, this thread sleeps for the whole time.
    On(Arc<Poller>, u64),
}

/// Number of words in a frame's header.
pub const FRAME_WORDS: usize = frame::HEADER / 8;
/// Maximum size of a frame, in bytes.
pub const FRAME_BYTES: usize = frame::FRAME;

/// A received frame in a buffer of the [`Wire`].
pub struct RxFrame {
    /// Rank of the sender.
    pub source: i32,
    /// SUCCESS, or RANK_FAILURE if the source failed or closed its [`Wire`]. With RANK_FAILURE,
    /// there is no frame.
    pub status: dtl_status_t,
    /// Words of the frame's header.
    pub head: [u64; FRAME_WORDS],
    /// Payload of the frame.
    pub bytes: Region,
    /// Identifier for use by the [`Wire`] only.
    pub id: u64,
}

/// Opens a transport over `wire`. If this fails, `wire` is closed.
pub fn open(wire: Box<dyn Wire>) -> Result<Box<dyn Transport>> {
    let properties = Arc::clone(wire.properties());
    let mut engine = Engine::new(wire);
    let is_direct = engine.wire.devices().is_some();
    let has_buffers = engine.wire.buffers().is_some();
    if let Err(error) = engine.post_receives() {
        engine.give_up(&error);
        return Err(error);
    }
    let windows = engine.wire.windows().map(drop);
    let has_collectives = engine.wire.collectives().is_some();
    let engine = SharedEngine(Arc::new(Mutex::new(Some(engine))));
    let devices = is_direct.then(|| device_mem::FreeWatcher::new(&engine));
    Ok(Box::new(P2pTransport {
        engine,
        properties,
        devices,
        has_buffers,
        has_collectives,
        windows,
    }))
}

/// Number of bytes that a transport uses for the engine and the posted frame buffers. Memory per
/// rank is not included.
pub const FIXED_BYTES: usize = LENT_FIXED_BYTES + engine::RECEIVES * frame::FRAME;
/// Number of bytes that a transport uses if the [`Wire`] provides the frame buffers. Memory per
/// rank is not included.
pub const LENT_FIXED_BYTES: usize = size_of::<P2pTransport>() + size_of::<Properties>();
/// Memory per rank in bytes, whether or not messages are exchanged with the rank.
pub const RANK_BYTES: usize = 2 * BYTES_PER_RANK;
/// Additional memory, in bytes, for each rank with which this rank exchanges messages. Queued
/// messages are not included.
pub const PARTNER_BYTES: usize =
    size_of::<engine::PeerLink>() + Matcher::<OpId, engine::Arrival>::SOURCE_BYTES;

/// Maximum time in nanoseconds that a nonblocking call waits for the engine's lock.
const LOCK_WAIT_NS: u64 = 100_000;

/// Engine, protected by a lock that is held only briefly; `None` once the transport is closed.
#[derive(Clone)]
struct SharedEngine(Arc<Mutex<Option<Engine>>>);

impl SharedEngine {
    #[inline]
    fn with<T>(&self, act: impl FnOnce(&mut Engine) -> Result<T>) -> Result<T> {
        act(self.0.lock().as_mut().ok_or_else(closed)?)
    }

    /// Calls `act`. Fails with BUSY if another thread holds the lock for longer than
    /// `LOCK_WAIT_NS`, because a function of the backend blocks (registration of memory).
    #[cold]
    fn try_with<T>(&self, act: impl FnOnce(&mut Engine) -> Result<T>) -> Result<T> {
        let Some(mut engine) = wait::poll(Deadline::after(LOCK_WAIT_NS), || Ok(self.0.try_lock()))?
        else {
            return fail!(DTL_ERROR_BUSY, "another thread is in a function of the transport");
        };
        act(engine.as_mut().ok_or_else(closed)?)
    }
}

#[cold]
fn closed() -> Error {
    failure!(DTL_ERROR_INVALID_STATE, "the communicator is closed")
}

struct P2pTransport {
    engine: SharedEngine,
    properties: Arc<Properties>,
    /// Notifies the `Wire` of freed allocations; `None` if the `Wire` supports no device memory.
    devices: Option<Arc<device_mem::FreeWatcher>>,
    /// True if the `Wire` registers buffers of the program.
    has_buffers: bool,
    /// True if the `Wire` executes collectives itself.
    has_collectives: bool,
    /// Reason why windows are not supported, as an error; `Ok` if they are supported.
    windows: Result<(), &'static str>,
}

impl Transport for P2pTransport {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn groups(&self) -> Groups<'_> {
        Groups {
            liveness: Some(self),
            rma: self.windows.map(|()| self as _),
            native_collectives: self.has_collectives.then_some(self as _),
            device_memory: self.devices.as_ref().map(|_| self as _),
            registration: self.has_buffers.then_some(self as _),
            wakeup: Some(self),
            thread_check: Some(self),
            diagnostics: Some(self),
            ..Groups::NONE
        }
    }

    fn start_send(&self, data: Region, to: Dest, mode: SendMode, _may_block: bool) -> Result<OpId> {
        if mode == SendMode::Notice {
            return self.engine.try_with(|engine| engine.start_send(data, to, mode));
        }
        self.engine.with(|engine| engine.start_send(data, to, mode))
    }

    #[inline]
    fn start_recv(&self, data: Region, select: Selector, mode: RecvMode<'_>) -> Result<OpId> {
        self.engine.with(|engine| {
            if let Some(completion) = mode.poll() {
                if engine.receive_at_once(data, &select, completion)? {
                    return Ok(OpId::COMPLETED);
                }
            }
            engine.irecv(data, select, ())
        })
    }

    fn probe(&self, select: Selector) -> Result<Option<Completion>> {
        self.engine.with(|engine| engine.probe(select))
    }

    fn take(&self, select: Selector) -> Result<Option<Matched>> {
        self.engine.with(|engine| engine.take(select))
    }

    fn receive_matched(&self, message: OpId, data: Region) -> Result<OpId> {
        self.engine.with(|engine| engine.receive_matched(message, data))
    }

    fn test(&self, op: OpId, completion: &mut Completion) -> Poll<Result<()>> {
        poll_of(self.engine.with(|engine| {
            if engine.test(op, completion)? {
                return Ok(true);
            }
            engine.progress()?;
            let is_over = engine.test(op, completion)?;
            if !is_over {
                engine.check_working()?;
            }
            Ok(is_over)
        }))
    }

    fn progress(&self) {
        // A thread that holds the lock makes progress itself; the test of an operation returns the
        // error.
        if let Some(engine) = self.engine.0.try_lock().as_mut().and_then(|engine| engine.as_mut()) {
            drop(engine.progress());
        }
    }

    fn cancel(&self, op: OpId) -> Result<()> {
        self.engine.with(|engine| {
            engine.cancel(op);
            Ok(())
        })
    }

    fn close(&self) -> Result<()> {
        self.engine.0.lock().take().ok_or_else(closed)?.close()
    }
}

impl Liveness for P2pTransport {
    fn failed_ranks(&self) -> Vec<i32> {
        self.engine.with(|engine| Ok(engine.failed_ranks())).unwrap_or_default()
    }

    fn failed_count(&self) -> usize {
        self.engine.with(|engine| Ok(engine.deaths)).unwrap_or(0)
    }
}

impl NativeCollectives for P2pTransport {
    fn refuses(&self, call: &CollCall<'_>) -> Result<Option<Refusal>> {
        let is_taken = self.engine.with(|engine| {
            engine.wire.collectives().map_or(Ok(false), |collectives| collectives.takes(call))
        })?;
        Ok((!is_taken).then_some("the transport does not execute it".into()))
    }

    fn start(&self, call: &CollCall<'_>) -> Result<OpId> {
        self.engine.with(|engine| engine.start_collective(call))
    }
}

impl Rma for P2pTransport {
    fn allocates(&self) -> bool {
        false
    }

    fn window(&self, part: WindowPart<'_>) -> Result<Box<dyn Window>> {
        rma_adapter::open(&self.engine, part)
    }
}

impl Wakeup for P2pTransport {
    fn rest(&self, seen: &mut u64, limit: Duration) -> bool {
        match self.engine.with(|engine| Ok(engine.doze(seen))) {
            Ok(SleepMode::News) => true,
            Ok(SleepMode::On(bell, due_ns)) => {
                bell.ready(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).min(due_ns));
                true
            }
            Ok(SleepMode::No) | Err(_) => false,
        }
    }
}

impl ThreadCheck for P2pTransport {
    fn admit(&self) -> Result<()> {
        match self.engine.try_with(|engine| engine.wire.admit()) {
            // The calls of the transport that follow make the check themselves.
            Err(error) if error.status() == DTL_ERROR_BUSY => Ok(()),
            admitted => admitted,
        }
    }
}

impl Diagnostics for P2pTransport {
    fn failure_text(&self) -> Option<String> {
        self.engine.with(|engine| Ok(engine.reason.clone())).ok().flatten()
    }

    fn memory_text(&self) -> Option<String> {
        self.engine.with(|engine| Ok(engine.wire.memory())).ok().flatten()
    }
}

impl Drop for P2pTransport {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.0.lock().take() {
            drop(engine.close());
        }
    }
}
