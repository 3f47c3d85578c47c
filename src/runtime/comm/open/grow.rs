//! Growing a communicator: processes that the launcher starts join its ranks.
//!
//! All ranks, those of the communicator and the new ones, open a communicator under a new job name.
//! The new ranks get its name, their rank and the size from the launcher's environment variables,
//! as the ranks of any job do. So this works for every kind of communicator that can be opened by a
//! job name (`component::Comm::opens_by_job`). For kind "mpi", MPI starts the processes and
//! connects them with the ranks (`component::Grow`).
//!
//! The ranks first exchange their arguments and the job name, which rank 0 chooses. If they agree,
//! rank 0 requests the processes and waits until these begin to open the communicator. The ranks
//! exchange the outcome, open the communicator, and exchange the outcome again, so that all of them
//! succeed or fail. After a failure opening fails in the new processes; the launcher ends them.

use super::group;
use super::open_kind::{self, Description};
use crate::abi::comm::communicator::{DTL_COMM_DETERMINISTIC, DTL_COMM_NO_DUP, dtl_comm_desc_t};
use crate::abi::handle::dtl_comm_t;
use crate::abi::status::*;
use crate::error::{Error, Result, fail, status_name};
use crate::from_c::blank;
use crate::runtime::comm::coll::allgather_words;
use crate::runtime::comm::diagnostics::hang_report::{self, reports::Revocation};
use crate::runtime::comm::op_desc::Kind;
use crate::runtime::comm::{Comm, comm_handles, progress};
use crate::runtime::component::{BOOTSTRAP_NS, Grow, PendingRanks, Watch};
use crate::runtime::launch;
use crate::runtime::registry;
use crate::sys::handles::epoch;
use crate::sys::sync::lock::Mutex;
use crate::sys::sync::wait::{self, Deadline};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

/// Maximum time that rank 0 waits for the launcher's report of a process that has ended, in
/// nanoseconds.
const REPORT_NS: u64 = 200_000_000;

/// Creates a communicator of the ranks of `comm` and `new_ranks` more, whose processes the launcher
/// or MPI starts. Collective over `comm`. `checked` is the result of checks of this rank's other
/// arguments; an error on one rank fails the call on all ranks.
pub fn grow(comm: &Arc<Comm>, new_ranks: i32, checked: Result<()>) -> Result<dtl_comm_t> {
    const NAME: &str = "dtl_comm_grow";
    comm.check_outside(NAME)?;
    let most = i32::MAX - comm.size;
    let checked = checked.and_then(|()| match (1..=most).contains(&new_ranks) {
        true => Ok(()),
        false => fail!(DTL_ERROR_INVALID_ARGUMENT, "new_ranks {new_ranks}: use 1 to {most}"),
    });
    let (kind, spawner) = kind_of(comm).map_err(|error| checked.clone().err().unwrap_or(error))?;
    // Each new state of the hasher has random keys.
    let random = RandomState::new().build_hasher().finish();
    let words = [random, status_of(&checked), u64::from(new_ranks.unsigned_abs())];
    let private = group::private(comm, Kind::Open, words, Some(Arc::clone(comm)));
    let (control, all) = private.map_err(|error| error.within(NAME))?;
    let job = format!("{}{:016x}", launch::GROWN, all.first().map_or(0, |[random, ..]| *random));
    let growth = Growth { comm, control: Arc::clone(&control), kind, spawner, job, new_ranks };
    let made = checked.and_then(|()| compare(comm.rank, &words, &all)).and_then(|()| growth.make());
    // The result of the call itself is reported, not that of the cleanup.
    let _ = comm_handles::destroy(&control);
    made.map_err(|error| match error.status() {
        // This rank has not destroyed the communicator, so another rank has.
        DTL_ERROR_CANCELED if comm.is_open() => {
            Error::new(DTL_ERROR_RANK_FAILURE, error.text().to_owned()).within(NAME)
        }
        _ => error.within(NAME),
    })
}

fn status_of<T>(result: &Result<T>) -> u64 {
    u64::from(result.as_ref().map_or_else(Error::status, |_| DTL_SUCCESS) as u32)
}

