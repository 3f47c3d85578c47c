//! Out-of-band allgather when a communicator is opened: each rank contributes a few words, its
//! record, and all go on or none does. [`How`] selects where they meet.
//!
//! Here: the accepted texts, the choice of "auto", meeting over a communicator that is open or is
//! opened for it, and the evaluation of the ranks' records. `folder` and `tcp` need no
//! communicator. Not here: the content of a record.
//!
//! In reading order:
//! - `folder`: rendezvous in a shared folder
//! - `tcp`: rendezvous at a port of rank 0

mod folder;
mod tcp;
#[cfg(test)]
mod tests;

use super::tcp_frames;
use crate::backend::meet::exchange;
use crate::error::{Error, Result, fail, status_name};
use crate::runtime::component::{Exchange, OpenArgs, Transport};
use crate::runtime::launch::{self, Launch};
use crate::runtime::registry::{self, Backend};
use crate::sys::compute::fnv;
use crate::sys::memory::buf::Addr;
use crate::sys::os::process;
use crate::sys::sync::lock::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Where the ranks meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// Over the communicator that the description names, else over shared memory if all are on this
    /// node, else over MPI.
    Auto,
    /// Over the communicator that the description names.
    Over,
    /// Over a kind of communicator that is opened for that, and closed.
    Kind(String),
    /// In a folder that all ranks see.
    Folder(PathBuf),
    /// Where rank 0 listens: a name or an address of its machine, and a port.
    Tcp(String, u16),
}

/// Kinds that carry no messages between processes, or need a meeting themselves.
const NO_PLACE_TO_MEET: [&str; 5] = ["self", "threads", "nccl", "rdma", "over"];

impl How {
    /// Parses a text: "auto", "over", the name of a kind, "file:PATH", "tcp:HOST:PORT".
    pub fn parse(text: &str) -> Result<How> {
        let how = match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Some(How::Folder(PathBuf::from(path))),
            Some(("tcp", place)) => parse_place(place),
            Some(_) => None,
            None => match text {
                "auto" => Some(How::Auto),
                "over" => Some(How::Over),
                name if is_name(name) && !NO_PLACE_TO_MEET.contains(&name) => {
                    Some(How::Kind(name.to_owned()))
                }
                _ => None,
            },
        };
        match how {
            Some(how) => Ok(how),
            None => fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "\"{text}\" is no way for ranks to meet: use auto, over, mpi, shm or the name of a \
                 registered kind, \
                 file:PATH (a folder that all ranks see) or tcp:HOST:PORT (where rank 0 listens)"
            ),
        }
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn parse_place(text: &str) -> Option<How> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']')?,
        // An IPv6 address without brackets: its port is ambiguous.
        None if host.contains(':') => return None,
        None => host,
    };
    match port.parse::<u16>() {
        Ok(port) if port > 0 && !host.is_empty() => Some(How::Tcp(host.to_owned(), port)),
        _ => None,
    }
}

/// What the ranks have when they have met.
#[derive(Debug, PartialEq, Eq)]
pub struct Meeting {
    /// This process' rank.
    pub rank: i32,
    /// Number of ranks.
    pub size: i32,
    /// The records in the order of ranks.
    pub records: Vec<u64>,
    /// Random number of rank 0's, equal on all ranks.
    pub job_cookie: u64,
}

/// How long the ranks wait for each other by default.
const DEFAULT_TIMEOUT_NS: u64 = 30_000_000_000;
/// How long an answer may take beyond the time limit: who gives it waits until its own.
const GRACE_NS: u64 = 2_000_000_000;
/// How long rank 0 waits for the others after a failure, to report it to them.
const LINGER_NS: u64 = 2_000_000_000;

/// Meets the other ranks. `words`: the length of a record, the same on all ranks. `mine`: this
/// rank's, or why it cannot go on, which is reported to the others. Waits up to the time limit of
/// `args`.
pub fn meet(how: &How, args: &OpenArgs, words: usize, mine: Result<Vec<u64>>) -> Result<Meeting> {
    let mine = mine.and_then(|record| match record.len() == words {
        true => Ok(record),
        false => fail!(DTL_ERROR_INTERNAL, "a record of {} words instead of {words}", record.len()),
    });
    let chosen = match how {
        How::Auto if args.over.is_some() => How::Over,
        How::Auto => automatic(args.named, launch::from_environment()?.as_ref()),
        chosen => chosen.clone(),
    };
    let limit_ns = match args.timeout_ns {
        0 | u64::MAX => DEFAULT_TIMEOUT_NS,
        limit_ns => limit_ns,
    };
    let place = args.over.as_ref().map(|over| (over.rank(), over.size())).or(args.rank_size());
    let (rank, size) = place.unwrap_or((0, 1));
    let talk = Talk { words, cookie: process::random_u64().unwrap_or(0), mine };
    if size == 1 {
        check(how, args.over.as_ref())?;
        return talk.end((0, 1), &talk.says());
    }
    match &chosen {
        How::Auto | How::Over => {
            let over = below(args.over.as_ref())?;
            talk.twice((rank, size), &mut |_, mine| over.allgather(mine))
        }
        How::Kind(name) => over_kind(find(name)?.as_ref(), args, limit_ns, &talk),
        How::Folder(path) => {
            let job =
                Job { number: count(args, rank), name: args.job.to_bytes(), rank, size, limit_ns };
            folder::meet(path, &job, &talk)
        }
        How::Tcp(host, port) => {
            let job =
                Job { number: count(args, rank), name: args.job.to_bytes(), rank, size, limit_ns };
            tcp::meet(host, *port, &job, &talk)
        }
    }
}

