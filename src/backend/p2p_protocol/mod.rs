//! Complete two-sided communication over a transport that can only send, receive and test:
//! matching of 64-bit words with masks, probing, synchronous sends and cancellation are made here.
//!
//! [`Wire`] is the interface of such a transport. The lock is here. The library uses it for
//! registered communicators and for MPI with time limits.
//!
//! In reading order:
//! - `frame`: the unit of the protocol
//! - `engine`: operations, how they start and are cancelled
//! - `tx`: outgoing frames and payloads
//! - `rx`: incoming frames and payloads
//! - `recv_fast`: receives without an operation
//! - `mprobe`: matched probe
//! - `fault`: dead ranks and failed wires
//! - `device_mem`: device memory
//! - `rma`: one-sided operations of the wire
//! - `rma_adapter`: those as `runtime` calls them
//! - `shutdown`: the end
//! - `mock`: a fake wire for the tests

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

/// The word of every frame. Payloads travel under other words, all below 2^28.
const FRAME_WORD: u64 = 0;

/// A transport that is called by one thread at a time and matches 28 bits exactly.
///
/// Two messages of one rank under one word are received in the order sent, by receives in the order
/// posted. A rank may send to itself. No call but `close` waits. A status BUSY of `isend` or
/// `irecv` means "no room now": the call is made again later. An error of `test` means that the
/// call itself failed (for example, in this thread); the operation lives on.
///
/// A death that it notices ends what can no longer complete with RANK_FAILURE: sends to the dead
/// rank and receives from it, and at least one receive from any source (one that is pending, else
/// the next), `source` is the rank that died. Receives from any source that are posted afterwards
/// take messages of the living.
pub trait Wire: Send {
    /// What the transport over it is.
    fn properties(&self) -> &Arc<Properties>;
    /// Starts a send; the region stays valid until it is done.
    fn isend(&mut self, data: Region, dest: i32, word: u64) -> Result<OpId>;
    /// Starts a receive from a rank or DTL_ANY_SOURCE, of exactly this word.
    fn irecv(&mut self, data: Region, source: i32, word: u64) -> Result<OpId>;
    /// Makes progress and tests one operation; `Some` = over.
    fn test(&mut self, op: OpId) -> Result<Option<Completion>>;
    /// Whether `cancel` withdraws receives.
    fn can_cancel(&self) -> bool;
    /// Tries to withdraw an operation, which then completes through `test`.
    fn cancel(&mut self, op: OpId) -> Result<()>;
    /// As [`ThreadCheck::admit`].
    fn admit(&self) -> Result<()> {
        Ok(())
    }
    /// Whether a thread that waits for something may sleep now. `seen` is kept for it from call to
    /// call, 0 at first.
    fn doze(&mut self, _seen: &mut u64) -> SleepMode {
        SleepMode::No
    }
    /// Returns whether closing it is reported to the other ranks, as a death is.
    fn notifies_on_close(&self) -> bool {
        false
    }
    /// Notes that a message of this rank (or any, DTL_ANY_SOURCE: repeated as long as a thread
    /// waits) is awaited and not there.
    fn awaits(&mut self, _source: i32) {}
    /// Names what completes operations: the subject of a text about an impossible completion.
    fn completes(&self) -> String {
        self.properties().description.to_string()
    }
    /// What memory it has and had, for people.
    fn memory(&self) -> Option<String> {
        None
    }
    /// Returns its text about the operation that has just failed in this thread.
    fn failure_text(&self) -> Option<String>;
    /// Returns why a rank is gone, if it keeps that for each rank.
    fn why_gone(&self, _rank: i32) -> Option<String> {
        None
    }
    /// Frames in its own memory, if it has such.
    fn frames(&mut self) -> Option<&mut dyn WireFrames> {
        None
    }
    /// Device memory in messages, if it moves such.
    fn devices(&mut self) -> Option<&mut dyn WireDevices> {
        None
    }
    /// Returns its one-sided communication, or why it has none.
    fn windows(&mut self) -> std::result::Result<&mut dyn WireWindows, &'static str>;
    /// Closes it.
    fn close(&mut self) -> Result<()>;
}

/// What a wire has besides that keeps memory for frames itself: they are written where they leave
/// from, and read where they arrive. Such a wire gets payloads only through `isend` and `irecv`.
pub trait WireFrames {
    /// Sends words and payload as one frame, and needs neither when it returns. BUSY: no room now.
    fn send(&mut self, head: &[u64; FRAME_WORDS], payload: Region, dest: i32) -> Result<()>;
    /// The next frame that has arrived, or who is gone: each rank once, after all that it had sent.
    /// Makes progress before that if `looks` and none is there.
    fn next(&mut self, looks: bool) -> Result<Option<RxFrame>>;
    /// A frame has been read.
    fn give_back(&mut self, lent: &RxFrame);
}

/// Whether a waiting thread may sleep.
pub enum SleepMode {
    /// Nobody would wake it.
    No,
    /// Something has happened since the last call: look again first.
    News,
    /// Yes, until this is readable or so many nanoseconds are over: without the lock, so others may
    /// take meanwhile what woke it, and then it sleeps until the limit that it has itself.
    On(Arc<Poller>, u64),
}

/// Words of a frame before its payload.
pub const FRAME_WORDS: usize = frame::HEADER / 8;
/// Bytes of a frame at most.
pub const FRAME_BYTES: usize = frame::FRAME;

/// Returns the match word of a frame that is a whole message: the frame's words follow from it and
/// the payload's length.
#[inline]
#[must_use]
pub fn eager_word(head: &[u64; FRAME_WORDS]) -> Option<u64> {
    frame::Header::eager_word(head)
}

/// The words of such a frame.
#[inline]
#[must_use]
pub fn eager_head(word: u64, len: usize) -> [u64; FRAME_WORDS] {
    frame::Header { kind: frame::FrameKind::Eager, payload: 0, word, size: len as u64, id: 0 }
        .words()
}

/// A frame in the wire's memory.
pub struct RxFrame {
    /// Who sent it.
    pub source: i32,
    /// RANK_FAILURE: there is no frame, the source is gone.
    pub status: dtl_status_t,
    /// Its words.
    pub head: [u64; FRAME_WORDS],
    /// Its payload.
    pub bytes: Region,
    /// The wire's own.
    pub id: u64,
}

/// The whole trait over a wire. Closes the wire if that is not possible.
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

/// Memory of a transport with no messages yet: its engine, and the frames that wait for what comes.
pub const FIXED_BYTES: usize = LENT_FIXED_BYTES + engine::RECEIVES * frame::FRAME;
/// Memory of a transport with no messages yet, where the wire itself keeps memory for frames.
pub const LENT_FIXED_BYTES: usize = size_of::<P2pTransport>() + size_of::<Properties>();
/// Memory for each rank, with or without messages.
pub const RANK_BYTES: usize = 2 * BYTES_PER_RANK;
/// Memory for each rank with messages, without waiting ones.
pub const PARTNER_BYTES: usize =
    size_of::<engine::PeerLink>() + Matcher::<OpId, engine::Arrival>::SOURCE_BYTES;

/// An engine behind one short lock; `None` when it is closed.
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
    /// Whether the wire moves device memory.
    is_direct: bool,
    /// Why the wire makes no windows, if it does not.
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
        // The holder of the lock makes progress itself; an error is returned by the test of an
        // operation.
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
