//! Collectives that the raw transport (`Wire`) executes itself. The `Wire` starts a collective and
//! tests it like any other of its operations; this module gives each collective in flight an
//! operation of the engine.

use super::engine::{Collective, Engine, Operation, PendingCall, done, index_of};
use crate::abi::status::*;
use crate::error::Result;
use crate::runtime::comm::coll::CollCall;
use crate::runtime::component::{Completion, OpId};

impl Engine {
    pub(super) fn start_collective(&mut self, call: &CollCall<'_>) -> Result<OpId> {
        self.check_working()?;
        // All ranks start them in one order, so none overtakes one that waits.
        let waits = self.collectives.last().is_some_and(|last| last.op.is_none());
        let id = self.operations.add(Operation::Collective)?;
        let started = if waits { Ok(None) } else { self.start_on_wire(call) };
        let op = started.inspect_err(|_| drop(self.operations.remove(id)))?;
        let &CollCall { args, context, is_deterministic, place } = call;
        let waiting = || PendingCall { args: args.clone(), context, is_deterministic, place };
        let call = if op.is_none() { Some(Box::new(waiting())) } else { None };
        let areas = [args.send.area(), args.recv.area()];
        self.collectives.push(Collective { id, op, call, areas });
        Ok(id)
    }

    /// Starts a collective on the `Wire`; `None` if there is no room.
    fn start_on_wire(&mut self, call: &CollCall<'_>) -> Result<Option<OpId>> {
        let Some(collectives) = self.wire.collectives() else { return Ok(None) };
        match collectives.start(call) {
            Ok(op) => Ok(Some(op)),
            Err(error) if error.status() == DTL_ERROR_BUSY => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Starts the collectives that wait, and completes those that are over.
    pub(super) fn move_collectives(&mut self) -> Result<()> {
        self.start_waiting();
        let mut index = 0;
        while let Some(&Collective { id, op: Some(op), .. }) = self.collectives.get(index) {
            match self.wire.test(op)? {
                None => index += 1,
                Some(over) => {
                    self.collectives.remove(index);
                    self.end_collective(id, &over);
                }
            }
        }
        Ok(())
    }

    fn start_waiting(&mut self) {
        while let Some(first) = self.collectives.iter_mut().find(|one| one.op.is_none()) {
            let (id, Some(waiting)) = (first.id, first.call.take()) else { return };
            let started = self.start_on_wire(&waiting.call());
            match (started, self.collectives.iter_mut().find(|one| one.id == id)) {
                (Ok(Some(op)), Some(one)) => one.op = Some(op),
                (Ok(_), Some(one)) => {
                    one.call = Some(waiting);
                    return;
                }
                (Ok(_), None) => return,
                (Err(error), _) => {
                    self.collectives.retain(|one| one.id != id);
                    self.set_reason(None, Some(error.text().to_owned()));
                    self.operations.finish(id, done(self.rank, error.status(), 0, 0));
                }
            }
        }
    }

    fn end_collective(&mut self, id: OpId, over: &Completion) {
        let source = index_of(over.source);
        let dead = Some(source).filter(|source| self.is_other(*source));
        match (over.status, dead) {
            (DTL_SUCCESS | DTL_ERROR_CANCELED, _) => {}
            (DTL_ERROR_RANK_FAILURE, Some(dead)) => self.note_failure(over.status, dead),
            (status, _) => {
                let reason = self.reason("a collective", status);
                self.set_reason(None, Some(reason));
            }
        }
        self.operations.finish(id, done(source, over.status, 0, 0));
    }

    /// Requests cancellation of the collective `id`. It stays in flight if the `Wire` cannot cancel
    /// it.
    pub(super) fn cancel_collective(&mut self, id: OpId) {
        let Some(index) = self.collectives.iter().position(|one| one.id == id) else { return };
        match self.collectives.get(index).and_then(|one| one.op) {
            Some(op) => drop(self.wire.cancel(op)),
            None => {
                self.collectives.remove(index);
                self.operations.finish(id, done(self.rank, DTL_ERROR_CANCELED, 0, 0));
            }
        }
    }
}
