//! Implementation of collectives on device memory; `coll_start` tries it first if the buffers are
//! device memory. A device library that implements only collectives on device memory, for example
//! NCCL, executes them (`runtime::component::DeviceComms`). The communicator uses its transport for
//! everything else.
//!
//! All ranks follow one rule: if the buffers of a collective are memory that the host cannot
//! access, the device library runs the collective. If it does not support the collective, the call
//! fails, or stages the data if the communicator was opened with DTL_COMM_STAGE. All other
//! collectives run as on any communicator.
//!
//! This file connects the device communicators and selects collectives; `coll_native` starts and
//! completes them. It does not define which collectives a device library supports.

use super::coll_exec::StartedColl;
use super::coll_native::Executor;
use super::device_part::{DeviceCommPart, DeviceCommSpec};
use super::{CollArgs, coll_native};
use crate::abi::status::dtl_status_t;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::comm::Comm;
use crate::runtime::comm::diagnostics::hang_report;
use crate::runtime::component::{
    BOOTSTRAP_NS, BootstrapId, DeviceComm, all_or_none, failed_elsewhere,
};
use crate::runtime::explain;
use crate::sys::sync::wait::{Backoff, Deadline};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Starts a collective if its buffers are memory of the communicator's device. Returns `None` if
/// there is no device, if the buffers are in other memory, or if the collective has to be staged.
pub(super) fn begin(comm: &Comm, args: &CollArgs) -> Result<Option<StartedColl>> {
    let Some(part) = &comm.device else { return Ok(None) };
    if !part.holds(args)? {
        return Ok(None);
    }
    let Some(why) = part.refuses(&coll_native::call_of(comm, args, None))? else {
        return coll_native::start(comm, Executor::DeviceLibrary, args, None).map(Some);
    };
    let error = failure!(
        DTL_ERROR_NOT_SUPPORTED,
        "{} of device memory: {why}; open the communicator with DTL_COMM_STAGE to have such ones \
         staged through host memory, or pass host memory on all ranks",
        args.kind.name()
    );
    if part.wanted.stages {
        part.explain_once(&error);
        return Ok(None);
    }
    Err(error)
}

/// Attaches device collectives to `made`, a communicator derived from `from`, if `from` has device
/// collectives. Collective over the ranks of `made`.
pub(crate) fn pass_on(from: &Comm, made: Comm) -> Result<Comm> {
    let Some(DeviceCommPart { comm, wanted, .. }) = from.device.as_deref() else { return Ok(made) };
    let wanted = DeviceCommSpec { backend: Arc::clone(&wanted.backend), ..*wanted };
    attach(made, wanted, comm.another())
}

/// Attaches device collectives to a communicator, on all ranks or on none. Collective over the
/// ranks of `comm`, including ranks that have no device communicator.
pub(crate) fn attach(
    mut comm: Comm,
    wanted: DeviceCommSpec,
    mine: Result<Box<dyn DeviceComm>>,
) -> Result<Comm> {
    let (mine, _) = together(&comm, mine, BootstrapId::default())?;
    let invited = if comm.rank == 0 { mine.invitation() } else { Ok(BootstrapId::default()) };
    let words = *invited.as_ref().unwrap_or(&BootstrapId::default());
    let (_, invitation) = together(&comm, invited, words)?;
    // Number of the collective in which all ranks report whether they are connected.
    let number = u64::from(comm.sequence.load(Ordering::Relaxed));
    if let Err(error) = connect(&comm, mine.as_ref(), &invitation, number) {
        mine.give_up();
        hang_report::give_up(&comm, number, error.status());
        return Err(error);
    }
    together(&comm, Ok(()), BootstrapId::default())?;
    let kind = crate::runtime::for_ever(&wanted.backend.name);
    let below = comm.link.kind.to_string_lossy();
    explain::chose(
        &format!("communicators of kind {}", kind.to_string_lossy()),
        &format!("collectives of device memory by {}, all else over {below}", mine.describe()),
    );
    comm.device = Some(Box::new(DeviceCommPart {
        comm: mine,
        kind,
        wanted,
        explained: AtomicBool::new(false),
    }));
    Ok(comm)
}

/// Exchanges the status and the `words` of all ranks. If no rank has failed, returns the value of
/// `mine` and the words of rank 0.
fn together<T>(comm: &Comm, mine: Result<T>, words: BootstrapId) -> Result<(T, BootstrapId)> {
    let (mine, all) = all_or_none(comm, mine, &words, part_failed)?;
    Ok((mine, all.first_chunk().copied().unwrap_or_default()))
}

fn part_failed(rank: i32, status: dtl_status_t) -> Error {
    failed_elsewhere(rank, status, "could not open its part of the devices' communicator")
}

/// Connects the device communicators of all ranks. `number` is the number of the next collective.
fn connect(comm: &Comm, mine: &dyn DeviceComm, id: &BootstrapId, number: u64) -> Result<()> {
    mine.connect(id, comm.rank, comm.size)?;
    let limit_ns = comm.timeout_ns.min(BOOTSTRAP_NS);
    let (deadline, mut backoff) = (Deadline::after(limit_ns), Backoff::new());
    while !mine.is_connected()? {
        backoff.pause();
        if !backoff.is_long() {
            continue;
        }
        comm.look_around();
        hang_report::serve(comm);
        if let Some(first) = comm.reports.given_up(number) {
            return Err(match first.cause(comm) {
                Some(gone) => failure!(
                    DTL_ERROR_RANK_FAILURE,
                    "the devices' communicator cannot be opened {}",
                    comm.gone_text_of(&gone)
                ),
                None => part_failed(first.rank, first.status),
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
