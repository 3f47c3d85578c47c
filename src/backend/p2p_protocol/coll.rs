//! Collectives that the raw transport (`Wire`) executes itself. The `Wire` starts a collective and
//! tests it like any other of its operations; this module gives each collective in flight an
//! operation of the engine.

use super::engine::{Engine, Operation, done, index_of};
use crate::abi::status::{DTL_ERROR_CANCELED, DTL_ERROR_RANK_FAILURE, DTL_SUCCESS};
use crate::error::Result;
use crate::runtime::comm::coll::CollCall;
use crate::runtime::component::{Completion, OpId};

/// Collectives of a [`Wire`]. One thread at a time calls these methods. `Wire::test` tests for
/// completion, `Wire::cancel` requests cancellation.
pub trait WireCollectives {
    /// Returns true if `start` executes the collective. The decision depends only on arguments that
    /// are equal on all ranks.
    fn takes(&mut self, call: &CollCall<'_>) -> Result<bool>;
    /// Starts a collective. BUSY means that the caller must retry later.
    fn start(&mut self, call: &CollCall<'_>) -> Result<OpId>;
}

impl Engine {
    pub(super) fn takes_collective(&mut self, call: &CollCall<'_>) -> Result<bool> {
        match self.wire.collectives() {
            Some(collectives) => collectives.takes(call),
            None => Ok(false),
        }
    }

    pub(super) fn start_collective(&mut self, call: &CollCall<'_>) -> Result<OpId> {
        self.check_working()?;
        let Some(collectives) = self.wire.collectives() else { return Ok(OpId::COMPLETED) };
        let on_wire = collectives.start(call)?;
        let id = self.operations.add(Operation::Collective)?;
        self.collectives.push((id, on_wire));
        Ok(id)
    }

    /// Tests the collectives in flight, and completes those that are over.
    pub(super) fn test_collectives(&mut self) -> Result<()> {
        let mut index = 0;
        while let Some(&(id, on_wire)) = self.collectives.get(index) {
            match self.wire.test(on_wire)? {
                None => index += 1,
                Some(over) => {
                    self.collectives.swap_remove(index);
                    self.end_collective(id, &over);
                }
            }
        }
        Ok(())
    }

    fn end_collective(&mut self, id: OpId, over: &Completion) {
        let source = index_of(over.source);
        if !matches!(over.status, DTL_SUCCESS | DTL_ERROR_CANCELED) {
            self.reason = Some(self.reason("a collective", over.status));
        }
        if over.status == DTL_ERROR_RANK_FAILURE && self.is_other(source) {
            self.note_failure(over.status, source);
        }
        self.operations.finish(id, done(source, over.status, 0, 0));
    }

    /// Requests cancellation of the collective `id`. It stays in flight if the `Wire` cannot cancel
    /// it.
    pub(super) fn cancel_collective(&mut self, id: OpId) {
        if let Some(&(_, on_wire)) = self.collectives.iter().find(|(known, _)| *known == id) {
            drop(self.wire.cancel(on_wire));
        }
    }
}
