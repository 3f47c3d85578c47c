//! Establishment, progress and closing of control connections. `frames` contains the protocol on a
//! connection.

use super::super::socket_frames::Channel;
use super::{LISTENER, LONGEST, Oob, PeerLiveness};
use crate::backend::os_error::os_error;
use crate::error::Result;
use crate::runtime::log;
use crate::sys::os::poller::Interest;
use crate::sys::os::{process, tcp};
use crate::sys::sync::wait::now_ns;
use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;

/// Kinds of control frames.
pub(super) mod kind {
    /// First frame of a connection: magic number, cookie of the job, source rank, destination rank,
    /// and 1 if the connection is short-lived (`Connection::is_brief`).
    pub(crate) const HELLO: u8 = 1;
    /// Reply to a hello (first frame of a connection), with the same fields.
    pub(crate) const WELCOME: u8 = 2;
    /// Message that a rank has passed to `Oob::send`.
    pub(crate) const MESSAGE: u8 = 3;
    /// Notification of ranks that died or left, encoded by `heartbeat_ring`.
    pub(crate) const GONE: u8 = 4;
    /// Farewell from a leaving rank. It lists the ranks that have died or left and that directly
    /// precede the leaving rank in the heartbeat ring.
    pub(crate) const BYE: u8 = 5;
}

/// A frame: kind and payload bytes.
pub(super) type Frame = (u8, Vec<u8>);

/// Size, in bytes, of a hello (first frame of a connection) and of its reply.
const HELLO_BYTES: usize = 8 * super::frames::HELLO_WORDS;
/// Maximum size of a frame's payload, in bytes.
const MOST: usize = if LONGEST > super::heartbeat_ring::MOST_BYTES {
    LONGEST
} else {
    super::heartbeat_ring::MOST_BYTES
};
/// Maximum number of accepted connections on which no hello (first frame) has arrived.
const GUESTS: usize = 64;
/// Timeout for the hello (first frame) on an accepted connection, in nanoseconds.
const GUEST_NS: u64 = 5_000_000_000;
/// Time for which no connection is accepted after this process has run out of file descriptors, in
/// nanoseconds.
const PAUSE_NS: u64 = 100_000_000;

/// Stage of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnectionStage {
    /// The operating system is connecting the socket.
    Connecting,
    /// The hello (first frame) has been sent, but the reply (welcome) has not arrived.
    Unwelcome,
    /// The connection has been accepted, but the hello (first frame) from the peer has not arrived.
    Guest,
    /// Established: frames can be exchanged.
    Open,
}

/// A control connection to another rank.
pub(super) struct Connection {
    pub(super) channel: Channel,
    /// Rank of the peer; -1 until the hello (first frame) from the peer has arrived.
    pub(super) peer: i32,
    pub(super) stage: ConnectionStage,
    /// True if the connection carries a few frames in one direction and is then closed. In that
    /// case, the end of the connection does not indicate a failure.
    pub(super) is_brief: bool,
    /// True if this side initiated the connection.
    is_ours: bool,
    /// Index of the connection in `Oob::connections`.
    pub(super) index: u32,
    pub(super) serial: u32,
    pub(super) since_ns: u64,
    wanted: Interest,
    /// Frames to send once the connection is open.
    pub(super) waiting: Vec<Frame>,
    /// Address to which the connection is being established. `addresses` contains the peer's
    /// untried addresses; the last one is tried next.
    address: Option<SocketAddr>,
    addresses: Vec<SocketAddr>,
    /// Number of connections to the current address that have ended before the peer replied to the
    /// hello (first frame).
    in_vain: u8,
}

/// Maximum number of retries at an address if the connection ends before the peer replies to the
/// hello (first frame). The peer may have closed the connection because this side was busy and did
/// not send anything for a long time.
const CHANCES: u8 = 2;

/// Reason why no connection to a rank could be established.
pub(super) struct ConnectFailure {
    pub(super) why: String,
    /// True if a connection was refused; false if there was no reply.
    pub(super) is_refused: bool,
}

impl Connection {
    /// Returns the number that identifies this connection in the poller's events.
    fn number(&self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.index)
    }

    /// Returns `what`, prefixed with the address to which the connection is being established, if
    /// any.
    pub(super) fn on_its_way(&self, what: &str) -> String {
        self.address.map_or_else(|| what.to_owned(), |address| format!("{address}: {what}"))
    }
}

