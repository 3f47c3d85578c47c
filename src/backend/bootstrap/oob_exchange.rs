//! Out-of-band allgather while a communicator is opened: each rank contributes a record of a few
//! words, and all ranks succeed or all fail. [`BootstrapMethod`] selects the method.
//!
//! This module parses the method, resolves "auto", and implements the exchange over a communicator,
//! which is either already open or opened only for the exchange. The methods in `folder` and `tcp`
//! do not need a communicator. The callers define the content of a record.

use super::absence::{OpenRequest, limit_ns};
use super::job_id::count;
use super::over_comm::OverTransport;
use super::records::{RankRecord, Records};
use super::{folder, tcp};
use crate::error::{Error, Result, fail, failure};
use crate::runtime::component::{Exchange, OpenArgs};
use crate::runtime::launch::{self, Launch};
use crate::runtime::registry::{self, Backend};
use crate::sys::memory::buf::{Addr, fnv1a};
use std::path::PathBuf;
use std::sync::Arc;

/// Method by which the ranks exchange their bootstrap data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootstrapMethod {
    /// Exchange over the communicator in `OpenArgs::over`, if set; else over shared memory if all
    /// ranks are on this node; else over MPI.
    Auto,
    /// Exchange over the communicator in `OpenArgs::over`, which must be set.
    Over,
    /// Exchange over a communicator of the kind with this name (such as "shm" or "mpi"), which is
    /// opened for the exchange and then closed.
    Kind(String),
    /// Exchange through a folder that all ranks can access.
    Folder(PathBuf),
    /// Exchange over a TCP socket on which rank 0 listens: host name or address of rank 0's
    /// machine, and port.
    Tcp(String, u16),
}

/// Communicator kinds that cannot be used for the exchange, because they do not exchange messages
/// between processes, or because they need a bootstrap themselves.
const NO_PLACE_TO_MEET: [&str; 5] = ["self", "threads", "nccl", "rdma", "over"];

impl BootstrapMethod {
    /// Parses "auto", "over", the name of a communicator kind (such as "shm"), "file:PATH" or
    /// "tcp:HOST:PORT".
    pub fn parse(text: &str) -> Result<BootstrapMethod> {
        let how = match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => {
                Some(BootstrapMethod::Folder(PathBuf::from(path)))
            }
            Some(("tcp", place)) => parse_place(place),
            Some(_) => None,
            None => match text {
                "auto" => Some(BootstrapMethod::Auto),
                "over" => Some(BootstrapMethod::Over),
                name if is_name(name) && !NO_PLACE_TO_MEET.contains(&name) => {
                    Some(BootstrapMethod::Kind(name.to_owned()))
                }
                _ => None,
            },
        };
        how.ok_or_else(|| {
            failure!(
                DTL_ERROR_INVALID_ARGUMENT,
                "\"{text}\" is no way for ranks to meet: use auto, over, mpi, shm or the name of a \
                 registered kind, \
                 file:PATH (a folder that all ranks see) or tcp:HOST:PORT (where rank 0 listens)"
            )
        })
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn parse_place(text: &str) -> Option<BootstrapMethod> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']')?,
        // The port of an IPv6 address without brackets is ambiguous.
        None if host.contains(':') => return None,
        None => host,
    };
    let port = port.parse().ok().filter(|port| *port > 0 && !host.is_empty())?;
    Some(BootstrapMethod::Tcp(host.to_owned(), port))
}

/// Exchanges one bootstrap record per rank. `len` is the number of 64-bit words per record, equal
/// on all ranks. `mine` is this rank's record, or the error that prevents this rank from
/// participating; the error is reported to the other ranks. Waits for at most the timeout in
/// `args`.
pub fn allgather(
    how: &BootstrapMethod,
    args: &OpenArgs,
    len: usize,
    mine: Result<Vec<u64>>,
) -> Result<Records> {
    let chosen = match how {
        BootstrapMethod::Auto if args.over.is_some() => BootstrapMethod::Over,
        BootstrapMethod::Auto => automatic(args.named, launch::from_environment()?.as_ref()),
        chosen => chosen.clone(),
    };
    let place = args.over.as_ref().map(|over| (over.rank(), over.size())).or(args.rank_size());
    let (rank, size) = place.unwrap_or((0, 1));
    let contribution = RankRecord::new(len, mine);
    if size == 1 {
        check(how, args.over.as_ref())?;
        return contribution.finish((0, 1), Ok(contribution.words()));
    }
    let all = match &chosen {
        BootstrapMethod::Auto | BootstrapMethod::Over => {
            return contribution.exchange(below(args.over.as_ref())?.as_ref());
        }
        BootstrapMethod::Kind(name) => return over_kind(find(name)?.as_ref(), args, &contribution),
        BootstrapMethod::Folder(path) => {
            folder::allgather(path, &opening(args, rank, size), &contribution)?
        }
        BootstrapMethod::Tcp(host, port) => {
            tcp::allgather((host, *port), &opening(args, rank, size), &contribution)
        }
    };
    contribution.finish((rank, size), all)
}

