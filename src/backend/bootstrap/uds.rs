//! Bootstrap exchange over an abstract UNIX socket, between processes of one node. Rank 0 listens,
//! and the other ranks connect. Rank 0 first replies with the contributions of all ranks and sends
//! a file descriptor to all ranks. Each rank reports whether it could use the descriptor, and rank
//! 0 then sends the same final outcome to all ranks. A failure on any rank is an error on every
//! rank.
//!
//! No files remain, because abstract socket names do not exist in the file system. A rank that
//! cannot participate reports its failure to the ranks that are present (`excuse`), so that they
//! need not wait for it. This is best effort: if the process has run out of file descriptors and
//! cannot send the report, the other ranks detect the absence when their timeout expires.

use super::absence::{GRACE_NS, LINGER_NS, OpenRequest};
use super::job_id::{JobId, holder, other_users};
use super::records::{bytes_of, decode, encode, words_of};
use super::root::{self, ANSWER, Root, Sockets};
use super::socket_frames::{Channel, FrameFailure};
use crate::abi::status::*;
use crate::backend::os_error::os_error;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::component::Watch;
use crate::sys::os::{process, unix_socket};
use crate::sys::sync::wait::Deadline;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

/// Maximum size, in bytes, of a rank's report on whether it could use the file descriptor, and of
/// rank 0's final outcome. Both consist of a status and possibly an error message.
const LONGEST: usize = 64 << 10;
/// Placeholder for the PID namespace of a process that cannot determine its namespace, because
/// /proc is not mounted.
const UNKNOWN: u64 = 0;
/// Interval between two calls of the check `OpenArgs::watch`, in nanoseconds.
const WATCH_NS: u64 = 5_000_000;
/// Number of words of a contribution: status, PID namespace, process ID.
const WORDS: usize = 3;

/// Parameters of an exchange within one node, including the job's socket names.
#[derive(Clone)]
pub(crate) struct NodeOpenRequest<'a> {
    job_id: &'a JobId,
    pub(crate) opening: OpenRequest,
    /// PID namespace of this rank.
    namespace: u64,
    /// Time, halfway to the deadline, at which this rank searches for other users whose ranks use
    /// the same job name. Ranks of different users cannot join each other. By this time, ranks that
    /// wait for each other in vain are expected to have started.
    half_time: Deadline,
    /// Error message that names other users whose ranks use the same job name; empty if there are
    /// none.
    others: String,
    /// The field `watch` of `OpenArgs`.
    watch: Option<Watch>,
}

impl<'a> NodeOpenRequest<'a> {
    pub(crate) fn new(
        job_id: &'a JobId,
        place: (usize, usize),
        timeout_ns: u64,
        watch: Option<Watch>,
    ) -> Self {
        let opening = OpenRequest::new(job_id.cookie, place, timeout_ns);
        NodeOpenRequest {
            job_id,
            opening,
            namespace: process::pid_namespace().unwrap_or(UNKNOWN),
            half_time: Deadline::after(opening.limit_ns / 2),
            others: String::new(),
            watch,
        }
    }
}

/// Converts an operating system error to an error of the library.
fn failed(error: &io::Error) -> Error {
    match process::fd_shortage(error) {
        Some(text) => Error::new(DTL_ERROR_LIMIT, text),
        None => failure!(DTL_ERROR_COMMUNICATION, "{error}; see the other ranks' output"),
    }
}

fn lost(lost: FrameFailure) -> Error {
    match lost {
        FrameFailure::Silent => Error::new(
            DTL_ERROR_TIMEOUT,
            "no answer within the time limit; raise it, or see whether all ranks run",
        ),
        FrameFailure::Ended(_) => Error::new(
            DTL_ERROR_RANK_FAILURE,
            "it ended while the communicator was opened; see its own output",
        ),
        FrameFailure::TooLong(len) => failure!(
            DTL_ERROR_COMMUNICATION,
            "an answer of {len} bytes makes no sense; use one version of libdtl"
        ),
    }
}

/// Waits for the outcome that the peer sends. The outer error means that no outcome arrived.
fn receive(channel: &mut Channel<UnixStream>, deadline: Deadline) -> Result<Result<Vec<u64>>> {
    let (_, bytes) = channel.receive(LONGEST, deadline).map_err(lost)?;
    Ok(decode(&words_of(&bytes)))
}

