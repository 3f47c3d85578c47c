//! More ranks for a communicator: MPI starts processes of the program, which are connected with the
//! ranks.
//!
//! Only the first rank of the communicator calls MPI_Comm_spawn, over a copy of MPI_COMM_SELF. If
//! all ranks called it, Open MPI would return a failure on the root only, and the other ranks would
//! wait for ever. The first rank then waits for a message from each new process. So the calls that
//! connect all ranks, which block inside MPI without a time limit, begin only when all processes
//! take part.
//!
//! A new process gets the job's name in DTL_JOB. The program `env` sets the variable, because MPI
//! has no portable parameter for the environment of new processes.

use super::{duplicate, of_ranks, place_in};
use crate::abi::status::DTL_ERROR_UNAVAILABLE;
use crate::backend::mpi::library::functions::{Handle, Status};
use crate::backend::mpi::library::mpi_library::{Mpi, PendingFree, checked};
use crate::backend::mpi::message::{self, Envelope};
use crate::error::{Error, Result, fail, failure};
use crate::runtime::component::{Grow, PendingRanks, Watch};
use crate::runtime::launch;
use crate::sys::sync::wait::{self, Backoff, Deadline};
use std::ffi::{CString, OsString, c_char, c_int};
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::ptr::null_mut;

/// Tag of the messages between the first rank and the new processes, and of MPI_Intercomm_create.
const TAG: c_int = 1;
/// Message of a new process that waits, and the reply if all ranks open the communicator.
const READY: c_int = 1;
/// Reply if the ranks do not open the communicator.
const FAILED: c_int = 2;
/// Send buffers of the messages. They are static because a message stays in flight if the process
/// to which it is sent does not receive it.
static WORDS: [c_int; 3] = [0, READY, FAILED];
/// Maximum time, in nanoseconds, to wait for the completion of sends. A process that makes no call
/// to MPI may not receive a message.
const SEND_NS: u64 = 2_000_000_000;

/// Starts further ranks by MPI. Contains the communicator of the transport's ranks.
pub(in crate::backend::mpi) struct MpiGrow(
    pub(in crate::backend::mpi) &'static Mpi,
    pub(in crate::backend::mpi) Handle,
);

/// Returns an optional function of MPI, by its name in the table.
macro_rules! function {
    ($mpi:expr, $name:ident) => {
        $mpi.call.$name.ok_or_else(|| {
            let (file, name) = (&$mpi.file, stringify!($name));
            failure!(
                DTL_ERROR_NOT_SUPPORTED,
                "{file} has no function {name}, so no ranks can be added: use another MPI"
            )
        })
    };
}

