//! Plugin "unix": communicators between the processes of a node, over Unix-domain sockets. Each pair
//! of ranks has a connection. A message is a header (match word and size) and its bytes.

mod open;

use dtl_binding::driver::{
    Driver, Incoming, Loader, OpenRequest, Opened, Outgoing, Table, Transport,
};
use dtl_binding::{Error, Result, plugin, sys};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::collections::{HashMap, VecDeque};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

plugin!("unix", load);

fn load(loader: &mut Loader) -> Result {
    loader.register("unix", Table::new(Unix::default()).priority(i32::MIN).transport())
}

/// The backend: the number of communicators that each job has opened.
#[derive(Default)]
struct Unix {
    opened: Mutex<HashMap<Vec<u8>, u64>>,
}

impl Driver for Unix {}

/// Bytes that one call reads at most.
const CHUNK: usize = 64 << 10;
/// Size of a header in bytes.
const HEADER: usize = 16;

/// A communicator.
#[derive(Default)]
struct Comm {
    rank: i32,
    /// Connections by rank; `None` for this rank.
    peers: Vec<Option<Peer>>,
    /// Receives without a message, in order.
    posted: VecDeque<Incoming>,
    /// Messages without a receive: source, match word, bytes; in order for each source.
    unexpected: VecDeque<(i32, u64, Vec<u8>)>,
    /// Ranks whose death no receive from any rank has reported.
    unreported: VecDeque<i32>,
}

/// A connection.
struct Peer {
    stream: UnixStream,
    /// Sends that have not left, and the bytes of the first one, with its header, that have.
    sends: VecDeque<Outgoing>,
    sent: usize,
    /// Bytes of messages that have not arrived completely.
    received: Vec<u8>,
    is_lost: bool,
}

impl Peer {
    fn new(stream: UnixStream) -> Peer {
        let (sends, sent, received, is_lost) = (VecDeque::new(), 0, Vec::new(), false);
        Peer { stream, sends, sent, received, is_lost }
    }

    /// Transmits as much as there is room for.
    fn transmit(&mut self) {
        while let Some(first) = self.sends.front() {
            let header = header(first);
            let rest = match header.get(self.sent..) {
                Some(rest) if !rest.is_empty() => rest,
                _ => first.bytes().get(self.sent - HEADER..).unwrap_or_default(),
            };
            // A signal would end programs in which SIGPIPE is not ignored.
            match send(&self.stream, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => continue,
                // After any other error, reading ends the connection: what has arrived comes first.
                Err(_) => return,
            }
            if self.sent == HEADER + first.bytes().len() {
                self.sent = 0;
                self.sends.pop_front().into_iter().for_each(Outgoing::complete);
            }
        }
    }

    /// Receives what has arrived. Notices the end of the connection.
    fn receive(&mut self) {
        let mut chunk = [0; CHUNK];
        while !self.is_lost {
            match recv(&self.stream, &mut chunk, RecvFlags::DONTWAIT) {
                Ok((count, _)) if count > 0 => {
                    self.received.extend_from_slice(chunk.get(..count).unwrap_or_default());
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                _ => self.is_lost = true,
            }
        }
    }

    /// Takes the next complete message: its match word and bytes.
    fn next_message(&mut self) -> Option<(u64, Vec<u8>)> {
        let (word, rest) = self.received.split_first_chunk()?;
        let (size, bytes) = rest.split_first_chunk()?;
        let size = usize::try_from(u64::from_le_bytes(*size)).ok()?;
        let message = (u64::from_le_bytes(*word), bytes.get(..size)?.to_vec());
        self.received.drain(..HEADER + size);
        Some(message)
    }
}

fn header(message: &Outgoing) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let (word, size) = header.split_at_mut(8);
    word.copy_from_slice(&message.match_word().to_le_bytes());
    size.copy_from_slice(&(message.bytes().len() as u64).to_le_bytes());
    header
}

impl Comm {
    fn peer(&mut self, rank: i32) -> Option<&mut Peer> {
        usize::try_from(rank).ok().and_then(|rank| self.peers.get_mut(rank))?.as_mut()
    }

