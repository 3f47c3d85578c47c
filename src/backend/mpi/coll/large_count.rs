//! MPI's own collectives with counts that exceed INT_MAX (more than 2 GiB): determines whether MPI
//! 4's large-count functions (with the suffix _c) can be used.
//!
//! `collective` calls these functions. Where they cannot be used, the library's own algorithms run
//! instead. For blocks of different sizes, MPI is called with counts in units of more than one
//! byte.

use super::collective::{MOST, bytes};
use super::reduce_op;
use crate::backend::mpi::library::mpi_library::Mpi;
use crate::backend::mpi::transport::MpiTransport;
use crate::runtime::comm::coll::CollArgs;

/// Returns true if this MPI library has the large-count functions (with the suffix _c) and they are
/// proven to work: MPICH from version 5 on. In MPICH 4.0 an MPI_Ibcast_c of 2.2 GiB fails, and it
/// is unknown which of the libraries derived from MPICH 4.0 also have that fault.
pub(crate) fn can_be_used(mpi: &Mpi) -> bool {
    let has_all = mpi.call.MPI_Bcast_c.is_some() && mpi.call.MPI_Ibcast_c.is_some();
    has_all && is_known_to_work(&mpi.version)
}

fn is_known_to_work(version: &str) -> bool {
    let number = version.strip_prefix("MPICH Version: ").and_then(|text| text.split('.').next());
    number.and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= 5)
}

/// Returns true if MPI's large-count functions (with the suffix _c) can execute this collective.
/// MPI passes an `int` count to a reduction operation that this library defines, so such an
/// operation is limited to INT_MAX elements.
pub(crate) fn take(endpoint: &MpiTransport, args: &CollArgs) -> bool {
    let mpi = endpoint.mpi;
    let is_countable = args.reduction.is_none_or(|by| {
        bytes(args, endpoint.size) / args.element() <= MOST
            || reduce_op::mpis_own(mpi).get(by.dtype, by.op).is_some()
    });
    can_be_used(mpi) && is_countable
}

#[cfg(test)]
#[path = "tests/large_count.rs"]
mod tests;