/// Decides from data that are equal on all ranks, so that all decide the same.
fn automatic(named: Option<(i32, i32)>, launch: Option<&Launch>) -> How {
    let is_one_node = named.is_some() || launch.is_none_or(Launch::is_one_node);
    How::Kind(if is_one_node { "shm" } else { "mpi" }.to_owned())
}

/// Whether there is what a way names, and the communicator that a description does; nothing is
/// opened.
pub fn check(how: &How, over: Option<&Arc<dyn Exchange>>) -> Result<()> {
    match how {
        How::Over => below(over).map(drop),
        How::Kind(name) => known(name).map(drop),
        How::Auto | How::Folder(_) | How::Tcp(..) => Ok(()),
    }
}

fn below(over: Option<&Arc<dyn Exchange>>) -> Result<&Arc<dyn Exchange>> {
    match over {
        Some(over) => Ok(over),
        None => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "the ranks are to meet over the communicator that \"over\" names (meeting, \
             DTL_RDMA_MEETING), but it names none: \
             set it, or another way to meet"
        ),
    }
}

fn known(name: &str) -> Result<Arc<Backend>> {
    let meets = |backend: &Arc<Backend>| {
        backend.comm.as_deref().is_some_and(|comm| comm.device_comms().is_none())
    };
    match registry::lookup(name).filter(meets) {
        Some(backend) => Ok(backend),
        None => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "no kind \"{name}\" is there for the ranks to meet over (meeting, DTL_RDMA_MEETING): \
             use auto, over, mpi, shm or \
             the name of a registered kind, file:PATH or tcp:HOST:PORT"
        ),
    }
}

fn find(name: &str) -> Result<Arc<Backend>> {
    let backend = known(name)?;
    match backend.ready() {
        Ok(()) => Ok(backend),
        Err(error) => fail!(
            DTL_ERROR_UNAVAILABLE,
            "the ranks cannot meet over kind \"{name}\": {}; see to that, or name another way: \
             file:PATH (a folder that \
             all ranks see) or tcp:HOST:PORT (where rank 0 listens)",
            error.text()
        ),
    }
}

/// Opens a communicator of a kind, meets over it and closes it.
fn over_kind(backend: &Backend, args: &OpenArgs, limit_ns: u64, talk: &Talk) -> Result<Meeting> {
    let Some(comm) = backend.comm.as_deref() else { return Err(backend.lacks("comm")) };
    // What the description's native is of concerns this kind only.
    let args = OpenArgs {
        job: args.job.clone(),
        native: Addr::NULL,
        own_algorithms: true,
        over: None,
        ..*args
    };
    let within = |error: Error| error.within(&format!("meeting over kind \"{}\"", backend.name()));
    let over = comm.open(&args).map_err(within)?;
    let met = over_transport(over.as_ref(), limit_ns, talk);
    let closed = over.close();
    // This rank's own failure is no matter of the meeting's.
    talk.mine.as_ref().map_err(Clone::clone)?;
    let met = met.map_err(within)?;
    closed.map_err(within)?;
    Ok(met)
}

fn over_transport(over: &dyn Transport, limit_ns: u64, talk: &Talk) -> Result<Meeting> {
    talk.twice((over.rank(), over.size()), &mut |number, mine| {
        exchange(over, number, mine, limit_ns)
    })
}

/// Which ranks of which job meet, without anything that is open.
struct Job<'a> {
    name: &'a [u8],
    /// How many communicators of this job this process has opened so: the n-th of one rank is that
    /// of the others.
    number: u64,
    rank: i32,
    size: i32,
    limit_ns: u64,
}

impl Job<'_> {
    /// Returns the key of this meeting: a hash of the job's name and the opening's number, equal on
    /// all ranks.
    fn key(&self) -> u64 {
        fnv::of(self.name.iter().chain(&self.number.to_le_bytes()))
    }

    fn rank(&self) -> usize {
        usize::try_from(self.rank).unwrap_or(0)
    }

    fn size(&self) -> usize {
        usize::try_from(self.size).unwrap_or(0)
    }

    /// What to do about ranks that are missing.
    fn missing(&self, ranks: &[usize], place: &str) -> Error {
        let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
        Error::new(
            crate::abi::status::DTL_ERROR_TIMEOUT,
            format!(
                "rank {} of {} missing after {} at {place}: not started, started with another job \
                 name or another place to \
                 meet, or failed (see its own output); start all ranks, or raise the time limit",
                ranks.join(", "),
                self.size,
                seconds(self.limit_ns)
            ),
        )
    }
}

