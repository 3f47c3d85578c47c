//! Kind "mpi": ranks of an MPI job, over whichever MPI the program runs with. No MPI at build
//! time.
//!
//! Messages are MPI's own (`transport`), or the library's over MPI (`framed`) for communicators
//! with time limits.
//!
//! In reading order:
//! - `library`: the loaded MPI
//! - `comm_import`: which of MPI's communicators
//! - `comm`: copies of communicators
//! - `locality`: which ranks share a node
//! - `transport`: MPI's own messages
//! - `message`: sends and receives of any size
//! - `ids`: a request as a word
//! - `op_extras`: state of the few operations that are more than an MPI_Request
//! - `completion`: how an operation ends
//! - `status`: contents of a status
//! - `persistent`: persistent requests
//! - `stale_messages`: messages that nobody received
//! - `coll`: MPI's own collectives
//! - `reduce_op`: reduction operations
//! - `window`: MPI's own windows
//! - `framed`: the library's messages over MPI

pub mod coll;
mod comm;
mod comm_import;
mod completion;
mod framed;
mod ids;
pub mod library;
mod locality;
mod message;
mod op_extras;
mod persistent;
mod reduce_op;
mod stale_messages;
mod status;
mod transport;
mod window;

pub use self::comm_import::place_of;

use self::library::functions::Handle;
use self::library::mpi_library::{Hold, ThreadLevel};
use crate::abi::comm::communicator::{DTL_COMM_DETERMINISTIC, DTL_COMM_NO_DUP, DTL_COMM_STAGE};
use crate::abi::word::DTL_OP_MAX;
use crate::error::{Result, fail};
use crate::runtime::component::{Availability, BackendProbe, Comm, OpenArgs, Transport};
use crate::runtime::registry::Backend;
use std::ffi::c_int;
use transport::MpiTransport;

/// Whether there is an MPI.
struct Mpi;

/// Opens communicators. MPI that the library has started lasts at least as long.
struct MpiOpener {
    _hold: Hold,
}

/// The backend named "mpi".
#[must_use]
pub fn backend() -> Backend {
    let mut backend = Backend::new(c"mpi", i32::MIN, true, Box::new(Mpi));
    backend.comm = Some(Box::new(MpiOpener { _hold: Hold::new() }));
    backend
}

impl BackendProbe for Mpi {
    /// Finds and loads the library, so that anything it lacks is reported here. Does not start it.
    fn available(&self) -> Availability {
        library::mpi_library::loaded()
            .map(library::mpi_library::Mpi::explain)
            .map_err(|error| error.text().to_owned())
    }

    /// "comm.direct": without a time limit, messages are MPI's own. What MPI does with one that is
    /// longer than its buffer is then as MPI has it.
    fn supports(&self, feature: &str) -> Option<Result<bool>> {
        Some(Ok(feature == "comm.direct"))
    }
}

impl Comm for MpiOpener {
    fn flags(&self) -> u32 {
        DTL_COMM_DETERMINISTIC | DTL_COMM_NO_DUP | DTL_COMM_STAGE
    }

    fn takes_native(&self) -> bool {
        true
    }

    fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>> {
        let mpi = library::mpi_library::loaded()?;
        mpi.explain();
        let comm = comm_import::choose(mpi, args)?;
        connect(mpi, comm, args)
    }
}

/// Opens a transport over a communicator of MPI's; collective over its ranks.
fn connect(
    mpi: &'static library::mpi_library::Mpi,
    comm: Handle,
    args: &OpenArgs,
) -> Result<Box<dyn Transport>> {
    let is_borrowed = args.flags & DTL_COMM_NO_DUP != 0;
    let turn = mpi.enter()?;
    let copy = comm::duplicate(mpi, comm)?;
    // A rank that takes turns must not stay inside MPI while another of its threads is waited for.
    let own = args.own_algorithms || mpi.level() == ThreadLevel::Serialized;
    if !comm::or_free(mpi, &[copy], agree(mpi, copy, own))? {
        let user = if is_borrowed { Ok(comm) } else { comm::duplicate(mpi, copy) };
        let user = comm::or_free(mpi, &[copy], user)?;
        return Ok(Box::new(MpiTransport::open(mpi, user, copy, is_borrowed)?));
    }
    comm::or_free(mpi, &[copy], stale_messages::discard(mpi, &[copy]))?;
    drop(turn);
    if !is_borrowed {
        return framed::open(mpi, copy);
    }
    mpi.free_soon(library::mpi_library::PendingFree::Comm(copy))?;
    fail!(
        DTL_ERROR_NOT_SUPPORTED,
        "DTL_COMM_NO_DUP with a time limit, determinism or MPI_THREAD_SERIALIZED (on some rank): \
         messages are the \
         library's own then, and cannot be those of the program's communicator; leave one of the \
         two out"
    )
}

/// Whether `own` is true on any rank; collective, with the same result on all.
fn agree(mpi: &library::mpi_library::Mpi, comm: Handle, own: bool) -> Result<bool> {
    let mut any = c_int::from(own);
    let (at, in_place, int) = ((&raw mut any).cast(), mpi.k.in_place.ptr(), mpi.k.int);
    let Some(max) = mpi.k.op(DTL_OP_MAX) else {
        return fail!(DTL_ERROR_INTERNAL, "MPI without MPI_MAX");
    };
    // SAFETY: one int, in place, on a communicator that all ranks have just made.
    let code = unsafe { (mpi.call.MPI_Allreduce)(in_place, at, 1, int, max, comm) };
    mpi.check("MPI_Allreduce", code).map(|()| any != 0)
}
