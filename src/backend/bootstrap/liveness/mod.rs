//! The control sockets of a rank, TCP: short messages to other ranks, connected on first use, and
//! notices of ranks that have died or left. Nothing waits but `leave`, for a moment; `poll` is at
//! most one system call when nothing has happened.
//!
//! A connection begins with a hello that names both ranks and the job's cookie; one that begins
//! with anything else is closed. Two ranks that connect to each other at once have two connections:
//! each sends on one of them, for good.
//!
//! A process that ends closes its sockets, by which its death is noticed. Its forked children do
//! not have them (`sys::os::close_on_fork`). A machine that falls silent is given up after
//! `Options::silent_ns`. One thread at a time calls.
//!
//! In reading order:
//! - `address`: where a rank listens
//! - `frames`: the protocol on a connection
//! - `connection`: begin and end of one
//! - `heartbeat_ring`: which rank watches which, and whom it notifies
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

/// Words that a rank puts into its record so that the others reach it.
pub const WORDS: usize = address::WORDS;
/// The longest message.
pub const LONGEST: usize = 1000;
/// Default of `Options::silent_ns`: a machine that is silent for longer is given up.
pub const SILENT_NS: u64 = 5_000_000_000;
/// Memory without any rank.
pub const FIXED_BYTES: usize = size_of::<Oob>();
/// Memory for each rank, with or without messages.
pub const RANK_BYTES: usize = size_of::<Rank>() + WORDS * size_of::<u64>();
/// Memory for each rank that there is a connection with (two, if both began one at once), without
/// what waits and the system's own.
pub const PARTNER_BYTES: usize = size_of::<Option<Connection>>();

/// How long `leave` waits for what goes.
const LEAVE_NS: u64 = 200_000_000;
/// When nothing is due.
const NEVER: u64 = u64::MAX;
/// The listener's number in the poller.
const LISTENER: u64 = u64::MAX;

/// Where and how it listens.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// An address or an interface of this machine; none: all.
    pub listen: Option<&'a str>,
    /// An interface that the others should try first: for example, that of the device.
    pub near: Option<&'a str>,
    /// After so much silence a machine is given up.
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
    /// A rank has sent this.
    Message(i32, Vec<u8>),
    /// A rank is gone: true if it has left, false if it has died; and why. Reported once per rank;
    /// nothing more comes from it.
    Gone(i32, bool, String),
}

/// State of a rank.
#[derive(Clone, Copy, Default)]
struct Rank {
    /// The connection on which messages to it go.
    link: Option<u32>,
    life: PeerLiveness,
    /// A message from it is awaited, so a connection to it is made or planned (`liveness_waits`).
    is_awaited: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum PeerLiveness {
    #[default]
    Here,
    Left,
    Dead,
}

/// One rank's control sockets. Dropped without `leave`, it has died for the others.
pub struct Oob {
    poller: Poller,
    listener: Option<CloseOnFork<TcpListener>>,
    own: Address,
    silent: Duration,
    rank: i32,
    cookie: u64,
    /// `WORDS` of each rank.
    records: Vec<u64>,
    ranks: Vec<Rank>,
    connections: Vec<Option<Connection>>,
    /// Slots for more of them.
    free: Vec<u32>,
    /// Counts connections: a late event is not taken for one of another.
    serial: u32,
    events: VecDeque<OobEvent>,
    ring: HeartbeatRing,
    awaited: LivenessWaits,
    /// The next time at which there is something to do without an event.
    due_ns: u64,
    /// No connections are accepted before.
    accept_at: u64,
    /// Set once the log has the message that no connection can be accepted now.
    is_short: bool,
    is_leaving: bool,
}

impl Oob {
    /// Begins to listen; gives the words for this rank's record.
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

    /// Puts a message behind those that go to a rank. Queuing guarantees no delivery: `Event::Gone`
    /// reports a rank that gets no more.
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
            return Ok(()); // it is told of in a moment
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

    /// Moves everything on and passes each event to `tell`.
    pub fn poll(&mut self, tell: &mut dyn FnMut(OobEvent)) {
        self.wait(0, tell);
    }

    /// Waits up to `timeout_ns` (`u64::MAX`: for ever) for an event, moves everything on, and
    /// passes each event to `tell`.
    pub fn wait(&mut self, timeout_ns: u64, tell: &mut dyn FnMut(OobEvent)) {
        let timeout_ns = if self.events.is_empty() { timeout_ns } else { 0 };
        self.turn(timeout_ns);
        while let Some(event) = self.events.pop_front() {
            tell(event);
        }
    }

    /// Readable when `poll` has something to do, for who waits for other things too; but see
    /// `due_in_ns`.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    /// In how many nanoseconds `poll` is to be called even if nothing has come (`u64::MAX`: never).
    #[must_use]
    pub fn due_in_ns(&self) -> u64 {
        match self.due_ns {
            NEVER => u64::MAX,
            at => at.saturating_sub(now_ns()),
        }
    }

    /// Sends the others a farewell, and closes everything; waits for a moment at most. Afterwards
    /// only `drop`.
    pub fn leave(&mut self) {
        if std::mem::replace(&mut self.is_leaving, true) || self.ranks.len() < 2 {
            return self.close();
        }
        self.turn(0); // what is known by now goes along with the farewell
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

    /// One look at all sockets.
    fn turn(&mut self, timeout_ns: u64) {
        if self.ranks.is_empty() {
            return; // nobody is known yet, or any more
        }
        let ready = self.poller.ready(timeout_ns.min(self.due_in_ns()));
        // First who comes: it may be one that is thought to be gone.
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

    /// Does what is due.
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

    /// Something is to be done at that time.
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
