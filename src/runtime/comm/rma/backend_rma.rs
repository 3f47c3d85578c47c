//! RMA path that uses native windows of the transport: windows that the network provides, or
//! windows of the communication library that the transport uses (for example MPI windows).
//!
//! The transport executes puts and gets. It also executes accumulate operations on the dtypes for
//! which it guarantees the semantics of this library (`component::Window::has_atomics`).
//! `active_messages` implements the remaining operations: locks, accumulate operations on other
//! dtypes, and accumulate operations at displacements that are not a multiple of the element
//! size. All accumulate operations on an element use the same one of these two implementations,
//! because they must be atomic with respect to each other. An operation on a native window may
//! start at any time, without an access epoch of the transport. Therefore a fence is implemented as
//! a flush of all targets followed by a barrier.

use super::active_messages::{Active, destroyed};
use crate::abi::status::DTL_ERROR_TIMEOUT;
use crate::abi::word::dtl_dtype_t;
use crate::error::Result;
use crate::runtime::comm::rma_path::{
    FlushScope, RmaOp, RmaPath, RmaStart, TargetRange, Ticket, TicketRequest,
};
use crate::runtime::comm::{Comm, progress};
use crate::runtime::component::{self, OpId};
use crate::sys::memory::buf::{Region, Scratch};
use crate::sys::sync::lock::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// RMA path of a window that is implemented by a native window of the transport.
pub(super) struct BackendRma {
    window: Box<dyn component::Window>,
    blocks: bool,
    asked: Mutex<Asking>,
    active: Active,
    /// True if an operation other than a lock operation has been sent as an active message (through
    /// `active`).
    has_messages: AtomicBool,
    /// Memory of the window, if the library has allocated it.
    allocated: Mutex<Option<Scratch>>,
}

/// Operations in flight for which the program has requests. Such a request may exist longer than
/// the window, so a poll of the request first checks the state of the window. Every other call has
/// a reference to the window, and `destroy` closes the window only when no call has a reference.
struct Asking {
    life: WindowLife,
    ops: Vec<OpId>,
}

/// State of the transport's window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WindowLife {
    Open,
    /// All ranks have destroyed the window, after all operations had completed.
    Ended,
    Dropped,
}

impl BackendRma {
    pub(super) fn new(
        comm: Arc<Comm>,
        window: Box<dyn component::Window>,
        is_one_process: bool,
    ) -> Result<BackendRma> {
        let active = Active::new(Arc::clone(&comm), window.memory(), is_one_process)?;
        Ok(BackendRma {
            blocks: window.blocks(),
            window,
            asked: Mutex::new(Asking { life: WindowLife::Open, ops: Vec::new() }),
            active,
            has_messages: AtomicBool::new(false),
            allocated: Mutex::new(None),
        })
    }

    pub(super) fn memory(&self) -> Region {
        self.window.memory()
    }

    /// Stores the memory that the library has allocated for the window, so that it remains
    /// allocated until the window is closed.
    pub(super) fn keep(&self, allocated: Scratch) {
        *self.allocated.lock() = Some(allocated);
    }

    fn begun(&self, op: Option<OpId>, asked: TicketRequest) -> RmaStart {
        let op = op.filter(|_| asked)?;
        self.asked.lock().ops.push(op);
        Some(Ticket(op.0))
    }

    /// Returns true if `to` is aligned to the element size `element` and the transport executes
    /// accumulate operations on `dtype`.
    fn applies(&self, dtype: dtl_dtype_t, element: usize, to: TargetRange) -> bool {
        to.offset % element.max(1) == 0 && self.window.has_atomics(dtype)
    }

    /// Runs `call`, which may block inside the transport until its operation completes.
    fn wait_in<T>(&self, call: impl FnOnce() -> T) -> T {
        if self.blocks { progress::while_blocked(call) } else { call() }
    }

    fn flush_own(&self, targets: &Range<i32>, reach: FlushScope) -> Result<()> {
        let target = (targets.len() == 1).then_some(targets.start);
        let Some(op) = self.wait_in(|| self.window.flush(target, reach))? else { return Ok(()) };
        self.active.wait("operations on targets did not end (their buffers stay in use)", || {
            self.window.test(op)
        })
    }
}

impl RmaPath for BackendRma {
    fn describe(&self) -> &'static str {
        self.window.describe()
    }

    #[inline]
    fn start(&self, at: TargetRange, op: &RmaOp, asked: TicketRequest) -> Result<RmaStart> {
        let is_native = match *op {
            RmaOp::Put(_) | RmaOp::Get(_) => true,
            RmaOp::Accumulate { by, .. } => self.applies(by.dtype, by.update.size(), at),
            RmaOp::CompareAndSwap(swap) => self.applies(swap.dtype, at.len, at),
        };
        if is_native {
            return self.window.start(at, op, asked).map(|op| self.begun(op, asked));
        }
        self.has_messages.store(true, Ordering::Relaxed);
        self.active.start(at, op, asked)
    }

    fn lock(&self, targets: Range<i32>, exclusive: bool) -> Result<()> {
        self.active.lock(targets, exclusive)
    }

    fn leave(&self, targets: Range<i32>) -> Result<()> {
        // The transport reports no death of a target to which no operation was in flight.
        self.active.check_alive(&targets).and(self.active.leave(targets))
    }

    fn flush(&self, targets: Range<i32>, reach: FlushScope) -> Result<()> {
        let flushed = self.flush_own(&targets, reach);
        let is_late = flushed.as_ref().is_err_and(|error| error.status() == DTL_ERROR_TIMEOUT);
        if is_late || !self.has_messages.load(Ordering::Relaxed) {
            return flushed;
        }
        flushed.and(self.active.flush(targets, reach))
    }

    fn is_over(&self, Ticket(op): Ticket) -> Result<bool> {
        let mut asked = self.asked.lock();
        let Some(at) = asked.ops.iter().position(|known| known.0 == op) else {
            // All ranks destroyed the window after all operations had completed and were polled.
            return if asked.life == WindowLife::Ended { Ok(true) } else { Err(destroyed()) };
        };
        let over = self.window.test(OpId(op));
        if !matches!(over, Ok(false)) {
            asked.ops.swap_remove(at);
            return over;
        }
        drop(asked);
        self.active.serve();
        Ok(false)
    }

    /// Waits until the operation completes, because the transport cannot cancel it.
    fn cancel(&self, ticket: Ticket) -> Result<()> {
        self.active.wait("an operation on a window did not end", || self.is_over(ticket))
    }

    fn serve(&self) -> bool {
        self.active.serve()
    }

    fn needs_thread(&self) -> bool {
        self.active.needs_thread()
    }

    fn closes_alone(&self) -> bool {
        true
    }

    fn close(&self, together: bool) {
        let mut asked = self.asked.lock();
        if asked.life != WindowLife::Open {
            return;
        }
        asked.life = if together { WindowLife::Ended } else { WindowLife::Dropped };
        // If all ranks close the window, the operations have completed; this poll releases them.
        let ops = std::mem::take(&mut asked.ops);
        drop(asked);
        for op in ops.into_iter().filter(|_| together) {
            drop(self.window.test(op));
        }
        self.wait_in(|| self.window.close(together));
        if !together {
            // Other ranks may still access the memory, so it is leaked.
            std::mem::forget(self.allocated.lock().take());
        }
        self.active.close(together);
    }
}

#[cfg(test)]
#[path = "tests/backend_rma.rs"]
mod tests;
