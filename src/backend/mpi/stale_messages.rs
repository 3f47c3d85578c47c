//! Messages that nobody received before their communicator was destroyed. MPI gives a freed
//! communicator's context to one that is made later, and with it what was left: it would be
//! received there.
//!
//! So when a communicator is made, what it finds is thrown away. All ranks have come by then, and
//! so all is sent that was to be; and none goes on before all have looked, so nothing new is among
//! it. (What a network has not delivered by then comes later still.)
//!
//! Before a communicator is freed, the messages that have arrived are received. MPICH since 4.1
//! ends the process if it finds one in MPI_Comm_free.

use super::library::functions::{Handle, Status};
use super::library::mpi_library::Mpi;
use super::message;
use super::status::Reader;
use crate::error::{Result, fail};
use crate::sys::memory::buf::Scratch;

/// Throws away what new communicators of the same ranks have found. Collective; in a turn.
pub(super) fn discard(mpi: &Mpi, comms: &[Handle]) -> Result<()> {
    meet(mpi, comms)?;
    for comm in comms {
        receive_all(mpi, *comm)?;
    }
    meet(mpi, comms)
}

/// Receives the messages that have arrived on a communicator, and drops them. In a turn.
pub(super) fn receive_all(mpi: &Mpi, comm: Handle) -> Result<()> {
    // The first question may do no more than take in what has arrived.
    for _ in 0..2 {
        while receive_any(mpi, comm)? {}
    }
    Ok(())
}

/// Where all ranks are.
fn meet(mpi: &Mpi, comms: &[Handle]) -> Result<()> {
    let Some(comm) = comms.first() else { return Ok(()) };
    // SAFETY: a communicator whose ranks all call this.
    mpi.check("MPI_Barrier", unsafe { (mpi.call.MPI_Barrier)(*comm) })
}

/// Receives a message if there is one. It is sent to its end, as a communicator with sends in
/// flight is not destroyed.
fn receive_any(mpi: &Mpi, comm: Handle) -> Result<bool> {
    let (mut found, mut message, mut status) = (0, 0, Status::new());
    let (source, tag) = (mpi.k.any_source, mpi.k.any_tag);
    // SAFETY: a communicator of ours; writable locals.
    let code = unsafe {
        (mpi.call.MPI_Improbe)(source, tag, comm, &raw mut found, &raw mut message, &raw mut status)
    };
    mpi.check("MPI_Improbe", code)?;
    if found == 0 {
        return Ok(false);
    }
    let size = Reader::of(mpi).done(mpi, &status).size;
    let Some(room) = usize::try_from(size).ok().and_then(Scratch::new) else {
        return fail!(
            DTL_ERROR_OUT_OF_MEMORY,
            "no {size} bytes for a message that nobody received"
        );
    };
    let received = message::wait(mpi, message::start_matched(mpi, message, room.region())?);
    if received.is_err() {
        // MPI may still write to it.
        std::mem::forget(room);
    }
    received.map(|_| true)
}
