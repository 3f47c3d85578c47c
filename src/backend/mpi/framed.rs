//! Transport that runs the library's message protocol (`p2p_protocol`) over MPI, for communicators
//! with time limits or the library's own collective algorithms. Messages of this protocol can be
//! canceled even if MPI cannot cancel its own messages.

use super::comm::{grow::MpiGrow, or_free, place_in};
use super::library::functions::{Handle, Status};
use super::library::mpi_library::{Hold, Mpi, OVER_TEXT, PendingFree, checked};
use super::message::{self, Envelope, tag_limit};
use super::status::Reader;
use crate::abi::comm::communicator::{DTL_ANY_SOURCE, DTL_TAG_MAX};
use crate::abi::status::*;
use crate::backend::p2p_protocol::{self, Wire, WireWindows};
use crate::error::{Result, fail};
use crate::runtime::component::{Completion, OpId, Properties, SendMode, Transport};
use crate::sys::memory::buf::Region;
use crate::sys::sync::lock::Mutex;
use std::ffi::c_int;
use std::sync::Arc;

struct MpiWire {
    mpi: &'static Mpi,
    comm: Handle,
    properties: Arc<Properties>,
    reader: Reader,
    /// Receives for which MPI_Cancel has been called.
    canceled: Mutex<Vec<Handle>>,
    /// MPI's error message for the operation that failed last.
    failure: Mutex<Option<String>>,
    /// Counted reference to MPI, dropped after all other fields: if the library initialized MPI,
    /// MPI is finalized when the last reference is dropped.
    _hold: Hold,
}

/// Opens a transport over an MPI communicator that the library owns; frees the communicator and
/// returns an error if the highest tag that this MPI supports (MPI_TAG_UB) is below `DTL_TAG_MAX`.
/// The caller must not hold an `MpiGuard` (guard that permits MPI calls), because opening may
/// exchange messages.
pub(super) fn open(mpi: &'static Mpi, comm: Handle) -> Result<Box<dyn Transport>> {
    let turn = mpi.enter()?;
    let found = place_in(mpi, comm).and_then(|place| Ok((place, tag_limit(mpi)?)));
    let ((rank, size), highest) = or_free(mpi, &[comm], found)?;
    let reader = Reader::of(mpi);
    drop(turn);
    if highest < DTL_TAG_MAX {
        mpi.free_soon(PendingFree::Comm(comm))?;
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "time limits and deterministic collectives need tags up to {DTL_TAG_MAX}; {} has them \
             up to {highest}: open the communicator without",
            mpi.version
        );
    }
    let description = format!(
        "{}; messages and collectives of the library, for time limits or determinism; {}",
        mpi.name,
        mpi.level()
    );
    let properties = Arc::new(Properties {
        // Below MPI_THREAD_MULTIPLE, calls of the program and of the library could overlap.
        allows_progress_thread: mpi.is_multiple(),
        grow: Some(Arc::new(MpiGrow(mpi, comm))),
        ..Properties::new(rank, size, description)
    });
    p2p_protocol::open(Box::new(MpiWire {
        mpi,
        comm,
        properties,
        reader,
        canceled: Mutex::default(),
        failure: Mutex::default(),
        _hold: Hold::new(),
    }))
}

impl Wire for MpiWire {
    fn properties(&self) -> &Arc<Properties> {
        &self.properties
    }

    fn admit(&self) -> Result<()> {
        self.mpi.enter().map(drop)
    }

    fn isend(&mut self, data: Region, dest: i32, word: u64) -> Result<OpId> {
        let _turn = self.mpi.enter()?;
        let to = Envelope { peer: dest, tag: tag_of(word), comm: self.comm };
        message::start_send(self.mpi, to, data, SendMode::Standard).map(OpId)
    }

    fn irecv(&mut self, data: Region, source: i32, word: u64) -> Result<OpId> {
        let _turn = self.mpi.enter()?;
        let peer = if source == DTL_ANY_SOURCE { self.mpi.k.any_source } else { source };
        let from = Envelope { peer, tag: tag_of(word), comm: self.comm };
        message::start_recv(self.mpi, from, data).map(OpId)
    }

    fn test(&mut self, op: OpId) -> Result<Option<Completion>> {
        let Some(_turn) = self.mpi.enter_unless_over()? else {
            *self.failure.lock() = Some(OVER_TEXT.to_owned());
            let gone = DTL_ERROR_INVALID_STATE;
            return Ok(Some(Completion { source: 0, status: gone, match_bits: 0, size: 0 }));
        };
        let (mut request, mut over, mut status) = (op.0, 0, Status::new());
        // SAFETY: the library created the request, and no other caller tests it now; the other
        // arguments are writable locals.
        let code =
            unsafe { (self.mpi.call.MPI_Test)(&raw mut request, &raw mut over, &raw mut status) };
        if code == 0 && over == 0 {
            return Ok(None);
        }
        let was_canceled = {
            let mut canceled = self.canceled.lock();
            let at = canceled.iter().position(|known| *known == op.0);
            at.map(|at| canceled.swap_remove(at)).is_some()
        };
        let done = self.reader.done(self.mpi, &status);
        if code != 0 {
            let error = self.mpi.failure("MPI_Test", code);
            *self.failure.lock() = Some(error.text().to_owned());
            return Ok(Some(Completion { status: error.status(), ..done }));
        }
        let is_canceled = was_canceled && message::is_canceled(self.mpi, &status)?;
        let status = if is_canceled { DTL_ERROR_CANCELED } else { done.status };
        Ok(Some(Completion { status, ..done }))
    }

    fn cancel(&mut self, op: OpId) -> Result<()> {
        let Some(_turn) = self.mpi.enter_unless_over()? else { return Ok(()) };
        self.canceled.lock().push(op.0);
        let mut request = op.0;
        // SAFETY: the request is an operation in flight.
        unsafe { checked!(self.mpi, MPI_Cancel(&raw mut request)) }
    }

    fn failure_text(&self) -> Option<String> {
        self.failure.lock().take()
    }

    fn windows(&mut self) -> Result<&mut dyn WireWindows, &'static str> {
        Err("MPI's windows are used without a time limit, determinism and MPI_THREAD_SERIALIZED, \
             on all ranks: they may wait for ever inside MPI")
    }

    fn close(&mut self) -> Result<()> {
        self.mpi.free_soon(PendingFree::Comm(self.comm))
    }
}

/// Converts `word`, the 28-bit tag of a `p2p_protocol` message, to an MPI tag.
fn tag_of(word: u64) -> c_int {
    (word & DTL_TAG_MAX as u64) as c_int
}