/// Fails if another rank passes a bad argument, or a different number of new ranks.
fn compare(own_rank: i32, own: &[u64; 3], all: &[[u64; 3]]) -> Result<()> {
    let differs = |(_, words): &(usize, &[u64; 3])| words[1..] != own[1..];
    let Some((rank, &[_, status, number])) = all.iter().enumerate().find(differs) else {
        return Ok(());
    };
    let text = match status as u32 as i32 {
        DTL_SUCCESS => format!(
            "new_ranks is {} on rank {own_rank} and {number} on rank {rank}: pass the same number \
             on all ranks",
            own[2]
        ),
        status => {
            let name = status_name(status).to_string_lossy();
            format!("rank {rank} passes a bad argument ({name}): see the error text of that rank")
        }
    };
    Err(Error::new(DTL_ERROR_INVALID_ARGUMENT, text))
}

/// Call of `grow` in progress.
struct Growth<'a> {
    comm: &'a Arc<Comm>,
    /// Private duplicate of `comm` for all exchanges up to the opening: if a rank is late, only the
    /// duplicate fails. A rank that cannot open the new communicator revokes the duplicate, which
    /// ends `open` on the other ranks.
    control: Arc<Comm>,
    /// Kind of the new communicator.
    kind: String,
    /// Starts the processes; `None` if the launcher starts them.
    spawner: Option<Arc<dyn Grow>>,
    /// Job name of the new communicator.
    job: String,
    new_ranks: i32,
}

