//! Collectives of a device's memory by a library that has nothing else
//! (`runtime::backend::DeviceComms`), beside all that the communicator does over its transport.
//!
//! The rule is one that all ranks follow alike: where the buffers of a collective are memory that
//! the host cannot reach, it is that library's, or it is refused (staged, if the communicator was
//! opened so). All else is as on any communicator.
//!
//! Here: how the ranks meet, what is whose, how one begins and ends. Not here: which collectives
//! such a library has.

use super::Comm;
use super::begun::{Begun, Caller};
use super::call::{Call, Kind};
use super::group::allgather_words;
use super::report;
use super::schedule::Advance;
use super::whole::Place;
use crate::abi::status::*;
use crate::error::{Error, Result, fail, status_name};
use crate::runtime::backend::{Collective, DeviceComm, Invitation};
use crate::runtime::explain;
use crate::runtime::memory::hidden;
use crate::runtime::registry::Backend;
use crate::sys::buf::Region;
use crate::sys::clock::Deadline;
use crate::sys::park::Backoff;
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long the ranks wait for each other, unless their time limit is less.
const MEETING_NS: u64 = 30_000_000_000;

/// What makes a rank's part, and how the communicator is to use it.
pub(super) struct Wanted {
    /// Its share keeps the backend there.
    pub(super) backend: Arc<Backend>,
    /// Whether what the library does not have is staged.
    pub(super) stages: bool,
    /// Whether reductions have to be bitwise those of other kinds.
    pub(super) is_deterministic: bool,
}

/// What a communicator has of it.
pub(super) struct Part {
    comm: Box<dyn DeviceComm>,
    pub(super) kind: &'static CStr,
    wanted: Wanted,
    explained: AtomicBool,
}

impl Part {
    pub(super) fn describe(&self) -> String {
        self.comm.describe()
    }

    /// Whether buffers are of the device; those that are empty are nowhere.
    fn holds(&self, buffers: &[&[Region]]) -> Result<bool> {
        let (backend, device) = self.comm.device();
        let (mut hidden, mut plain) = (None, None);
        for buffer in
            buffers.iter().flat_map(|list| list.iter()).filter(|buffer| !buffer.is_empty())
        {
            let Some(allocation) = hidden::allocation_of(*buffer)?.filter(|found| found.hidden)
            else {
                plain = Some(buffer);
                continue;
            };
            if (allocation.backend, allocation.device) != (backend, device) {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "{:?} is memory of another device than the communicator's, which is {}: \
                     allocate on that one, or open \
                     a communicator on the other",
                    buffer.addr(),
                    self.comm.describe()
                );
            }
            hidden = Some(buffer);
        }
        match (hidden, plain) {
            (Some(hidden), Some(plain)) => fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "{:?} is device memory and {:?} is memory that the host reaches: over kind \"{}\" \
                 all buffers of a \
                 collective are of one sort, on all ranks",
                hidden.addr(),
                plain.addr(),
                self.kind.to_string_lossy()
            ),
            (hidden, _) => Ok(hidden.is_some()),
        }
    }

    fn refuses(&self, call: &Collective) -> Option<String> {
        let folds = matches!(
            call,
            Collective::Reduce { .. }
                | Collective::Allreduce { .. }
                | Collective::ReduceScatter { .. }
        );
        if folds && self.wanted.is_deterministic {
            return Some(
                "it takes operands in an order of its own, and the communicator is deterministic"
                    .to_owned(),
            );
        }
        self.comm.refuses(call)
    }

    fn explain_once(&self, error: &Error) {
        if !self.explained.swap(true, Ordering::Relaxed) {
            let topic =
                format!("collectives of device memory over {}", self.kind.to_string_lossy());
            explain::chose(
                &topic,
                &format!("staged where need be (DTL_COMM_STAGE); first: {}", error.text()),
            );
        }
    }
}

/// On a device.
pub(super) struct OnDevice;

impl Place for OnDevice {
    fn begin(
        comm: Caller<'_>,
        call: &Call,
        whole: impl FnOnce() -> Collective,
        _by_steps: impl FnOnce() -> Result<Begun>,
    ) -> Result<Begun> {
        let whole = whole();
        match part(&comm)?.refuses(&whole) {
            Some(why) => refuse(call.kind.name(), &why),
            None => comm.prepare_on_device(*call, whole),
        }
    }
}

/// The error of a collective that there is not.
pub(super) fn refuse<T>(name: &str, why: &str) -> Result<T> {
    fail!(
        DTL_ERROR_NOT_SUPPORTED,
        "{name} of device memory: {why}; open the communicator with DTL_COMM_STAGE to have such \
         ones staged through host \
         memory, or pass host memory on all ranks"
    )
}

fn part(comm: &Comm) -> Result<&Part> {
    match &comm.device {
        Some(part) => Ok(part),
        None => fail!(DTL_ERROR_INTERNAL, "a communicator without a device"),
    }
}

/// Begins a collective by `begin` if its buffers are of the communicator's device. `None`: it has
/// none, or they are not, or it is to be staged.
pub(super) fn begin(
    comm: &Comm,
    buffers: &[&[Region]],
    begin: impl FnOnce() -> Result<Begun>,
) -> Result<Option<Begun>> {
    let Some(part) = &comm.device else { return Ok(None) };
    if !part.holds(buffers)? {
        return Ok(None);
    }
    match begin() {
        Err(error) if error.status() == DTL_ERROR_NOT_SUPPORTED && part.wanted.stages => {
            part.explain_once(&error);
            Ok(None)
        }
        begun => begun.map(Some),
    }
}

