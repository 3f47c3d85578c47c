//! Kind "mpi": ranks of an MPI job, over the MPI library that the program runs with. No MPI is
//! needed at build time.
//!
//! Messages are MPI's own (`transport`), or the library's over MPI (`framed`) for communicators
//! with time limits.
//!
//! In reading order:
//! - `library`: the loaded MPI
//! - `comm_import`: choice of the MPI communicator
//! - `comm`: copies of communicators
//! - `locality`: ranks that share a node
//! - `transport`: MPI's own messages
//! - `message`: sends and receives of any size
//! - `ids`: encoding of a request in a word
//! - `op_extras`: state of the few operations that are more than an MPI_Request
//! - `completion`: completion of operations
//! - `status`: contents of a status
//! - `persistent`: persistent requests
//! - `stale_messages`: messages that no rank received
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

/// Probe for an MPI library.
struct Mpi;

/// Opener of communicators. An MPI that the library has initialized is not finalized before this
/// opener is dropped.
struct MpiOpener {
    _hold: Hold,
}

/// Creates the backend "mpi".
pub fn backend() -> Backend {
    let mut backend = Backend::new(c"mpi", i32::MIN, true, Box::new(Mpi));
    backend.comm = Some(Box::new(MpiOpener { _hold: Hold::new() }));
    backend
}

impl BackendProbe for Mpi {
    /// Finds and loads MPI without initializing it, so that a missing symbol is reported here.
    fn available(&self) -> Availability {
        library::mpi_library::loaded()
            .map(library::mpi_library::Mpi::explain)
            .map_err(|error| error.text().to_owned())
    }

    /// Supports "comm.direct": without a time limit, messages are MPI's own. MPI then defines the
    /// result of a message that is longer than its receive buffer.
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

/// Opens a transport over an MPI communicator; collective over its ranks.
fn connect(
    mpi: &'static library::mpi_library::Mpi,
    comm: Handle,
    args: &OpenArgs,
) -> Result<Box<dyn Transport>> {
    let is_borrowed = args.flags & DTL_COMM_NO_DUP != 0;
    let turn = mpi.enter()?;
    let copy = comm::duplicate(mpi, comm)?;
    // With MPI_THREAD_SERIALIZED a thread must not block inside MPI while other ranks wait for
    // another thread of this rank.
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

/// Returns true if `own` is true on any rank; collective, with the same result on all ranks.
fn agree(mpi: &library::mpi_library::Mpi, comm: Handle, own: bool) -> Result<bool> {
    let mut any = c_int::from(own);
    let (at, in_place, int) = ((&raw mut any).cast(), mpi.k.in_place.ptr(), mpi.k.int);
    let Some(max) = mpi.k.op(DTL_OP_MAX) else {
        return fail!(DTL_ERROR_INTERNAL, "MPI without MPI_MAX");
    };
    // SAFETY: one int is reduced in place, on a communicator that all ranks have just created.
    let code = unsafe { (mpi.call.MPI_Allreduce)(in_place, at, 1, int, max, comm) };
    mpi.check("MPI_Allreduce", code).map(|()| any != 0)
}
