//! TCP control sockets of a rank. They carry short messages between ranks and notifications of
//! ranks that died or left. A connection to another rank is opened on first use. Only `leave`
//! blocks, briefly; `poll` makes at most one system call if no event has occurred.
//!
//! A connection starts with a hello, which contains both ranks and the job's cookie; a connection
//! that starts with anything else is closed. If two ranks connect to each other at the same time,
//! both connections stay open, and each rank always sends on the same one of the two.
//!
//! The operating system closes the sockets of a process that ends, and so the other ranks detect
//! its death. The sockets are closed in forked children (`sys::os::close_on_fork`). A machine that
//! does not respond for `silent_ns` (`Oob::listen`) counts as failed. Only one thread at a time may
//! call the functions of this module.
//!
//! In reading order:
//! - `address`: addresses at which a rank listens
//! - `frames`: protocol on a connection
//! - `connection`: establishment and end of a connection
//! - `heartbeat_ring`: assignment of a watcher to each rank, and notification of the other ranks
//! - `liveness_waits`: failure detection for ranks from which a message is awaited

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
use crate::sys::sync::wait::{Deadline, now_ns};
use address::Address;
use connection::{Connection, ConnectionStage, Frame, kind};
use heartbeat_ring::HeartbeatRing;
use liveness_waits::LivenessWaits;
use std::collections::VecDeque;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Number of 64-bit words of a rank's bootstrap record, which contains the addresses at which other
/// ranks connect to the rank.
pub const WORDS: usize = address::WORDS;
/// Maximum size of a message, in bytes.
pub const LONGEST: usize = 1000;
/// Memory, in bytes, for each rank of the job, whether or not a connection to the rank is open.
pub const RANK_BYTES: usize = size_of::<Rank>() + WORDS * size_of::<u64>();
/// Additional memory, in bytes, for each connection, excluding queued messages and memory of the
/// operating system. Two ranks that connect to each other at the same time have two connections.
pub const PARTNER_BYTES: usize = size_of::<Option<Connection>>();

/// Maximum time, in nanoseconds, that `leave` waits for queued frames to be written.
const LEAVE_NS: u64 = 200_000_000;
/// Time value for "not scheduled".
const NEVER: u64 = u64::MAX;
/// Number that identifies the listener in the poller's events.
const LISTENER: u64 = u64::MAX;

/// Event that `poll` reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OobEvent {
    /// Message from a rank: the rank and the bytes.
    Message(i32, Vec<u8>),
    /// The rank has left (true) or died (false); the string is the reason. This event is reported
    /// once per rank, and no later event refers to that rank.
    Gone(i32, bool, String),
}

