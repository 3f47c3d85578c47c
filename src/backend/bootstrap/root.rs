//! Out-of-band allgather over a socket on which rank 0 listens. Each other rank connects and sends
//! a hello, which contains its contribution. Rank 0 confirms each hello and, when all ranks have
//! joined, sends the outcome: the contributions of all ranks, or the first failure.
//!
//! Unrelated processes may connect at any time. Rank 0 assigns a connection to a rank only after a
//! hello with the key of this exchange has arrived on it, and it limits the number of connections
//! without a hello. `uds` and `tcp` implement the operations that differ between the two socket
//! types.

use super::absence::{ArrivalDeadline, GRACE_NS, LINGER_NS, OpenRequest};
use super::records::{bytes_of, decode, encode, words_of};
use super::socket_frames::{Channel, FrameFailure, LONGEST, Stream};
use crate::abi::status::DTL_ERROR_RANK_FAILURE;
use crate::error::{Error, Result};
use crate::sys::os::process;
use crate::sys::sync::wait::{Deadline, now_ns};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Frame kind of a hello, the first frame that a rank sends to rank 0. Payload: magic number, key
/// of the exchange, rank, number of ranks, time until the deadline in nanoseconds, contribution.
const HELLO: u8 = 1;
/// Kind of the frame that rank 0 sends to confirm a hello (first frame from a rank); the outcome
/// follows later.
const SEAT: u8 = 2;
/// Kind of the frame that rejects a hello: the listening rank 0 belongs to another job, or is
/// opening another communicator of this job.
const OTHER: u8 = 3;
/// Frame kind of the encoded outcome of the exchange.
pub(super) const ANSWER: u8 = 4;
/// Number of 64-bit words that precede the contribution in a hello (first frame from a rank).
const HEAD: usize = 5;
/// Maximum number of bytes by which a rank's contribution may exceed rank 0's contribution. A
/// contribution is longer if it contains an error message.
const MOST_TEXT: usize = 16 << 10;
/// Timeout for the first frame (hello) on a connection from a possibly unrelated process, in
/// nanoseconds.
const STRANGER_NS: u64 = 2_000_000_000;

/// Operations of the exchange that differ between UNIX and TCP sockets.
pub(super) trait Sockets {
    type Listener: AsFd;
    type Stream: Stream;
    /// Magic number, which must be changed with each incompatible change of the protocol.
    const MAGIC: u64;
    /// True if only processes of this user can connect. If true, the first frame (hello) has no
    /// timeout, and rank 0 reports a failure even on connections on which no hello has arrived.
    const ARE_TRUSTED: bool;
    /// Maximum interval between two connection attempts.
    const MOST_PAUSE: Duration;

    /// Returns this rank's parameters for opening the communicator.
    fn opening(&self) -> &OpenRequest;
    /// Returns this rank's contribution to the allgather, as 64-bit words.
    fn contribution(&self) -> Vec<u64>;
    fn listen(&self) -> Result<Self::Listener>;
    /// Connects to rank 0. Returns the reason for the failure as a string if the caller should
    /// retry.
    fn connect(&self) -> Result<Result<Self::Stream, String>>;
    /// Creates the error for an absent rank 0. `why` describes the failure of the last attempt.
    fn root_absent(&self, why: &str) -> Error;
    /// Creates the error for the case that rank 0 accepted the connection but did not reply.
    fn lost(&self, lost: FrameFailure) -> Error;
    /// Accepts the next pending connection; `None` if there is none.
    fn accept(&self, listener: &Self::Listener) -> io::Result<Option<Self::Stream>>;
    /// Creates the error for a failure of rank 0's own sockets.
    fn failed(&self, error: &io::Error) -> Error;
    /// Returns an error if a rank with this contribution is incompatible with rank 0, else `None`.
    /// `own` is the number of words of rank 0's contribution.
    fn unlike(&self, rank: u64, contribution: &[u64], own: usize) -> Option<Error>;
    /// Returns the error that the contribution of `rank` reports, or `None` if it does not report a
    /// failure.
    fn reported(&self, rank: usize, contribution: &[u64]) -> Option<Error>;
    /// Creates the error for a second process that joins as `rank`.
    fn duplicate(&self, rank: u64, stream: &Self::Stream) -> Error;
    /// Creates the error for ranks that did not join in time.
    fn absent(&self, ranks: &[usize]) -> Error;
    /// Returns the time in nanoseconds for which rank 0, after the first failure, waits for ranks
    /// that have not joined.
    fn linger_ns(&self, _first: &Error) -> u64 {
        LINGER_NS
    }
    /// Performs periodic checks while this rank waits for other ranks. Returns the time at which
    /// the caller must call this function again. Fails if the other ranks will not come.
    fn watch(&mut self) -> Result<Deadline> {
        Ok(Deadline::NEVER)
    }
}

