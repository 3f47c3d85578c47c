//! Completion of the operations that `transport` passes directly to MPI.

use super::ids::{self, request_of};
use super::library::abi::Int;
use super::library::functions::{Handle, Status};
use super::library::mpi_library::OVER_TEXT;
use super::message;
use super::op_extras::OpExtra;
use super::transport::MpiTransport;
use crate::abi::status::*;
use crate::error::Result;
use crate::runtime::component::{Completion, Diagnostics, ForeignTest, OpId};
use crate::sys::compute::callback::{ForeignTester, SEND, TestOutputs};
use std::cell::Cell;
use std::ffi::c_int;
use std::sync::Arc;
use std::task::Poll;

thread_local! {
    /// MPI's error message for the operation that failed last in this thread.
    static FAILURE_TEXT: Cell<Option<Box<str>>> = const { Cell::new(None) };
}

impl Diagnostics for MpiTransport {
    /// Removes and returns MPI's error message for the operation that failed last in this thread.
    fn failure_text(&self) -> Option<String> {
        FAILURE_TEXT.take().map(String::from)
    }
}

impl ForeignTest for MpiTransport {
    fn foreign_tester(&self) -> Arc<ForeignTester> {
        Arc::clone(&self.asking)
    }

    /// Writes the outcome of a completed operation to the caller's `Completion`. A failure is
    /// always written, a success only if the caller requests it.
    #[cold]
    fn fill_completion(&self, op: OpId, outputs: &TestOutputs, completion: &mut Completion) {
        if outputs.code != 0 {
            *completion = self.end_failed(op, outputs.request, outputs.code, &outputs.status);
        } else if !completion.is_unasked() {
            if op.0 & SEND != 0 {
                *completion = self.sent();
            } else {
                self.reader.tell(self.mpi, &outputs.status, completion);
            }
        }
    }
}

impl MpiTransport {
    /// Tests an operation of any kind. This general path is necessary for an operation that has
    /// state in addition to MPI's request (`op_extras`), for a persistent operation, and for every
    /// operation if calls to MPI require an `MpiGuard` (guard that permits MPI calls). Writes the
    /// outcome to the caller's `Completion` once the operation has completed.
    pub(super) fn test_one(&self, op: OpId, completion: &mut Completion) -> Poll<Result<()>> {
        let (mut request, is_send) = request_of(op);
        let Some(_turn) = self.mpi.enter_unless_over()? else {
            *completion = self.gone(request);
            return Poll::Ready(Ok(()));
        };
        let (tested, mut status, mut over) = (request, Status::new(), 0);
        // The side state is removed before the test: once the operation has completed, MPI may
        // assign the same request to an operation of another thread.
        let extras = self.extras.any().then(|| self.extras.take(tested)).flatten();
        // SAFETY: the library created the request, and no other caller tests it now; the other
        // arguments are writable locals.
        let code =
            unsafe { (self.mpi.call.MPI_Test)(&raw mut request, &raw mut over, &raw mut status) };
        *completion = match (code, over, extras) {
            (0, 0, extras) => {
                extras.into_iter().for_each(|extras| self.extras.add(tested, extras));
                return Poll::Pending;
            }
            (0, _, Some(extras)) => self.finish_extra(extras, is_send, &status)?,
            (0, _, None) => self.done(is_send, &status),
            _ => self.end_failed(op, request, code, &status),
        };
        Poll::Ready(Ok(()))
    }

    #[cold]
    #[inline(never)]
    fn end_failed(
        &self,
        op: OpId,
        mut request: Handle,
        code: c_int,
        status: &Status,
    ) -> Completion {
        let failed = self.failed("MPI_Test", code, status);
        let (_, is_send) = request_of(op);
        let done = if is_send { Completion { source: self.rank, ..failed } } else { failed };
        if request != self.mpi.k.request_null {
            // SAFETY: MPI has left the failed request to the caller to free.
            unsafe { (self.mpi.call.MPI_Request_free)(&raw mut request) };
        }
        if let Some(kept) = ids::kept(op) {
            kept.forget(self.mpi);
        }
        done
    }

    pub(super) fn done(&self, is_send: bool, status: &Status) -> Completion {
        if is_send { self.sent() } else { self.reader.done(self.mpi, status) }
    }

    fn sent(&self) -> Completion {
        Completion { source: self.rank, status: DTL_SUCCESS, match_bits: 0, size: 0 }
    }

    /// Returns the outcome of an operation that was in flight when MPI was finalized.
    fn gone(&self, request: Handle) -> Completion {
        drop(self.extras.take(request));
        FAILURE_TEXT.set(Some(OVER_TEXT.into()));
        Completion { status: DTL_ERROR_INVALID_STATE, ..self.sent() }
    }

    /// Returns the outcome of an operation that MPI reports as failed.
    pub(super) fn failed(&self, call: &'static str, code: c_int, status: &Status) -> Completion {
        let error = self.mpi.failure(call, code);
        FAILURE_TEXT.set(Some(error.text().into()));
        let done = self.done(false, status);
        if self.mpi.class(code) != self.mpi.abi.int(Int::ErrTruncate) {
            return Completion { status: error.status(), ..done };
        }
        // MPICH and its derivatives report how many bytes arrived, not how many were sent.
        let size = if self.mpi.is_open_mpi() { done.size } else { 0 };
        Completion { status: DTL_ERROR_TRUNCATED, size, ..done }
    }

    /// Completes an operation that has state (`extras`) in addition to its MPI request.
    #[cold]
    fn finish_extra(&self, extras: OpExtra, is_send: bool, status: &Status) -> Result<Completion> {
        let done = self.done(is_send, status);
        match extras {
            OpExtra::Canceled => {
                let is_canceled = message::is_canceled(self.mpi, status)?;
                let status = if is_canceled { DTL_ERROR_CANCELED } else { done.status };
                Ok(Completion { status, ..done })
            }
            OpExtra::Roomy { room, into } => {
                into.copy_from(room.region());
                let size = room.region().len() as u64;
                Ok(Completion { status: DTL_ERROR_TRUNCATED, size, ..done })
            }
            OpExtra::Keeps(_) => Ok(done),
        }
    }
}
