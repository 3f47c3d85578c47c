//! Handlers that the calling thread is executing, and the limit on the nesting depth of handlers.

use super::{Query, Registration, text};
use crate::abi::handle::dtl_event_t;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::trace::{self, Args};
use std::cell::RefCell;

/// Maximum nesting depth of handlers on one thread. Without the limit, a handler that requests its
/// own operation would recurse infinitely.
const MOST_NESTED: usize = 64;

thread_local! {
    /// Registration ids of the handlers that the calling thread is running, outermost first.
    static RUNNING: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Guard of a running handler: drop removes the innermost handler from RUNNING.
struct HandlerGuard;

impl Drop for HandlerGuard {
    fn drop(&mut self) {
        let _ = RUNNING.try_with(|running| running.borrow_mut().pop());
    }
}

impl Registration {
    /// Calls the function of the handler. Fails with LIMIT if too many handlers are nested on this
    /// thread.
    pub fn invoke(&self, query: &Query, event: Option<&mut dtl_event_t>) -> Result<()> {
        let Some(functions) = &self.functions else {
            return fail!(DTL_ERROR_INTERNAL, "handler \"{}\" has no function", self.name);
        };
        let Some(_running) = self.run() else { return Err(self.too_deep(query)) };
        let _span = trace::span("dispatch", "handler", || Args::NONE.what(&self.name));
        functions.invoke(query, event)
    }

    #[cold]
    fn too_deep(&self, query: &Query) -> Error {
        failure!(
            DTL_ERROR_LIMIT,
            "{}: handler \"{}\" was not called, as {MOST_NESTED} handlers run within each \
             other on this thread: does one ask for what it does itself?",
            text::of_query(query),
            self.name
        )
    }

    /// Adds the handler to RUNNING. Returns `None` if too many handlers are nested on this thread.
    /// On a thread that is ending, RUNNING may already be destroyed; the function then always
    /// succeeds.
    fn run(&self) -> Option<HandlerGuard> {
        let id = self.handle().id;
        let note = |running: &RefCell<Vec<u64>>| {
            let mut running = running.borrow_mut();
            (running.len() < MOST_NESTED).then(|| running.push(id))
        };
        RUNNING.try_with(note).unwrap_or(Some(())).map(|()| HandlerGuard)
    }

    /// Returns true if the calling thread is running this handler.
    pub fn is_running(&self) -> bool {
        RUNNING.try_with(|running| running.borrow().contains(&self.handle().id)).unwrap_or(true)
    }
}
