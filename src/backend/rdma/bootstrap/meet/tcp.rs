//! Meeting where rank 0 listens. The others connect and send a hello; rank 0 confirms each one's
//! seat, and when all have one, sends the words of all ranks. Peers are not authenticated: use it
//! in a trusted network.
//!
//! Strangers may connect at any time: a connection without the job's hello in time is closed. A
//! second job may be given the same port by mistake: its ranks get the answer `OTHER`, and retry
//! until their time is up.

use super::{BEFORE, GRACE_NS, Job, LINGER_NS, Meeting, Talk, cannot, disagreement, seconds};
use crate::abi::status::*;
use crate::backend::os_error::os_error;
use crate::backend::rdma::bootstrap::tcp_frames::{Channel, LONGEST, State, bytes_of, words_of};
use crate::error::{Error, Result, is_status};
use crate::sys::os::{fd, poller, tcp, thread};
use crate::sys::sync::clock::{Deadline, now_ns};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc;
use std::time::Duration;

/// Changes with everything that the ranks must agree on.
const MAGIC: u64 = u64::from_be_bytes(*b"dtl-tcp1");
/// Magic, key of the meeting, rank, size, nanoseconds left; then the rank's contribution.
const HELLO: u8 = 1;
/// There is a seat for the rank.
const SEAT: u8 = 2;
/// This is the meeting of another job, or another one of this job.
const OTHER: u8 = 3;
/// Status; everybody's words, or a text.
const ANSWER: u8 = 4;
/// Words of a hello before the rank's contribution.
const HEAD: usize = 5;

/// Time limit for the hello of a new connection.
const STRANGER_NS: u64 = 2_000_000_000;
/// Between two tries.
const MOMENT: Duration = Duration::from_millis(10);
/// How long one try to connect may take.
const TRY_NS: u64 = 2_000_000_000;

/// Meets the other ranks there.
pub(super) fn meet(host: &str, port: u16, job: &Job<'_>, talk: &Talk) -> Result<Meeting> {
    let deadline = Deadline::after(job.limit_ns);
    let place = Place { host, port, job, talk, deadline };
    let said = if job.rank == 0 { place.host() } else { place.visit() };
    talk.mine.as_ref().map_err(Clone::clone)?;
    talk.end((job.rank, job.size), &said?)
}

struct Place<'a> {
    host: &'a str,
    port: u16,
    job: &'a Job<'a>,
    talk: &'a Talk,
    deadline: Deadline,
}

