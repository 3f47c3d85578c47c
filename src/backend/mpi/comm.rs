//! MPI's communicators: copied, freed, and where this process is in them.

use super::library::functions::Handle;
use super::library::mpi_library::Mpi;
use super::stale_messages;
use crate::error::Result;
use std::ffi::c_int;

/// A communicator of the same ranks that returns errors. Collective. In a turn.
pub(super) fn duplicate(mpi: &Mpi, comm: Handle) -> Result<Handle> {
    let mut copy = 0;
    // SAFETY: a communicator of MPI's; a writable local.
    let code = unsafe { (mpi.call.MPI_Comm_dup)(comm, &raw mut copy) };
    mpi.check("MPI_Comm_dup", code)?;
    or_free(mpi, &[copy], mpi.make_quiet(copy))?;
    Ok(copy)
}

/// The outcome. If it is a failure, communicators of ours that were made for it are freed: MPI has
/// few (MPICH 2048).
pub(super) fn or_free<T>(mpi: &Mpi, comms: &[Handle], outcome: Result<T>) -> Result<T> {
    outcome.inspect_err(|_| {
        for comm in comms {
            // The failure of the operation itself is reported, not that of the cleanup.
            let _ = free(mpi, *comm);
        }
    })
}

/// This process' rank in a communicator of MPI's, and its size.
pub(super) fn place_in(mpi: &Mpi, comm: Handle) -> Result<(c_int, c_int)> {
    let (mut rank, mut size) = (0, 0);
    // SAFETY: a communicator, and a writable local.
    let code = unsafe { (mpi.call.MPI_Comm_rank)(comm, &raw mut rank) };
    mpi.check("MPI_Comm_rank", code)?;
    // SAFETY: a communicator, and a writable local.
    let code = unsafe { (mpi.call.MPI_Comm_size)(comm, &raw mut size) };
    mpi.check("MPI_Comm_size", code)?;
    Ok((rank, size))
}

/// Receives what has arrived on a communicator of the library, and frees it. In a turn.
pub(super) fn free(mpi: &Mpi, mut comm: Handle) -> Result<()> {
    let received = stale_messages::receive_all(mpi, comm);
    // SAFETY: our own communicator, freed once.
    let code = unsafe { (mpi.call.MPI_Comm_free)(&raw mut comm) };
    mpi.check("MPI_Comm_free", code).and(received)
}