/// Returns true if the peer of the connection is a process of the same user.
fn is_own_user(stream: &UnixStream) -> bool {
    process::peer_of(stream.as_raw_fd()).is_ok_and(|peer| peer.uid == process::own_uid())
}

impl Sockets for NodeOpenRequest<'_> {
    type Listener = UnixListener;
    type Stream = UnixStream;
    // The number also changes with the layout of the shared memory.
    const MAGIC: u64 = u64::from_be_bytes(*b"dtl-shm4");
    const ARE_TRUSTED: bool = true;
    const MOST_PAUSE: Duration = Duration::from_millis(5);

    fn opening(&self) -> &OpenRequest {
        &self.opening
    }

    fn contribution(&self) -> Vec<u64> {
        encode(&Ok(vec![self.namespace, u64::from(process::own_pid().unsigned_abs())]))
    }

    fn listen(&self) -> Result<UnixListener> {
        let name = &self.job_id.meeting;
        unix_socket::listen(name).map_err(|error| {
            let who = holder(name).map_or(String::new(), |p| {
                format!(", held by process {} of user {}", p.pid, p.uid)
            });
            let what =
                format!("socket \"@{name}\"{who} (choose another job name where it is in use)");
            os_error(DTL_ERROR_UNAVAILABLE, &what, &error)
        })
    }

    fn connect(&self) -> Result<Result<UnixStream, String>> {
        let stream = match unix_socket::connect(&self.job_id.meeting) {
            Ok(stream) => stream,
            Err(error) if process::fd_shortage(&error).is_some() => return Err(failed(&error)),
            Err(error) => return Ok(Err(error.to_string())),
        };
        let peer = process::peer_of(stream.as_raw_fd()).map_err(|error| failed(&error))?;
        if peer.uid == process::own_uid() {
            return Ok(Ok(stream));
        }
        fail!(
            DTL_ERROR_UNAVAILABLE,
            "process {} of user {} listens under this job's name; choose another job name",
            peer.pid,
            peer.uid
        )
    }

    fn root_absent(&self, _why: &str) -> Error {
        let opening = &self.opening;
        opening.root_absent(&format!(
            ": it did not open the communicator on this node, in this network namespace \
             (container){}; start all {} ranks with the same job name, see its own output, or \
             raise the time limit",
            self.others, opening.size
        ))
    }

    fn lost(&self, how: FrameFailure) -> Error {
        of_root(lost(how))
    }

    fn accept(&self, listener: &UnixListener) -> io::Result<Option<UnixStream>> {
        loop {
            match unix_socket::accept(listener)? {
                Some(stream) if !is_own_user(&stream) => {}
                accepted => return Ok(accepted),
            }
        }
    }

    fn failed(&self, error: &io::Error) -> Error {
        failed(error).within("rank 0")
    }

    /// Returns an error unless `rank` contributes `len` words and is in rank 0's PID namespace, as
    /// process IDs from another one would refer to other processes.
    fn unlike(&self, rank: u64, contribution: &[u64], len: usize) -> Option<Error> {
        let unknown = |whose: String| {
            format!("the PID namespace of {whose} is unknown: /proc is not mounted there; mount it")
        };
        let text = match (self.namespace, contribution) {
            (UNKNOWN, _) => unknown("rank 0".to_owned()),
            (_, [0, UNKNOWN, ..]) => unknown(format!("rank {rank}")),
            (own, [0, its, ..]) if *its != own => format!(
                "rank {rank} is in another PID namespace (container) than rank 0; start them in \
                 one (docker, podman: --pid=host), or use kind mpi"
            ),
            (_, [0, ..]) => return self.opening.other_length(rank, contribution.len(), len),
            _ => return None,
        };
        Some(Error::new(DTL_ERROR_UNAVAILABLE, text))
    }

    fn reported(&self, _rank: usize, contribution: &[u64]) -> Option<Error> {
        decode(contribution).err()
    }

    fn duplicate(&self, rank: u64, stream: &UnixStream) -> Error {
        let pid = process::peer_of(stream.as_raw_fd()).map_or(0, |peer| peer.pid);
        let text = format!("process {pid} says it is rank {rank}, but that rank is here already");
        Error::new(DTL_ERROR_ALREADY_EXISTS, text)
    }

    fn absent(&self, ranks: &[usize]) -> Error {
        self.opening.absent(
            ranks,
            ["", ", on another node or in a container with its own network", &self.others],
        )
    }

    fn linger_ns(&self, first: &Error) -> u64 {
        // A death is reported immediately, without waiting for ranks that have not joined.
        if first.status() == DTL_ERROR_RANK_FAILURE { 0 } else { LINGER_NS }
    }

    fn watch(&mut self) -> Result<Deadline> {
        if self.half_time.passed() {
            self.half_time = Deadline::NEVER;
            self.others = other_users(self.job_id);
        }
        let Some(watch) = &self.watch else { return Ok(self.half_time) };
        watch()?;
        Ok(Deadline::after(WATCH_NS.min(self.half_time.left_ns())))
    }
}

