//! MPI communicators: duplication, release, and this process's rank and size.
//!
//! - `stale_messages`: messages that no rank received
//! - `grow`: communicators of more ranks, in processes that MPI starts

pub(super) mod grow;
pub(super) mod stale_messages;

use super::library::functions::Handle;
use super::library::mpi_library::{Mpi, PendingFree, checked};
use super::message;
use crate::abi::word::DTL_OP_MAX;
use crate::error::{Result, failure};
use std::ffi::c_int;

/// Duplicates a communicator. MPI calls on the copy return errors instead of aborting
/// (MPI_ERRORS_RETURN). Collective. The caller must hold an `MpiGuard`, which permits calls to MPI.
pub(super) fn duplicate(mpi: &Mpi, comm: Handle) -> Result<Handle> {
    let mut copy = 0;
    // SAFETY: `comm` is a valid MPI communicator; `copy` is a writable local.
    unsafe { checked!(mpi, MPI_Comm_dup(comm, &raw mut copy)) }?;
    or_free(mpi, &[copy], mpi.make_quiet(copy))?;
    Ok(copy)
}

/// Returns `outcome`. If `outcome` is an error, frees the communicators `comms`, which the library
/// created for the failed operation: MPI has a limited number of communicators (2048 in MPICH).
pub(super) fn or_free<T>(mpi: &Mpi, comms: &[Handle], outcome: Result<T>) -> Result<T> {
    outcome.inspect_err(|_| {
        for comm in comms {
            // The failure of the operation itself is reported, not that of the cleanup.
            let _ = free(mpi, *comm);
        }
    })
}

/// Creates a communicator of the listed ranks of `comm`, in this order, which include this rank.
/// MPI calls on it return errors. Collective over these ranks, which pass the same `tag`. The
/// caller must hold an `MpiGuard`, which permits calls to MPI.
pub(super) fn of_ranks(mpi: &Mpi, comm: Handle, ranks: &[i32], tag: c_int) -> Result<Handle> {
    let (mut all, mut some, mut made) = (0, 0, 0);
    // SAFETY: the library owns the communicator; `all` is a writable local.
    unsafe { checked!(mpi, MPI_Comm_group(comm, &raw mut all)) }?;
    let count = c_int::try_from(ranks.len()).unwrap_or(c_int::MAX);
    // SAFETY: `count` ranks of the group are read during the call.
    let included =
        unsafe { checked!(mpi, MPI_Group_incl(all, count, ranks.as_ptr(), &raw mut some)) };
    let created = included.and_then(|()| {
        // SAFETY: the group consists of ranks of the communicator; all of them call this function,
        // by its contract.
        let code = unsafe { (mpi.call.MPI_Comm_create_group)(comm, some, tag, &raw mut made) };
        mpi.check("MPI_Comm_create_group", code).and(free_group(mpi, some))
    });
    created.and(free_group(mpi, all))?;
    or_free(mpi, &[made], mpi.make_quiet(made))?;
    Ok(made)
}

fn free_group(mpi: &Mpi, mut group: Handle) -> Result<()> {
    // SAFETY: the caller created the group, which is freed once.
    unsafe { checked!(mpi, MPI_Group_free(&raw mut group)) }
}

/// Returns this process' rank in an MPI communicator, and the size of the communicator.
pub(super) fn place_in(mpi: &Mpi, comm: Handle) -> Result<(c_int, c_int)> {
    let (mut rank, mut size) = (0, 0);
    // SAFETY: `comm` is a valid communicator; `rank` is a writable local.
    unsafe { checked!(mpi, MPI_Comm_rank(comm, &raw mut rank)) }?;
    // SAFETY: `comm` is a valid communicator; `size` is a writable local.
    unsafe { checked!(mpi, MPI_Comm_size(comm, &raw mut size)) }?;
    Ok((rank, size))
}

/// Receives all messages that have arrived on a communicator that the library created, and frees
/// the communicator. The caller must hold an `MpiGuard`, which permits calls to MPI.
pub(super) fn free(mpi: &Mpi, mut comm: Handle) -> Result<()> {
    let received = stale_messages::receive_all(mpi, comm);
    // SAFETY: the library created the communicator, which is freed once.
    unsafe { checked!(mpi, MPI_Comm_free(&raw mut comm)) }.and(received)
}

/// Returns true if `own` is true on at least one rank. Collective; the result is the same on all
/// ranks.
pub(super) fn agree(mpi: &Mpi, comm: Handle, own: bool) -> Result<bool> {
    let mut any = c_int::from(own);
    let (at, in_place, int) = ((&raw mut any).cast(), mpi.k.in_place.ptr(), mpi.k.int);
    let max = mpi.k.op(DTL_OP_MAX);
    let max = max.ok_or_else(|| failure!(DTL_ERROR_INTERNAL, "MPI without MPI_MAX"))?;
    // SAFETY: one int is reduced in place, on a communicator that all ranks have just created.
    unsafe { checked!(mpi, MPI_Allreduce(in_place, at, 1, int, max, comm)) }.map(|()| any != 0)
}

impl Mpi {
    /// Frees an MPI object that the library created. The caller must hold an `MpiGuard`, which
    /// permits calls to MPI.
    pub(super) fn free_now(&self, left: PendingFree) -> Result<()> {
        match left {
            PendingFree::Comm(comm) => free(self, comm),
            PendingFree::Over(request) => message::wait(self, request),
            PendingFree::Request(mut request) => {
                // SAFETY: the library created the persistent request, which is freed once.
                unsafe { checked!(self, MPI_Request_free(&raw mut request)) }
            }
        }
    }
}
