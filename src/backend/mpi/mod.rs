//! Kind "mpi": ranks of an MPI job, over whichever MPI the program runs with. No MPI at build time.
//!
//! `find` (which library; `launcher`: which fits) -> `functions` and `constants` (what it has;
//! values in `abi`) -> `session` (started, entered, ended; `errors`) -> `adopt` (which
//! communicator) -> `transport` with `ids`, `ending`, `odd`, `node` and `persistent` (MPI's own
//! messages), `collective`, `large` and `op` (its collectives), `window` (its one-sided
//! operations), or `wire` (the library's, for time limits). Both start requests in `message` and
//! read them in `status`.

pub mod abi;
mod adopt;
mod collective;
mod comms;
pub mod constants;
mod ending;
mod errors;
pub mod find;
pub mod functions;
mod ids;
mod large;
pub mod launcher;
mod leftover;
mod level;
mod message;
mod node;
mod odd;
mod op;
mod persistent;
pub mod session;
mod status;
mod transport;
mod window;
mod wire;

pub use adopt::place_of;

use crate::abi::comm::{DTL_COMM_DETERMINISTIC, DTL_COMM_NO_DUP, DTL_COMM_STAGE};
use crate::abi::word::DTL_OP_MAX;
use crate::error::{Result, fail};
use crate::runtime::backend::{Availability, Comm, OpenArgs, Presence, Transport};
use crate::runtime::registry::Backend;
use functions::Handle;
use session::{Hold, ThreadLevel};
use std::ffi::c_int;
use transport::Endpoint;

/// Whether there is an MPI.
struct Mpi;

/// Opens communicators. MPI that the library has started lasts at least as long.
struct Opener {
    _hold: Hold,
}

/// The backend named "mpi".
#[must_use]
pub fn backend() -> Backend {
    let mut backend = Backend::new(c"mpi", i32::MIN, true, Box::new(Mpi));
    backend.comm = Some(Box::new(Opener { _hold: Hold::new() }));
    backend
}

impl Presence for Mpi {
    /// Finds and loads the library, so that anything it lacks is reported here. Does not start it.
    fn available(&self) -> Availability {
        session::loaded().map(session::Mpi::explain).map_err(|error| error.text().to_owned())
    }

    /// "comm.direct": without a time limit, messages are MPI's own. What MPI does with one that is
    /// longer than its buffer is then as MPI has it.
    fn supports(&self, feature: &str) -> Option<Result<bool>> {
        Some(Ok(feature == "comm.direct"))
    }
}

impl Comm for Opener {
    fn flags(&self) -> u32 {
        DTL_COMM_DETERMINISTIC | DTL_COMM_NO_DUP | DTL_COMM_STAGE
    }

    fn takes_native(&self) -> bool {
        true
    }

    fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>> {
        let mpi = session::loaded()?;
        mpi.explain();
        let comm = adopt::choose(mpi, args)?;
        connect(mpi, comm, args)
    }
}

/// Opens a transport over a communicator of MPI's; collective over its ranks.
fn connect(
    mpi: &'static session::Mpi,
    comm: Handle,
    args: &OpenArgs,
) -> Result<Box<dyn Transport>> {
    let is_borrowed = args.flags & DTL_COMM_NO_DUP != 0;
    let turn = mpi.enter()?;
    let copy = comms::duplicate(mpi, comm)?;
    // A rank that takes turns must not stay inside MPI while another of its threads is waited for.
    let own = args.own_algorithms || mpi.level() == ThreadLevel::Serialized;
    if !comms::or_free(mpi, &[copy], agree(mpi, copy, own))? {
        let user = if is_borrowed { Ok(comm) } else { comms::duplicate(mpi, copy) };
        let user = comms::or_free(mpi, &[copy], user)?;
        return Ok(Box::new(Endpoint::open(mpi, user, copy, is_borrowed)?));
    }
    comms::or_free(mpi, &[copy], leftover::discard(mpi, &[copy]))?;
    drop(turn);
    if !is_borrowed {
        return wire::open(mpi, copy);
    }
    mpi.free_soon(session::Left::Comm(copy))?;
    fail!(
        DTL_ERROR_NOT_SUPPORTED,
        "DTL_COMM_NO_DUP with a time limit, determinism or MPI_THREAD_SERIALIZED (on some rank): \
         messages are the \
         library's own then, and cannot be those of the program's communicator; leave one of the \
         two out"
    )
}

/// Whether `own` is true on any rank; collective, with the same result on all.
fn agree(mpi: &session::Mpi, comm: Handle, own: bool) -> Result<bool> {
    let mut any = c_int::from(own);
    let (at, in_place, int) = ((&raw mut any).cast(), mpi.k.in_place.ptr(), mpi.k.int);
    let Some(max) = mpi.k.op(DTL_OP_MAX) else {
        return fail!(DTL_ERROR_INTERNAL, "MPI without MPI_MAX");
    };
    // SAFETY: one int, in place, on a communicator that all ranks have just made.
    let code = unsafe { (mpi.call.MPI_Allreduce)(in_place, at, 1, int, max, comm) };
    mpi.check("MPI_Allreduce", code).map(|()| any != 0)
}
