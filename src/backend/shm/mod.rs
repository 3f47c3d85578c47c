//! Transport "shm", for ranks that are processes on one node and share memory. The transport does
//! not require MPI, files or threads.
//!
//! In reading order:
//! - `bootstrap`: creation and exchange of the shared memory
//! - `memory`: the segment and the objects in it
//! - `protocol`: message protocol
//! - `peer`: state of each rank
//! - `liveness`: detection of failed ranks
//! - `transport`: interface to `runtime`

mod bootstrap;
mod liveness;
pub mod memory;
mod peer;
pub mod protocol;
mod transport;
pub use self::memory::segment::MOST_RANKS;

use self::memory::segment::Segment;
use self::protocol::engine::Engine;
use self::transport::ShmTransport;
use super::bootstrap::absence::OpenRequest;
use super::bootstrap::job_id;
use super::bootstrap::uds::{self, NodeOpenRequest};
use super::match_queues::Matcher;
use super::os_error;
use super::peer_map::BYTES_PER_RANK;
use crate::abi::status::*;
use crate::error::{Result, fail, failure};
use crate::runtime::component::{Availability, BackendProbe, Comm, OpId, OpenArgs, Transport};
use crate::runtime::registry::Backend;
use crate::runtime::{explain, launch};
use crate::sys::os::foreign_process;
use crate::sys::os::poller::{Interest, Poller};
use crate::sys::os::process::{self, PidFd};
use crate::sys::os::shm_segment::SharedMapping;
use peer::{Mode, Peer, Peers, Probe};
use protocol::copy_method::CopyMethod;
use std::os::fd::AsFd;

/// Process-private memory of a communicator's transport in bytes, excluding the per-rank state.
pub const FIXED_BYTES: usize = size_of::<Engine>();
/// Process-private memory per rank in bytes, allocated even if no messages are exchanged with the
/// rank.
pub const RANK_BYTES: usize = size_of::<Peer>() + BYTES_PER_RANK;
/// Additional process-private memory, in bytes, for each rank that exchanges messages with this
/// rank; excludes rings and queued messages.
pub const PARTNER_BYTES: usize =
    size_of::<peer::Link>() + Matcher::<OpId, protocol::engine::Arrival>::SOURCE_BYTES;
/// Size, in bytes, of the shared memory of the ring from one rank to another.
pub const RING_BYTES: usize = memory::ring::STRIDE;

/// Maximum number of ranks of a communicator whose small collectives use mailboxes in shared
/// memory.
pub const MAILBOX_RANKS: usize = super::coll_mailbox::MOST_RANKS;
/// Maximum size of the message that one rank stores in a mailbox for small collectives, in bytes.
pub const MAILBOX_ROOM: usize = super::coll_mailbox::ROOM;

/// Backend "shm": checks whether it is available, and opens communicators.
pub struct Shm;

/// Creates the backend named "shm".
pub fn backend() -> Backend {
    let mut backend = Backend::new(c"shm", i32::MIN, true, Box::new(Shm));
    backend.comm = Some(Box::new(Shm));
    backend
}

impl BackendProbe for Shm {
    fn available(&self) -> Availability {
        match check() {
            // EMFILE is this process's limit, not the machine's; `open` reports it with its own
            // status.
            Err(error) if error.status() != DTL_ERROR_LIMIT => Err(error.text().to_owned()),
            _ => Ok(()),
        }
    }
}

/// Checks that the operating system provides memfd_create, and pidfd_open or /proc, to this
/// process.
fn check() -> Result<()> {
    let missing = |what: &str, error| os_error::os_error(DTL_ERROR_UNAVAILABLE, what, &error);
    SharedMapping::create(4096).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM) => failure!(
            DTL_ERROR_UNAVAILABLE,
            "no memory to share (memfd_create, Linux 3.17): {error}; in a container, permit this \
             system call in the seccomp profile"
        ),
        _ => missing("no memory to share (memfd_create)", error),
    })?;
    PidFd::open_to_watch(process::own_pid()).map_err(|error| {
        missing("no process descriptors (pidfd_open, Linux 5.3), and no /proc", error)
    })?;
    Ok(())
}

