//! State of an rdma communicator, and its progress.

use super::cq::{BATCH, CqSet};
use super::operation::{RdmaOperation, part_over};
use super::protocol::eager_slots::{DATA, EagerHeader, EagerKind, Note, NoteKind};
use crate::abi::status::*;
use crate::backend::bootstrap::liveness::Oob;
use crate::backend::op_table::{Operations, done, rank_of};
use crate::backend::p2p_protocol::{FRAME_WORDS, RxFrame, eager_head};
use crate::backend::peer_map::PeerMap;
use crate::backend::rdma::config::Config;
use crate::backend::rdma::endpoint::peer::{ConnectStage, Peer};
use crate::backend::rdma::endpoint::qp_state::WorkId;
use crate::backend::rdma::memory::reg_cache::{Cache, Registered};
use crate::backend::rdma::verbs::errors;
use crate::backend::rdma::verbs::functions::*;
use crate::backend::rdma::verbs::qp::Remote;
use crate::backend::rdma::verbs::rail::{Completions, Rail};
use crate::backend::rdma::verbs::types::Wc;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::component::{Completion, OpId, Properties};
use crate::sys::memory::buf::Region;
use crate::sys::os::poller::Poller;
use std::collections::VecDeque;
use std::sync::Arc;

/// Size of a frame's header words, in bytes.
const HEAD: usize = 8 * FRAME_WORDS;
/// Number of consecutive calls to `progress` without a completion after which the control sockets
/// are polled. Each poll is a system call.
const PATIENCE: u32 = 64;
/// Maximum number of bytes per work request, whatever the device supports. The retransmission of a
/// longer request costs more than splitting the transfer into several requests. Soft-RoCE is slower
/// with requests of 4 MiB or more, and retransmits such requests if they take longer than its
/// timeout.
const LONGEST: usize = 1 << 20;
/// Maximum number of rounds in which messages that have arrived are read before the connection to a
/// failed peer is closed. Each round handles more messages than one peer can have in flight.
const DRAIN: usize = 128;
/// Maximum number of batches polled from a completion queue in one round.
const BATCHES: usize = 8;
/// Number of consecutive rounds without completions after which no more messages are expected to
/// arrive. A device may report an arrival shortly after it has completed the sender's request.
const QUIET: usize = 24;

/// Returns the frame that arrived in receive `id`, in the form that is passed to `p2p_protocol`.
fn frame_of(id: WorkId, head: [u64; FRAME_WORDS], bytes: Region) -> RxFrame {
    RxFrame { source: rank_of(id.rank), status: DTL_SUCCESS, head, bytes, id: id.word() }
}

/// Open window.
pub(crate) struct RdmaWindow {
    pub(crate) number: usize,
    pub(crate) memory: Region,
    #[allow(dead_code, reason = "keeps its memory registered")]
    pub(crate) registered: Option<Registered>,
    /// Window memory of the other ranks, indexed by rank, with its remote key (rkey) on the first
    /// rail.
    pub(crate) remotes: Vec<Option<Remote>>,
}

