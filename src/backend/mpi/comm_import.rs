//! Choice of the MPI communicator over which the library opens a communicator: MPI_COMM_WORLD, or a
//! communicator that the program passes by its Fortran handle.

use super::comm::place_in;
use super::library::abi::Family;
use super::library::discovery;
use super::library::functions::Handle;
use super::library::mpi_library::{self, Mpi, checked};
use crate::error::{Result, fail};
use crate::runtime::component::OpenArgs;
use std::ffi::c_int;

/// Returns the MPI communicator that `args` selects, after checking its rank and size against
/// `args`. Initializes MPI if necessary when `args` selects MPI_COMM_WORLD.
pub(super) fn choose(mpi: &'static Mpi, args: &OpenArgs) -> Result<Handle> {
    let comm = if args.settings.is_null() {
        mpi.start()?;
        mpi.k.comm_world
    } else {
        mpi.start_running()?;
        // SAFETY: the caller of dtl_comm_open passes the address of an int32_t.
        of_fortran(mpi, unsafe { args.settings.ptr().cast::<i32>().read_unaligned() })?
    };
    let (rank, size) = place(mpi, comm)?;
    if let Some(named) = args.named.filter(|named| *named != (rank, size)) {
        return fail!(
            DTL_ERROR_INVALID_RANK,
            "the description names rank {} of {}, but MPI says {rank} of {size}: leave them out \
             (size 0)",
            named.0,
            named.1
        );
    }
    match args.launched {
        Some((_, launched)) if args.settings.is_null() && launched != size => fail!(
            DTL_ERROR_UNAVAILABLE,
            "the launcher started {launched} ranks, but MPI_COMM_WORLD has {size}: {} is not the \
             MPI of this launcher; \
             use that library's own mpirun, or the launcher's library (DTL_MPI_LIBRARY)",
            mpi.file
        ),
        _ => Ok(comm),
    }
}

/// Returns this process' rank in the communicator with Fortran handle `fint`, and the size of the
/// communicator. MPI must be initialized.
pub fn place_of(fint: i32) -> Result<(i32, i32)> {
    if discovery::present().is_none() {
        return fail!(
            DTL_ERROR_INVALID_STATE,
            "no MPI is in this process, thus no communicator of MPI's: call MPI_Init_thread first"
        );
    }
    let mpi = mpi_library::loaded()?;
    mpi.start_running()?;
    place(mpi, of_fortran(mpi, fint)?)
}

/// Converts the Fortran handle of an intracommunicator to a C handle.
fn of_fortran(mpi: &Mpi, fint: i32) -> Result<Handle> {
    let _turn = mpi.enter()?;
    let to_c = mpi.call.MPI_Comm_fromint.or(mpi.call.MPI_Comm_f2c);
    let comm = match to_c {
        _ if mpi.abi.family == Family::Mpich => of_mpich(fint),
        // SAFETY: MPI is initialized; the conversion accepts any integer.
        Some(call) => unsafe { call(fint) },
        None => 0,
    };
    if comm == 0 || comm == mpi.k.comm_null {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "comm {fint} is MPI_COMM_NULL, and this process none of its ranks, or the number is no \
             communicator's: pass what MPI_Comm_c2f (libmpi_abi: MPI_Comm_toint) gives"
        );
    }
    let mut is_inter = 0;
    // SAFETY: `comm` is a communicator of the program; `is_inter` is a writable local.
    unsafe { checked!(mpi, MPI_Comm_test_inter(comm, &raw mut is_inter)) }?;
    if is_inter != 0 {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "comm {fint} is an intercommunicator: merge it (MPI_Intercomm_merge) first"
        );
    }
    Ok(comm)
}

/// Converts a Fortran handle of MPICH, where the Fortran and the C handle are the same number;
/// returns 0 if the number does not denote a communicator. MPICH aborts the process if it is called
/// with a number that does not denote a communicator, so the object type that the number encodes is
/// checked first.
fn of_mpich(fint: c_int) -> Handle {
    const COMMUNICATOR: u32 = 1;
    let word = u32::from_ne_bytes(fint.to_ne_bytes());
    let (how, kind) = (word >> 30, word >> 26 & 0xF);
    if how != 0 && kind == COMMUNICATOR { Handle::from(word) } else { 0 }
}

fn place(mpi: &Mpi, comm: Handle) -> Result<(i32, i32)> {
    let _turn = mpi.enter()?;
    place_in(mpi, comm)
}

#[cfg(test)]
#[path = "tests/comm_import.rs"]
mod tests;
