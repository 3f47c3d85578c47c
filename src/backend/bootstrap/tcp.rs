//! Bootstrap exchange over a TCP socket on which rank 0 listens. Peers are not authenticated, so
//! use this method only in a trusted network.
//!
//! If a second job uses the same port by mistake, rank 0 rejects the ranks of that job (frame kind
//! `OTHER`), and these ranks retry until their timeout expires. A connection on which no hello
//! (first frame) arrives in time is closed.

use super::absence::OpenRequest;
use super::records::{RankRecord, failure};
use super::root::{self, Root, Sockets};
use super::socket_frames::FrameFailure;
use crate::abi::status::*;
use crate::backend::os_error::os_error;
use crate::error::{Error, Result};
use crate::sys::os::{process, tcp};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::Duration;

/// Interval between two attempts to listen or to connect.
const MOMENT: Duration = Duration::from_millis(10);
/// Timeout for one connection attempt, in nanoseconds.
const TRY_NS: u64 = 2_000_000_000;

/// Exchanges the contributions of all ranks and returns them in rank order.
pub(super) fn allgather(
    (host, port): (&str, u16),
    opening: &OpenRequest,
    contribution: &RankRecord,
) -> Result<Vec<u64>> {
    let sockets = TcpSockets { host, port, opening, contribution };
    if opening.rank > 0 {
        return root::join(sockets).map(|(_, contributions)| contributions);
    }
    let mut root = Root::open(sockets)?;
    let outcome = root.gather();
    root.answer(&outcome);
    outcome
}

/// Socket address of rank 0, and this rank's parameters for the exchange.
struct TcpSockets<'a> {
    host: &'a str,
    port: u16,
    opening: &'a OpenRequest,
    contribution: &'a RankRecord,
}

impl Sockets for TcpSockets<'_> {
    type Listener = TcpListener;
    type Stream = TcpStream;
    const MAGIC: u64 = u64::from_be_bytes(*b"dtl-tcp2");
    const ARE_TRUSTED: bool = false;
    const MOST_PAUSE: Duration = MOMENT;

    fn opening(&self) -> &OpenRequest {
        self.opening
    }

    fn contribution(&self) -> Vec<u64> {
        self.contribution.words()
    }

    fn listen(&self) -> Result<TcpListener> {
        loop {
            // A host name may resolve differently on its own machine than elsewhere.
            let listener = match self.host.parse::<IpAddr>() {
                Ok(address) => tcp::listen(SocketAddr::new(address, self.port)),
                Err(_) => tcp::listen_everywhere(self.port),
            };
            let error = match listener {
                Ok(listener) => return Ok(listener),
                Err(error) => error,
            };
            // The port is in use by another job, or by the previous opening.
            if error.kind() != ErrorKind::AddrInUse || self.opening.deadline.passed() {
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

    fn connect(&self) -> Result<Result<TcpStream, String>> {
        match self.try_connect() {
            Err(error) if process::fd_shortage(&error).is_some() => {
                Err(os_error(DTL_ERROR_LIMIT, "meeting rank 0", &error))
            }
            tried => Ok(tried.map_err(|error| error.to_string())),
        }
    }

    fn root_absent(&self, why: &str) -> Error {
        self.opening.root_absent(&format!(
            " at {}: {why}; start all {} ranks with the same address, see rank 0's own output, or \
             raise the time limit",
            self.shown(),
            self.opening.size
        ))
    }

    fn lost(&self, lost: FrameFailure) -> Error {
        let what =
            if matches!(lost, FrameFailure::Silent) { "does not answer" } else { "has ended" };
        let text = format!(
            "rank 0 at {} {what} while the communicator is opened; see its own output",
            self.shown()
        );
        Error::new(DTL_ERROR_RANK_FAILURE, text)
    }

    fn accept(&self, listener: &TcpListener) -> io::Result<Option<TcpStream>> {
        Ok(tcp::accept(listener)?.map(|(stream, _)| stream))
    }

    fn failed(&self, error: &io::Error) -> Error {
        os_error(DTL_ERROR_UNAVAILABLE, "rank 0", error)
    }

    fn unlike(&self, rank: u64, contribution: &[u64], own: usize) -> Option<Error> {
        self.opening.other_length(rank, contribution.len(), own)
    }

    fn reported(&self, rank: usize, contribution: &[u64]) -> Option<Error> {
        failure(rank, contribution)
    }

    fn duplicate(&self, rank: u64, _stream: &TcpStream) -> Error {
        let text =
            format!("another process is rank {rank} of this job already; start each rank once");
        Error::new(DTL_ERROR_ALREADY_EXISTS, text)
    }

    fn absent(&self, ranks: &[usize]) -> Error {
        let at = format!(" at {}", self.shown());
        self.opening.absent(ranks, [&at, " or another place to meet", ""])
    }
}

impl TcpSockets<'_> {
    fn shown(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    fn try_connect(&self) -> io::Result<TcpStream> {
        let mut last = ErrorKind::AddrNotAvailable.into();
        for address in self.addresses()? {
            let limit =
                Duration::from_nanos(self.opening.deadline.left_ns().clamp(1_000_000, TRY_NS));
            match TcpStream::connect_timeout(&address, limit) {
                // The operating system may connect a socket to itself where no process listens.
                Ok(stream) if stream.local_addr()? == stream.peer_addr()? => {
                    last = ErrorKind::ConnectionRefused.into();
                }
                Ok(stream) => {
                    let stream = TcpStream::from(process::keep_fd(stream.into())?);
                    stream.set_nonblocking(true)?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Resolves the host name in a thread, because the system's resolver does not support a
    /// timeout.
    fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, self.port)]);
        }
        let (answer, found) = mpsc::channel();
        let place = (self.host.to_owned(), self.port);
        process::spawn("dtl-lookup", move || {
            // The receiver is gone if the timeout has expired.
            drop(answer.send(place.to_socket_addrs().map(Iterator::collect)));
        })?;
        let limit = Duration::from_nanos(self.opening.deadline.left_ns().max(1_000_000));
        found.recv_timeout(limit).unwrap_or_else(|_| {
            Err(io::Error::new(
                ErrorKind::TimedOut,
                "its name is still being looked up; an address needs no lookup",
            ))
        })
    }
}
