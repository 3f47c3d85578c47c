//! Communicators: over an MPI communicator.

use crate::abi::handle::dtl_comm_t;
use crate::abi::status::dtl_status_t;
use crate::backend::mpi;
use crate::ffi::args::Out;
use crate::ffi::guard::Entry;
use crate::runtime::comm::open::open_kind;
use crate::sys::memory::buf::Addr;

/// Opens a communicator of kind "mpi" over the ranks of an MPI communicator of the program, in the
/// same order. Collective over that communicator. Needs neither mpi.h nor an MPI at build time: it
/// uses the MPI in the process, which is Open MPI, MPICH, Intel MPI or another derivative of MPICH,
/// or one with the standard ABI (libmpi_abi).
///
///     dtl_comm_from_mpi_fint(MPI_Comm_c2f(MPI_COMM_WORLD), &comm);              // C
///     dtl_comm_from_mpi_fint(MPI_Comm_toint(MPI_COMM_WORLD), &comm);            // C, libmpi_abi
///     lib.dtl_comm_from_mpi_fint(mpi4py.MPI.COMM_WORLD.py2f(), byref(comm))     # Python
///
/// The MPI communicator is duplicated, so its messages never match those of `out`. The caller still
/// owns it; it keeps its error handler and may be freed while `out` exists. (For messages on the
/// communicator itself: dtl_comm_open with kind "mpi", `mpi_comm` and DTL_COMM_NO_DUP.)
///
/// Order of calls. MPI must be initialised. The library never finalises an MPI that the program has
/// initialised. Destroy `out`, or call dtl_finalize, before MPI_Finalize. In the other order
/// nothing crashes: from the beginning of MPI_Finalize, calls on `out` return
/// DTL_ERROR_INVALID_STATE, and dtl_comm_destroy succeeds. (Without this function, dtl_comm_open
/// with kind "mpi" initialises MPI with MPI_THREAD_MULTIPLE if the program has not. The last
/// dtl_finalize then finalises it, and MPI cannot be initialised again in this process. Open MPI's
/// launcher treats a rank that exits without MPI_Finalize as failed.)
///
/// @param comm  Result of MPI_Comm_c2f or MPI_Comm_toint (in Fortran the communicator itself, an
///              MPI_Fint).
/// @param out   The communicator. The caller owns it; destroy it with dtl_comm_destroy.
/// @return DTL_ERROR_INVALID_STATE: MPI is not initialised, or is finalised.
///         DTL_ERROR_INVALID_ARGUMENT: the communicator is MPI_COMM_NULL or an intercommunicator.
///         DTL_ERROR_UNAVAILABLE: the MPI in the process cannot be used; the text gives the reason.
///         DTL_ERROR_NOT_SUPPORTED: this thread may not call MPI. DTL_ERROR_MPI: MPI returned an
///         error; dtl_last_error has its class and text. For a number that is not a communicator,
///         or is that of a freed one, MPI may end the process.
/// Threads: with MPI_THREAD_MULTIPLE any. With MPI_THREAD_SERIALIZED any; the library serialises
/// its own calls, and the program must not call MPI at the same time. Below that: the thread that
/// initialised MPI; others get DTL_ERROR_NOT_SUPPORTED. The same holds for all calls on `out`,
/// except dtl_comm_destroy: with nothing in flight it succeeds in any thread, and the next call in
/// a thread that may call MPI then frees MPI's communicator. Equivalent: MPI_Comm_dup.
/// dtl:out owned(dtl_comm_destroy)
/// dtl:call blocks collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_from_mpi_fint(comm: i32, out: *mut dtl_comm_t) -> dtl_status_t {
    Entry("dtl_comm_from_mpi_fint").wait(
        |_| Out::new(out, "out"),
        |out| {
            // MPI provides rank and size: the launcher's environment is not needed.
            let (rank, size) = mpi::place_of(comm)?;
            let mut description =
                open_kind::Description { kind: Some("mpi".to_owned()), ..Default::default() };
            description.raw.rank = rank;
            description.raw.size = size;
            let handle = (&raw const comm).cast_mut().cast();
            description.settings = Some(("desc.mpi_comm", Addr::new(handle)));
            out.put(open_kind::open(&description))
        },
    )
}