/// State and progress engine of an rdma communicator. Only one thread at a time may call the
/// methods.
pub(crate) struct RdmaEngine {
    pub(crate) properties: Arc<Properties>,
    pub(crate) rank: usize,
    pub(crate) config: Config,
    pub(crate) rails: Vec<Arc<Rail>>,
    pub(crate) polling: CqSet,
    pub(crate) peers: PeerMap<Peer>,
    pub(crate) operations: Operations<RdmaOperation>,
    /// Frames that have not been read yet.
    pub(crate) arrived: VecDeque<RxFrame>,
    /// Receives whose messages have been read, and which must be posted again.
    spent: Vec<WorkId>,
    /// Ranks that have failed and have not been reported yet.
    pub(crate) lost: VecDeque<usize>,
    /// Ranks to which rendezvous control records (notes) or credits must be sent.
    pub(crate) listed: Vec<usize>,
    /// Operations some of whose work requests have not been posted yet.
    pub(crate) unfinished: Vec<OpId>,
    /// Failed peers whose connections will be closed.
    failing: Vec<usize>,
    pub(crate) connecting: usize,
    /// Peers whose connections are being re-established, or whose connection attempts are being
    /// repeated.
    pub(crate) mending: Vec<usize>,
    idle: u32,
    /// Counter of events, starting at 1. An event is a closed connection or a call to `progress`
    /// that has found completions.
    pub(crate) happened: u64,
    /// Poller that waiting threads sleep on, if sleeping is configured.
    pub(crate) bell: Option<Arc<Poller>>,
    /// Time of the next poll of the devices' asynchronous events, in nanoseconds.
    pub(crate) hear_at: u64,
    /// Time of the next watchdog check, in nanoseconds.
    pub(crate) watch_at: u64,
    /// Error message of the device failure that prevents new connections.
    pub(crate) dead_device: Option<String>,
    pub(crate) oob: Oob,
    pub(crate) cache: Cache,
    pub(crate) windows: Vec<RdmaWindow>,
    pub(crate) last_window: usize,
    /// Error message of the last failure.
    pub(crate) failure: Option<String>,
}

impl RdmaEngine {
    pub(crate) fn new(
        properties: Properties,
        rails: Vec<Arc<Rail>>,
        (oob, bell): (Oob, Option<Arc<Poller>>),
        config: Config,
    ) -> RdmaEngine {
        let cache = Cache::new(&rails, config.cache_bytes);
        RdmaEngine {
            rank: usize::try_from(properties.rank).unwrap_or(0),
            peers: PeerMap::new(usize::try_from(properties.size).unwrap_or(1)),
            properties: Arc::new(properties),
            config,
            rails,
            polling: CqSet::new(),
            operations: Operations::default(),
            arrived: VecDeque::new(),
            spent: Vec::new(),
            lost: VecDeque::new(),
            listed: Vec::new(),
            unfinished: Vec::new(),
            failing: Vec::new(),
            connecting: 0,
            mending: Vec::new(),
            idle: 0,
            happened: 1,
            bell,
            hear_at: 0,
            watch_at: 0,
            dead_device: None,
            oob,
            cache,
            windows: Vec::new(),
            last_window: 0,
            failure: None,
        }
    }

    /// Returns the maximum number of bytes per work request on `rail`.
    pub(crate) fn longest(&self, rail: usize) -> usize {
        self.rails.get(rail).map_or(LONGEST, |rail| rail.max_message.min(LONGEST))
    }

    pub(crate) fn longest_of_all(&self) -> usize {
        (0..self.rails.len()).map(|rail| self.longest(rail)).min().unwrap_or(LONGEST)
    }

    /// Returns a completion queue of `rail` with room for one more peer's queue pair.
    pub(crate) fn completions(&mut self, rail: usize) -> Result<Arc<Completions>> {
        match self.rails.get(rail) {
            Some(of) => self.polling.share((rail, of), &self.config, self.peers.ranks()),
            None => fail!(DTL_ERROR_INTERNAL, "there is no rail {rail}"),
        }
    }

    /// Polls all completion queues and handles their completions; returns true if there were any.
    pub(crate) fn poll(&mut self) -> Result<bool> {
        let mut something = false;
        for index in 0..self.polling.queues.len() {
            something |= self.take_from(index)?;
        }
        if !something {
            self.post_again(); // Posts the receives while no completion has to be handled.
        }
        Ok(something)
    }

    /// Polls completion queue `index` and handles up to `BATCHES` batches of its completions;
    /// returns true if there were any completions.
    fn take_from(&mut self, index: usize) -> Result<bool> {
        for before in 0..BATCHES {
            let Some(queue) = self.polling.queues.get(index) else { return Ok(false) };
            let count = queue.completions.poll(&mut self.polling.batch)?;
            for at in 0..count {
                let Some(entry) = self.polling.batch.get(at).copied() else { break };
                self.completed(&entry);
            }
            if count < BATCH {
                return Ok(before + count > 0);
            }
        }
        Ok(true)
    }

    // ---- completed operations ----