/// Starts one if it is not, and asks after it.
pub(super) fn advance(
    comm: &Comm,
    whole: &Collective,
    started: &mut Option<u64>,
) -> Result<Advance> {
    let part = part(comm)?;
    let number = match *started {
        Some(number) => number,
        None => *started.insert(part.comm.start(whole)?),
    };
    Ok(if part.comm.test(number)? { Advance::Done } else { Advance::Waiting })
}

/// Ends what runs: nothing touches its buffers any more.
pub(super) fn give_up(comm: &Comm) {
    if let Some(part) = &comm.device {
        part.comm.give_up();
    }
}

/// Takes leave of the other ranks' parts.
pub(super) fn leave(comm: &Comm) {
    if let Some(part) = &comm.device {
        part.comm.leave();
    }
}

/// What a communicator has, for one that is made of it. Collective over its ranks.
pub(super) fn pass_on(from: &Comm, made: Comm) -> Result<Comm> {
    let Some(Part { comm, wanted, .. }) = from.device.as_deref() else { return Ok(made) };
    let wanted = Wanted { backend: Arc::clone(&wanted.backend), ..*wanted };
    attach(made, wanted, comm.another())
}

/// Gives a communicator the collectives of a device's memory, on all ranks or on none. Collective
/// over its ranks, also for who has nothing to bring along.
pub(super) fn attach(
    mut comm: Comm,
    wanted: Wanted,
    mine: Result<Box<dyn DeviceComm>>,
) -> Result<Comm> {
    let (mine, _) = together(&comm, mine, Invitation::default())?;
    let invited = if comm.rank == 0 { mine.invitation() } else { Ok(Invitation::default()) };
    let words = *invited.as_ref().unwrap_or(&Invitation::default());
    let (_, invitation) = together(&comm, invited, words)?;
    // That in which all say that they have met; who has not tells the others that it does not come.
    let number = u64::from(comm.sequence.load(Ordering::Relaxed));
    if let Err(error) = meet(&comm, mine.as_ref(), &invitation, number) {
        mine.give_up();
        report::give_up(&comm, number, error.status());
        return Err(error);
    }
    together(&comm, Ok(()), Invitation::default())?;
    let kind = crate::runtime::for_ever(&wanted.backend.name);
    let below = comm.link.kind.to_string_lossy();
    explain::chose(
        &format!("communicators of kind {}", kind.to_string_lossy()),
        &format!("collectives of device memory by {}, all else over {below}", mine.describe()),
    );
    comm.device =
        Some(Box::new(Part { comm: mine, kind, wanted, explained: AtomicBool::new(false) }));
    Ok(comm)
}

/// Tells the others how this rank fares, and some words. Those of rank 0, if all fare well.
fn together<T>(comm: &Comm, mine: Result<T>, words: Invitation) -> Result<(T, Invitation)> {
    let status = mine.as_ref().err().map_or(0, |error| u64::from(error.status() as u32));
    let says: Vec<u64> = std::iter::once(status).chain(words).collect();
    let all = allgather_words(comm, Kind::Open, &says);
    let mine = mine?;
    let all = all?;
    let failed = all.chunks_exact(says.len()).map(|words| words.first().copied().unwrap_or(0));
    if let Some((rank, status)) = (0..).zip(failed).find(|(_, status)| *status != 0) {
        return Err(failed_elsewhere(rank, status as u32 as i32));
    }
    let mut first = Invitation::default();
    first.iter_mut().zip(all.iter().skip(1)).for_each(|(to, from)| *to = *from);
    Ok((mine, first))
}

fn failed_elsewhere(rank: i32, status: dtl_status_t) -> Error {
    let name = status_name(status).to_string_lossy();
    Error::new(
        DTL_ERROR_UNAVAILABLE,
        format!(
            "rank {rank} could not open its part of the devices' communicator ({name}); see its \
             own output"
        ),
    )
}

/// `number`: that of the collective that comes next.
fn meet(comm: &Comm, mine: &dyn DeviceComm, invitation: &Invitation, number: u64) -> Result<()> {
    mine.meet(invitation, comm.rank, comm.size)?;
    let limit_ns = comm.timeout_ns.min(MEETING_NS);
    let (deadline, mut backoff) = (Deadline::after(limit_ns), Backoff::new());
    while !mine.has_met()? {
        backoff.pause();
        if !backoff.is_long() {
            continue;
        }
        comm.look_around();
        report::serve(comm);
        if let Some(first) = comm.reports.given_up(number) {
            return Err(match first.cause(comm) {
                Some(gone) => Error::new(
                    DTL_ERROR_RANK_FAILURE,
                    format!(
                        "the devices' communicator cannot be opened {}",
                        comm.gone_text_of(&gone)
                    ),
                ),
                None => failed_elsewhere(first.rank, first.status),
            });
        }
        if comm.has_died() {
            return fail!(
                DTL_ERROR_RANK_FAILURE,
                "rank(s) {} died or left while the devices' communicator was opened",
                comm.failed_text()
            );
        }
        if deadline.passed() {
            return fail!(
                DTL_ERROR_TIMEOUT,
                "the devices' communicator ({}) is not open after {} ms: do all ranks reach each \
                 other by its network?",
                mine.describe(),
                limit_ns / 1_000_000
            );
        }
    }
    Ok(())
}
