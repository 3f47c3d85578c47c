//! Complete two-sided communication over a transport that can only send, receive and test. This
//! module adds matching of 64-bit words with masks, probing, synchronous sends and cancellation.
//!
//! [`Wire`] is the interface of such a transport. The lock is in this file. The library uses this
//! protocol for registered communicators and for MPI with timeouts.
//!
//! In reading order:
//! - `frame`: format of frames
//! - `engine`: operations, how they start and are canceled
//! - `tx`: outgoing frames and payloads
//! - `rx`: incoming frames and payloads
//! - `recv_fast`: receives without an operation
//! - `mprobe`: matched probe
//! - `fault`: dead ranks and failed wires
//! - `device_mem`: messages in device memory
//! - `rma`: one-sided operations of the wire
//! - `rma_adapter`: windows as `runtime` calls them
//! - `shutdown`: closing of the wire
//! - `mock`: mock wire for the tests

mod device_mem;
mod engine;
mod fault;
mod frame;
#[cfg(test)]
mod mock;
mod mprobe;
mod recv_fast;
mod rma;
mod rma_adapter;
mod rx;
mod shutdown;
#[cfg(test)]
mod tests;
mod tx;

use super::match_queues::Matcher;
use super::peer_map::BYTES_PER_RANK;
use crate::abi::status::dtl_status_t;
use crate::error::{Result, fail};
use crate::runtime::component::{
    Completion, Diagnostics, Groups, Liveness, Matched, OpId, Properties, RecvMode, Rma, Selector,
    SendMode, ThreadCheck, Transport, Wakeup, Window, WindowPart, poll_of,
};
use crate::sys::memory::buf::Region;
use crate::sys::os::poller::Poller;
use crate::sys::sync::lock::Mutex;
use engine::Engine;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

pub use self::device_mem::{DeviceMapping, WireDevices};
pub use self::rma::{Change, WireWindows};

/// Match word of every frame. Payloads use other words, all below 2^28.
const FRAME_WORD: u64 = 0;

/// A transport that is called by one thread at a time and matches 28 bits exactly.
///
/// Two messages of one rank under one word are received in the order sent, by receives in the order
/// posted. A rank may send to itself. No method except `close` blocks. A status BUSY of `isend` or
/// `irecv` means that there is no room now: the caller repeats the call later. An error of `test`
/// means that the call itself failed (for example, in this thread); the operation continues.
///
/// When the wire detects a death, it completes with RANK_FAILURE what can no longer complete: sends
/// to the dead rank, receives from it, and at least one receive from any source (a pending one,
/// else the next one posted), whose `source` is the dead rank. Receives from any source that are
/// posted afterwards match messages of living ranks.
pub trait Wire: Send {
    /// Returns the properties of the transport over the wire.
    fn properties(&self) -> &Arc<Properties>;
    /// Starts a send; the region must stay valid until the send is complete.
    fn isend(&mut self, data: Region, dest: i32, word: u64) -> Result<OpId>;
    /// Starts a receive from a rank or DTL_ANY_SOURCE, for exactly this match word.
    fn irecv(&mut self, data: Region, source: i32, word: u64) -> Result<OpId>;
    /// Makes progress and tests one operation; returns `Some` if it is complete.
    fn test(&mut self, op: OpId) -> Result<Option<Completion>>;
    /// Returns true if `cancel` can cancel receives.
    fn can_cancel(&self) -> bool;
    /// Tries to cancel an operation, which then completes through `test`.
    fn cancel(&mut self, op: OpId) -> Result<()>;
    /// Checks whether this thread may call the wire, like [`ThreadCheck::admit`].
    fn admit(&self) -> Result<()> {
        Ok(())
    }
    /// Returns whether a waiting thread may sleep now. `seen` is the thread's state between calls,
    /// 0 at first.
    fn doze(&mut self, _seen: &mut u64) -> SleepMode {
        SleepMode::No
    }
    /// Returns true if closing the wire is reported to the other ranks, as a death is.
    fn notifies_on_close(&self) -> bool {
        false
    }
    /// Notifies the wire that a message of a rank is awaited and has not arrived. With
    /// DTL_ANY_SOURCE the call is repeated as long as a thread waits.
    fn awaits(&mut self, _source: i32) {}
    /// Names the party that completes operations: the subject of an error text about an impossible
    /// completion.
    fn completes(&self) -> String {
        self.properties().description.to_string()
    }
    /// Returns a text about the wire's current and past memory use, for users.
    fn memory(&self) -> Option<String> {
        None
    }
    /// Returns the wire's text about the operation that has just failed in this thread.
    fn failure_text(&self) -> Option<String>;
    /// Returns why a rank is gone, if the wire stores the reason for each rank.
    fn why_gone(&self, _rank: i32) -> Option<String> {
        None
    }
    /// Returns the methods for frames in the wire's own memory, if it has such memory.
    fn frames(&mut self) -> Option<&mut dyn WireFrames> {
        None
    }
    /// Returns the methods for device memory, if the wire moves device memory.
    fn devices(&mut self) -> Option<&mut dyn WireDevices> {
        None
    }
    /// Returns the methods for one-sided communication, or the reason why the wire has none.
    fn windows(&mut self) -> std::result::Result<&mut dyn WireWindows, &'static str>;
    /// Closes the wire.
    fn close(&mut self) -> Result<()>;
}