    pub(crate) fn finish(&mut self, op: OpId, done: Completion) {
        if let Some(operation) = self.operations.get_mut(op) {
            operation.end(done);
        }
    }

    /// Polls completions, continues operations, sends rendezvous control records and credits, and
    /// closes the connections to failed peers.
    pub(crate) fn progress(&mut self) -> Result<()> {
        let something = self.poll()?;
        if !self.unfinished.is_empty() {
            self.go_on();
        }
        if !self.listed.is_empty() {
            self.send_pending_notes();
        }
        self.idle = if something { 0 } else { self.idle.wrapping_add(1) };
        self.happened += u64::from(something);
        if self.idle % PATIENCE == PATIENCE - 1 || self.connecting > 0 {
            self.look_around();
        }
        if !self.failing.is_empty() {
            self.give_up_failing()?;
        }
        Ok(())
    }

    pub(crate) fn completed(&mut self, entry: &Wc) {
        let id = WorkId::of(entry.wr_id);
        if entry.status != WC_SUCCESS {
            return self.failed(id, entry);
        }
        if !id.is_receive {
            return self.sent(id);
        }
        self.has_come(id);
        let len = entry.byte_len as usize;
        let outcome = match entry.opcode {
            WC_RECV_RDMA_WITH_IMM => {
                self.landed(id.rank, u32::from_be(entry.imm_data), len);
                self.consumed(id);
                Ok(())
            }
            _ if entry.wc_flags & WC_WITH_IMM != 0 => {
                self.received_brief(id, u32::from_be(entry.imm_data), len)
            }
            _ => self.received(id, len),
        };
        if let Err(error) = outcome {
            self.fail(id.rank, error.text());
        }
    }

    #[cold]
    fn failed(&mut self, id: WorkId, entry: &Wc) {
        if let Some(peer) = self.peers.get_mut(id.rank) {
            peer.has_failed(id);
        }
        // The device's own event gives a better error message than the status of the work request.
        self.look_at_devices();
        let stage = self.peers.get(id.rank).map(|peer| peer.stage);
        // A flushed request carries no new information.
        if let (Some(ConnectStage::Connected | ConnectStage::Ready), Some(rail)) =
            (stage, self.rails.first())
        {
            let text = errors::completion_text(rail.calls, entry.status, entry.vendor_err);
            match errors::may_pass(entry.status) {
                true => self.broke(id.rank, &text),
                false => self.fail(id.rank, &text),
            }
        }
    }

    /// Records that a peer has failed. The connection to the peer is closed once all data that has
    /// arrived has been read.
    pub(crate) fn fail(&mut self, rank: usize, why: &str) {
        let Some(peer) = self.peers.make(rank) else { return };
        if peer.stage != ConnectStage::Gone && peer.failing.is_none() {
            peer.failing = Some(why.to_owned());
            self.failing.push(rank);
        }
    }

    /// Records that the connection to a peer has failed because of an error on this rank.
    #[cold]
    pub(crate) fn fail_here(&mut self, rank: usize, error: Error) {
        self.fail(rank, errors::here(error).text());
    }

    fn sent(&mut self, id: WorkId) {
        let Some(peer) = self.peers.get_mut(id.rank) else { return };
        let operations = &mut self.operations;
        let mut ended = Vec::new();
        peer.over(id.lane, id.number, |op| {
            if part_over(operations, op) {
                ended.push(op);
            }
        });
        let has_answers = !peer.results.answered.is_empty();
        ended.into_iter().for_each(|op| self.all_parts_over(op));
        if has_answers {
            self.poll_results(id.rank);
        }
    }

