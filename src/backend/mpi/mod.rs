//! Kind "mpi": ranks of an MPI job, over whichever MPI the program runs with. No MPI at build time.
//!
//! `find` (which library) -> `functions` and `constants` (what it has; values in `abi`) -> `session`
//! (started, entered, ended) -> `adopt` (which communicator) -> `transport` with `odd` and `status`
//! (messages), `collective` and `op`.

#[macro_use]
pub mod abi;
mod adopt;
mod collective;
pub mod constants;
pub mod find;
pub mod functions;
mod odd;
mod op;
pub mod session;
mod status;
mod transport;

pub use adopt::place_of;

use crate::abi::comm::{DTL_COMM_DETERMINISTIC, DTL_COMM_NO_DUP};
use crate::error::Result;
use crate::runtime::backend::{Availability, Comm, OpenArgs, Presence, Transport};
use crate::runtime::registry::Backend;
use session::Hold;
use transport::{Endpoint, Opening};

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
    /// Finds and loads the library, so that what it lacks is said here. Does not start it.
    fn available(&self) -> Availability {
        session::loaded().map(drop).map_err(|error| error.text().to_owned())
    }
}

impl Comm for Opener {
    fn flags(&self) -> u32 {
        DTL_COMM_DETERMINISTIC | DTL_COMM_NO_DUP
    }

    fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>> {
        let mpi = session::loaded()?;
        let opening = Opening {
            comm: adopt::choose(mpi, args)?,
            is_borrowed: args.flags & DTL_COMM_NO_DUP != 0,
            own_algorithms: args.own_algorithms,
        };
        Ok(Box::new(Endpoint::open(mpi, &opening)?))
    }
}