impl Place<'_> {
    fn shown(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    fn host(&self) -> Result<Vec<u64>> {
        let mut root = Root {
            place: self,
            listener: self.listen()?,
            deadline: self.deadline,
            guests: Vec::new(),
            seats: (0..self.job.size()).map(|_| None).collect(),
            failure: None,
        };
        if self.talk.mine.is_err() {
            root.give_up(cannot(0, &self.talk.says()));
        }
        root.gather()
    }

    fn listen(&self) -> Result<TcpListener> {
        loop {
            // A name may mean something else on its own machine than elsewhere.
            let listener = match self.host.parse::<IpAddr>() {
                Ok(address) => tcp::listen(SocketAddr::new(address, self.port)),
                Err(_) => tcp::listen_everywhere(self.port),
            };
            let error = match listener {
                Ok(listener) => return Ok(listener),
                Err(error) => error,
            };
            // By another job, or by the meeting before this one.
            if error.kind() != ErrorKind::AddrInUse || self.deadline.passed() {
                let what = format!(
                    "rank 0 cannot listen at {} (an address of its machine and a port that nothing \
                     else uses)",
                    self.shown()
                );
                return Err(os_error(DTL_ERROR_UNAVAILABLE, &what, &error));
            }
            std::thread::sleep(MOMENT);
        }
    }

    /// A rank other than 0.
    fn visit(&self) -> Result<Vec<u64>> {
        loop {
            let why = match self.try_once()? {
                Ok(words) => return Ok(words),
                Err(why) => why,
            };
            if self.deadline.passed() {
                let text = format!(
                    "rank 0 is missing after {} at {}: {why}; start all {} ranks with the same \
                     address, see rank 0's own \
                     output, or raise the time limit",
                    seconds(self.job.limit_ns),
                    self.shown(),
                    self.job.size
                );
                return Err(Error::new(DTL_ERROR_TIMEOUT, text));
            }
            std::thread::sleep(MOMENT);
        }
    }

    /// Everybody's words, or in words why there is no rank 0 yet.
    fn try_once(&self) -> Result<std::result::Result<Vec<u64>, String>> {
        let stream = match self.connect() {
            Ok(stream) => stream,
            Err(error) if fd::shortage(&error).is_some() => {
                return Err(os_error(DTL_ERROR_LIMIT, "meeting rank 0", &error));
            }
            Err(error) => return Ok(Err(error.to_string())),
        };
        let mut channel = Channel::new(stream);
        channel.queue(HELLO, &bytes_of(&self.hello()));
        let patience = Deadline::after(self.deadline.left_ns().saturating_add(GRACE_NS));
        let mut has_seat = false;
        loop {
            let more = channel.flush().unwrap_or(false);
            let state = channel.fill();
            while let Some((kind, bytes)) = channel.next(LONGEST).unwrap_or(None) {
                match kind {
                    SEAT => has_seat = true,
                    OTHER => return Ok(Err("another job meets there".to_owned())),
                    ANSWER => return outcome(&bytes).map(Ok),
                    _ => return Ok(Err("something else listens there".to_owned())),
                }
            }
            match state {
                State::Open if patience.passed() && has_seat => {
                    return Err(self.lost("does not answer"));
                }
                State::Open if (if has_seat { patience } else { self.deadline }).passed() => {
                    return Ok(Err("who listens there says nothing".to_owned()));
                }
                State::Open => {
                    let wait_ns =
                        if more { 1_000_000 } else { patience.left_ns().min(TRY_NS / 20) };
                    drop(poller::wait_readable(&[channel.as_fd()], wait_ns));
                }
                State::Ended(_) if has_seat => return Err(self.lost("has ended")),
                State::Ended(why) => {
                    return Ok(Err(format!("who listens there sends this rank away: {why}")));
                }
            }
        }
    }

    fn lost(&self, what: &str) -> Error {
        let text = format!(
            "rank 0 at {} {what} while the communicator is opened; see its own output",
            self.shown()
        );
        Error::new(DTL_ERROR_RANK_FAILURE, text)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut last = ErrorKind::AddrNotAvailable.into();
        for address in self.addresses()? {
            let limit = Duration::from_nanos(self.deadline.left_ns().clamp(1_000_000, TRY_NS));
            match TcpStream::connect_timeout(&address, limit) {
                // The system may connect a socket to itself where nobody listens.
                Ok(stream) if stream.local_addr()? == stream.peer_addr()? => {
                    last = ErrorKind::ConnectionRefused.into();
                }
                Ok(stream) => {
                    let stream = TcpStream::from(fd::keep(stream.into())?);
                    stream.set_nonblocking(true)?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Resolves the host's name, in a thread, since the system's lookup takes no time limit.
    fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, self.port)]);
        }
        let (answer, found) = mpsc::channel();
        let place = (self.host.to_owned(), self.port);
        thread::spawn("dtl-lookup", move || {
            // The receiver is gone if the time was up.
            drop(answer.send(place.to_socket_addrs().map(Iterator::collect)));
        })?;
        let limit = Duration::from_nanos(self.deadline.left_ns().max(1_000_000));
        found.recv_timeout(limit).unwrap_or_else(|_| {
            Err(io::Error::new(
                ErrorKind::TimedOut,
                "its name is still being looked up; an address needs no lookup",
            ))
        })
    }

    fn hello(&self) -> Vec<u64> {
        let job = self.job;
        let head = [MAGIC, job.key(), job.rank as u64, job.size as u64, self.deadline.left_ns()];
        [&head[..], &self.talk.says()].concat()
    }
}

