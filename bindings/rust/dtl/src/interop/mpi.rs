//! Communicators over those of rsmpi (crate `mpi`).

use crate::{Comm, Error, Result, call, sys};
use mpi::environment::{is_finalized, is_initialized};
use mpi::ffi::{MPI_Comm, RSMPI_Comm_c2f};
use mpi::raw::AsRaw;
use mpi::topology::Communicator;

impl Comm {
    /// Opens a communicator of kind "mpi" over the ranks of a communicator of rsmpi, in the same
    /// order. Collective over that communicator. Needs feature `mpi`.
    ///
    /// The library duplicates the MPI communicator, so messages of rsmpi and of this crate never
    /// match. `comm` still belongs to rsmpi, and may be dropped while the result exists.
    ///
    /// Drop the result, or finalize the library, before the `Universe` of rsmpi, whose drop calls
    /// MPI_Finalize: declare the `Universe` first. In the other order nothing is undefined: calls
    /// fail with DTL_ERROR_INVALID_STATE, and the result can be dropped. Threads: those that the
    /// thread level of MPI allows; `mpi::initialize` provides the main thread only,
    /// `mpi::initialize_with_threading` more.
    ///
    /// It works with every MPI that rsmpi was built with: the Fortran handle of the communicator is
    /// passed. Equivalent: MPI_Comm_dup.
    ///
    /// ```no_run
    /// use dtl_binding::{Comm, SUM};
    ///
    /// # fn main() -> dtl_binding::Result {
    /// let universe = mpi::initialize().ok_or("MPI is initialized").unwrap();
    /// let comm = Comm::from_mpi(&universe.world())?;
    /// let mut sum = comm.rank()?;
    /// comm.allreduce_in_place(&mut sum, SUM)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See `dtl_comm_from_mpi_fint`. DTL_ERROR_INVALID_STATE: MPI is not initialized, or
    /// is finalized.
    /// DTL_ERROR_INVALID_ARGUMENT: `comm` is an intercommunicator.
    pub fn from_mpi<C>(comm: &C) -> Result<Comm>
    where
        C: Communicator + AsRaw<Raw = MPI_Comm>,
    {
        const CALL: &str = "dtl_comm_from_mpi_fint";
        // Safe code can create a communicator of rsmpi before MPI is initialized.
        if !is_initialized() {
            let text = "MPI is not initialized: call mpi::initialize first";
            return Err(Error::state(CALL, text.to_owned()));
        }
        // A value of rsmpi can outlive its `Universe`.
        if is_finalized() {
            let text = "MPI is finalized: the Universe of rsmpi has to live longer";
            return Err(Error::state(CALL, text.to_owned()));
        }
        // SAFETY: between the initialization and the finalization, a communicator of rsmpi is a live one.
        let fortran = unsafe { RSMPI_Comm_c2f(comm.as_raw()) };
        let mut handle = sys::DTL_COMM_NULL;
        // SAFETY: the output is a local.
        unsafe { call!(dtl_comm_from_mpi_fint(fortran, &raw mut handle)) }?;
        Ok(Comm::from_raw(handle))
    }
}
