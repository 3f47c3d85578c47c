//! Interface of the transport to `runtime`: the protocol engine, protected by one lock that is held
//! only briefly, and the check that rejects calls in forked children.

use super::memory::cma_copies::Copies;
use super::memory::coll_mailbox;
use super::memory::segment::PeerState;
use super::memory::shared_region::Parts;
use super::peer::{Mode, Probe};
use super::protocol::engine::{Engine, Send, SendStage, index_of, rank_of};
use crate::backend::bootstrap::job_id::Claim;
use crate::backend::coll_mailbox::Places;
use crate::backend::p2p::{P2pEngine, P2pLink};
use crate::error::{Result, fail};
use crate::runtime::component::{
    CollMailbox, Completion, CrossMemory, Dest, Groups, Liveness, Matched, Member, OpId, PartKey,
    Pipeline, PipelinedSource, Properties, RecvMode, RecvReduce, RecvReduction, Remote, Selector,
    SendMode, SharedMemory, SharedOffer, SharedRegion, Transport, poll_of,
};
use crate::sys::memory::buf::Region;
use crate::sys::sync::lock::{Mutex, OpenState};
use crate::sys::sync::spin_lock::SpinLock;
use std::sync::Arc;
use std::task::Poll;

/// ID of the process that opens communicators. A fork clears it in the child. So the use of a
/// communicator in a forked child is detected at the cost of one load, without access to memory
/// that the parent uses.
static OPENER: OpenState = OpenState::new();
/// Maximum number of calls to `Engine::progress` that make progress in one call to `test`. Between
/// calls to `test` the caller may yield its core.
const ROUNDS: u32 = 8;
/// Maximum number of consecutive calls to `Engine::progress` without progress in one call to
/// `test`. Applies to messages that are transferred in fragments, because the peer may be copying
/// the next fragment.
const SPINS: u32 = 64;
/// Bit that is set in the stored process ID, to distinguish it from the internal state values of
/// `OpenState`.
const OPENER_BIT: u32 = 1 << 31;

/// Transport of a communicator: the protocol engine, protected by one lock that is held only
/// briefly.
pub(super) struct ShmTransport {
    engine: SpinLock<OpenComm>,
    rank: i32,
    properties: Properties,
    opener: u32,
    places: Mutex<Places>,
    parts: Parts,
    copies: Copies,
    _probe: Probe,
}

struct OpenComm {
    engine: Engine,
    /// Exclusive ownership of this process' rank in the job; `None` once the communicator is
    /// closed.
    claim: Option<Arc<Claim>>,
}

/// Records this process as the one that opens communicators from now on. Returns the process ID
/// with `OPENER_BIT` set.
pub(super) fn enter() -> Result<u32> {
    static LOCK: Mutex<()> = Mutex::new(());
    let _guard = LOCK.lock();
    let opener = std::process::id() | OPENER_BIT;
    if OPENER.state() != opener && !OPENER.set(opener) {
        return fail!(DTL_ERROR_OUT_OF_MEMORY, "no memory for one page; free some");
    }
    Ok(opener)
}

/// Returns true if this process obtained `opener` from [`enter`]; false in a forked child of that
/// process.
pub(super) fn is_opener(opener: u32) -> bool {
    OPENER.state() == opener
}

impl ShmTransport {
    pub(super) fn new(
        engine: Engine,
        claim: Arc<Claim>,
        (probe, mode): (Probe, Mode),
        description: String,
        opener: u32,
    ) -> Result<Self> {
        let (rank, size) = (rank_of(engine.rank), rank_of(engine.peers.len()));
        let properties = Properties {
            is_one_node: true,
            is_oversubscribed: Some(engine.segment.is_oversubscribed()),
            ..Properties::new(rank, size, description)
        };
        let parts = Parts::new(engine.segment.again()?, engine.rank, opener);
        let engine = SpinLock::new(OpenComm { engine, claim: Some(claim) });
        let places = Mutex::new(Places::default());
        let copies = Copies::new(mode);
        Ok(ShmTransport { engine, rank, properties, opener, places, parts, copies, _probe: probe })
    }