impl Oob {
    /// Starts a connection to `rank` and queues the frames `waiting`. If `is_brief`, the connection
    /// is closed after these frames.
    pub(super) fn connect(&mut self, rank: i32, waiting: Vec<Frame>, is_brief: bool) -> Result<()> {
        let mut addresses = self.address(rank).socket_addrs(&self.own);
        addresses.reverse();
        let none = ConnectFailure { why: "it told no address".to_owned(), is_refused: true };
        match self.attempt(&mut addresses, none)? {
            Ok((stream, address)) => {
                let index = self.keep(stream, rank, ConnectionStage::Connecting);
                if let Some(Some(one)) = self.connections.get_mut(index) {
                    (one.is_brief, one.waiting, one.address, one.addresses) =
                        (is_brief, waiting, Some(address), addresses);
                }
                if let Some(rank) = self.rank_mut(rank).filter(|_| !is_brief) {
                    rank.link = u32::try_from(index).ok();
                }
                self.alarm(now_ns().saturating_add(self.attempt_ns()));
            }
            Err(none) if !none.is_refused && self.is_idle(rank, &waiting) => self.await_again(rank),
            Err(unreached) => self.is_unreached(rank, is_brief, &unreached),
        }
        Ok(())
    }

    /// Returns the timeout for connecting to one address, in nanoseconds.
    fn attempt_ns(&self) -> u64 {
        u64::try_from(self.silent.as_nanos()).unwrap_or(u64::MAX).saturating_mul(2)
    }

    /// Starts a connection to the next address that does not refuse the connection immediately. The
    /// inner error means that no address is left; the outer error means that this process has run
    /// out of file descriptors.
    fn attempt(
        &self,
        addresses: &mut Vec<SocketAddr>,
        mut last: ConnectFailure,
    ) -> Result<Result<(TcpStream, SocketAddr), ConnectFailure>> {
        while let Some(address) = addresses.pop() {
            let begun = tcp::connect(address)
                .and_then(|stream| tcp::end_if_silent(&stream, self.silent).map(|()| stream));
            match begun {
                Ok(stream) => return Ok(Ok((stream, address))),
                Err(error) if process::fd_shortage(&error).is_some() => {
                    let what = "a control socket";
                    return Err(os_error(crate::abi::status::DTL_ERROR_LIMIT, what, &error));
                }
                Err(error) => last = unreached(&format!("{address}: {error}"), error.kind()),
            }
        }
        Ok(Err(last))
    }

    fn keep(&mut self, stream: TcpStream, peer: i32, stage: ConnectionStage) -> usize {
        self.serial = self.serial.wrapping_add(1) & 0x7FFF_FFFF; // never the listener's number
        let is_ours = stage == ConnectionStage::Connecting;
        // A slot that is temporarily empty, while its connection is processed, is not free.
        let index = self.free.pop().unwrap_or(self.connections.len() as u32);
        let one = Connection {
            channel: Channel::new(stream),
            peer,
            stage,
            is_brief: false,
            is_ours,
            index,
            serial: self.serial,
            since_ns: now_ns(),
            wanted: if is_ours { Interest::Both } else { Interest::Reading },
            waiting: Vec::new(),
            address: None,
            addresses: Vec::new(),
            in_vain: 0,
        };
        self.ask_after(&one);
        match self.connections.get_mut(index as usize) {
            Some(slot) => *slot = Some(one),
            None => self.connections.push(Some(one)),
        }
        index as usize
    }

    fn ask_after(&self, one: &Connection) {
        if let Err(error) = self.poller.add(one.channel.as_fd(), one.number(), one.wanted) {
            log::warning!("a control socket with rank {} is not heard: {error}", one.peer);
        }
    }