/// Checks that this process can open the file descriptors that the bootstrap needs. For each rank
/// of the communicator, rank 0 needs about two descriptors, and every other rank needs about one.
fn check_room(opening: &OpenRequest) -> Result<()> {
    let size = opening.size;
    let count = if opening.rank == 0 { 2 * size + 1 } else { size + 2 };
    let what = format!("{count} more descriptors for a communicator of {size} ranks");
    process::room_for_fds(count)
        .map_err(|error| os_error::os_error(DTL_ERROR_UNAVAILABLE, &what, &error))
}

impl Comm for Shm {
    fn opens_by_job(&self) -> bool {
        true
    }

    fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>> {
        let job = ShmJob::of(args)?;
        let mode = Mode::parse(std::env::var("DTL_SHM_COPY").ok().as_deref())?;
        let opener = transport::enter()?;
        let number = i32::try_from(job.rank).unwrap_or(i32::MAX);
        let (job_id, claim) = job_id::take(&job.name, number, args.is_only_open);
        let (place, watch) = ((job.rank, job.size), args.watch.clone());
        let place = NodeOpenRequest::new(&job_id, place, args.timeout_ns, watch);
        let ready = claim.and_then(|claim| {
            check().map_err(|error| error.within("kind \"shm\""))?;
            check_room(&place.opening).map(|()| claim)
        });
        // A failure because this rank exists already in another process must not be reported to the
        // other ranks.
        let claim = ready.inspect_err(|error| {
            if error.status() != DTL_ERROR_ALREADY_EXISTS {
                uds::excuse(&place, error);
            }
        })?;
        let (segment, (mut peers, poller, probe)) =
            bootstrap::open_segment(place, |segment, pids| prepare(segment, pids, job.rank, mode))?;
        let how = try_reading(&segment, job.rank, &mut peers, mode)?;
        let description = describe(job.size, &how, mode);
        let engine = Engine::new(job.rank, segment, Peers::new(peers), poller, mode);
        Ok(Box::new(ShmTransport::new(engine, claim, (probe, mode), description, opener)?))
    }
}

/// Job to which this process belongs: its name, its size, and the rank of this process in it.
struct ShmJob {
    name: Vec<u8>,
    rank: usize,
    size: usize,
}

impl ShmJob {
    fn of(args: &OpenArgs) -> Result<ShmJob> {
        // A caller that names job, rank and size needs no launcher, not even a well-formed one.
        let is_named = args.rank_size().is_some() && !args.job.is_empty();
        let launch = if is_named { None } else { launch::from_environment()? };
        let (rank, size) = match (args.rank_size(), &launch) {
            (Some(given), _) => given,
            (None, Some(launch)) if launch.local_size != 0 && !launch.is_one_node() => {
                let (size, here) = (launch.size, launch.local_size);
                return fail!(
                    DTL_ERROR_UNAVAILABLE,
                    "the job has {size} ranks, {here} on this node; kind \"shm\" is for one node"
                );
            }
            (None, Some(launch)) => (launch.rank, launch.size),
            (None, None) => {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "no rank and size: start with dtlrun (or mpirun, srun), or name rank, size and \
                     job"
                );
            }
        };
        let mut name = args.job.to_bytes().to_vec();
        if name.is_empty() {
            name = launch.map(|launch| launch.job.into_bytes()).unwrap_or_default();
        }
        if name.is_empty() {
            return fail!(DTL_ERROR_INVALID_ARGUMENT, "no job name: set DTL_JOB, or name the job");
        }
        let (Ok(rank), Ok(size)) = (usize::try_from(rank), usize::try_from(size)) else {
            return fail!(DTL_ERROR_INVALID_RANK, "rank {rank} of {size}: both must be from 0");
        };
        if rank >= size {
            return fail!(DTL_ERROR_INVALID_RANK, "rank {rank} is not below the size {size}");
        }
        if size > MOST_RANKS {
            return fail!(DTL_ERROR_LIMIT, "{size} ranks: kind \"shm\" has at most {MOST_RANKS}");
        }
        Ok(ShmJob { name, rank, size })
    }
}