    /// Calls `act` on the engine; fails in a forked child, or if the communicator is closed.
    fn with<T>(&self, act: impl FnOnce(&mut Engine) -> Result<T>) -> Result<T> {
        if !is_opener(self.opener) {
            return fail!(
                DTL_ERROR_FORKED,
                "this process is a fork of the one that opened the communicator; open one of its \
                 own"
            );
        }
        let mut open = self.engine.lock();
        if open.claim.is_none() {
            return fail!(DTL_ERROR_INVALID_STATE, "the communicator is closed");
        }
        act(&mut open.engine)
    }
}

/// Tests operation `op`, and makes progress while it is incomplete and the progress continues.
fn test(engine: &mut Engine, op: OpId, completion: &mut Completion) -> Result<bool> {
    let (mut rounds, mut fruitless) = (0, 0);
    loop {
        if engine.operations.test(op, completion)? {
            return Ok(true);
        }
        if rounds == ROUNDS || fruitless > SPINS {
            return Ok(false);
        }
        if fruitless > 0 {
            if !engine.is_fragmented(op) {
                return Ok(false);
            }
            std::hint::spin_loop();
        }
        if engine.progress_for(op) {
            (rounds, fruitless) = (rounds + 1, 0);
        } else {
            fruitless += 1;
        }
    }
}

impl Transport for ShmTransport {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn groups(&self) -> Groups<'_> {
        Groups {
            liveness: Some(self),
            shared_memory: Some(self),
            cross_memory: Some(self),
            rma: Err("memory of the program's own is not shared between processes, as that of \
                      dtl_win_allocate is"),
            pipeline: Some(self),
            reducing: Some(self),
            ..Groups::NONE
        }
    }

    fn start_send(&self, data: Region, to: Dest, mode: SendMode, _may_block: bool) -> Result<OpId> {
        self.with(|engine| match mode {
            SendMode::Standard if engine.send_at_once(data, to) => Ok(OpId::COMPLETED),
            _ => engine.isend(data, to, mode),
        })
    }

    fn start_recv(&self, data: Region, select: Selector, mode: RecvMode<'_>) -> Result<OpId> {
        self.with(|engine| {
            if let Some(completion) = mode.poll() {
                if engine.receive_at_once(data, &select, completion).is_some() {
                    return Ok(OpId::COMPLETED);
                }
            }
            engine.irecv(data, select, None)
        })
    }

    fn probe(&self, select: Selector) -> Result<Option<Completion>> {
        self.with(|engine| {
            engine.progress();
            engine.probe(select)
        })
    }

    fn take(&self, select: Selector) -> Result<Option<Matched>> {
        self.with(|engine| {
            engine.progress();
            engine.take(select)
        })
    }

    fn receive_matched(&self, message: OpId, data: Region) -> Result<OpId> {
        self.with(|engine| engine.receive_matched(message, data))
    }

    fn test(&self, op: OpId, completion: &mut Completion) -> Poll<Result<()>> {
        poll_of(self.with(|engine| test(engine, op, completion)))
    }

    fn test_in_order(&self, op: OpId, next: &mut dyn FnMut(Option<&Completion>) -> Option<OpId>) {
        // An error means that the communicator is closed, this process is a forked child, or an
        // operation does not exist: `test` reports it.
        let _ = self.with(|engine| {
            let mut done = Completion::NOBODY;
            let mut is_over = test(engine, op, &mut done)?;
            while let Some(op) = next(is_over.then_some(&done)) {
                is_over = engine.operations.test(op, &mut done)?;
            }
            Ok(())
        });
    }

    fn progress(&self) {
        if !is_opener(self.opener) {
            return;
        }
        // A thread that holds the lock makes progress itself.
        if let Some(mut open) = self.engine.try_lock().filter(|open| open.claim.is_some()) {
            open.engine.progress();
        }
    }

    fn cancel(&self, op: OpId) -> Result<()> {
        self.with(|engine| {
            engine.withdraw(op);
            Ok(())
        })
    }

    /// Leaves the communicator; does not wait for other ranks. Completed sends are in the rings,
    /// which the other ranks read even after this process has ended.
    fn close(&self) -> Result<()> {
        self.with(|engine| {
            engine.segment.mark(engine.rank, PeerState::Left);
            Ok(())
        })?;
        self.engine.lock().claim = None;
        Ok(())
    }
}

