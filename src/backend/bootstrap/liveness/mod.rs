//! Control sockets of a rank (TCP): short messages to other ranks, connected on first use, and
//! notices of ranks that have died or left. Only `wait` and, briefly, `leave` block; `poll` makes
//! at most one system call when nothing has happened.
//!
//! A connection starts with a hello that has both ranks and the job's cookie; a connection that
//! starts with anything else is closed. Two ranks that connect to each other at the same time have
//! two connections: each sends permanently on one of them.
//!
//! The operating system closes the sockets of a process that ends, by which its death is detected.
//! Its forked children do not have the sockets (`sys::os::close_on_fork`). A machine that is silent
//! counts as dead after `Options::silent_ns`. Only one thread at a time may call.
//!
//! In reading order:
//! - `address`: addresses at which a rank listens
//! - `frames`: protocol on a connection
//! - `connection`: establishment and end of a connection
//! - `heartbeat_ring`: which rank watches which, and which ranks it notifies
//! - `liveness_waits`: ranks that a waiting rank watches itself

mod address;
mod connection;
mod frames;
mod heartbeat_ring;
mod liveness_waits;
#[cfg(test)]
mod tests;

use crate::backend::os_error::os_error;
use crate::error::{Result, fail};
use crate::sys::os::close_on_fork::CloseOnFork;
use crate::sys::os::poller::{Interest, Poller};
use crate::sys::sync::clock::{Deadline, now_ns};
use address::Address;
use connection::{Connection, ConnectionStage, Frame, kind};
use heartbeat_ring::HeartbeatRing;
use liveness_waits::LivenessWaits;
use std::collections::VecDeque;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Number of words in a rank's record by which other ranks reach it.
pub const WORDS: usize = address::WORDS;
/// Maximum size of a message, in bytes.
pub const LONGEST: usize = 1000;
/// Default of `Options::silent_ns`: a machine that is silent for longer counts as dead.
pub const SILENT_NS: u64 = 5_000_000_000;
/// Memory without any rank, in bytes.
pub const FIXED_BYTES: usize = size_of::<Oob>();
/// Memory per rank, with or without messages, in bytes.
pub const RANK_BYTES: usize = size_of::<Rank>() + WORDS * size_of::<u64>();
/// Memory per rank with a connection in bytes (twice that, if both ranks connected at the same
/// time), excluding queued messages and memory of the operating system.
pub const PARTNER_BYTES: usize = size_of::<Option<Connection>>();

/// Maximum time for which `leave` waits until queued frames are sent, in nanoseconds.
const LEAVE_NS: u64 = 200_000_000;
/// Time value that means that nothing is due.
const NEVER: u64 = u64::MAX;
/// Number of the listener in the poller.
const LISTENER: u64 = u64::MAX;

/// Options for listening.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// An address or an interface of this machine at which to listen; `None`: all.
    pub listen: Option<&'a str>,
    /// An interface whose addresses the other ranks should try first, such as that of the device.
    pub near: Option<&'a str>,
    /// Time in nanoseconds after which a silent machine counts as dead.
    pub silent_ns: u64,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options { listen: None, near: None, silent_ns: SILENT_NS }
    }
}

/// Event that `poll` reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OobEvent {
    /// Message of a rank.
    Message(i32, Vec<u8>),
    /// A rank is gone: true if it has left, false if it has died; and the reason. Reported once per
    /// rank; no later event refers to the rank.
    Gone(i32, bool, String),
}

