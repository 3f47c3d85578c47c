//! Backend "mpi": detection of an MPI library, and opening of transports.

use super::comm::{self, grow, stale_messages};
use super::library::functions::Handle;
use super::library::mpi_library::{self, Hold, Mpi, PendingFree};
use super::transport::MpiTransport;
use super::{comm_import, framed};
use crate::abi::comm::communicator::{DTL_COMM_DETERMINISTIC, DTL_COMM_NO_DUP, DTL_COMM_STAGE};
use crate::error::{Result, fail};
use crate::runtime::component::{Availability, BackendProbe, Comm, OpenArgs, Transport};
use crate::runtime::registry::Backend;

/// Detection of an MPI library.
struct MpiProbe;

/// Opener of communicators of kind "mpi". If this library initialized MPI, MPI is not finalized
/// before this opener is dropped.
struct MpiOpener {
    _hold: Hold,
}

/// Creates the backend "mpi".
pub fn backend() -> Backend {
    let mut backend = Backend::new(c"mpi", i32::MIN, true, Box::new(MpiProbe));
    backend.comm = Some(Box::new(MpiOpener { _hold: Hold::new() }));
    backend
}

impl BackendProbe for MpiProbe {
    /// Finds and loads MPI without initializing it. Loading resolves the library's symbols, so this
    /// function also reports a missing symbol.
    fn available(&self) -> Availability {
        mpi_library::loaded().map(Mpi::explain).map_err(|error| error.text().to_owned())
    }

    /// Returns true only for the feature "comm.direct", which means that a communicator without a
    /// time limit passes its messages directly to MPI. MPI then determines what happens if a
    /// message is longer than its receive buffer.
    fn supports(&self, feature: &str) -> Option<Result<bool>> {
        Some(Ok(feature == "comm.direct"))
    }
}

impl Comm for MpiOpener {
    fn flags(&self) -> u64 {
        DTL_COMM_DETERMINISTIC | DTL_COMM_NO_DUP | DTL_COMM_STAGE
    }

    fn settings_field(&self) -> Option<&'static str> {
        Some("desc.mpi_comm")
    }

    fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>> {
        let mpi = mpi_library::loaded()?;
        mpi.explain();
        let mut grown = args.grown;
        if args.settings.is_null() && args.named.is_none() {
            mpi.start()?;
            grown = grow::join_parent(mpi, args.timeout_ns)?;
        }
        if let Some(all) = grown {
            let opened = connect(mpi, all, args);
            return mpi.free_soon(PendingFree::Comm(all)).and(opened);
        }
        let comm = comm_import::choose(mpi, args)?;
        connect(mpi, comm, args)
    }
}

/// Opens a transport over an MPI communicator; collective over its ranks.
fn connect(mpi: &'static Mpi, comm: Handle, args: &OpenArgs) -> Result<Box<dyn Transport>> {
    let is_borrowed = args.flags & DTL_COMM_NO_DUP != 0;
    let turn = mpi.enter()?;
    let copy = comm::duplicate(mpi, comm)?;
    // With MPI_THREAD_SERIALIZED a thread must not block inside MPI while other ranks wait for
    // another thread of this rank.
    let own = args.own_algorithms || mpi.is_serialized();
    if !comm::or_free(mpi, &[copy], comm::agree(mpi, copy, own))? {
        let user = if is_borrowed { Ok(comm) } else { comm::duplicate(mpi, copy) };
        let user = comm::or_free(mpi, &[copy], user)?;
        return Ok(Box::new(MpiTransport::open(mpi, user, copy, is_borrowed)?));
    }
    comm::or_free(mpi, &[copy], stale_messages::discard(mpi, &[copy]))?;
    drop(turn);
    if !is_borrowed {
        return framed::open(mpi, copy);
    }
    mpi.free_soon(PendingFree::Comm(copy))?;
    fail!(
        DTL_ERROR_NOT_SUPPORTED,
        "DTL_COMM_NO_DUP with a time limit, determinism or MPI_THREAD_SERIALIZED (on some rank): \
         messages are the library's own then, and cannot be those of the program's communicator; \
         leave one of the two out"
    )
}