impl Liveness for ShmTransport {
    fn failed_ranks(&self) -> Vec<i32> {
        self.with(|engine| Ok(engine.failed_ranks())).unwrap_or_default()
    }

    fn failed_count(&self) -> usize {
        if self.parts.is_quiet() {
            return 0;
        }
        self.with(|engine| Ok(engine.liveness.deaths)).unwrap_or(0)
    }
}

impl SharedMemory for ShmTransport {
    fn reserve_place(&self) -> Option<u32> {
        let own = usize::try_from(self.rank).unwrap_or(0);
        // The engine's lock is not held while pages are allocated, because that may take long and
        // must not delay the messages of other threads.
        self.with(|_| Ok(())).ok()?;
        coll_mailbox::reserve(self.parts.segment(), &mut self.places.lock(), own)
    }

    fn release_place(&self, place: u32) {
        self.places.lock().release(place);
    }

    fn mailbox(&self, context: u32, members: &[Member]) -> Option<Result<Box<dyn CollMailbox>>> {
        let (segment, own) = (self.parts.segment(), usize::try_from(self.rank).unwrap_or(0));
        let open = || coll_mailbox::open(segment, &mut self.places.lock(), own, context, members);
        segment.has_mailboxes().then(|| self.with(|_| Ok(())).and_then(|()| open()))
    }

    /// Allocates a shared window segment; `None` for memory that the application allocated, which
    /// cannot be shared. The engine's lock is not held while pages are allocated.
    fn offer_part(&self, offer: SharedOffer) -> Option<Result<Box<dyn SharedRegion>>> {
        let SharedOffer::Fresh(len) = offer else { return None };
        Some(self.with(|_| Ok(())).and_then(|()| self.parts.offer(len)))
    }

    fn find_part(&self, rank: i32, key: PartKey) -> Result<Box<dyn SharedRegion>> {
        self.with(|_| Ok(())).and_then(|()| self.parts.find(rank, key))
    }

    fn has_left(&self, rank: i32) -> bool {
        let is_gone = |engine: &mut Engine| Ok(engine.gone(rank).is_some());
        !self.parts.is_quiet() && self.with(is_gone).unwrap_or(false)
    }

    fn look_around(&self) {
        self.progress();
        if let Some(mut open) = self.engine.try_lock().filter(|open| open.claim.is_some()) {
            open.engine.look();
        }
    }

    fn catch_up(&self, rank: i32) {
        // An error means that the communicator is closed or this process is a forked child.
        let _ = self.with(|engine| {
            engine.catch_up(engine.check_rank(rank)?);
            Ok(())
        });
    }
}

impl CrossMemory for ShmTransport {
    fn remote(&self, rank: i32) -> Option<Result<Arc<dyn Remote>>> {
        if rank == self.rank {
            return None;
        }
        let find = |engine: &mut Engine| Ok(engine.peers.get(index_of(rank)).map(|peer| peer.pid));
        let pid = self.with(find).ok().flatten()?;
        Some(self.copies.find(self.parts.segment(), index_of(rank), pid))
    }
}

impl Pipeline for ShmTransport {
    fn isend_pipelined(
        &self,
        data: Region,
        dest: i32,
        word: u64,
        by: &Arc<PipelinedSource>,
    ) -> Option<Result<OpId>> {
        // A message to this rank itself is sent as a whole.
        (dest != self.rank).then(|| {
            self.with(|engine| {
                let (dest, filling) = (engine.check_rank(dest)?, Some(Arc::clone(by)));
                let (mode, stage) = (SendMode::Standard, SendStage::Queued);
                engine.send_to(Send { dest, word, data, mode, stage, filling })
            })
        })
    }

    fn arrived(&self, op: OpId) -> usize {
        self.with(|engine| Ok(engine.arrived(op))).unwrap_or(0)
    }
}

impl RecvReduce for ShmTransport {
    fn irecv_reduce(&self, data: Region, select: Selector, by: RecvReduction) -> Result<OpId> {
        self.with(|engine| engine.irecv(data, select, Some(by)))
    }
}

impl Drop for ShmTransport {
    fn drop(&mut self) {
        // An error means that the communicator is already closed or this process is a forked child,
        // which must not act for its parent.
        let _ = self.close();
    }
}