    fn received(&mut self, id: WorkId, len: usize) -> Result<()> {
        let Some(peer) = self.peers.get_mut(id.rank).filter(|peer| !peer.lanes.is_empty()) else {
            return Ok(());
        };
        let slot = peer.slab.receive(id.number as usize);
        let (message, bytes) = EagerHeader::read(slot, len).ok_or_else(|| {
            failure!(DTL_ERROR_COMMUNICATION, "{len} bytes from it are no message of this library")
        })?;
        peer.add_credits(0, message.consumed);
        if let Some(note) = message.note {
            self.noted(id.rank, note);
        }
        match message.kind {
            EagerKind::Frame => {
                let (head, bytes) = (bytes.first_words(), bytes.part(HEAD, DATA));
                if let Some(peer) = self.peers.get_mut(id.rank) {
                    peer.heads.learn(message.word, &head);
                }
                self.arrived.push_back(frame_of(id, head, bytes));
                return Ok(());
            }
            EagerKind::Fragment | EagerKind::LastFragment => {
                self.fragment(id.rank, message.word, bytes, message.kind)
            }
            EagerKind::Note => {}
        }
        self.consumed(id);
        Ok(())
    }

    /// Handles an eager message without header words. The header is computed from the payload
    /// length and from match bits that an earlier message from the peer carried.
    fn received_brief(&mut self, id: WorkId, number: u32, len: usize) -> Result<()> {
        let Some(peer) = self.peers.get_mut(id.rank).filter(|peer| !peer.lanes.is_empty()) else {
            return Ok(());
        };
        peer.add_brief_credits(number as u16);
        let Some(word) = peer.heads.known((number >> 16) as usize) else {
            return fail!(
                DTL_ERROR_COMMUNICATION,
                "a message of it begins with words that it never sent"
            );
        };
        let bytes = peer.slab.receive(id.number as usize).part(0, len);
        self.arrived.push_back(frame_of(id, eager_head(word, len), bytes));
        Ok(())
    }

    /// Counts a message that was received from a peer. The message also proves that the peer is
    /// connected.
    fn has_come(&mut self, id: WorkId) {
        let Some(peer) = self.peers.get_mut(id.rank) else { return };
        if let Some(lane) = peer.lanes.get_mut(id.lane) {
            lane.received = lane.received.wrapping_add(1);
        }
        if peer.stage == ConnectStage::Connected {
            self.ready(id.rank);
        }
    }

    /// Schedules receive `id`, whose message has been read, for reposting. Scheduled receives are
    /// posted again when no other work is left, or when their number reaches a quarter of the
    /// number of receives that are posted per peer.
    pub(crate) fn consumed(&mut self, id: WorkId) {
        self.spent.push(id);
        if self.spent.len() >= (self.config.depth / 4) as usize {
            self.post_again();
        }
    }

    /// Posts receives again into the buffers whose messages have been consumed.
    pub(crate) fn post_again(&mut self) {
        if self.spent.is_empty() {
            return;
        }
        let mut spent = std::mem::take(&mut self.spent);
        for id in spent.drain(..) {
            let Some(peer) = self.peers.get_mut(id.rank) else { continue };
            let posted = peer.consume(id.lane, id.number);
            if peer.owes_credits() {
                self.list(id.rank);
            }
            if let Err(error) = posted {
                self.fail_here(id.rank, error);
            }
        }
        self.spent = spent;
    }

    fn noted(&mut self, rank: usize, note: Note) {
        match note.about {
            NoteKind::Landing => {
                if let Some(peer) = self.peers.get_mut(rank) {
                    peer.landings.push(note);
                }
            }
            NoteKind::Offer => self.offered(rank, note),
            NoteKind::Fetched | NoteKind::Fragmented => self.answered(rank, note),
        }
    }

    // ---- notes and credits to send ----

    pub(crate) fn list(&mut self, rank: usize) {
        if let Some(peer) = self.peers.get_mut(rank).filter(|peer| !peer.is_listed) {
            peer.is_listed = true;
            self.listed.push(rank);
        }
    }

    /// Sends pending rendezvous control records (notes) and credits that no other message to the
    /// same peer has carried.
    fn send_pending_notes(&mut self) {
        let mut listed = std::mem::take(&mut self.listed);
        listed.retain(|&rank| {
            let Some(peer) = self.peers.get_mut(rank) else { return false };
            let flushed = match peer.stage {
                ConnectStage::Gone => Ok(true),
                _ => peer.send_notes().and_then(|no_notes| Ok(peer.return_credits()? && no_notes)),
            };
            let stays = matches!(flushed, Ok(false));
            peer.is_listed = stays;
            if let Err(error) = flushed {
                self.fail_here(rank, error);
            }
            stays
        });
        self.listed = listed;
    }