/// Extracts the ranks' process IDs from the contributions and returns them in rank order.
fn pids(contributions: &[u64]) -> Vec<i32> {
    let pid = |words: &[u64]| words.last().map_or(0, |pid| *pid as i32);
    contributions.chunks_exact(WORDS).map(pid).collect()
}

/// State of rank 0 after all ranks have joined.
pub(crate) struct NodeRoot<'a> {
    root: Root<NodeOpenRequest<'a>>,
    contributions: Vec<u64>,
}

impl<'a> NodeRoot<'a> {
    /// Waits until all ranks have joined. On failure, sends the error to all connected ranks.
    pub(crate) fn gather(place: NodeOpenRequest<'a>) -> Result<Self> {
        let others = place.opening.size - 1;
        let mut root = Root::open(place)?;
        match root.gather() {
            Ok(contributions) => Ok(NodeRoot { root, contributions }),
            Err(error) => {
                let outcome = Err(error.clone());
                let answered = root.answer(&outcome);
                if root.is_full {
                    // Without a descriptor to accept them together, the remaining ranks are
                    // answered one at a time.
                    let left = others.saturating_sub(answered);
                    turn_away(&root.into_listener(), left, &outcome, Deadline::after(LINGER_NS));
                }
                Err(error)
            }
        }
    }

    pub(crate) fn pids(&self) -> Vec<i32> {
        pids(&self.contributions)
    }

    /// Sends each rank the contributions of all ranks and, if `passed` is not `None`, the file
    /// descriptor in `passed`.
    pub(crate) fn share(&mut self, passed: Option<BorrowedFd<'_>>) -> Result<()> {
        let answer = bytes_of(&encode(&Ok(self.contributions.clone())));
        for (rank, channel) in self.root.seated() {
            channel.queue(ANSWER, &answer);
            let sent = match channel.flush() {
                Ok(false) => passed
                    .map_or(Ok(()), |passed| unix_socket::send_descriptor(&channel.stream, passed)),
                Ok(true) => Err(ErrorKind::WriteZero.into()),
                Err(error) => Err(error),
            };
            sent.map_err(|error| died(rank, &failed(&error)))?;
        }
        Ok(())
    }