/// Communicators that are freed when this value is dropped. The thread must not hold an `MpiGuard`
/// then.
struct Temporary(&'static Mpi, Vec<Handle>);

impl Temporary {
    /// Adds a communicator. MPI calls on it return errors.
    fn keep(&mut self, comm: Handle) -> Result<Handle> {
        self.1.push(comm);
        self.0.make_quiet(comm).map(|()| comm)
    }

    /// Connects the old ranks with the new ones. The communicator `local` has the ranks of one
    /// side. Its first rank passes the intercommunicator between the first old rank and all new
    /// ones. Returns the communicator of all ranks, which belongs to the caller. Requires an
    /// `MpiGuard`.
    fn connect(&mut self, local: Handle, first: Option<Handle>, is_new: bool) -> Result<Handle> {
        let (mpi, mut inter) = (self.0, 0);
        let create = function!(mpi, MPI_Intercomm_create)?;
        let bridge = first.map_or(Ok(local), |first| self.merge(first, is_new))?;
        // The first old rank is rank 0 of the bridge, the first new one rank 1.
        let leader = c_int::from(!is_new);
        // SAFETY: both communicators are alive; `inter` is a writable local.
        let code = unsafe { create(local, 0, bridge, leader, TAG, &raw mut inter) };
        mpi.check("MPI_Intercomm_create", code)?;
        self.keep(inter)?;
        self.merge(inter, is_new)?;
        self.1.pop().ok_or_else(|| failure!(DTL_ERROR_INTERNAL, "no communicator"))
    }

    /// Adds the communicator of both groups of an intercommunicator; the ranks that pass true for
    /// `is_new` come last. Requires an `MpiGuard`.
    fn merge(&mut self, inter: Handle, is_new: bool) -> Result<Handle> {
        let (merge, mut both) = (function!(self.0, MPI_Intercomm_merge)?, 0);
        // SAFETY: the intercommunicator is alive; `both` is a writable local.
        let code = unsafe { merge(inter, c_int::from(is_new), &raw mut both) };
        self.0.check("MPI_Intercomm_merge", code)?;
        self.keep(both)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        for comm in self.1.drain(..).rev() {
            // The failure of the operation itself is reported, not that of the cleanup.
            let _ = self.0.free_soon(PendingFree::Comm(comm));
        }
    }
}

/// Processes that MPI has started.
struct MpiPending {
    mpi: &'static Mpi,
    /// Intercommunicator to the processes.
    inter: Handle,
    /// Rank of the first process in the new job.
    first: i32,
    /// Number of processes; 0 once they have been admitted.
    count: c_int,
    /// Time by which the processes must begin to open the communicator.
    deadline: Deadline,
}

impl PendingRanks for MpiPending {
    fn gather(&mut self, watch: &Watch) -> Result<()> {
        for process in 0..self.count {
            receive(self.mpi, self.inter, process, self.deadline, &**watch)
                .map_err(|error| error.within(&format!("new rank {}", self.first + process)))?;
        }
        Ok(())
    }

    fn admit(&mut self) -> Result<Option<u64>> {
        send(self.mpi, self.inter, 0..self.count, READY)?;
        self.count = 0;
        Ok(Some(self.inter))
    }
}

impl Drop for MpiPending {
    fn drop(&mut self) {
        let &mut MpiPending { mpi, inter, count, .. } = self;
        // Errors are ignored: a process that has ended cannot receive the reply. While a reply is
        // in flight, the communicator is not freed.
        if count > 0 && matches!(send(mpi, inter, 0..count, FAILED), Ok(true)) {
            drop(Temporary(mpi, vec![inter]));
        }
    }
}

impl Grow for MpiGrow {
    fn start(
        &self,
        job: &str,
        first: i32,
        count: i32,
        limit_ns: u64,
    ) -> Result<Box<dyn PendingRanks>> {
        let &MpiGrow(mpi, _) = self;
        let start = function!(mpi, MPI_Comm_spawn)?;
        function!(mpi, MPI_Comm_get_parent)?;
        function!(mpi, MPI_Intercomm_create)?;
        function!(mpi, MPI_Intercomm_merge)?;
        let words = command(job)?;
        let mut argv: Vec<*mut c_char> =
            words.iter().map(|word| word.as_ptr().cast_mut()).chain([null_mut()]).collect();
        let mut codes = vec![0; count.unsigned_abs() as usize];
        let (mut inter, argv, codes) = (0, argv.as_mut_ptr(), codes.as_mut_ptr());
        let mut kept = Temporary(mpi, Vec::new());
        let turn = mpi.enter()?;
        let own = kept.keep(duplicate(mpi, mpi.k.comm_self)?)?;
        let (env, info) = (c"/usr/bin/env".as_ptr(), mpi.k.info_null);
        // SAFETY: the strings and the array of their addresses, which ends with NULL, live through
        // the call, which does not write to them; there is an element of `codes` for each process.
        let code = unsafe { start(env, argv, count, info, 0, own, &raw mut inter, codes) };
        mpi.check("MPI_Comm_spawn", code).map_err(|error| {
            let text = format!(
                "MPI has started no processes ({}): start the job with the mpirun of this MPI, \
                 with room for {count} more processes (Open MPI: slots, or --oversubscribe). {}",
                mpi.name,
                error.text()
            );
            Error::new(DTL_ERROR_UNAVAILABLE, text)
        })?;
        let deadline = Deadline::after(limit_ns);
        let pending = Box::new(MpiPending { mpi, inter, first, count, deadline });
        let quiet = mpi.make_quiet(inter);
        drop(turn);
        quiet.map(|()| pending as Box<dyn PendingRanks>)
    }

    fn join(&self, ranks: &[i32], admitted: Option<u64>) -> Result<u64> {
        let &MpiGrow(mpi, comm) = self;
        let mut kept = Temporary(mpi, admitted.into_iter().collect());
        let _turn = mpi.enter()?;
        let is_all = (0..place_in(mpi, comm)?.1).eq(ranks.iter().copied());
        let local = if is_all { comm } else { kept.keep(of_ranks(mpi, comm, ranks, TAG)?)? };
        kept.connect(local, admitted, false)
    }
}

/// In a process that [`MpiGrow::start`] has started: waits for the other ranks, for `limit_ns`
/// nanoseconds at most, and returns the communicator of all ranks, which belongs to the caller.
/// Returns `None` in another process, and if the process has called this function before.
pub(in crate::backend::mpi) fn join_parent(
    mpi: &'static Mpi,
    limit_ns: u64,
) -> Result<Option<Handle>> {
    let Some(get_parent) = mpi.call.MPI_Comm_get_parent.filter(|_| launch::is_of_mpi()) else {
        return Ok(None);
    };
    let (turn, mut parent) = (mpi.enter()?, 0);
    // SAFETY: `parent` is a writable local.
    mpi.check("MPI_Comm_get_parent", unsafe { get_parent(&raw mut parent) })?;
    if parent == mpi.k.comm_null {
        return Ok(None);
    }
    mpi.make_quiet(parent)?;
    drop(turn);
    // While the message or the reply is in flight, the communicator is not freed.
    send(mpi, parent, 0..1, READY)?;
    let reply = receive(mpi, parent, 0, Deadline::after(limit_ns), &|| Ok(()));
    let reply = reply.map_err(|error| error.within("the rank that started this process"))?;
    let mut kept = Temporary(mpi, vec![parent]);
    if reply != READY {
        return fail!(
            DTL_ERROR_INVALID_STATE,
            "the call of dtl_comm_grow that started this process has failed: end the process"
        );
    }
    let _turn = mpi.enter()?;
    kept.connect(mpi.k.comm_world, Some(parent), true).map(Some)
}

/// Returns the arguments of `env` that start this program for the job `job`.
fn command(job: &str) -> Result<Vec<CString>> {
    let program = std::env::current_exe().unwrap_or_default();
    let name = program.to_string_lossy();
    if name.is_empty() || name.contains('=') {
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "MPI cannot start the program \"{name}\": its path must be known, and contain no \"=\""
        );
    }
    let job = format!("DTL_JOB={job}");
    let fixed = ["-u", "DTL_RANK", "-u", "DTL_SIZE", "DTL_COMM=mpi", &job].map(OsString::from);
    let arguments = std::env::args_os().skip(1);
    let words = fixed.into_iter().chain([program.into_os_string()]).chain(arguments);
    // Arguments of a process have no NUL.
    Ok(words.filter_map(|word| CString::new(word.into_vec()).ok()).collect())
}

