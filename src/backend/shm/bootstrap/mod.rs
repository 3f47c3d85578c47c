//! How the ranks of a job find each other: rank 0 listens, the others connect, and all of them get
//! the same answer. Works in four steps; a failure in any of them is an error on every rank: hello
//! (identity) -> roster (process ids, shared memory) -> ready -> verdict.
//!
//! Strangers may connect at any time: a connection counts only with the right user id, magic and
//! cookie; others are dropped and cost a place in a bounded list. Nothing is left behind: the names
//! are abstract and the memory has none.
//!
//! In reading order:
//! - `job_id`: names of sockets, and the claim to be a rank
//! - `bootstrap_wire`: format of the exchange
//! - `startup_failure`: notice of a rank that cannot take part

pub(super) mod bootstrap_wire;
pub(super) mod job_id;
pub(super) mod startup_failure;
use self::bootstrap_wire::{Frame, HELLO_BYTES, Hello};
use self::job_id::{Identity, holder, other_users};
use self::startup_failure::turn_away;
use super::memory::segment::Segment;
use crate::abi::status::*;
use crate::backend::os_error::os_error;
use crate::error::{Error, Result, fail};
use crate::sys::os::{fd, poller, process, unix_socket};
use crate::sys::sync::clock::Deadline;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

/// What the ranks have when they have met.
pub(super) struct Meeting {
    pub(super) segment: Segment,
    /// Process id of each rank.
    pub(super) pids: Vec<i32>,
}

/// Which rank this is, and until when it waits.
pub(super) struct Place<'a> {
    pub(super) identity: &'a Identity,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) timeout_ns: u64,
}

/// How long an answer may take beyond the time limit: rank 0 answers at its own limit.
const GRACE_NS: u64 = 2_000_000_000;
/// How long rank 0 waits for the others after a failure, to report it to them.
pub(super) const LINGER_NS: u64 = 2_000_000_000;

impl Place<'_> {
    /// Returns this rank's hello, the first frame that it sends.
    pub(super) fn hello(&self, deadline: Deadline) -> Vec<u8> {
        Hello {
            cookie: self.identity.cookie,
            rank: self.rank as u64,
            size: self.size as u64,
            left_ns: deadline.left_ns(),
            namespace: process::pid_namespace().unwrap_or(UNKNOWN),
        }
        .bytes()
    }
}

/// Of a process without /proc.
const UNKNOWN: u64 = 0;

/// Meets the other ranks. `prepare` is each rank's own part, done when the memory is there; its
/// failure is everybody's.
pub(super) fn meet(
    place: &Place<'_>,
    prepare: &mut dyn FnMut(&Meeting) -> Result<()>,
) -> Result<Meeting> {
    if place.rank == 0 { Host::open(place)?.host(prepare) } else { visit(place, prepare) }
}

