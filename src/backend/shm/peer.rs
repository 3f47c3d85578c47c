//! State of the other ranks: the liveness of each rank, whether its memory can be read, and, for
//! each rank that has exchanged messages with this rank, the queues of unfinished operations and
//! this rank's ends of the message rings.

use super::memory::cells::CellMemory;
use super::memory::ring::{Consumer, ORDINARY, Payload, Producer, RecordKind};
use super::memory::segment::{PeerState, Segment};
use super::protocol::copy_choice::{CopyChoices, CopyTimes};
use super::protocol::copy_method::CopyMethod;
use super::protocol::exchange::{Exchange, LargeHeader};
use super::protocol::rx::PipelineReceive;
use super::protocol::transfer_times::{TransferEnd, TransferTimes};
use crate::backend::p2p::SendQueue;
use crate::error::{Result, fail};
use crate::runtime::component::OpId;
use crate::sys::memory::buf::{Region, Scratch};
use crate::sys::os::foreign_process;
use crate::sys::os::process::{self, PidFd};
use crate::sys::sync::wait::now_ns;
use std::collections::VecDeque;
use std::io;

/// State of all ranks. For a rank with which no message was exchanged, only its `Peer` is
/// allocated.
pub(super) struct Peers {
    all: Vec<Peer>,
    links: Vec<Link>,
}

impl Peers {
    pub(super) fn new(all: Vec<Peer>) -> Peers {
        Peers { all, links: Vec::new() }
    }

    /// Returns the number of ranks, including this rank.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, rank: usize) -> Option<&Peer> {
        self.all.get(rank)
    }

    pub(super) fn get_mut(&mut self, rank: usize) -> Option<&mut Peer> {
        self.all.get_mut(rank)
    }

    /// Returns the messaging state (`Link`) of `rank`, or `None` if no message has been exchanged
    /// with that rank.
    pub(super) fn link(&self, rank: usize) -> Option<&Link> {
        self.links.get(usize::from(self.all.get(rank)?.link).wrapping_sub(1))
    }

    pub(super) fn link_mut(&mut self, rank: usize) -> Option<&mut Link> {
        self.links.get_mut(usize::from(self.all.get(rank)?.link).wrapping_sub(1))
    }

    /// Returns true if `rank` exists and is not known to have left or died.
    pub(super) fn is_present(&self, rank: usize) -> bool {
        self.get(rank).is_some_and(|peer| peer.state == PeerState::Present)
    }

    /// Returns true if `rank` is present, and its process has exited.
    pub(super) fn has_exited(&self, rank: usize) -> bool {
        let process = self.get(rank).and_then(|peer| peer.process.as_ref());
        self.is_present(rank) && process.is_some_and(PidFd::exited)
    }

    /// Returns the producer end of the ring to `rank`, or `None` if that ring is not open.
    pub(super) fn producer(&mut self, rank: usize) -> Option<&mut Producer> {
        self.link_mut(rank)?.producer.as_mut()
    }

    /// Returns the consumer end of the ring from `rank`, or `None` if that ring is not open.
    pub(super) fn consumer(&self, rank: usize) -> Option<&Consumer> {
        self.link(rank)?.consumer.as_ref()
    }

    /// Returns the consumer end of the ring from `rank`, or `None` if that ring is not open.
    pub(super) fn consumer_mut(&mut self, rank: usize) -> Option<&mut Consumer> {
        self.link_mut(rank)?.consumer.as_mut()
    }

    /// Returns the messaging state (`Link`) of `rank`, and creates it if necessary; `None` if
    /// `rank` is out of range.
    pub(super) fn make_link(&mut self, rank: usize) -> Option<&mut Link> {
        let peer = self.all.get_mut(rank)?;
        if peer.link == 0 {
            self.links.push(Link::default());
            peer.link = u16::try_from(self.links.len()).unwrap_or(0);
        }
        self.link_mut(rank)
    }
}

/// State of one rank, in 12 bytes. 16 bits suffice for the index `link`, because there are at most
/// `MOST_RANKS` ranks.
pub(super) struct Peer {
    process: Option<PidFd>,
    /// Process ID that the rank had when the communicator was opened.
    pub(super) pid: i32,
    /// Index of the rank's `Link` plus 1; 0 if no message was exchanged with the rank.
    link: u16,
    /// Liveness state of the rank that this process handled last. To handle a disconnection or a
    /// death, the process completes the operations that cannot finish without the rank.
    pub(super) state: PeerState,
    /// True if this process may read the rank's memory, as tested when the communicator was opened.
    pub(super) readable: bool,
}