impl Growth<'_> {
    fn make(&self) -> Result<dtl_comm_t> {
        let (comm, job, count) = (self.comm, &self.job, self.new_ranks);
        let exchange = |status: u64| allgather_words(&self.control, Kind::Open, &[status]);
        // Half of the time limit, so that the other ranks get the result within theirs.
        let limit_ns = BOOTSTRAP_NS.min(comm.timeout_ns / 2);
        let start = || match &self.spawner {
            Some(spawner) => spawner.start(job, comm.size, count, limit_ns),
            None => launch::start_ranks(job, (comm.size, comm.size + count), &self.kind, limit_ns),
        };
        progress::before_open();
        let mut pending = (comm.rank == 0).then(|| progress::while_opening(start)).transpose();
        let gathered = match &mut pending {
            Ok(Some(pending)) => pending.gather(&self.watch(None)),
            Ok(None) => Ok(()),
            Err(error) => Err(error.clone()),
        };
        let agreed = exchange(status_of(&gathered));
        gathered?;
        let status = agreed?.first().map_or(0, |word| *word as u32 as i32);
        if status != DTL_SUCCESS {
            let text = "the new ranks do not join: see the error text of rank 0";
            return Err(Error::new(status, text));
        }
        let pending = pending?.map(|pending| Arc::new(Mutex::new(pending)));
        // Detects a rank that has died while rank 0 waited.
        let opened = exchange(0).and_then(|_| self.open(pending.as_ref()));
        let made = self.commit(pending.as_ref(), opened.clone());
        if let (Err(_), Ok(handle)) = (&made, opened) {
            let new = comm_handles::pin_to_destroy(&epoch::enter(), handle);
            // The error of the call is that of `made`.
            let _ = new.map(|new| new.map(|new| comm_handles::destroy(&new)));
        }
        made.map_err(|error| error.within(&format!("opening with {count} new ranks")))
    }

    /// Returns the check that this rank makes while it waits. `pending` are the processes that this
    /// rank has started; `None` if it has started none.
    fn watch(&self, pending: Option<&Pending>) -> Watch {
        let (comm, control) = (Arc::clone(self.comm), Arc::clone(&self.control));
        let pending = pending.cloned();
        Arc::new(move || {
            pending.as_ref().map_or(Ok(()), |pending| pending.lock().check())?;
            control.look_around();
            progress::others(&control);
            comm.check_open()?;
            if let Some(first) = control.reports.given_up(u64::MAX) {
                return Err(Error::new(first.status, format!("rank {} has given up", first.rank)));
            }
            if control.has_gone() {
                let why = control.gone_text_of(&control.gone());
                return fail!(DTL_ERROR_RANK_FAILURE, "no ranks can be added {why}");
            }
            match control.is_open() {
                true => Ok(()),
                false => fail!(DTL_ERROR_RANK_FAILURE, "another rank failed to open it"),
            }
        })
    }

    /// Opens the new communicator.
    fn open(&self, pending: Option<&Pending>) -> Result<dtl_comm_t> {
        let comm = self.comm;
        let admitted = pending.map_or(Ok(None), |pending| pending.lock().admit())?;
        let ranks: Vec<i32> = (0..comm.size).map(|rank| comm.to_world(rank)).collect();
        let join = |by: &Arc<dyn Grow>| progress::while_opening(|| by.join(&ranks, admitted));
        let grown = self.spawner.as_ref().map(join).transpose()?;
        let determinism = if comm.link.is_deterministic { DTL_COMM_DETERMINISTIC } else { 0 };
        // DTL_COMM_NO_DUP would have no use: the program has no MPI communicator of all ranks.
        let flags = comm.link.flags & !DTL_COMM_NO_DUP | determinism;
        let (rank, size, timeout_ns) = (comm.rank, comm.size + self.new_ranks, comm.timeout_ns);
        let raw = dtl_comm_desc_t { rank, size, timeout_ns, flags, ..blank() };
        let (kind, job) = (Some(self.kind.clone()), Some(self.job.clone()));
        let watch = Some(self.watch(pending));
        open_kind::open(&Description { raw, kind, job, grown, watch, ..Description::default() })
    }

    /// Returns `opened` if all ranks have opened the new communicator; otherwise fails with the
    /// same status on all ranks. All ranks take part, over the old communicator.
    fn commit(
        &self,
        pending: Option<&Pending>,
        mut opened: Result<dtl_comm_t>,
    ) -> Result<dtl_comm_t> {
        if let Err(error) = &opened {
            // Ends `open` on the other ranks.
            hang_report::revoke(&self.control, Revocation::Shrink);
            let pending = pending.filter(|_| error.status() != DTL_ERROR_UNAVAILABLE);
            let check = || Ok(pending.and_then(|pending| pending.lock().check().err()));
            let limit_ns = if pending.is_some() { REPORT_NS } else { 0 };
            let report: Result<_> = wait::poll(Deadline::after(limit_ns), check);
            opened = report?.map_or(opened, Err);
        }
        let words = allgather_words(self.comm, Kind::Open, &[status_of(&opened)])?;
        let failures = || (0..).zip(&words).map(|(rank, word)| (rank, *word as u32 as i32));
        let failures = || failures().filter(|(_, status)| *status != DTL_SUCCESS);
        // Ranks whose `open` has been ended report RANK_FAILURE.
        let cause = failures().find(|(_, status)| *status != DTL_ERROR_RANK_FAILURE);
        match (cause.or_else(|| failures().next()), opened) {
            (None, opened) => {
                pending.iter().for_each(|pending| pending.lock().settle());
                opened
            }
            (Some((_, status)), Err(own)) if own.status() == status => Err(own),
            (Some((rank, status)), _) => {
                let name = status_name(status).to_string_lossy();
                let text = format!("rank {rank} failed to open it ({name}): see its error text");
                Err(Error::new(status, text))
            }
        }
    }
}

/// Processes that rank 0 has started. Its checks use them while it opens the communicator.
type Pending = Arc<Mutex<Box<dyn PendingRanks>>>;

/// Returns the kind of the grown communicator, and the object that starts the processes; `None` if
/// the launcher starts them. Fails if the kind cannot grow.
fn kind_of(comm: &Comm) -> Result<(String, Option<Arc<dyn Grow>>)> {
    let kind = comm.kind_name().into_owned();
    if kind == "self" {
        return Ok(("auto".to_owned(), None)); // kind "self" has one rank
    }
    let spawner = comm.link.transport.properties().grow.clone();
    let backend = registry::lookup(&kind);
    let opener = backend.as_ref().and_then(|backend| backend.comm.as_deref());
    let by_job = opener.is_some_and(|opener| opener.opens_by_job());
    if by_job || spawner.is_some() && comm.device.is_none() {
        return Ok((kind, spawner));
    }
    fail!(
        DTL_ERROR_NOT_SUPPORTED,
        "dtl_comm_grow: kind \"{kind}\" cannot be extended by new ranks: open the communicator as \
         a kind that is opened by a job name (\"shm\", \"rdma\", a registered kind), or as kind \
         \"mpi\""
    )
}