/// Additional methods of a wire that manages the memory of frames itself: frames are written in
/// send buffers and read in receive buffers of the wire. Payloads still use `isend` and `irecv`.
pub trait WireFrames {
    /// Sends words and payload as one frame. The arguments may be reused when the call returns.
    /// BUSY means that there is no room now.
    fn send(&mut self, head: &[u64; FRAME_WORDS], payload: Region, dest: i32) -> Result<()>;
    /// Returns the next frame that has arrived, or a rank that is gone: each such rank once, after
    /// all that it had sent. If no frame is there and `looks` is true, makes progress first.
    fn next(&mut self, looks: bool) -> Result<Option<RxFrame>>;
    /// Returns the memory of a frame that has been read to the wire.
    fn give_back(&mut self, lent: &RxFrame);
}

/// Decision whether a waiting thread may sleep.
pub enum SleepMode {
    /// The thread must not sleep: no event would wake it.
    No,
    /// An event has occurred since the last call: the thread must test again first.
    News,
    /// The thread may sleep until the poller is readable or the given number of nanoseconds has
    /// elapsed. The lock is not held meanwhile, so another thread may consume the event, and this
    /// thread then sleeps until its own limit.
    On(Arc<Poller>, u64),
}

/// Number of words in a frame's header.
pub const FRAME_WORDS: usize = frame::HEADER / 8;
/// Maximum size of a frame, in bytes.
pub const FRAME_BYTES: usize = frame::FRAME;

/// Returns the match bits of a frame that is a complete message. All words of such a frame follow
/// from the match bits and the payload's length.
#[inline]
#[must_use]
pub fn eager_word(head: &[u64; FRAME_WORDS]) -> Option<u64> {
    frame::Header::eager_word(head)
}

/// Returns the words of a frame that is a complete message of `len` bytes.
#[inline]
#[must_use]
pub fn eager_head(word: u64, len: usize) -> [u64; FRAME_WORDS] {
    frame::Header { kind: frame::FrameKind::Eager, payload: 0, word, size: len as u64, id: 0 }
        .words()
}

/// A frame in the wire's memory.
pub struct RxFrame {
    /// Rank of the sender.
    pub source: i32,
    /// Status of the frame. With RANK_FAILURE there is no frame: the source has died or left.
    pub status: dtl_status_t,
    /// Words of the frame's header.
    pub head: [u64; FRAME_WORDS],
    /// Payload of the frame.
    pub bytes: Region,
    /// Id for the wire's own use.
    pub id: u64,
}

/// Opens a transport over a wire. On failure closes the wire.
pub fn open(wire: Box<dyn Wire>) -> Result<Box<dyn Transport>> {
    let properties = Arc::clone(wire.properties());
    let mut engine = Engine::new(wire);
    let is_direct = engine.wire.devices().is_some();
    if let Err(error) = engine.post_receives() {
        engine.give_up(&error);
        return Err(error);
    }
    let windows = engine.wire.windows().map(drop);
    Ok(Box::new(P2pTransport { engine: SharedEngine::new(engine), properties, is_direct, windows }))
}

/// Memory of a transport without messages in bytes: its engine, and the frames of posted receives.
pub const FIXED_BYTES: usize = LENT_FIXED_BYTES + engine::RECEIVES * frame::FRAME;
/// Memory of a transport without messages in bytes, if the wire itself has memory for frames.
pub const LENT_FIXED_BYTES: usize = size_of::<P2pTransport>() + size_of::<Properties>();
/// Memory per rank, with or without messages, in bytes.
pub const RANK_BYTES: usize = 2 * BYTES_PER_RANK;
/// Memory per rank with messages, excluding queued messages, in bytes.
pub const PARTNER_BYTES: usize =
    size_of::<engine::PeerLink>() + Matcher::<OpId, engine::Arrival>::SOURCE_BYTES;