/// A rank other than 0.
fn visit(place: &Place<'_>, prepare: &mut dyn FnMut(&Meeting) -> Result<()>) -> Result<Meeting> {
    let deadline = Deadline::after(place.timeout_ns);
    let stream = find_host(place, deadline)?;
    let late = Deadline::after(deadline.left_ns().saturating_add(GRACE_NS));
    let lost = |error: Error| error.within("waiting for rank 0");
    // Rank 0 may have sent why it gave up, and gone: that is read, even if this send fails.
    let _ = bootstrap_wire::send(&stream, &place.hello(deadline));
    let pids = bootstrap_wire::read_frame(&stream, late).map_err(lost)?.pids()?;
    let memory = bootstrap_wire::read_descriptor(&stream, late).map_err(lost);
    let meeting = memory
        .and_then(|fd| Segment::attach(fd, place.size))
        .map(|segment| Meeting { segment, pids });
    let prepared = meeting.and_then(|meeting| prepare(&meeting).map(|()| meeting));
    let own = format!("rank {}", place.rank);
    let _ = bootstrap_wire::send(&stream, &Frame::of(prepared.as_ref().err(), Some(&own)).bytes());
    let verdict =
        bootstrap_wire::read_frame(&stream, late).map_err(lost).and_then(|frame| frame.success());
    match (prepared, verdict) {
        // Rank 0 has the better reason why another rank has ended.
        (Err(own), Err(verdict)) if own.status() == DTL_ERROR_RANK_FAILURE => Err(verdict),
        (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        (Ok(meeting), Ok(())) => Ok(meeting),
    }
}

/// Connects to rank 0, which may not have started yet.
pub(super) fn find_host(place: &Place<'_>, deadline: Deadline) -> Result<UnixStream> {
    let mut pause = Duration::from_micros(100);
    let mut others = Others::of(place);
    loop {
        others.look();
        match unix_socket::connect(&place.identity.meeting) {
            Ok(stream) => return of_this_user(stream),
            Err(error) if fd::shortage(&error).is_some() => {
                return Err(bootstrap_wire::failed(error));
            }
            Err(_) => {}
        }
        if deadline.passed() {
            return fail!(
                DTL_ERROR_TIMEOUT,
                "rank 0 is missing after {}: it did not open the communicator on this node{}; \
                 start all {} ranks with \
                 the same job name, see its own output, or raise the time limit",
                seconds(place.timeout_ns),
                others.found,
                place.size
            );
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// Looks for other users under the same job name, once, at half time: then those who wait in vain
/// are all there.
struct Others<'a> {
    identity: &'a Identity,
    at: Deadline,
    /// In words; empty if there are none.
    found: String,
}

impl<'a> Others<'a> {
    fn of(place: &Place<'a>) -> Self {
        Others {
            identity: place.identity,
            at: Deadline::after(place.timeout_ns / 2),
            found: String::new(),
        }
    }

    fn look(&mut self) {
        if self.at.passed() {
            self.at = Deadline::NEVER;
            self.found = other_users(self.identity);
        }
    }
}

fn of_this_user(stream: UnixStream) -> Result<UnixStream> {
    let peer = process::peer_of(stream.as_raw_fd()).map_err(bootstrap_wire::failed)?;
    if peer.uid == process::own_uid() {
        return Ok(stream);
    }
    fail!(
        DTL_ERROR_UNAVAILABLE,
        "process {} of user {} listens under this job's name; choose another job name",
        peer.pid,
        peer.uid
    )
}

fn seconds(ns: u64) -> String {
    if ns < 1_000_000_000 {
        format!("{} ms", ns / 1_000_000)
    } else {
        format!("{:.1} s", ns as f64 / 1e9)
    }
}

/// Makes the error of a rank in another PID namespace than rank 0. It cannot take part: process ids
/// would refer to other processes there.
fn elsewhere(rank: u64, its: u64, own: u64) -> Error {
    let unknown = |whose: String| {
        format!(
            "{whose} cannot tell in which PID namespace it lives: /proc is not mounted there; \
             mount it"
        )
    };
    let text = match (own, its) {
        (UNKNOWN, _) => unknown("rank 0".to_owned()),
        (_, UNKNOWN) => unknown(format!("rank {rank}")),
        _ => format!(
            "rank {rank} lives in another PID namespace (container) than rank 0; start them in one"
        ),
    };
    Error::new(DTL_ERROR_UNAVAILABLE, text)
}

/// A connection whose hello is not complete.
struct Guest {
    stream: UnixStream,
    said: Vec<u8>,
}

/// Rank 0.
struct Host<'a> {
    place: &'a Place<'a>,
    listener: UnixListener,
    deadline: Deadline,
    guests: Vec<Guest>,
    /// By rank; that of rank 0 stays empty.
    seats: Vec<Option<UnixStream>>,
    pids: Vec<i32>,
    /// Connections that cannot be seated but must get the reason.
    turned_away: Vec<UnixStream>,
    failure: Option<Error>,
    /// Nobody else can be let in.
    is_full: bool,
    others: Others<'a>,
}

impl<'a> Host<'a> {
    fn open(place: &'a Place<'a>) -> Result<Self> {
        let name = &place.identity.meeting;
        let listener = match unix_socket::listen(name) {
            Ok(listener) => listener,
            Err(error) => {
                let who = holder(name).map_or(String::new(), |p| {
                    format!(", held by process {} of user {}", p.pid, p.uid)
                });
                let what =
                    format!("socket \"@{name}\"{who} (choose another job name where it is in use)");
                return Err(os_error(DTL_ERROR_UNAVAILABLE, &what, &error));
            }
        };
        let mut pids = vec![0; place.size];
        if let Some(own) = pids.first_mut() {
            *own = process::own_pid();
        }
        Ok(Host {
            place,
            listener,
            deadline: Deadline::after(place.timeout_ns),
            guests: Vec::new(),
            seats: (0..place.size).map(|_| None).collect(),
            pids,
            turned_away: Vec::new(),
            failure: None,
            is_full: false,
            others: Others::of(place),
        })
    }

    fn host(mut self, prepare: &mut dyn FnMut(&Meeting) -> Result<()>) -> Result<Meeting> {
        self.gather()?;
        let meeting = match self.share(prepare) {
            Ok(meeting) => meeting,
            Err(error) => return Err(self.tell(error)),
        };
        let verdict = Frame::of(None, None).bytes();
        for stream in self.seats.iter().flatten() {
            // Who is gone by now is a death after the start: the others see it as such.
            let _ = bootstrap_wire::send(stream, &verdict);
        }
        Ok(meeting)
    }

    /// Waits until the hellos of all ranks have arrived.
    fn gather(&mut self) -> Result<()> {
        while self.missing().next().is_some() && !self.deadline.passed() {
            self.others.look();
            if let Err(error) = self.listen() {
                self.is_full = true;
                self.give_up(error.within("rank 0"));
            }
        }
        let missing: Vec<String> = self.missing().map(|rank| rank.to_string()).collect();
        match self.failure.take() {
            Some(error) => Err(self.tell_all(error)),
            None if missing.is_empty() => Ok(()),
            None => {
                let error = Error::new(
                    DTL_ERROR_TIMEOUT,
                    format!(
                        "rank {} of {} missing after {}: not started, started with another job \
                         name, on another node, or \
                         failed (see its own output){}; start all ranks, or raise the time limit",
                        missing.join(", "),
                        self.place.size,
                        seconds(self.place.timeout_ns),
                        self.others.found
                    ),
                );
                Err(self.tell(error))
            }
        }
    }

    fn missing(&self) -> impl Iterator<Item = usize> + '_ {
        // Who excused itself has a process id, but no seat any more.
        self.pids.iter().enumerate().skip(1).filter(|(_, pid)| **pid == 0).map(|(rank, _)| rank)
    }

    /// Waits for something to happen and handles it.
    fn listen(&mut self) -> Result<()> {
        let seated: Vec<usize> = (0..self.seats.len())
            .filter(|&r| self.seats.get(r).is_some_and(Option::is_some))
            .collect();
        let mut fds = vec![self.listener.as_fd()];
        fds.extend(self.guests.iter().map(|guest| guest.stream.as_fd()));
        fds.extend(self.seats.iter().flatten().map(AsFd::as_fd));
        let limit = self.deadline.left_ns().min(self.others.at.left_ns());
        let ready = poller::wait_readable(&fds, limit).map_err(bootstrap_wire::failed)?;
        let (knock, rest) =
            ready.split_first().map_or((false, &[][..]), |(first, rest)| (*first, rest));
        let (guests, seats) = rest.split_at(self.guests.len().min(rest.len()));
        if let Some((&rank, _)) = seated.iter().zip(seats).find(|(_, ready)| **ready) {
            self.lose(rank);
            return Ok(());
        }
        let speaking: Vec<usize> =
            guests.iter().enumerate().filter(|(_, ready)| **ready).map(|(i, _)| i).collect();
        for index in speaking.into_iter().rev() {
            self.hear(index);
        }
        if knock {
            self.admit()?;
        }
        Ok(())
    }

    /// Handles input from a seated rank. It is either its failure or the end of its connection.
    fn lose(&mut self, rank: usize) {
        let stream = self.seats.get_mut(rank).and_then(Option::take);
        let said = stream
            .and_then(|stream| bootstrap_wire::read_frame(&stream, Deadline::after(GRACE_NS)).ok());
        let excuse = said.and_then(|frame| frame.success().err());
        let text =
            format!("rank {rank} ended while the communicator was opened; see its own output");
        self.give_up(excuse.unwrap_or_else(|| Error::new(DTL_ERROR_RANK_FAILURE, text)));
    }

    fn admit(&mut self) -> Result<()> {
        while let Some(stream) =
            unix_socket::accept(&self.listener).map_err(bootstrap_wire::failed)?
        {
            let known = process::peer_of(stream.as_raw_fd())
                .is_ok_and(|peer| peer.uid == process::own_uid());
            if !known {
                continue;
            }
            if self.guests.len() > 4 * self.place.size + 64 {
                self.guests.remove(0);
            }
            self.guests.push(Guest { stream, said: Vec::with_capacity(HELLO_BYTES) });
        }
        Ok(())
    }

    /// Reads on from a guest; seats it or drops it when its hello is complete.
    fn hear(&mut self, index: usize) {
        let Some(guest) = self.guests.get_mut(index) else { return };
        let open = bootstrap_wire::read_some(&guest.stream, &mut guest.said, HELLO_BYTES);
        if open && guest.said.len() < HELLO_BYTES {
            return;
        }
        let guest = self.guests.remove(index);
        // Anything else comes from a stranger: send nothing.
        if let Some(hello) = Hello::parse(&guest.said, self.place.identity.cookie) {
            self.seat(guest.stream, &hello);
        }
    }

    fn seat(&mut self, stream: UnixStream, hello: &Hello) {
        let size = self.place.size;
        let limit = Deadline::after(hello.left_ns);
        // The first limit that passes is everybody's, so that every rank gets the names of the
        // missing ones.
        if limit.left_ns() < self.deadline.left_ns() {
            self.deadline = limit;
        }
        if hello.size != size as u64 {
            self.turned_away.push(stream);
            self.give_up(Error::new(
                DTL_ERROR_INVALID_ARGUMENT,
                format!(
                    "the ranks disagree on their number: rank {} says {}, rank 0 says {size}; pass \
                     the same size on all",
                    hello.rank, hello.size
                ),
            ));
            return;
        }
        let own = process::pid_namespace().unwrap_or(UNKNOWN);
        if hello.namespace != own || own == UNKNOWN {
            self.turned_away.push(stream);
            self.give_up(elsewhere(hello.rank, hello.namespace, own));
            return;
        }
        let rank = usize::try_from(hello.rank).unwrap_or(0);
        let pid = process::peer_of(stream.as_raw_fd()).map_or(0, |peer| peer.pid);
        match (self.seats.get_mut(rank), self.pids.get_mut(rank)) {
            (Some(seat), Some(known)) if rank > 0 && seat.is_none() => {
                // An excuse comes with the hello, and must be read before others notice that its
                // rank has ended.
                let speaks = poller::wait_readable(&[stream.as_fd()], 0)
                    .is_ok_and(|ready| ready.contains(&true));
                *seat = Some(stream);
                *known = pid;
                if speaks {
                    self.lose(rank);
                }
            }
            _ => {
                let text =
                    format!("process {pid} says it is rank {rank}, but that rank is here already");
                let _ = bootstrap_wire::send(
                    &stream,
                    &Frame::of(Some(&Error::new(DTL_ERROR_ALREADY_EXISTS, text)), None).bytes(),
                );
            }
        }
    }

    /// Records the failure; goes on listening for a moment, to report it to those who are still to
    /// come.
    fn give_up(&mut self, error: Error) {
        if self.failure.is_none() {
            self.failure = Some(error);
        }
        // A death needs no others to come; and a rank that cannot let them in reports to them one
        // by one.
        let is_final = |error: &Error| error.status() == DTL_ERROR_RANK_FAILURE || self.is_full;
        let linger = if self.failure.as_ref().is_some_and(is_final) { 0 } else { LINGER_NS };
        if linger < self.deadline.left_ns() {
            self.deadline = Deadline::after(linger);
        }
    }

    /// Sends the failure to every rank that is connected.
    fn tell(&self, error: Error) -> Error {
        let frame = Frame::of(Some(&error), None).bytes();
        let guests = self.guests.iter().map(|guest| &guest.stream);
        for stream in self.seats.iter().flatten().chain(&self.turned_away).chain(guests) {
            let _ = bootstrap_wire::send(stream, &frame);
        }
        error
    }

    /// Sends the failure to every rank that is connected. If there was no descriptor to let the
    /// others in, they are let in and answered one by one.
    fn tell_all(&mut self, error: Error) -> Error {
        let error = self.tell(error);
        if self.is_full {
            let told =
                self.seats.iter().flatten().count() + self.guests.len() + self.turned_away.len();
            self.seats.clear();
            self.guests.clear();
            self.turned_away.clear();
            let left = (self.place.size - 1).saturating_sub(told);
            turn_away(
                &self.listener,
                left,
                &Frame::of(Some(&error), None),
                Deadline::after(LINGER_NS),
            );
        }
        error
    }

    /// Makes the memory, hands it out, and waits for each rank's report whether it could use it.
    fn share(&self, prepare: &mut dyn FnMut(&Meeting) -> Result<()>) -> Result<Meeting> {
        let own = |error: Error| error.within("rank 0");
        let segment = Segment::create(self.place.size).map_err(own)?;
        let meeting = Meeting { segment, pids: self.pids.clone() };
        let roster = Frame::roster(&self.pids).bytes();
        let died = |rank: usize, error: Error| {
            // A rank that does not answer in time may be stopped; any other failure is its end.
            let status = if error.status() == DTL_ERROR_TIMEOUT {
                DTL_ERROR_TIMEOUT
            } else {
                DTL_ERROR_RANK_FAILURE
            };
            Error::new(
                status,
                format!("rank {rank}, while the communicator was opened: {}", error.text()),
            )
        };
        let seated = || {
            self.seats
                .iter()
                .enumerate()
                .filter_map(|(rank, seat)| seat.as_ref().map(|s| (rank, s)))
        };
        for (rank, stream) in seated() {
            bootstrap_wire::send(stream, &roster).map_err(|error| died(rank, error))?;
            let sent = meeting
                .segment
                .descriptor()
                .map(|memory| unix_socket::send_descriptor(stream, memory));
            sent.unwrap_or(Ok(())).map_err(|e| died(rank, bootstrap_wire::failed(e)))?;
        }
        prepare(&meeting).map_err(own)?;
        let deadline = Deadline::after(self.deadline.left_ns().max(GRACE_NS / 2));
        let mut failure: Option<Error> = None;
        for (rank, stream) in seated() {
            let said =
                bootstrap_wire::read_frame(stream, deadline).map_err(|error| died(rank, error));
            let Err(error) = said.and_then(|frame| frame.success()) else { continue };
            // A rank that failed has ended by now, and the others report its death: its own failure
            // counts.
            if failure.as_ref().is_none_or(|known| known.status() == DTL_ERROR_RANK_FAILURE) {
                failure = Some(error);
            }
        }
        failure.map_or(Ok(meeting), Err)
    }
}