    // ---- failed peers ----

    fn give_up_failing(&mut self) -> Result<()> {
        // Messages that arrived before are read first. The rounds are bounded as others still send.
        let mut empty = 0;
        for _ in 0..DRAIN {
            empty = if self.poll()? { 0 } else { empty + 1 };
            if empty == QUIET {
                break;
            }
        }
        for rank in std::mem::take(&mut self.failing) {
            self.lose(rank);
        }
        Ok(())
    }

    /// Closes the connection to `rank`, and completes all operations that involve that rank. These
    /// operations complete with the failure status of the rank.
    fn lose(&mut self, rank: usize) {
        let Some(peer) = self.peers.get_mut(rank) else { return };
        let why = peer.failing.clone().unwrap_or_default();
        if matches!(
            peer.stage,
            ConnectStage::Asked | ConnectStage::Connected | ConnectStage::Broken
        ) && !peer.lanes.is_empty()
        {
            self.connecting -= 1;
        }
        // The devices must release all memory before the operations complete.
        let was_known = peer.stage != ConnectStage::None;
        peer.give_up();
        peer.awaited.clear();
        peer.offered.clear();
        let done = done(rank, self.gone_status(rank), 0, 0);
        for (_, operation) in self.operations.iter_mut() {
            let of = match operation {
                RdmaOperation::Payload(payload) => payload.rank,
                RdmaOperation::OneSided(one_sided) => one_sided.target,
                RdmaOperation::Atomic(atomic) => atomic.target,
                RdmaOperation::Done(..) => continue,
            };
            if of == rank {
                operation.end(done);
            }
        }
        self.failure = Some(format!("rank {rank}: {why}"));
        if rank == self.rank {
            return;
        }
        self.lost.push_back(rank);
        self.happened += 1;
        if was_known {
            self.notify_broken(rank, &why);
        }
    }

    /// Creates the error for an operation with a failed peer.
    pub(crate) fn is_gone(&self, rank: usize) -> Error {
        let text = self.reason_gone(rank).unwrap_or_else(|| format!("rank {rank} is gone"));
        Error::new(self.gone_status(rank), text)
    }

    /// Returns the reason for the failure of `rank`; returns `None` if the rank has not failed.
    pub(crate) fn reason_gone(&self, rank: usize) -> Option<String> {
        let peer = self.peers.get(rank).filter(|peer| peer.stage == ConnectStage::Gone);
        peer.and_then(|peer| peer.failing.as_deref()).map(|why| format!("rank {rank}: {why}"))
    }

    /// Returns the failure status of `rank`. For this rank itself the status is CONNECTION_LOST:
    /// the rank is alive even if its own device no longer reaches it.
    fn gone_status(&self, rank: usize) -> dtl_status_t {
        if rank == self.rank { DTL_ERROR_CONNECTION_LOST } else { DTL_ERROR_RANK_FAILURE }
    }

    /// Returns a readable report of the registered memory: the current and the maximum number of
    /// bytes, and the number of registrations.
    pub(crate) fn memory_text(&self) -> String {
        let one = |rail: &Arc<Rail>| {
            let [now, most, times] = rail.memory();
            format!(
                "{now} bytes registered with {} (at most {most}; {times} registrations so far)",
                rail.name
            )
        };
        let rails: Vec<_> = self.rails.iter().map(one).collect();
        let peers = self.peers.values().filter(|peer| !peer.lanes.is_empty());
        let slabs: usize = peers.map(|peer| peer.slab.region().len()).sum();
        format!(
            "{}, of which {slabs} for slots and {} for large messages{} (DTL_RDMA_CACHE_BYTES={})",
            rails.join(", "),
            self.cache.bytes(),
            match self.cache.devices.bytes() {
                0 => String::new(),
                bytes => format!(", {bytes} of them of devices"),
            },
            self.config.cache_bytes
        )
    }
}