/// An engine behind one short lock; `None` once it is closed.
#[derive(Clone)]
struct SharedEngine(Arc<Mutex<Option<Engine>>>);

impl SharedEngine {
    fn new(engine: Engine) -> SharedEngine {
        SharedEngine(Arc::new(Mutex::new(Some(engine))))
    }

    #[inline]
    fn with<T>(&self, act: impl FnOnce(&mut Engine) -> Result<T>) -> Result<T> {
        match self.0.lock().as_mut() {
            Some(engine) => act(engine),
            None => fail!(DTL_ERROR_INVALID_STATE, "the communicator is closed"),
        }
    }
}

struct P2pTransport {
    engine: SharedEngine,
    properties: Arc<Properties>,
    /// True if the wire moves device memory.
    is_direct: bool,
    /// Reason why the wire creates no windows, if it does not.
    windows: std::result::Result<(), &'static str>,
}

impl P2pTransport {
    #[inline]
    fn with<T>(&self, act: impl FnOnce(&mut Engine) -> Result<T>) -> Result<T> {
        self.engine.with(act)
    }
}

impl Transport for P2pTransport {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn groups(&self) -> Groups<'_> {
        Groups {
            liveness: Some(self),
            rma: self.windows.map(|()| self as _),
            device_memory: self.is_direct.then_some(self as _),
            wakeup: Some(self),
            thread_check: Some(self),
            diagnostics: Some(self),
            ..Groups::NONE
        }
    }

    fn start_send(
        &self,
        data: Region,
        dest: i32,
        word: u64,
        mode: SendMode,
        _may_block: bool,
    ) -> Result<OpId> {
        self.with(|engine| engine.start_send(data, dest, word, mode))
    }

    #[inline]
    fn start_recv(&self, data: Region, select: Selector, mode: RecvMode<'_>) -> Result<OpId> {
        self.with(|engine| {
            if let Some(told) = mode.poll() {
                if engine.receive_at_once(data, &select, told)? {
                    return Ok(OpId::COMPLETED);
                }
            }
            engine.irecv(data, select)
        })
    }

    fn probe(&self, select: Selector) -> Result<Option<Completion>> {
        self.with(|engine| engine.probe(select))
    }

    fn take(&self, select: Selector) -> Result<Option<Matched>> {
        self.with(|engine| engine.take(select))
    }

    fn receive_matched(&self, message: OpId, data: Region) -> Result<OpId> {
        self.with(|engine| engine.receive_matched(message, data))
    }

    fn test(&self, op: OpId, told: &mut Completion) -> Poll<Result<()>> {
        poll_of(self.with(|engine| {
            let mut done = engine.outcome(op)?;
            if done.is_none() {
                engine.progress()?;
                done = engine.outcome(op)?;
            }
            if done.is_none() {
                engine.check_working()?;
            }
            Ok(done.map(|done| *told = done).is_some())
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
        self.with(|engine| {
            engine.cancel(op);
            Ok(())
        })
    }

    fn close(&self) -> Result<()> {
        match self.engine.0.lock().take() {
            Some(engine) => engine.close(),
            None => fail!(DTL_ERROR_INVALID_STATE, "the communicator is closed"),
        }
    }
}

impl Liveness for P2pTransport {
    fn failed_ranks(&self) -> Vec<i32> {
        self.with(|engine| Ok(engine.failed_ranks())).unwrap_or_default()
    }

    fn failed_count(&self) -> usize {
        self.with(|engine| Ok(engine.deaths)).unwrap_or(0)
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
        match self.with(|engine| Ok(engine.doze(seen))) {
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
        self.with(|engine| engine.wire.admit())
    }
}

impl Diagnostics for P2pTransport {
    fn failure_text(&self) -> Option<String> {
        self.with(|engine| Ok(engine.said.clone())).ok().flatten()
    }

    fn memory_text(&self) -> Option<String> {
        self.with(|engine| Ok(engine.wire.memory())).ok().flatten()
    }
}

impl Drop for P2pTransport {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.0.lock().take() {
            drop(engine.close());
        }
    }
}