/// State of a rank.
#[derive(Clone, Copy, Default)]
struct Rank {
    /// Connection on which messages to the rank are sent.
    link: Option<u32>,
    life: PeerLiveness,
    /// A message from the rank is awaited, so a connection to it is open or planned
    /// (`liveness_waits`).
    is_awaited: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum PeerLiveness {
    #[default]
    Here,
    Left,
    Dead,
}

/// One rank's control sockets. Dropping them without calling `leave` appears to the other ranks as
/// a death.
pub struct Oob {
    poller: Poller,
    listener: Option<CloseOnFork<TcpListener>>,
    own: Address,
    silent: Duration,
    rank: i32,
    cookie: u64,
    /// `WORDS` words of each rank.
    records: Vec<u64>,
    ranks: Vec<Rank>,
    connections: Vec<Option<Connection>>,
    /// Free slots of `connections`.
    free: Vec<u32>,
    /// Number of connections so far; distinguishes a late event from an event of another connection
    /// in the same slot.
    serial: u32,
    events: VecDeque<OobEvent>,
    ring: HeartbeatRing,
    awaited: LivenessWaits,
    /// Next time at which an action is due without an event, in nanoseconds.
    due_ns: u64,
    /// No connections are accepted before this time.
    accept_at: u64,
    /// Set once the log has the message that no connection can be accepted now.
    is_short: bool,
    is_leaving: bool,
}

impl Oob {
    /// Starts to listen. Returns the control sockets and the words for this rank's record.
    pub fn listen(options: &Options<'_>) -> Result<(Oob, [u64; WORDS])> {
        let (listener, own) = Address::listen(options.listen, options.near)?;
        let failed =
            |error| os_error(crate::abi::status::DTL_ERROR_BACKEND, "the control sockets", &error);
        let poller = Poller::new().map_err(failed)?;
        poller.add(listener.as_fd(), LISTENER, Interest::Reading).map_err(failed)?;
        let words = own.words();
        let oob = Oob {
            poller,
            listener: Some(CloseOnFork::new(listener)),
            own,
            silent: Duration::from_nanos(options.silent_ns.max(1_000_000)),
            rank: 0,
            cookie: 0,
            records: Vec::new(),
            ranks: Vec::new(),
            connections: Vec::new(),
            free: Vec::new(),
            serial: 0,
            events: VecDeque::new(),
            ring: HeartbeatRing::new(),
            awaited: LivenessWaits::new(),
            due_ns: NEVER,
            accept_at: NEVER,
            is_short: false,
            is_leaving: false,
        };
        Ok((oob, words))
    }

    /// Sets this rank, the words of all ranks in their order (`WORDS` each), and the job's secret
    /// cookie. Called once; the watching begins with the next `poll`.
    pub fn set_members(&mut self, rank: i32, records: Vec<u64>, cookie: u64) {
        self.ranks = vec![Rank::default(); records.len() / WORDS];
        (self.rank, self.records, self.cookie) = (rank, records, cookie);
        self.watch_at(0);
    }

    /// Queues a message to a rank. Queuing does not guarantee delivery: `OobEvent::Gone` reports a
    /// rank that gets no more messages.
    pub fn send(&mut self, rank: i32, bytes: &[u8]) -> Result<()> {
        let known = usize::try_from(rank).ok().and_then(|rank| self.ranks.get(rank));
        let Some(known) = known.filter(|_| rank != self.rank && bytes.len() <= LONGEST) else {
            return fail!(
                DTL_ERROR_INTERNAL,
                "a control message of {} bytes to rank {rank}: no such message",
                bytes.len()
            );
        };
        if known.life != PeerLiveness::Here {
            return fail!(DTL_ERROR_RANK_FAILURE, "rank {rank} has died or left");
        }
        if self.is_suspected(rank) {
            return Ok(()); // `OobEvent::Gone` follows soon
        }
        self.push(rank, (kind::MESSAGE, bytes.to_vec()))
    }

    fn push(&mut self, rank: i32, frame: Frame) -> Result<()> {
        let Some(index) = self.link(rank) else { return self.connect(rank, vec![frame], false) };
        if let Some(Some(connection)) = self.connections.get_mut(index) {
            match connection.stage {
                ConnectionStage::Open => connection.channel.queue(frame.0, &frame.1),
                _ => connection.waiting.push(frame),
            }
        }
        self.flush(index);
        Ok(())
    }

    /// Makes progress on all connections and passes each event to `tell`.
    pub fn poll(&mut self, tell: &mut dyn FnMut(OobEvent)) {
        self.wait(0, tell);
    }

    /// Waits up to `timeout_ns` nanoseconds (`u64::MAX`: forever) for an event, makes progress on
    /// all connections, and passes each event to `tell`.
    pub fn wait(&mut self, timeout_ns: u64, tell: &mut dyn FnMut(OobEvent)) {
        let timeout_ns = if self.events.is_empty() { timeout_ns } else { 0 };
        self.turn(timeout_ns);
        while let Some(event) = self.events.pop_front() {
            tell(event);
        }
    }