/// Selects the method for "auto". All inputs are equal on all ranks, so all ranks select the same
/// method.
fn automatic(named: Option<(i32, i32)>, launch: Option<&Launch>) -> BootstrapMethod {
    let is_one_node = named.is_some() || launch.is_none_or(Launch::is_one_node);
    BootstrapMethod::Kind(if is_one_node { "shm" } else { "mpi" }.to_owned())
}

/// Checks that the communicator kind or the communicator that `how` requires exists, without
/// opening a communicator. `over` is the communicator in `OpenArgs::over`.
pub fn check(how: &BootstrapMethod, over: Option<&Arc<dyn Exchange>>) -> Result<()> {
    match how {
        BootstrapMethod::Over => below(over).map(drop),
        BootstrapMethod::Kind(name) => known(name).map(drop),
        BootstrapMethod::Auto | BootstrapMethod::Folder(_) | BootstrapMethod::Tcp(..) => Ok(()),
    }
}

fn below(over: Option<&Arc<dyn Exchange>>) -> Result<&Arc<dyn Exchange>> {
    over.ok_or_else(|| {
        failure!(
            DTL_ERROR_INVALID_ARGUMENT,
            "the ranks are to meet over the communicator that \"over\" names (meeting, \
             DTL_RDMA_MEETING), but it names none: set it, or another way to meet"
        )
    })
}

fn known(name: &str) -> Result<Arc<Backend>> {
    let meets = |backend: &Arc<Backend>| {
        backend.comm.as_deref().is_some_and(|comm| comm.device_comms().is_none())
    };
    registry::lookup(name).filter(meets).ok_or_else(|| {
        failure!(
            DTL_ERROR_INVALID_ARGUMENT,
            "no kind \"{name}\" is there for the ranks to meet over (meeting, DTL_RDMA_MEETING): \
             use auto, over, mpi, shm or the name of a registered kind, file:PATH or tcp:HOST:PORT"
        )
    })
}

fn find(name: &str) -> Result<Arc<Backend>> {
    let backend = known(name)?;
    match backend.ready() {
        Ok(()) => Ok(backend),
        Err(error) => fail!(
            DTL_ERROR_UNAVAILABLE,
            "the ranks cannot meet over kind \"{name}\": {}; see to that, or name another way: \
             file:PATH (a folder that all ranks see) or tcp:HOST:PORT (where rank 0 listens)",
            error.text()
        ),
    }
}

/// Opens a communicator of kind `backend`, exchanges the bootstrap records of all ranks over it,
/// and closes it.
fn over_kind(backend: &Backend, args: &OpenArgs, contribution: &RankRecord) -> Result<Records> {
    let Some(comm) = backend.comm.as_deref() else { return Err(backend.lacks("comm")) };
    // The settings of the description are of another kind, so they are not passed on.
    let args = OpenArgs {
        settings: Addr::NULL,
        grown: None,
        own_algorithms: true,
        over: None,
        ..args.clone()
    };
    let within = |error: Error| error.within(&format!("meeting over kind \"{}\"", backend.name()));
    let over = comm.open(&args).map_err(within)?;
    let records =
        contribution.exchange(&OverTransport::new(over.as_ref(), limit_ns(args.timeout_ns)));
    let closed = over.close();
    // This rank's own failure is not a failure of the exchange.
    contribution.mine.as_ref().map_err(Clone::clone)?;
    let records = records.map_err(within)?;
    closed.map_err(within)?;
    Ok(records)
}

/// Creates the parameters for an exchange that does not require an open communicator. Counts the
/// current call that opens a communicator, unless it is the only such call of the job.
fn opening(args: &OpenArgs, rank: i32, size: i32) -> OpenRequest {
    let number =
        if args.is_only_open { 1 } else { count((fnv1a(args.job.as_bytes()), rank), |_| ()).0 };
    let of = |number: i32| usize::try_from(number).unwrap_or(0);
    OpenRequest::new(key(args.job.as_bytes(), number), (of(rank), of(size)), args.timeout_ns)
}

/// Returns the key of the `number`-th call that opens a communicator of the job.
fn key(job: &[u8], number: u64) -> u64 {
    fnv1a(job.iter().chain(&number.to_le_bytes()))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