fn outcome(bytes: &[u8]) -> Result<Vec<u64>> {
    let (status, rest) = bytes.split_at_checked(4).unwrap_or((bytes, &[]));
    match status.try_into().map_or(DTL_ERROR_COMMUNICATION, i32::from_le_bytes) {
        DTL_SUCCESS => Ok(words_of(rest)),
        status => {
            let status = if is_status(status) { status } else { DTL_ERROR_COMMUNICATION };
            Err(Error::new(status, String::from_utf8_lossy(rest)))
        }
    }
}

fn answer(outcome: &Result<Vec<u64>>) -> Vec<u8> {
    match outcome {
        Ok(words) => [&DTL_SUCCESS.to_le_bytes()[..], &bytes_of(words)].concat(),
        Err(error) => [&error.status().to_le_bytes()[..], error.text().as_bytes()].concat(),
    }
}

/// A connection whose hello has not arrived.
struct Guest {
    channel: Channel,
    since_ns: u64,
}

/// A rank that has come, and its contribution.
struct Seat {
    channel: Channel,
    says: Vec<u64>,
    has_ended: bool,
}

/// Rank 0.
struct Root<'a> {
    place: &'a Place<'a>,
    listener: TcpListener,
    deadline: Deadline,
    guests: Vec<Guest>,
    /// By rank; that of rank 0 stays empty.
    seats: Vec<Option<Seat>>,
    failure: Option<Error>,
}

