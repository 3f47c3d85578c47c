//! Communicators: over an MPI communicator.

use crate::abi::handle::dtl_comm_t;
use crate::abi::status::dtl_status_t;
use crate::backend::mpi;
use crate::ffi::args::Out;
use crate::ffi::guard::Entry;
use crate::runtime::comm::open::open_kind;
use crate::sys::memory::buf::Addr;

/// Opens a communicator of kind "mpi" over the ranks of one of the program's MPI communicators, in
/// the same order. Needs no mpi.h here and no MPI at build time: the MPI that is in the process is
/// used, be it Open MPI, MPICH, Intel MPI or another of MPICH's family, or one with the standard
/// binary interface (libmpi_abi). Collective over the communicator.
///
///     dtl_comm_from_mpi_fint(MPI_Comm_c2f(MPI_COMM_WORLD), &comm);              // C; libmpi_abi:
///                                                                               MPI_Comm_toint
///     lib.dtl_comm_from_mpi_fint(mpi4py.MPI.COMM_WORLD.py2f(), byref(comm))     # Python
///
/// The communicator is duplicated, so its messages and those of `out` never meet; it stays yours,
/// keeps its error handler, and may be freed while `out` lives. (With messages on the communicator
/// itself: dtl_comm_open with kind "mpi", `mpi_comm` and DTL_COMM_NO_DUP.)
///
/// Order. MPI must be initialised, and is never finalised by the library: it is yours. End `out`,
/// or call dtl_finalize, before MPI_Finalize. The other way round nothing crashes: calls on `out`
/// answer DTL_ERROR_INVALID_STATE from the beginning of MPI_Finalize on, and dtl_comm_destroy
/// succeeds. (Without this function, dtl_comm_open with kind "mpi" initialises MPI if the program
/// has not, with MPI_THREAD_MULTIPLE; the last dtl_finalize then finalises it, and MPI cannot be
/// started again in this process. A rank that ends without is one that has failed to Open MPI's
/// launcher.)
///
/// @param comm  what MPI_Comm_c2f or MPI_Comm_toint gives (in Fortran the communicator itself, an
///              MPI_Fint).
/// @param out   yours; end it with dtl_comm_destroy.
/// @return DTL_ERROR_INVALID_STATE: MPI is not initialised, or is finalised.
///         DTL_ERROR_INVALID_ARGUMENT: MPI_COMM_NULL or an intercommunicator.
///         DTL_ERROR_UNAVAILABLE: the MPI in the process cannot be used (why is in the text).
///         DTL_ERROR_NOT_SUPPORTED: this thread may not call MPI. DTL_ERROR_MPI: MPI answered an
///         error (class and text in dtl_last_error). A number that is no communicator's, or that of
///         one which was freed, is an error that MPI may end the process for.
/// Threads: MPI_THREAD_MULTIPLE: any. MPI_THREAD_SERIALIZED: any; calls of the library take turns,
/// calls of MPI by the program at the same time are yours to keep apart. Below: the thread that
/// initialised MPI; others get DTL_ERROR_NOT_SUPPORTED. The same holds for all calls on `out`,
/// except dtl_comm_destroy: with nothing in flight it succeeds in any thread, and MPI's
/// communicator is then freed by the next call in a thread that may call MPI. Equivalent:
/// MPI_Comm_dup.
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