    /// Waits until each rank has reported whether it could use the file descriptor.
    pub(crate) fn confirm(&mut self) -> Result<()> {
        let deadline = Deadline::after(self.root.left_ns().max(GRACE_NS / 2));
        let mut failure: Option<Error> = None;
        for (rank, channel) in self.root.seated() {
            let answer = receive(channel, deadline).unwrap_or_else(|error| Err(died(rank, &error)));
            let Err(error) = answer else { continue };
            // A rank that failed has ended by now, and the other ranks report its death; its own
            // failure takes precedence.
            if failure.as_ref().is_none_or(|first| first.status() == DTL_ERROR_RANK_FAILURE) {
                failure = Some(error);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Sends the final outcome to all ranks; returns `outcome`.
    pub(crate) fn finish<T>(mut self, outcome: Result<T>) -> Result<T> {
        let answer = outcome.as_ref().map(|_| Vec::new()).map_err(Clone::clone);
        self.root.answer(&answer);
        outcome
    }
}

/// Creates the error for a rank whose connection failed after all ranks had joined.
fn died(rank: usize, error: &Error) -> Error {
    // A rank that does not answer in time may be stopped; any other failure means that it has
    // ended.
    let status = match error.status() {
        DTL_ERROR_TIMEOUT => DTL_ERROR_TIMEOUT,
        _ => DTL_ERROR_RANK_FAILURE,
    };
    let text = format!("rank {rank}, while the communicator was opened: {}", error.text());
    Error::new(status, text)
}

/// State of a rank other than 0 after all ranks have joined.
pub(crate) struct NodeRank {
    channel: Channel<UnixStream>,
    /// Deadline for replies from rank 0.
    late: Deadline,
    rank: usize,
    pub(crate) pids: Vec<i32>,
}

impl NodeRank {
    /// Connects to rank 0 and waits until all ranks have joined.
    pub(crate) fn join(place: NodeOpenRequest<'_>) -> Result<Self> {
        let (late, rank) = (place.opening.late(), place.opening.rank);
        let (channel, contributions) = root::join(place)?;
        Ok(NodeRank { channel, late, rank, pids: pids(&contributions) })
    }

    /// Waits for the file descriptor from rank 0.
    pub(crate) fn descriptor(&self) -> Result<OwnedFd> {
        let received = loop {
            match unix_socket::receive_descriptor(&self.channel.stream) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
                {
                    if self.late.passed() {
                        break Err(lost(FrameFailure::Silent));
                    }
                    drop(process::wait_readable(&[self.channel.as_fd()], self.late.left_ns()));
                }
                received => break received.map_err(|error| failed(&error)),
            }
        };
        received.map_err(of_root)
    }

    /// Reports `own`, the result of this rank's use of the file descriptor, to rank 0. Waits for
    /// the final outcome.
    pub(crate) fn finish<T>(mut self, own: Result<T>) -> Result<T> {
        let named = |error: &Error| error.clone().within(&format!("rank {}", self.rank));
        let report = own.as_ref().map(|_| Vec::new()).map_err(named);
        self.channel.queue(ANSWER, &bytes_of(&encode(&report)));
        let answer =
            receive(&mut self.channel, self.late).map_err(of_root).and_then(|answer| answer);
        match (own, answer) {
            // Rank 0 has a more specific reason why another rank has ended.
            (Err(own), Err(answer)) if own.status() == DTL_ERROR_RANK_FAILURE => Err(answer),
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            (Ok(own), Ok(_)) => Ok(own),
        }
    }
}

fn of_root(error: Error) -> Error {
    error.within("waiting for rank 0")
}

/// Reports to the other ranks why this rank does not participate. This is best effort: the report
/// may fail.
pub(crate) fn excuse(place: &NodeOpenRequest<'_>, why: &Error) {
    let deadline = Deadline::after(LINGER_NS.min(place.opening.limit_ns));
    let outcome = Err(why.clone().within(&format!("rank {}", place.opening.rank)));
    if place.opening.rank > 0 {
        // If rank 0 is absent, nothing is sent.
        let mut sockets = place.clone();
        sockets.opening.deadline = deadline;
        drop(root::connect(&mut sockets, &encode(&outcome)));
    } else if let Ok(listener) = unix_socket::listen(&place.job_id.meeting) {
        turn_away(&listener, place.opening.size - 1, &outcome, deadline);
    }
}

/// Sends an outcome on the next `count` connections from processes of the same user. Handles one
/// connection at a time, so that only one file descriptor is in use for them.
fn turn_away(
    listener: &UnixListener,
    mut count: usize,
    outcome: &Result<Vec<u64>>,
    deadline: Deadline,
) {
    while count > 0 && !deadline.passed() {
        if process::wait_readable(&[listener.as_fd()], deadline.left_ns()).is_err() {
            return;
        }
        match unix_socket::accept(listener) {
            Ok(Some(stream)) if is_own_user(&stream) => {
                root::send(Channel::new(stream), ANSWER, &bytes_of(&encode(outcome)));
                count -= 1;
            }
            Ok(_) => {}
            Err(_) => return,
        }
    }
}