    /// Accepts all pending connections.
    pub(super) fn admit(&mut self) {
        loop {
            match tcp::accept(&self.listener) {
                Ok(None) => return,
                Ok(Some((stream, _))) => {
                    self.is_short = false;
                    // If this option cannot be set, only a silent machine is detected later.
                    drop(tcp::end_if_silent(&stream, self.silent));
                    self.make_room_for_guest();
                    let index = self.keep(stream, -1, ConnectionStage::Guest);
                    self.alarm(now_ns().saturating_add(GUEST_NS));
                    self.step(index);
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.is_short, true) {
                        log::warning!(
                            "rdma: other ranks' control connections wait to be accepted, and their \
                             messages with them: {error}; if \
                             descriptors are short raise the limit (ulimit -n)"
                        );
                    }
                    self.poller.remove(self.listener.as_fd());
                    self.accept_at = now_ns().saturating_add(PAUSE_NS);
                    return self.alarm(self.accept_at);
                }
            }
        }
    }

    pub(super) fn accept_again(&mut self, now: u64) {
        if now < self.accept_at {
            return self.alarm(self.accept_at);
        }
        self.accept_at = super::NEVER;
        // Fails if the listener is in the poller already.
        drop(self.poller.add(self.listener.as_fd(), LISTENER, Interest::Reading));
    }

    fn make_room_for_guest(&mut self) {
        let guests =
            || self.connections.iter().flatten().filter(|one| one.stage == ConnectionStage::Guest);
        let oldest = guests().min_by_key(|one| one.since_ns).map(|one| one.index as usize);
        let is_full = guests().count() >= GUESTS;
        if let Some(one) = oldest.filter(|_| is_full).and_then(|index| self.take_out(index)) {
            self.send_away(one, "too many say nothing");
        }
    }

    pub(super) fn send_away(&mut self, one: Connection, why: &str) {
        let from = one.channel.stream.peer_addr().map_or("?".to_owned(), |from| from.to_string());
        log::debug!("a control connection from {from} is not of this job: {why}");
        self.discard(one);
    }

    fn take_out(&mut self, index: usize) -> Option<Connection> {
        self.connections.get_mut(index).and_then(Option::take)
    }

    /// Closes or retries connections that are not established within their timeout.
    pub(super) fn end_overdue(&mut self, now: u64) {
        for index in 0..self.connections.len() {
            // Data that has arrived since the last call is in time.
            let is_there = |one: &Connection| match one.stage {
                ConnectionStage::Connecting => one.channel.stream.peer_addr().is_ok(),
                stage => stage == ConnectionStage::Guest,
            };
            if self.connection(index).is_some_and(is_there) {
                self.step(index);
            }
            let Some(one) = self.connection(index) else { continue };
            let limit_ns = match one.stage {
                ConnectionStage::Guest => GUEST_NS,
                ConnectionStage::Connecting => self.attempt_ns(),
                ConnectionStage::Unwelcome | ConnectionStage::Open => continue,
            };
            let (stage, at) = (one.stage, one.since_ns.saturating_add(limit_ns));
            if now < at {
                self.alarm(at);
            } else if let Some(one) = self.take_out(index) {
                match stage {
                    ConnectionStage::Guest => self.send_away(one, "it says nothing"),
                    _ => {
                        let why = unreached(&one.on_its_way("no answer"), ErrorKind::TimedOut);
                        self.try_on(one, why);
                    }
                }
            }
        }
    }

    /// Makes progress on one connection.
    pub(super) fn step(&mut self, index: usize) {
        let Some(mut one) = self.take_out(index) else { return };
        if one.stage == ConnectionStage::Connecting {
            if let Err(error) = has_connected(&one.channel.stream) {
                let why = unreached(&one.on_its_way(&error.to_string()), error.kind());
                return self.try_on(one, why);
            }
            self.send_hello(&mut one);
        }
        let state = one.channel.fill();
        let mut frames = Vec::new();
        loop {
            let most = if one.stage == ConnectionStage::Guest && frames.is_empty() {
                HELLO_BYTES
            } else {
                MOST
            };
            match one.channel.next(most) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(len) => return self.has_talked_nonsense(one, &format!("{len} bytes at once")),
            }
        }
        for frame in frames {
            if let Err(why) = self.take(&mut one, frame) {
                return self.has_talked_nonsense(one, &why);
            }
        }
        let is_over = one.is_brief && one.is_ours && one.stage == ConnectionStage::Open;
        let gone = one.peer >= 0 && self.life(one.peer) != PeerLiveness::Here;
        match state {
            Err(why) if !gone => self.has_ended(one, why),
            _ if gone => self.discard(one),
            _ => {
                let more = one.channel.flush().unwrap_or(false);
                if is_over && !more {
                    self.discard(one);
                    return self.continue_notifying();
                }
                self.want(&mut one, more);
                self.put_back(one);
            }
        }
    }

    fn put_back(&mut self, one: Connection) {
        if let Some(slot) = self.connections.get_mut(one.index as usize) {
            *slot = Some(one);
        }
    }

    fn want(&self, one: &mut Connection, more: bool) {
        let wanted = if more { Interest::Both } else { Interest::Reading };
        if one.wanted != wanted {
            one.wanted = wanted;
            drop(self.poller.change(one.channel.as_fd(), one.number(), wanted));
        }
    }

    /// Writes queued frames. Ignores a write error, because the next read detects the failure.
    pub(super) fn flush(&mut self, index: usize) {
        let Some(mut one) = self.take_out(index) else { return };
        if one.stage != ConnectionStage::Connecting {
            let more = one.channel.flush().unwrap_or(false);
            self.want(&mut one, more);
        }
        self.put_back(one);
    }

    fn has_ended(&mut self, mut one: Connection, why: String) {
        let (peer, stage, is_brief) = (one.peer, one.stage, one.is_brief);
        match stage {
            ConnectionStage::Guest => self.send_away(one, "it has gone again"),
            ConnectionStage::Open => {
                self.discard(one);
                if is_brief {
                    return self.continue_notifying();
                }
                self.read_others_of(peer);
                self.is_gone(peer, PeerLiveness::Dead, &why);
            }
            _ => {
                let is_last = one.in_vain == CHANCES;
                one.in_vain = if is_last { 0 } else { one.in_vain + 1 };
                one.addresses.extend(one.address.filter(|_| !is_last));
                let (is_refused, why) = (!self.is_idle(peer, &one.waiting), one.on_its_way(&why));
                self.try_on(one, ConnectFailure { why, is_refused });
            }
        }
    }

    /// Handles the frames that have arrived on all connections to `peer` except the one that the
    /// caller has taken out of `connections`. Must be called before this rank reports that `peer`
    /// has died or left.
    pub(super) fn read_others_of(&mut self, peer: i32) {
        for index in 0..self.connections.len() {
            if self.connection(index).is_some_and(|one| one.peer == peer) {
                self.step(index);
            }
        }
    }

    /// Retries a failed connection at the peer's next address. If no address is left, treats the
    /// peer as unreachable or schedules a later attempt.
    pub(super) fn try_on(&mut self, mut one: Connection, why: ConnectFailure) {
        self.poller.remove(one.channel.as_fd());
        let (peer, is_brief, is_idle) =
            (one.peer, one.is_brief, self.is_idle(one.peer, &one.waiting));
        let why = match self.attempt(&mut one.addresses, why) {
            Ok(Ok((stream, address))) => {
                (one.channel, one.address) = (Channel::new(stream), Some(address));
                (one.stage, one.since_ns, one.wanted) =
                    (ConnectionStage::Connecting, now_ns(), Interest::Both);
                self.ask_after(&one);
                self.alarm(one.since_ns.saturating_add(self.attempt_ns()));
                return self.put_back(one);
            }
            Ok(Err(why)) => why,
            Err(error) => ConnectFailure { why: error.text().to_owned(), is_refused: !is_idle },
        };
        self.discard(one);
        if is_idle && !why.is_refused {
            return self.await_again(peer);
        }
        self.is_unreached(peer, is_brief, &why);
        if is_brief {
            self.continue_notifying();
        }
    }

    /// Closes a connection that the caller has removed from `connections`.
    pub(super) fn discard(&mut self, one: Connection) {
        self.poller.remove(one.channel.as_fd());
        // A forked child may have a copy of the descriptor; shutdown makes the other side detect
        // the end nevertheless.
        drop(one.channel.stream.shutdown(Shutdown::Both));
        self.free.push(one.index);
        let link = self.link(one.peer).and_then(|index| self.connection(index));
        let is_there = link.is_some_and(|other| other.peer == one.peer);
        if let Some(rank) = self.rank_mut(one.peer).filter(|_| !is_there) {
            rank.link = None;
        }
    }

    /// Closes all connections to `rank`.
    pub(super) fn cut_off(&mut self, rank: i32) {
        for index in 0..self.connections.len() {
            let is_its = |one: &mut Connection| one.peer == rank;
            if let Some(one) = self.connections.get_mut(index).and_then(|slot| slot.take_if(is_its))
            {
                self.discard(one);
            }
        }
    }

    /// Returns true if two ranks are known to be on the same machine.
    pub(super) fn is_beside(&self, one: i32, other: i32) -> bool {
        let node = |rank| self.address(rank).node;
        node(one) != 0 && node(one) == node(other)
    }
}

/// Checks that the socket is connected, and that it is not connected to itself.
fn has_connected(stream: &TcpStream) -> std::io::Result<()> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    match stream.peer_addr()? == stream.local_addr()? {
        true => Err(ErrorKind::ConnectionRefused.into()),
        false => Ok(()),
    }
}

pub(super) fn unreached(why: &str, kind: ErrorKind) -> ConnectFailure {
    let is_silent = matches!(
        kind,
        ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable
    );
    ConnectFailure { why: why.to_owned(), is_refused: !is_silent }
}