    /// Returns a descriptor that is readable when `poll` has something to do, for callers that also
    /// wait for other events; see also `due_in_ns`.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    /// Returns the time in nanoseconds after which `poll` must be called even if nothing has
    /// arrived (`u64::MAX`: never).
    #[must_use]
    pub fn due_in_ns(&self) -> u64 {
        match self.due_ns {
            NEVER => u64::MAX,
            at => at.saturating_sub(now_ns()),
        }
    }

    /// Sends a farewell to the other ranks and closes everything; waits for a moment at most.
    /// Afterwards only dropping is allowed.
    pub fn leave(&mut self) {
        if std::mem::replace(&mut self.is_leaving, true) || self.ranks.len() < 2 {
            return self.close();
        }
        self.turn(0); // what is known by now is sent with the farewell
        self.send_farewell();
        let deadline = Deadline::after(LEAVE_NS);
        while self.has_more_to_write() && !deadline.passed() {
            self.turn(deadline.left_ns().min(LEAVE_NS / 10));
        }
        self.close();
    }

    fn has_more_to_write(&self) -> bool {
        let goes = |one: &Connection| match one.stage {
            ConnectionStage::Connecting => one.is_brief,
            _ => one.channel.has_more_to_write(),
        };
        self.connections.iter().flatten().any(goes)
    }

    fn close(&mut self) {
        for one in std::mem::take(&mut self.connections).into_iter().flatten() {
            self.discard(one);
        }
        if let Some(listener) = self.listener.take() {
            self.poller.remove(listener.as_fd());
        }
        (self.ranks, self.due_ns) = (Vec::new(), NEVER);
        (self.ring, self.awaited) = (HeartbeatRing::new(), LivenessWaits::new());
    }

    /// Polls all sockets once and handles their events.
    fn turn(&mut self, timeout_ns: u64) {
        if self.ranks.is_empty() {
            return; // before `set_members`, or after `leave`
        }
        let ready = self.poller.ready(timeout_ns.min(self.due_in_ns()));
        // Accept first: an accepted rank may be one that is suspected.
        if ready.numbers().any(|number| number == LISTENER) {
            self.admit();
        }
        for number in ready.numbers().filter(|number| *number != LISTENER) {
            let index = number as u32 as usize;
            let is_same = |one: &&Connection| u64::from(one.serial) == number >> 32;
            if self.connections.get(index).and_then(Option::as_ref).filter(is_same).is_some() {
                self.step(index);
            }
        }
        // Arrived data counts before timeouts do: a rank that has sent something is not silent.
        if !ready.there_may_be_more() {
            self.timers();
        }
    }

    /// Performs the actions that are due.
    fn timers(&mut self) {
        if self.due_ns == NEVER {
            return;
        }
        let now = now_ns();
        if now < self.due_ns {
            return;
        }
        self.due_ns = NEVER;
        self.accept_again(now);
        self.end_overdue(now);
        self.turn_ring(now);
        self.turn_awaited(now);
    }

    /// Schedules an action at that time.
    fn alarm(&mut self, at_ns: u64) {
        self.due_ns = self.due_ns.min(at_ns);
    }

    fn life(&self, rank: i32) -> PeerLiveness {
        usize::try_from(rank)
            .ok()
            .and_then(|rank| self.ranks.get(rank))
            .map_or(PeerLiveness::Dead, |rank| rank.life)
    }

    fn link(&self, rank: i32) -> Option<usize> {
        let rank = usize::try_from(rank).ok().and_then(|rank| self.ranks.get(rank));
        rank.and_then(|rank| rank.link).map(|index| index as usize)
    }

    fn rank_mut(&mut self, rank: i32) -> Option<&mut Rank> {
        usize::try_from(rank).ok().and_then(|rank| self.ranks.get_mut(rank))
    }

    fn address(&self, rank: i32) -> Address {
        let at = usize::try_from(rank).unwrap_or(usize::MAX).saturating_mul(WORDS);
        Address::parse(
            self.records.get(at..).and_then(|rest| rest.get(..WORDS)).unwrap_or_default(),
        )
    }
}