/// Opens of each job and rank in this process; a forked child begins anew.
static OPENS: Mutex<BTreeMap<(u64, i32), (i32, u64)>> = Mutex::new(BTreeMap::new());

fn count(args: &OpenArgs, rank: i32) -> u64 {
    if args.is_only_open {
        return 1;
    }
    let pid = process::own_pid();
    let mut opens = OPENS.lock();
    let (of, number) = opens.entry((fnv::of(args.job.as_bytes()), rank)).or_insert((pid, 0));
    if *of != pid {
        (*of, *number) = (pid, 0);
    }
    *number += 1;
    *number
}

/// One rank's contribution to the exchange, and the evaluation of the others'.
struct Talk {
    words: usize,
    cookie: u64,
    mine: Result<Vec<u64>>,
}

/// Allgather of as many words per rank; the first argument numbers the exchange.
type Exchanging<'a> = dyn FnMut(u64, &[u64]) -> Result<Vec<u64>> + 'a;

/// Words before each record: status, cookie.
const BEFORE: usize = 2;

impl Talk {
    /// Returns this rank's contribution: status, cookie and record, as many words on every rank.
    fn says(&self) -> Vec<u64> {
        let (status, record) = match &self.mine {
            Ok(record) => (0, record.clone()),
            // As much of the text as there is room for.
            Err(error) => (u64::from(error.status() as u32), text_words(error.text(), self.words)),
        };
        let mut says = vec![0; BEFORE + self.words];
        says.iter_mut()
            .zip([status, self.cookie].into_iter().chain(record))
            .for_each(|(to, word)| *to = word);
        says
    }

    /// Of all ranks' words, in their order.
    fn end(&self, (rank, size): (i32, i32), all: &[u64]) -> Result<Meeting> {
        if let Err(own) = &self.mine {
            return Err(own.clone());
        }
        self.failure(all).map_or(Ok(()), Err)?;
        let each = || all.chunks_exact(BEFORE + self.words);
        let records: Vec<u64> =
            each().flat_map(|words| words.iter().skip(BEFORE)).copied().collect();
        if records.len() != self.words * size.unsigned_abs() as usize {
            return fail!(
                DTL_ERROR_COMMUNICATION,
                "the ranks' records are not whole; use one version of libdtl"
            );
        }
        let job_cookie = all.get(1).copied().unwrap_or(0);
        Ok(Meeting { rank, size, records, job_cookie })
    }

    /// The first rank that cannot go on.
    fn failure(&self, all: &[u64]) -> Option<Error> {
        let mut each = (0..).zip(all.chunks_exact(BEFORE + self.words));
        let (rank, says) = each.find(|(_, says)| says.first() != Some(&0))?;
        Some(cannot(rank, says))
    }

    /// Meets over an allgather, in two rounds: the contributions, then the confirmation that all
    /// have received them.
    fn twice(&self, place: (i32, i32), exchange: &mut Exchanging<'_>) -> Result<Meeting> {
        let all = exchange(0, &self.says());
        if let Err(own) = &self.mine {
            return Err(own.clone());
        }
        let meeting = self.end(place, &all?)?;
        exchange(1, &[0])?;
        Ok(meeting)
    }
}

/// The beginning of a text in so many words.
fn text_words(text: &str, words: usize) -> Vec<u64> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(8 * words, 0);
    tcp_frames::words_of(&bytes)
}

/// Makes the error of a rank that has reported a failure.
fn cannot(rank: usize, says: &[u64]) -> Error {
    let status = says.first().map_or(0, |status| *status as u32 as i32);
    let bytes = tcp_frames::bytes_of(says.get(BEFORE..).unwrap_or_default());
    let text = String::from_utf8_lossy(&bytes);
    let more = if bytes.last().is_some_and(|last| *last != 0) { " …" } else { "" };
    Error::new(
        crate::abi::status::DTL_ERROR_UNAVAILABLE,
        format!(
            "rank {rank} could not prepare its part ({}: {}{more}); see its own output",
            status_name(status).to_string_lossy(),
            text.trim_end_matches(['\0', '\u{FFFD}'])
        ),
    )
}

/// Makes the error of a rank whose size or number of words differs from rank 0's. `its` and `own`:
/// number of ranks and of words.
fn disagreement(rank: usize, its: (u64, usize), own: (usize, usize)) -> Error {
    let text = match its.0 == own.0 as u64 {
        false => format!(
            "the ranks disagree on their number: rank {rank} says {}, rank 0 says {}; pass the \
             same size on all",
            its.0, own.0
        ),
        true => format!(
            "rank {rank} says {} words, rank 0 says {}; use one version of libdtl on all ranks",
            its.1, own.1
        ),
    };
    Error::new(crate::abi::status::DTL_ERROR_INVALID_ARGUMENT, text)
}

fn seconds(ns: u64) -> String {
    if ns < 1_000_000_000 {
        format!("{} ms", ns / 1_000_000)
    } else {
        format!("{:.1} s", ns as f64 / 1e9)
    }
}