/// Connects to rank 0 and sends the first frame (hello). Retries until the deadline, because rank 0
/// may start later.
pub(super) fn connect<N: Sockets>(
    sockets: &mut N,
    contribution: &[u64],
) -> Result<Channel<N::Stream>> {
    let mut pause = Duration::from_micros(100);
    loop {
        sockets.watch()?;
        let &OpenRequest { key, rank, size, deadline, .. } = sockets.opening();
        let why = match sockets.connect()? {
            Ok(stream) => {
                let head = [N::MAGIC, key, rank as u64, size as u64, deadline.left_ns()];
                let mut channel = Channel::new(stream);
                channel.queue(HELLO, &bytes_of(&[&head[..], contribution].concat()));
                // Rank 0 may have sent the reason for a failure and closed the connection; the
                // reason can be read nevertheless.
                drop(channel.flush());
                return Ok(channel);
            }
            Err(why) => why,
        };
        if deadline.passed() {
            return Err(sockets.root_absent(&why));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(N::MOST_PAUSE);
    }
}

/// Runs the bootstrap exchange on a rank other than 0. Returns the connection to rank 0 and the
/// contributions of all ranks.
pub(super) fn join<N: Sockets>(mut sockets: N) -> Result<(Channel<N::Stream>, Vec<u64>)> {
    let mine = sockets.contribution();
    loop {
        let mut channel = connect(&mut sockets, &mine)?;
        let why = match await_answer(&mut sockets, &mut channel)? {
            Ok(contributions) => return Ok((channel, contributions)),
            Err(why) => why,
        };
        if sockets.opening().deadline.passed() {
            return Err(sockets.root_absent(&why));
        }
        std::thread::sleep(N::MOST_PAUSE);
    }
}

/// Waits for the outcome of the bootstrap exchange. If the listening process is not rank 0 of this
/// job, returns the reason for a retry as a string.
fn await_answer<N: Sockets>(
    sockets: &mut N,
    channel: &mut Channel<N::Stream>,
) -> Result<Result<Vec<u64>, String>> {
    let opening = sockets.opening();
    let (deadline, late, mut is_root) = (opening.deadline, opening.late(), N::ARE_TRUSTED);
    loop {
        let limit = if is_root { late } else { deadline };
        let next = Deadline::after(limit.left_ns().min(sockets.watch()?.left_ns()));
        let why = match channel.receive(LONGEST, next) {
            Err(FrameFailure::Silent) if !limit.passed() => continue,
            Ok((SEAT, _)) => {
                is_root = true;
                continue;
            }
            Ok((ANSWER, bytes)) => return decode(&words_of(&bytes)).map(Ok),
            Err(lost) if is_root => return Err(sockets.lost(lost)),
            // Rank 0 of another job, whose name has the same hash, does not answer this rank.
            Ok(_) if N::ARE_TRUSTED => return Err(sockets.lost(FrameFailure::Ended(String::new()))),
            Ok((OTHER, _)) => "another job meets there".to_owned(),
            Ok(_) | Err(FrameFailure::TooLong(_)) => "something else listens there".to_owned(),
            Err(FrameFailure::Silent) => "who listens there says nothing".to_owned(),
            Err(FrameFailure::Ended(why)) => {
                format!("who listens there sends this rank away: {why}")
            }
        };
        return Ok(Err(why));
    }
}

/// A connection that was accepted at time `since_ns` and on which no complete hello (first frame)
/// has arrived.
struct Guest<S: Stream> {
    channel: Channel<S>,
    since_ns: u64,
}

/// Connection and contribution of a rank that has joined.
struct Seat<S: Stream> {
    channel: Channel<S>,
    contribution: Vec<u64>,
    has_ended: bool,
}

/// State of rank 0 during the exchange.
pub(super) struct Root<N: Sockets> {
    pub(super) sockets: N,
    /// Contribution of rank 0.
    mine: Vec<u64>,
    listener: N::Listener,
    attendance: ArrivalDeadline,
    guests: Vec<Guest<N::Stream>>,
    /// Ranks that have joined, indexed by rank; the entry of rank 0 is always `None`.
    seats: Vec<Option<Seat<N::Stream>>>,
    /// Connections from ranks that could not join. Rank 0 must send the failure on each of these
    /// connections.
    turned_away: Vec<Channel<N::Stream>>,
    /// True if waiting for or accepting connections has failed, so that rank 0 does not wait for
    /// any further ranks.
    pub(super) is_full: bool,
}

impl<N: Sockets> Root<N> {
    /// Opens the listening socket for the other ranks.
    pub(super) fn open(sockets: N) -> Result<Self> {
        let (listener, mine) = (sockets.listen()?, sockets.contribution());
        let &OpenRequest { size, deadline, .. } = sockets.opening();
        let mut root = Root {
            sockets,
            mine,
            listener,
            attendance: ArrivalDeadline::new(deadline),
            guests: Vec::new(),
            seats: (0..size).map(|_| None).collect(),
            turned_away: Vec::new(),
            is_full: false,
        };
        if let Some(error) = root.sockets.reported(0, &root.mine) {
            root.give_up(error);
        }
        Ok(root)
    }

    /// Waits until all ranks have joined. Returns the contributions in rank order, or the error,
    /// which the caller must send to the ranks that have joined.
    pub(super) fn gather(&mut self) -> Result<Vec<u64>> {
        loop {
            let missing = self.missing();
            let sockets = &self.sockets;
            match self.attendance.outcome(&missing, |ranks| sockets.absent(ranks)) {
                Some(Ok(())) => return Ok(self.whole()),
                Some(Err(error)) => return Err(error),
                None => {}
            }
            if let Err(error) = self.listen() {
                self.is_full = true;
                self.give_up(self.sockets.failed(&error));
            }
        }
    }

    fn missing(&self) -> Vec<usize> {
        let empty = self.seats.iter().enumerate().skip(1).filter(|(_, seat)| seat.is_none());
        empty.map(|(rank, _)| rank).collect()
    }

    fn whole(&self) -> Vec<u64> {
        let others = self.seats.iter().flatten().flat_map(|seat| &seat.contribution);
        self.mine.iter().chain(others).copied().collect()
    }

    /// Waits for an event on the sockets and handles it.
    fn listen(&mut self) -> io::Result<()> {
        let living = |(rank, seat): (usize, &Option<Seat<N::Stream>>)| {
            seat.as_ref().filter(|seat| !seat.has_ended).map(|_| rank)
        };
        let living: Vec<usize> = self.seats.iter().enumerate().filter_map(living).collect();
        let stranger_ns = if N::ARE_TRUSTED { u64::MAX } else { STRANGER_NS };
        let next = self.sockets.watch().unwrap_or_else(|error| {
            self.attendance.give_up(error, |_| 0);
            Deadline::NEVER
        });
        let limit_ns = next.left_ns().min(stranger_ns);
        let mut fds: Vec<BorrowedFd<'_>> = vec![self.listener.as_fd()];
        fds.extend(self.guests.iter().map(|guest| guest.channel.as_fd()));
        let seats = self.seats.iter().flatten().filter(|seat| !seat.has_ended);
        fds.extend(seats.map(|seat| seat.channel.as_fd()));
        let ready =
            process::wait_readable(&fds, limit_ns.min(self.attendance.deadline().left_ns()))?;
        let (knock, rest) =
            ready.split_first().map_or((false, &[][..]), |(one, rest)| (*one, rest));
        let (guests, seats) = rest.split_at(self.guests.len().min(rest.len()));
        for (rank, _) in living.into_iter().zip(seats).filter(|(_, ready)| **ready) {
            self.look_at(rank);
        }
        let now = now_ns();
        for (guest, ready) in std::mem::take(&mut self.guests).into_iter().zip(guests) {
            let is_late = now >= guest.since_ns.saturating_add(stranger_ns);
            if *ready || is_late { self.hear(guest, is_late) } else { self.guests.push(guest) }
        }
        if knock { self.admit(now) } else { Ok(()) }
    }

    /// Accepts all pending connections. If there are too many connections on which no complete
    /// hello (first frame) has arrived yet, drops the oldest of them.
    fn admit(&mut self, now: u64) -> io::Result<()> {
        while let Some(stream) = self.sockets.accept(&self.listener)? {
            if self.guests.len() > 4 * self.seats.len() + 64 {
                self.guests.remove(0);
            }
            self.guests.push(Guest { channel: Channel::new(stream), since_ns: now });
        }
        Ok(())
    }

    /// Reads from the connection of a rank that has joined, and records a failure if the connection
    /// has ended. The rank does not send anything at this stage, so the read serves only to detect
    /// the end.
    fn look_at(&mut self, rank: usize) {
        let Some(Some(seat)) = self.seats.get_mut(rank) else { return };
        if seat.channel.fill().is_ok() {
            return;
        }
        // The rank still counts as joined: the wait for the other ranks continues, so that they get
        // the failure.
        seat.has_ended = true;
        let text =
            format!("rank {rank} ended while the communicator was opened; see its own output");
        self.give_up(Error::new(DTL_ERROR_RANK_FAILURE, text));
    }

    /// Reads from a connection on which no complete hello (first frame) has arrived. When the hello
    /// is complete, admits or rejects the rank. Drops the connection if the hello is invalid or if
    /// the hello is still incomplete and `is_late` is true.
    fn hear(&mut self, mut guest: Guest<N::Stream>, is_late: bool) {
        let state = guest.channel.fill();
        let most = 8 * (HEAD + self.mine.len()) + MOST_TEXT;
        let hello = match guest.channel.next(most) {
            Ok(Some((HELLO, bytes))) => words_of(&bytes),
            Ok(None) if state.is_ok() && !is_late => return self.guests.push(guest),
            // Any other content is of a foreign process, to which nothing is sent.
            _ => return,
        };
        match hello.split_first_chunk::<HEAD>() {
            Some((&[magic, key, rank, size, left_ns], contribution))
                if magic == N::MAGIC && key == self.sockets.opening().key =>
            {
                self.attendance.shorten(left_ns);
                self.seat(guest.channel, (rank, size), contribution);
            }
            Some((&[magic, ..], _)) if magic == N::MAGIC => send(guest.channel, OTHER, &[]),
            _ => {}
        }
    }

    fn seat(&mut self, mut channel: Channel<N::Stream>, of: (u64, u64), contribution: &[u64]) {
        let rank = usize::try_from(of.0).unwrap_or(0);
        let is_free = rank > 0 && self.seats.get(rank).is_some_and(Option::is_none);
        let other_size = self.sockets.opening().other_size(of.0, of.1);
        let unlike =
            other_size.or_else(|| self.sockets.unlike(of.0, contribution, self.mine.len()));
        let is_unlike = unlike.is_some();
        if let Some(error) = unlike {
            self.give_up(error);
        } else if !is_free {
            let error = self.sockets.duplicate(of.0, &channel.stream);
            return send(channel, ANSWER, &bytes_of(&encode(&Err(error))));
        } else if let Some(error) = self.sockets.reported(rank, contribution) {
            self.give_up(error);
        }
        channel.queue(SEAT, &[]);
        // A few bytes fit into the socket, or the other side is gone.
        drop(channel.flush());
        match self.seats.get_mut(rank).filter(|_| is_free && !(is_unlike && N::ARE_TRUSTED)) {
            Some(seat) => {
                let contribution = contribution.to_vec();
                *seat = Some(Seat { channel, contribution, has_ended: false });
            }
            None => self.turned_away.push(channel),
        }
    }

    fn give_up(&mut self, error: Error) {
        let (sockets, is_full) = (&self.sockets, self.is_full);
        self.attendance.give_up(error, |first| if is_full { 0 } else { sockets.linger_ns(first) });
    }

    /// Returns the time until rank 0's deadline, in nanoseconds.
    pub(super) fn left_ns(&self) -> u64 {
        self.attendance.deadline().left_ns()
    }

    /// Iterates over the ranks that have joined and their connections.
    pub(super) fn seated(&mut self) -> impl Iterator<Item = (usize, &mut Channel<N::Stream>)> {
        let seats = self.seats.iter_mut().enumerate();
        seats.filter_map(|(rank, seat)| seat.as_mut().map(|seat| (rank, &mut seat.channel)))
    }

    /// Sends the outcome to all connected ranks; returns their number.
    pub(super) fn answer(&mut self, outcome: &Result<Vec<u64>>) -> usize {
        let bytes = bytes_of(&encode(outcome));
        let seats = self.seats.iter_mut().flatten().map(|seat| &mut seat.channel);
        let guests = self.guests.iter_mut().map(|guest| &mut guest.channel);
        let mut open: Vec<_> = seats.chain(&mut self.turned_away).collect();
        open.extend(guests.filter(|_| N::ARE_TRUSTED && outcome.is_err()));
        let count = open.len();
        open.iter_mut().for_each(|channel| channel.queue(ANSWER, &bytes));
        let deadline = Deadline::after(GRACE_NS);
        loop {
            // A rank that is gone by now has died after the start; the other ranks detect that.
            open.retain_mut(|channel| channel.flush().unwrap_or(false));
            if open.is_empty() || deadline.passed() {
                return count;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Closes all connections; returns the listener.
    pub(super) fn into_listener(self) -> N::Listener {
        self.listener
    }
}

/// Sends one frame, then closes the connection.
pub(super) fn send<S: Stream>(mut channel: Channel<S>, kind: u8, bytes: &[u8]) {
    channel.queue(kind, bytes);
    // A few bytes fit into the socket, or the other side is gone.
    drop(channel.flush());
}
