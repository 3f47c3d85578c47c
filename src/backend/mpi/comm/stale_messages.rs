//! Messages that no rank received before their communicator was destroyed. MPI reuses the context
//! of a freed communicator for a later communicator, which would then receive the unreceived
//! messages of the freed one.
//!
//! So all stale messages that have arrived on a new communicator are discarded before its first
//! use. A barrier before the discard ensures that every stale message has been sent. A barrier
//! after the discard ensures that no new message is discarded. (A stale message that the network
//! has not delivered before the discard is not discarded: it arrives later.)
//!
//! Before a communicator is freed, the messages that have arrived are received. MPICH since 4.1
//! aborts the process if MPI_Comm_free finds such a message.

use super::super::library::functions::{Handle, Status};
use super::super::library::mpi_library::{Mpi, checked};
use super::super::message::{self, Envelope};
use super::super::status::Reader;
use crate::error::{Result, failure};
use crate::sys::memory::buf::Scratch;

/// Discards stale messages that have arrived on the new communicators `comms`: they were sent on
/// communicators that have since been freed. Collective; requires an `MpiGuard`.
pub(crate) fn discard(mpi: &Mpi, comms: &[Handle]) -> Result<()> {
    barrier(mpi, comms)?;
    for comm in comms {
        receive_all(mpi, *comm)?;
    }
    barrier(mpi, comms)
}

/// Receives and discards all messages that have arrived on a communicator. Requires an `MpiGuard`.
pub(crate) fn receive_all(mpi: &Mpi, comm: Handle) -> Result<()> {
    // The first probe may only make MPI read what has arrived, so a second pass follows.
    for _ in 0..2 {
        while receive_any(mpi, comm)? {}
    }
    Ok(())
}

/// Waits for all ranks.
fn barrier(mpi: &Mpi, comms: &[Handle]) -> Result<()> {
    let Some(comm) = comms.first() else { return Ok(()) };
    // SAFETY: all ranks of the communicator call this function.
    unsafe { checked!(mpi, MPI_Barrier(*comm)) }
}

/// Receives and discards one message; returns false if no message has arrived. Waiting for the
/// whole message is safe, because its sender does not destroy the communicator while the send is in
/// flight.
fn receive_any(mpi: &Mpi, comm: Handle) -> Result<bool> {
    let from = Envelope { peer: mpi.k.any_source, tag: mpi.k.any_tag, comm };
    let mut status = Status::new();
    let Some(message) = message::take(mpi, from, &mut status)? else { return Ok(false) };
    let size = Reader::of(mpi).done(mpi, &status).size;
    let room = usize::try_from(size).ok().and_then(Scratch::new).ok_or_else(|| {
        failure!(DTL_ERROR_OUT_OF_MEMORY, "no {size} bytes for a message that nobody received")
    })?;
    let received = message::wait(mpi, message::start_matched(mpi, message, room.region())?);
    if received.is_err() {
        // MPI may still write to the buffer, so it is leaked.
        std::mem::forget(room);
    }
    received.map(|_| true)
}