/// State of the message exchange between this rank and a peer.
#[derive(Default)]
pub(super) struct Link {
    pub(super) producer: Option<Producer>,
    pub(super) consumer: Option<Consumer>,
    /// View of the peer's cells (buffers for large messages); `None` until the peer has sent a
    /// cell.
    pub(super) cells: Option<CellMemory>,
    /// Message that is being received in unrequested fragments, which the sender sends without a
    /// clear to send (`Clear` record).
    pub(super) long: Option<PipelineReceive>,
    /// Sends that are waiting for space in the ring, and receives whose control record is still to
    /// be sent: `Clear` (clear to send) or `Finish` (all bytes received).
    pub(super) queue: SendQueue<OpId>,
    /// Rendezvous sends whose data is being copied in fragments, in round-robin order.
    pub(super) streams: VecDeque<OpId>,
    /// Transfers of large messages from the peer.
    pub(super) transfers: TransferTimes,
    /// Transfer from the peer that has ended while a message to it was still in progress.
    pub(super) ended: Option<TransferEnd>,
    /// Measured times of large messages from the peer; `None` before the first one is measured.
    pub(super) times: Option<Box<CopyTimes>>,
    /// Whether large messages travel in both directions.
    pub(super) exchange: Exchange,
}

impl Peer {
    /// Creates the state of the rank with process ID `pid`. `process` is its pidfd; `None` for this
    /// rank itself.
    pub(super) fn new(pid: i32, process: Option<PidFd>) -> Peer {
        Peer { process, pid, link: 0, state: PeerState::Present, readable: false }
    }

    /// Copies bytes from `address` in the rank's memory and returns their number; `Ok(0)` means
    /// that the process has ended.
    pub(super) fn read(&self, address: u64, into: Region) -> io::Result<usize> {
        let read = foreign_process::read_memory(self.pid, [(address, into)]);
        // If the process is alive afterwards, the process id referred to it all the time, and the
        // bytes are from its memory.
        if self.is_alive() { read } else { Ok(0) }
    }

    /// Copies bytes to `address` in the rank's memory and returns their number; `Ok(0)` means that
    /// the process has ended.
    pub(super) fn write(&self, address: u64, from: Region) -> io::Result<usize> {
        // A check after the call would be too late. Between this check and the call, the ID can get
        // to another process only if the kernel's process IDs wrap around (ADR 0041).
        if self.is_alive() { foreign_process::write_memory(self.pid, address, from) } else { Ok(0) }
    }

    fn is_alive(&self) -> bool {
        self.process.as_ref().is_some_and(|process| !process.exited())
    }
}

impl Link {
    pub(super) fn has_work(&self) -> bool {
        !(self.queue.is_empty() && self.streams.is_empty())
    }

    /// Records that a large message from the peer arrives.
    pub(super) fn arrive(&mut self, message: LargeHeader) {
        let has_sends = !self.queue.starts.is_empty() || self.has_open_sends();
        self.exchange.arrive(message, has_sends);
    }

    /// Returns the choices for messages from the peer or, if `is_send`, to it: those of the rank
    /// that receives them. `is_lower` is true if this rank is lower than the peer. If large
    /// messages travel in both directions, both directions use the choice of the lower rank, and
    /// only that rank measures. Each core copies for both, so a method that is tried in one
    /// direction only would seem fast because it leaves the work to the other core, or slow because
    /// it waits for that core.
    pub(super) fn choices(&self, is_send: bool, is_lower: bool) -> CopyChoices {
        let is_own = if self.exchange.is_on { is_lower } else { !is_send };
        match (is_own, &self.times, &self.producer) {
            (true, Some(times), _) => times.choices,
            (false, _, Some(producer)) => CopyChoices(producer.choices()),
            _ => CopyChoices::default(),
        }
    }

    /// Returns the method for a message of `len` bytes from the peer, whose memory this rank can
    /// read.
    pub(super) fn chosen(&self, len: usize, is_lower: bool) -> CopyMethod {
        self.choices(false, is_lower).method(len, true)
    }

    /// Returns the method for the next message of `len` bytes to the peer, and true if the time to
    /// start it is to be measured. `can_read` is true if this rank can read the peer's memory.
    pub(super) fn chosen_for_send(
        &mut self,
        len: usize,
        is_lower: bool,
        can_read: bool,
    ) -> (CopyMethod, bool) {
        self.exchange.prepare();
        let choices = self.choices(true, is_lower);
        // The time counts for the next message from the peer if this rank measures the exchange.
        let is_own = self.exchange.is_on && is_lower;
        let next = if is_own { self.exchange.next_arrival() } else { self.exchange.next() };
        (choices.method(len, can_read), choices.is_timed(len, next))
    }

    pub(super) fn has_open_sends(&self) -> bool {
        self.producer.as_ref().is_some_and(|producer| producer.offers.count_open() > 0)
    }

