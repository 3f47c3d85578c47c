//! How the ranks find each other: each listens at an abstract address with its rank, and connects to
//! the ranks below it.

use crate::Unix;
use dtl_binding::driver::OpenRequest;
use dtl_binding::{Error, Result, sys};
use rustix::net::sockopt::socket_peercred;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant};

/// Time between two attempts to connect or to accept.
const PAUSE: Duration = Duration::from_millis(1);
/// Time in which a process that connects has to name its rank.
const HELLO: Duration = Duration::from_secs(1);

impl Unix {
    /// Returns the number of this communicator in its job. All ranks open in the same order.
    pub(super) fn number(&self, job: &[u8]) -> u64 {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let count = opened.entry(job.to_owned()).or_default();
        *count += 1;
        *count
    }
}

fn failed(what: &str, error: &std::io::Error) -> Error {
    Error::new(sys::DTL_ERROR_COMMUNICATION, format!("{what}: {error}"))
}

/// Returns the address of a rank. Names of jobs have any length, addresses 107 bytes.
fn address(job: &[u8], number: u64, rank: i32) -> Result<SocketAddr> {
    let mut hasher = DefaultHasher::new();
    job.hash(&mut hasher);
    let user = rustix::process::getuid().as_raw();
    let name = format!("dtl-unix-{user}-{:016x}-{number}-{rank}", hasher.finish());
    SocketAddr::from_abstract_name(name).map_err(|error| failed("an address", &error))
}

fn timeout(rank: i32, missing: &[i32]) -> Error {
    let text = format!("rank {rank} timed out waiting for ranks {missing:?}: are they started?");
    Error::new(sys::DTL_ERROR_TIMEOUT, text)
}

/// Connects to all other ranks. Returns the connections by rank.
pub(super) fn connect(
    request: &OpenRequest<'_>,
    rank: i32,
    size: i32,
    number: u64,
) -> Result<Vec<Option<UnixStream>>> {
    if size > 1 && request.job.is_empty() {
        let text = "the ranks find each other by the name of their job: set job, or use dtlrun";
        return Err(Error::new(sys::DTL_ERROR_INVALID_ARGUMENT, text));
    }
    let deadline = Instant::now() + request.timeout;
    let listener = UnixListener::bind_addr(&address(request.job, number, rank)?);
    let what = "listening (does the job have two processes of one rank?)";
    let listener = listener.map_err(|error| failed(what, &error))?;
    listener.set_nonblocking(true).map_err(|error| failed(what, &error))?;
    let mut found = Vec::new();
    for below in 0..rank {
        let address = address(request.job, number, below)?;
        found.push(Some(call(&address, rank, below, deadline)?));
    }
    found.resize_with(size.max(1) as usize, || None);
    loop {
        let is_missing = |other: &i32| matches!(found.get(*other as usize), Some(None));
        let missing: Vec<i32> = (rank + 1..size).filter(is_missing).collect();
        if missing.is_empty() {
            return Ok(found);
        }
        if let Some((other, stream)) = accept(&listener) {
            // A number that is not missing is that of a stranger, whose connection is closed.
            let place = found.get_mut(other as usize).filter(|_| missing.contains(&other));
            if let Some(place) = place {
                *place = Some(stream);
            }
        } else if Instant::now() >= deadline {
            return Err(timeout(rank, &missing));
        } else {
            thread::sleep(PAUSE);
        }
    }
}

/// Connects to a rank, which may not listen yet, and names the own rank.
fn call(address: &SocketAddr, rank: i32, other: i32, deadline: Instant) -> Result<UnixStream> {
    loop {
        let connected = UnixStream::connect_addr(address).ok().filter(is_own_user);
        if let Some(mut stream) = connected {
            let sent = stream.write_all(&rank.to_le_bytes());
            return sent.map(|()| stream).map_err(|error| failed("greeting a rank", &error));
        }
        if Instant::now() >= deadline {
            return Err(timeout(rank, &[other]));
        }
        thread::sleep(PAUSE);
    }
}

/// Accepts a connection, if there is one. Returns the rank that it names.
fn accept(listener: &UnixListener) -> Option<(i32, UnixStream)> {
    let (mut stream, _) = listener.accept().ok()?;
    if !is_own_user(&stream) {
        return None;
    }
    let mut rank = [0; 4];
    stream.set_read_timeout(Some(HELLO)).ok()?;
    stream.read_exact(&mut rank).ok()?;
    Some((i32::from_le_bytes(rank), stream))
}

/// Returns true if the other side is a process of this user: abstract addresses have no permissions.
fn is_own_user(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid == rustix::process::getuid())
}