    fn is_lost(&mut self, rank: i32) -> bool {
        self.peer(rank).is_some_and(|peer| peer.is_lost)
    }

    /// Passes a message to the oldest receive for it, or keeps it.
    fn deliver(&mut self, source: i32, word: u64, bytes: Vec<u8>) {
        let place = self.posted.iter().position(|receive| receive.matches(source, word));
        match place.and_then(|place| self.posted.remove(place)) {
            Some(receive) => receive.deliver(source, &bytes),
            None => self.unexpected.push_back((source, word, bytes)),
        }
    }

    /// Ends the operations that the death of a rank leaves without an end.
    fn lose(&mut self, rank: i32) {
        if let Some(peer) = self.peer(rank) {
            peer.sends.drain(..).for_each(Outgoing::lost);
        }
        let mut is_reported = false;
        for receive in std::mem::take(&mut self.posted) {
            let is_first_from_any = receive.source().is_none() && !is_reported;
            if receive.source() == Some(rank) || is_first_from_any {
                is_reported |= is_first_from_any;
                receive.lost(rank);
            } else {
                self.posted.push_back(receive);
            }
        }
        if !is_reported {
            self.unreported.push_back(rank);
        }
    }
}

impl Transport for Unix {
    type Comm = Comm;

    fn open(&self, request: OpenRequest<'_>) -> Result<Opened<Comm>> {
        let (rank, size) = request.place.unwrap_or((0, 1));
        let number = self.number(request.job);
        let connections = open::connect(&request, rank, size, number)?;
        let peers = connections.into_iter().map(|stream| stream.map(Peer::new)).collect();
        let comm = Comm { rank, peers, ..Comm::default() };
        Ok(Opened { comm, rank, size })
    }

    fn send(&self, comm: &mut Comm, message: Outgoing) -> Result {
        let dest = message.dest();
        if dest == comm.rank {
            comm.deliver(dest, message.match_word(), message.bytes().to_vec());
            message.complete();
            return Ok(());
        }
        let Some(peer) = comm.peer(dest) else {
            return Err(Error::new(
                sys::DTL_ERROR_INVALID_RANK,
                format!("dest {dest}: no such rank"),
            ));
        };
        if peer.is_lost {
            message.lost();
        } else {
            peer.sends.push_back(message);
            peer.transmit();
        }
        Ok(())
    }

    fn receive(&self, comm: &mut Comm, receive: Incoming) -> Result {
        let mut waiting = comm.unexpected.iter();
        let place = waiting.position(|(source, word, _)| receive.matches(*source, *word));
        if let Some((source, _, bytes)) = place.and_then(|place| comm.unexpected.remove(place)) {
            receive.deliver(source, &bytes);
            return Ok(());
        }
        let lost = match receive.source() {
            Some(source) => Some(source).filter(|source| comm.is_lost(*source)),
            None => comm.unreported.pop_front(),
        };
        match lost {
            Some(rank) => receive.lost(rank),
            None => comm.posted.push_back(receive),
        }
        Ok(())
    }

    fn progress(&self, comm: &mut Comm) -> Result {
        for rank in 0..comm.peers.len() as i32 {
            let Some(peer) = comm.peer(rank).filter(|peer| !peer.is_lost) else { continue };
            peer.transmit();
            peer.receive();
            while let Some((word, bytes)) = comm.peer(rank).and_then(Peer::next_message) {
                comm.deliver(rank, word, bytes);
            }
            if comm.is_lost(rank) {
                comm.lose(rank);
            }
        }
        Ok(())
    }

    const CANCEL: Option<fn(&Self, &mut Comm, u64) -> Result> = Some(|_, comm, id| {
        let place = comm.posted.iter().position(|receive| receive.id() == id);
        if let Some(receive) = place.and_then(|place| comm.posted.remove(place)) {
            receive.fail(Error::new(sys::DTL_ERROR_CANCELED, "the receive was cancelled"));
        }
        Ok(())
    });
}
