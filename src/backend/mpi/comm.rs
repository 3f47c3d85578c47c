//! MPI communicators: duplication, release, and this process' rank and size.

use super::library::functions::Handle;
use super::library::mpi_library::Mpi;
use super::stale_messages;
use crate::error::Result;
use std::ffi::c_int;

/// Duplicates a communicator; errors on the copy are returned. Collective. Requires an `MpiGuard`.
pub(super) fn duplicate(mpi: &Mpi, comm: Handle) -> Result<Handle> {
    let mut copy = 0;
    // SAFETY: `comm` is a valid MPI communicator; `copy` is a writable local.
    let code = unsafe { (mpi.call.MPI_Comm_dup)(comm, &raw mut copy) };
    mpi.check("MPI_Comm_dup", code)?;
    or_free(mpi, &[copy], mpi.make_quiet(copy))?;
    Ok(copy)
}

/// Returns `outcome`. If `outcome` is an error, frees `comms`, which the library created for the
/// failed operation: MPI has a limited number of communicators (MPICH 2048).
pub(super) fn or_free<T>(mpi: &Mpi, comms: &[Handle], outcome: Result<T>) -> Result<T> {
    outcome.inspect_err(|_| {
        for comm in comms {
            // The failure of the operation itself is reported, not that of the cleanup.
            let _ = free(mpi, *comm);
        }
    })
}

/// Returns this process' rank in an MPI communicator, and the size of the communicator.
pub(super) fn place_in(mpi: &Mpi, comm: Handle) -> Result<(c_int, c_int)> {
    let (mut rank, mut size) = (0, 0);
    // SAFETY: `comm` is a valid communicator; `rank` is a writable local.
    let code = unsafe { (mpi.call.MPI_Comm_rank)(comm, &raw mut rank) };
    mpi.check("MPI_Comm_rank", code)?;
    // SAFETY: `comm` is a valid communicator; `size` is a writable local.
    let code = unsafe { (mpi.call.MPI_Comm_size)(comm, &raw mut size) };
    mpi.check("MPI_Comm_size", code)?;
    Ok((rank, size))
}

/// Receives all messages that have arrived on a communicator of the library, and frees the
/// communicator. Requires an `MpiGuard`.
pub(super) fn free(mpi: &Mpi, mut comm: Handle) -> Result<()> {
    let received = stale_messages::receive_all(mpi, comm);
    // SAFETY: the library created the communicator, which is freed once.
    let code = unsafe { (mpi.call.MPI_Comm_free)(&raw mut comm) };
    mpi.check("MPI_Comm_free", code).and(received)
}