/// State of another rank.
#[derive(Clone, Copy, Default)]
struct Rank {
    /// Index in `Oob::connections` of the connection on which messages to the rank are sent; `None`
    /// if there is no connection.
    link: Option<u32>,
    life: PeerLiveness,
    /// True while this rank waits for a message from the other rank (`liveness_waits`), and
    /// therefore keeps or plans a connection to the other rank.
    is_awaited: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum PeerLiveness {
    #[default]
    Here,
    Left,
    Dead,
}

/// Control sockets of one rank. If they are dropped without a call to `leave`, the other ranks
/// consider this rank dead.
pub struct Oob {
    poller: Poller,
    listener: CloseOnFork<TcpListener>,
    own: Address,
    silent: Duration,
    rank: i32,
    cookie: u64,
    /// Bootstrap records of all ranks, concatenated in rank order; `WORDS` words each.
    records: Vec<u64>,
    ranks: Vec<Rank>,
    connections: Vec<Option<Connection>>,
    /// Indices of the free entries of `connections`.
    free: Vec<u32>,
    /// Serial number of the latest connection. A late event from an earlier connection with the
    /// same index in `connections` has a different serial number.
    serial: u32,
    events: VecDeque<OobEvent>,
    ring: HeartbeatRing,
    awaited: LivenessWaits,
    /// Time at which the next scheduled action is due even if no event occurs, in nanoseconds.
    due_ns: u64,
    /// Time at which this rank resumes polling a paused listener, in nanoseconds; `NEVER` if the
    /// listener is not paused.
    accept_at: u64,
    /// True if a warning that connections cannot be accepted has been logged since the last
    /// accepted connection.
    is_short: bool,
    is_leaving: bool,
}

impl Oob {
    /// Starts to listen at an address or interface of this machine (`None`: at all addresses). A
    /// machine that does not respond for `silent_ns` nanoseconds is considered failed. Returns the
    /// control sockets and this rank's bootstrap record, which all ranks must exchange and pass to
    /// `set_members`.
    pub fn listen(named: Option<&str>, silent_ns: u64) -> Result<(Oob, [u64; WORDS])> {
        let (listener, own) = Address::listen(named)?;
        let failed =
            |error| os_error(crate::abi::status::DTL_ERROR_BACKEND, "the control sockets", &error);
        let poller = Poller::new().map_err(failed)?;
        poller.add(listener.as_fd(), LISTENER, Interest::Reading).map_err(failed)?;
        let words = own.words();
        let oob = Oob {
            poller,
            listener: CloseOnFork::new(listener),
            own,
            silent: Duration::from_nanos(silent_ns.max(1_000_000)),
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

    /// Sets this rank's number, the bootstrap records of all ranks in rank order (`WORDS` words
    /// each), and the job's secret cookie. Must be called once; failure detection starts with the
    /// next `poll`.
    pub fn set_members(&mut self, rank: i32, records: Vec<u64>, cookie: u64) {
        self.ranks = vec![Rank::default(); records.len() / WORDS];
        (self.rank, self.records, self.cookie) = (rank, records, cookie);
        self.watch_at(0);
    }

    /// Queues a message to `rank`; fails if the rank has died or left, or if `bytes` is too long.
    /// Delivery is not guaranteed; [`OobEvent::Gone`] reports the death or departure of `rank`.
    pub fn send(&mut self, rank: i32, bytes: &[u8]) -> Result<()> {
        let is_possible = rank != self.rank && bytes.len() <= LONGEST;
        let Some(known) = self.known(rank).filter(|_| is_possible) else {
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

    /// Makes progress on all connections without blocking, and passes each event to `tell`.
    pub fn poll(&mut self, tell: &mut dyn FnMut(OobEvent)) {
        self.turn(0);
        while let Some(event) = self.events.pop_front() {
            tell(event);
        }
    }

    /// Returns a file descriptor that becomes readable when `poll` must be called, for callers that
    /// wait for several descriptors. Such callers must also call `poll` after the time that
    /// `due_in_ns` returns.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    /// Returns the time in nanoseconds after which `poll` must be called even if the descriptor
    /// from `fd` is not readable (`u64::MAX`: never).
    pub fn due_in_ns(&self) -> u64 {
        match self.due_ns {
            NEVER => u64::MAX,
            at => at.saturating_sub(now_ns()),
        }
    }

    /// Sends a farewell to the other ranks and closes all connections; blocks for at most about 0.2
    /// s. After this call, the caller may only drop the object.
    pub fn leave(&mut self) {
        if std::mem::replace(&mut self.is_leaving, true) || self.ranks.len() < 2 {
            return;
        }
        self.turn(0); // what is known by now is sent with the farewell
        self.send_farewell();
        let deadline = Deadline::after(LEAVE_NS);
        while self.has_more_to_write() && !deadline.passed() {
            self.turn(deadline.left_ns().min(LEAVE_NS / 10));
        }
        for one in std::mem::take(&mut self.connections).into_iter().flatten() {
            self.discard(one);
        }
    }

    fn has_more_to_write(&self) -> bool {
        let goes = |one: &Connection| match one.stage {
            ConnectionStage::Connecting => one.is_brief,
            _ => one.channel.has_more_to_write(),
        };
        self.connections.iter().flatten().any(goes)
    }

    /// Polls all sockets once, for at most `timeout_ns` nanoseconds, and handles the events.
    fn turn(&mut self, timeout_ns: u64) {
        if self.ranks.is_empty() {
            return; // before `set_members`
        }
        let ready = self.poller.ready(timeout_ns.min(self.due_in_ns()));
        // Accept first: an accepted rank may be one that is suspected.
        if ready.numbers().any(|number| number == LISTENER) {
            self.admit();
        }
        for number in ready.numbers().filter(|number| *number != LISTENER) {
            let index = number as u32 as usize;
            let is_same = |one: &Connection| u64::from(one.serial) == number >> 32;
            if self.connection(index).is_some_and(is_same) {
                self.step(index);
            }
        }
        // Arrived data counts before timeouts do: a rank that has sent something is not silent.
        if !ready.there_may_be_more() {
            self.timers();
        }
    }

    /// Performs the scheduled actions that are due.
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

    /// Ensures that `timers` runs at time `at_ns` or earlier.
    fn alarm(&mut self, at_ns: u64) {
        self.due_ns = self.due_ns.min(at_ns);
    }

    fn known(&self, rank: i32) -> Option<&Rank> {
        self.ranks.get(usize::try_from(rank).ok()?)
    }

    fn life(&self, rank: i32) -> PeerLiveness {
        self.known(rank).map_or(PeerLiveness::Dead, |rank| rank.life)
    }

    fn link(&self, rank: i32) -> Option<usize> {
        self.known(rank)?.link.map(|index| index as usize)
    }

    /// Returns the connection at this index of `connections`, or `None` if there is none or if it
    /// has been removed from the list temporarily.
    fn connection(&self, index: usize) -> Option<&Connection> {
        self.connections.get(index)?.as_ref()
    }

    fn rank_mut(&mut self, rank: i32) -> Option<&mut Rank> {
        self.ranks.get_mut(usize::try_from(rank).ok()?)
    }

    fn address(&self, rank: i32) -> Address {
        let at = usize::try_from(rank).unwrap_or(usize::MAX).saturating_mul(WORDS);
        let words = self.records.get(at..).and_then(|rest| rest.get(..WORDS));
        Address::parse(words.unwrap_or_default())
    }
}
