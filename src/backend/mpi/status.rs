//! What a status of MPI's tells: how many bytes a message had.

use super::functions::Status;
use super::session::Mpi;

/// Bytes of a message; 0 if MPI cannot say.
pub(super) fn size(mpi: &Mpi, status: &Status) -> u64 {
    let (mut count, call) = (0, &mpi.call);
    let ask = call.MPI_Get_elements_c.or(call.MPI_Get_elements_x);
    let told = match ask {
        // SAFETY: a status that MPI has filled in; a writable number.
        Some(ask) => unsafe { ask(status, mpi.k.byte, &raw mut count) },
        None => return 0,
    };
    if told == 0 { u64::try_from(count).unwrap_or(0) } else { 0 }
}