/// Sets up this rank during the bootstrap: opens and watches pidfds of the other ranks, publishes a
/// memory word that other ranks read to test cross-memory attach, and permits other processes to
/// read this process' memory if `mode` is `Allow`.
fn prepare(
    segment: &Segment,
    pids: &[i32],
    rank: usize,
    mode: Mode,
) -> Result<(Vec<Peer>, Option<Poller>, Probe)> {
    if mode == Mode::Allow {
        // Without the Yama module the call fails, and permission is not needed.
        let _ = foreign_process::allow_readers();
    }
    let failed =
        |error| os_error::os_error(DTL_ERROR_BACKEND, "watching the ranks (epoll_create)", &error);
    let mut poller = Some(Poller::new().map_err(failed)?);
    let mut peers = Vec::with_capacity(pids.len());
    for (other, &pid) in pids.iter().enumerate() {
        let held = if other == rank { None } else { Some(hold(&mut poller, other, pid)?) };
        peers.push(Peer::new(pid, held));
    }
    let (ranks, places) = (peers.len(), segment.size());
    if ranks != places {
        return fail!(DTL_ERROR_INTERNAL, "{ranks} ranks met for {places} places");
    }
    if segment.has_mailboxes() {
        // Memory of the mailboxes of the communicator that is being opened. It is allocated here,
        // because a failure after the bootstrap would be a failure on this rank only.
        memory::coll_mailbox::commit_first(segment)?;
    }
    segment.set_processors(rank);
    Ok((peers, poller, Probe::publish(segment, rank, mode)?))
}

/// Opens the descriptor of a rank's process and has it polled. Without pidfds, there is no poller.
fn hold(poller: &mut Option<Poller>, rank: usize, pid: i32) -> Result<PidFd> {
    let watched = |held: PidFd| {
        let Some(set) = poller else { return Ok(held) };
        match set.add(held.as_fd(), rank as u64, Interest::Once) {
            // A directory.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => *poller = None,
            other => other?,
        }
        Ok(held)
    };
    match PidFd::open_to_watch(pid).and_then(watched) {
        Ok(held) => Ok(held),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
            fail!(
                DTL_ERROR_RANK_FAILURE,
                "rank {rank} (process {pid}) ended while the communicator was opened"
            )
        }
        Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {
            fail!(
                DTL_ERROR_LIMIT,
                "watching rank {rank} (process {pid}): this user watches as much as it may; raise \
                 fs.epoll.max_user_watches"
            )
        }
        Err(error) => {
            let what = format!("watching rank {rank} (process {pid})");
            Err(os_error::os_error(DTL_ERROR_BACKEND, &what, &error))
        }
    }
}

/// Tries to read the memory of every other rank, and records for each rank whether that succeeded.
/// The inner `Err` is the reason for the first failure. With DTL_STRICT=1 a denial is an error.
fn try_reading(
    segment: &Segment,
    rank: usize,
    peers: &mut [Peer],
    mode: Mode,
) -> Result<Result<(), String>> {
    if mode == Mode::Cells {
        return Ok(Err("DTL_SHM_COPY=cells".to_string()));
    }
    let mut how = Ok(());
    for (other, peer) in peers.iter_mut().enumerate().filter(|(other, _)| *other != rank) {
        let tried = Probe::read(segment, other, peer);
        peer.readable = tried.is_ok();
        let is_denied = how.is_ok() && segment.probe(other).0 != 0;
        if let Some(why) = tried.as_ref().err().filter(|_| is_denied) {
            let what = format!(
                "through shared memory: reading the memory of rank {other}: {why}; permit it \
                 (run all ranks in one user namespace, that is, in one container; \
                 DTL_SHM_COPY=allow if kernel.yama.ptrace_scope is 1), or set DTL_SHM_COPY=cells"
            );
            explain::degraded("copies of large messages", &what)?;
        }
        how = how.and(tried);
    }
    Ok(how)
}

fn describe(size: usize, how: &Result<(), String>, mode: Mode) -> String {
    let kib = memory::ring::MAX_DATA >> 10;
    let copies = match (how, mode) {
        (Err(why), _) => format!("two copies ({why})"),
        (Ok(()), Mode::Forced(method)) => {
            let copies = match method {
                CopyMethod::Get => "one copy by the receiver",
                CopyMethod::Split => "one copy by sender and receiver",
                _ => "two copies",
            };
            format!("{copies} (DTL_SHM_COPY={})", method.name())
        }
        (Ok(()), _) => {
            "one copy (process_vm_readv, process_vm_writev) or two, whichever is faster".to_owned()
        }
    };
    format!("{size} processes, shared rings; above {kib} KiB {copies}")
}