impl Root<'_> {
    fn gather(&mut self) -> Result<Vec<u64>> {
        while !self.missing().is_empty() && !self.deadline.passed() {
            if let Err(error) = self.listen() {
                self.give_up(os_error(DTL_ERROR_UNAVAILABLE, "rank 0", &error));
                self.deadline = Deadline::after(0);
            }
        }
        let missing = self.missing();
        let outcome = match self.failure.take() {
            Some(error) => Err(error),
            None if missing.is_empty() => Ok(self.whole()),
            None => Err(self.place.job.missing(&missing, &self.place.shown())),
        };
        self.tell(&outcome);
        outcome
    }

    fn missing(&self) -> Vec<usize> {
        let empty = self.seats.iter().enumerate().skip(1).filter(|(_, seat)| seat.is_none());
        empty.map(|(rank, _)| rank).collect()
    }

    fn whole(&self) -> Vec<u64> {
        let others = self.seats.iter().flatten().flat_map(|seat| seat.says.iter().copied());
        self.place.talk.says().into_iter().chain(others).collect()
    }

    /// Waits for something to happen and handles it.
    fn listen(&mut self) -> io::Result<()> {
        let mut fds: Vec<BorrowedFd<'_>> = vec![self.listener.as_fd()];
        fds.extend(self.guests.iter().map(|guest| guest.channel.as_fd()));
        let living = self.seats.iter().flatten().filter(|seat| !seat.has_ended);
        fds.extend(living.map(|seat| seat.channel.as_fd()));
        poller::wait_readable(&fds, self.deadline.left_ns().min(STRANGER_NS))?;
        while let Some((stream, _)) = tcp::accept(&self.listener)? {
            if self.guests.len() > 4 * self.seats.len() + 64 {
                self.guests.remove(0);
            }
            self.guests.push(Guest { channel: Channel::new(stream), since_ns: now_ns() });
        }
        for guest in std::mem::take(&mut self.guests) {
            self.hear(guest);
        }
        for rank in 1..self.seats.len() {
            self.look_at(rank);
        }
        Ok(())
    }

    /// Checks a seated rank's connection. Nothing more comes on it: it ends or stays.
    fn look_at(&mut self, rank: usize) {
        let Some(Some(seat)) = self.seats.get_mut(rank) else { return };
        if seat.has_ended || seat.channel.fill() == State::Open {
            return;
        }
        // Its seat stays taken: the others are still to come, and to get the failure.
        seat.has_ended = true;
        let text =
            format!("rank {rank} ended while the communicator was opened; see its own output");
        self.give_up(Error::new(DTL_ERROR_RANK_FAILURE, text));
    }

    /// Reads on from a guest; seats it, or sends it away, when its hello is complete.
    fn hear(&mut self, mut guest: Guest) {
        let state = guest.channel.fill();
        let most = 8 * (HEAD + BEFORE + self.place.talk.words + 256);
        let hello = match guest.channel.next(most) {
            Ok(Some((HELLO, bytes))) => words_of(&bytes),
            Ok(None)
                if state == State::Open
                    && now_ns() < guest.since_ns.saturating_add(STRANGER_NS) =>
            {
                return self.guests.push(guest);
            }
            _ => return,
        };
        match hello.split_first_chunk::<HEAD>() {
            Some((&[MAGIC, key, rank, size, left_ns], says)) if key == self.place.job.key() => {
                self.seat(guest.channel, usize::try_from(rank).unwrap_or(0), (size, left_ns), says);
            }
            Some((&[MAGIC, ..], _)) => self.say(guest.channel, OTHER, &[]),
            _ => {}
        }
    }

    fn say(&self, mut channel: Channel, what: u8, bytes: &[u8]) {
        channel.queue(what, bytes);
        // A few bytes fit, or the other side is gone.
        drop(channel.flush());
    }

    fn seat(
        &mut self,
        mut channel: Channel,
        rank: usize,
        (size, left_ns): (u64, u64),
        says: &[u64],
    ) {
        let own = (self.seats.len(), BEFORE + self.place.talk.words);
        // The first limit that passes is everybody's, so that every rank gets the names of the
        // missing ones.
        if left_ns < self.deadline.left_ns() {
            self.deadline = Deadline::after(left_ns);
        }
        let is_free = rank > 0 && self.seats.get(rank).is_some_and(Option::is_none);
        if size != own.0 as u64 || says.len() != own.1 {
            let error = disagreement(rank, (size, says.len()), own);
            if !is_free {
                self.say(channel, ANSWER, &answer(&Err(error.clone())));
                return self.give_up(error);
            }
            self.give_up(error);
        } else if !is_free {
            let text =
                format!("another process is rank {rank} of this job already; start each rank once");
            let error = Error::new(DTL_ERROR_ALREADY_EXISTS, text);
            return self.say(channel, ANSWER, &answer(&Err(error)));
        } else if says.first() != Some(&0) {
            self.give_up(cannot(rank, says));
        }
        channel.queue(SEAT, &[]);
        drop(channel.flush());
        if let Some(seat) = self.seats.get_mut(rank) {
            *seat = Some(Seat { channel, says: says.to_vec(), has_ended: false });
        }
    }

    /// Records the failure; goes on listening for a moment, to report it to those who are still to
    /// come.
    fn give_up(&mut self, error: Error) {
        self.failure.get_or_insert(error);
        if LINGER_NS < self.deadline.left_ns() {
            self.deadline = Deadline::after(LINGER_NS);
        }
    }

    /// Sends the outcome to every rank that is connected.
    fn tell(&mut self, outcome: &Result<Vec<u64>>) {
        let bytes = answer(outcome);
        let seats = self.seats.iter_mut().flatten();
        let mut open: Vec<&mut Channel> = seats.map(|seat| &mut seat.channel).collect();
        open.iter_mut().for_each(|channel| channel.queue(ANSWER, &bytes));
        let deadline = Deadline::after(GRACE_NS);
        while !open.is_empty() {
            // Who is gone by now is a death after the start: the others see it as such.
            open.retain_mut(|channel| channel.flush().unwrap_or(false));
            if deadline.passed() {
                return;
            }
            if !open.is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