/// Sends a word to processes on the other side of an intercommunicator. Waits `SEND_NS` nanoseconds
/// at most, so that a process that does not receive the word cannot block this one. Returns true if
/// the sends to all processes are complete.
fn send(mpi: &Mpi, inter: Handle, to: Range<c_int>, word: c_int) -> Result<bool> {
    let Some(word) = WORDS.get(word.unsigned_abs() as usize) else { return Ok(false) };
    let turn = mpi.enter()?;
    let start = |to| {
        let (word, mut request) = (std::ptr::from_ref(word).cast(), 0);
        let at = &raw mut request;
        // SAFETY: the buffer is one static int; `request` is a writable local.
        unsafe { checked!(mpi, MPI_Isend(word, 1, mpi.k.int, to, TAG, inter, at)) }?;
        Ok(request)
    };
    let requests = to.map(start).collect::<Result<Vec<_>>>()?;
    drop(turn);
    let (deadline, mut all_sent) = (Deadline::after(SEND_NS), true);
    for mut request in requests {
        let test = || {
            let (_turn, mut over, mut status) = (mpi.enter()?, 0, Status::new());
            let (over_at, status_at) = (&raw mut over, &raw mut status);
            // SAFETY: the request is of this function; the other arguments are writable locals.
            unsafe { checked!(mpi, MPI_Test(&raw mut request, over_at, status_at)) }?;
            Ok((over != 0).then_some(()))
        };
        let sent: Result<_> = wait::poll(deadline, test);
        if sent?.is_none() {
            all_sent = false;
            mpi.free_soon(PendingFree::Request(request))?;
        }
    }
    Ok(all_sent)
}

/// Receives a word from a process on the other side of an intercommunicator. Fails at the deadline,
/// or if `watch` fails.
fn receive(
    mpi: &Mpi,
    inter: Handle,
    from: c_int,
    deadline: Deadline,
    watch: &dyn Fn() -> Result<()>,
) -> Result<c_int> {
    let (mut word, mut status, mut backoff) = (0, Status::new(), Backoff::new());
    let at = (&raw mut word).cast();
    loop {
        let turn = mpi.enter()?;
        if message::probe(mpi, Envelope { peer: from, tag: TAG, comm: inter }, &mut status)? {
            let status = &raw mut status;
            // SAFETY: one int and a status, which are writable locals.
            unsafe { checked!(mpi, MPI_Recv(at, 1, mpi.k.int, from, TAG, inter, status)) }?;
            return Ok(word);
        }
        drop(turn);
        if backoff.is_long() {
            watch()?;
        }
        if deadline.passed() {
            return fail!(DTL_ERROR_TIMEOUT, "has not opened the communicator in time");
        }
        backoff.pause();
    }
}