    /// Writes a complete message to the ring; returns false if the ring has no space for it now. A
    /// message of more than `ORDINARY` bytes is copied as `forced` or the peer's choice says.
    #[inline(always)] // row: shm_send_recv_8
    pub(super) fn push_eager(
        &mut self,
        word: u64,
        data: Region,
        forced: Option<CopyMethod>,
    ) -> bool {
        let Some(producer) = self.producer.as_mut() else { return false };
        if data.len() > ORDINARY {
            return push_chosen(producer, word, data, forced);
        }
        producer.push(RecordKind::Eager, word, Payload::Bytes(data))
    }
}

/// Writes a message to the ring, copied by the stores that `forced` or the consumer's choice says.
/// Returns false if the ring has no space for it now.
#[inline(never)]
fn push_chosen(
    producer: &mut Producer,
    word: u64,
    data: Region,
    forced: Option<CopyMethod>,
) -> bool {
    let choices = CopyChoices(producer.choices());
    let (chosen, is_sample) = choices.eager(data.len(), producer.count());
    let (method, is_measured) = (forced.unwrap_or(chosen), forced.is_none() && is_sample);
    let Some(into) = producer.reserve(data.len()) else { return false };
    let begun_ns = if is_measured { now_ns() } else { 0 };
    if method == CopyMethod::CellsNt {
        into.copy_nt(data)
    } else {
        into.copy_across(data)
    }
    let ns = if is_measured { now_ns().saturating_sub(begun_ns).max(1) } else { 0 };
    producer.push_reserved(RecordKind::Eager, word, data.len(), [ns, method as u64]);
    true
}

/// Values of the environment variable DTL_SHM_COPY.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// Copy large messages by the fastest method that the operating system permits.
    Auto,
    /// Like `Auto`, but also permit other processes to access the memory of this process, which the
    /// Yama security module may otherwise forbid.
    Allow,
    /// Copy all large messages through cells; never access the memory of other ranks.
    Cells,
    /// Copy all large messages by this method.
    Forced(CopyMethod),
}

impl Mode {
    pub(super) fn parse(text: Option<&str>) -> Result<Mode> {
        match text {
            None | Some("" | "auto") => Ok(Mode::Auto),
            Some("allow") => Ok(Mode::Allow),
            Some("cells") => Ok(Mode::Cells),
            Some("cma_get") => Ok(Mode::Forced(CopyMethod::Get)),
            Some("cma_split") => Ok(Mode::Forced(CopyMethod::Split)),
            Some("cells_nt") => Ok(Mode::Forced(CopyMethod::CellsNt)),
            Some(other) => fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "environment variable DTL_SHM_COPY=\"{other}\": \"auto\", \"allow\", \"cells\", \
                 \"cells_nt\", \"cma_get\" or \"cma_split\" expected; correct or unset it"
            ),
        }
    }

    /// Returns the copy method of all large messages; `None` if it is chosen by measured times.
    pub(super) fn method(self) -> Option<CopyMethod> {
        match self {
            Mode::Auto | Mode::Allow => None,
            Mode::Cells => Some(CopyMethod::Cells),
            Mode::Forced(method) => Some(method),
        }
    }
}

/// Memory word that other ranks read to test cross-memory attach when the communicator is opened.
/// The word must live as long as the communicator.
pub(super) struct Probe(#[allow(dead_code, reason = "others read it")] Scratch);

impl Probe {
    /// Publishes the address and the value of a memory word that other ranks read to test
    /// cross-memory attach; in mode `Cells`, publishes address 0: no rank reads.
    pub(super) fn publish(segment: &Segment, rank: usize, mode: Mode) -> Result<Probe> {
        // Random, so that no other process has the value at this address; not 0, the value of an
        // untouched page.
        let value = process::random_u64().unwrap_or(1) | 1;
        let Some(word) = Scratch::of_words(&[value]) else {
            return fail!(DTL_ERROR_OUT_OF_MEMORY, "no memory for 8 bytes; free some");
        };
        let address = if mode == Mode::Cells { 0 } else { word.region().addr().get() as u64 };
        segment.set_probe(rank, address, value);
        Ok(Probe(word))
    }

    /// Tests cross-memory attach: reads the memory word that `rank` has published, and compares its
    /// value with the published value. `Err` is the reason why the test failed.
    pub(super) fn read(segment: &Segment, rank: usize, peer: &Peer) -> Result<(), String> {
        let (address, value) = segment.probe(rank);
        if address == 0 {
            return Err(format!("DTL_SHM_COPY=cells on rank {rank}"));
        }
        let mut found = [0_u64];
        // SAFETY: the array is valid for writes for the duration of the call.
        let word = unsafe { Region::new(found.as_mut_ptr().cast(), size_of_val(&found)) };
        match peer.read(address, word) {
            Ok(8) if found == [value] => Ok(()),
            Ok(_) => Err(format!("rank {rank} gave other bytes")),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                Err("not permitted (EPERM)".to_string())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}
