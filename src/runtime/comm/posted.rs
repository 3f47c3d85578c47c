//! Buffer that the library owns, together with the operation that uses it. The memory is freed only
//! when the transport no longer uses it.

use crate::error::{Result, failure};
use crate::runtime::comm::shared_transport::SharedTransport;
use crate::runtime::component::{Completion, OpId};
use crate::sys::memory::buf::{Region, Scratch};
use std::sync::Arc;

/// Buffer that the library owns, and at most one posted operation that uses it.
///
/// Dropping this value cancels the operation and waits until the transport no longer uses the
/// memory. If the transport cannot cancel the operation, the memory is leaked: a transport that
/// still has a buffer may write to it at any time.
pub(crate) struct Posted {
    link: Arc<SharedTransport>,
    memory: Scratch,
    op: Option<OpId>,
}

impl Posted {
    /// Wraps `memory` without an operation. The caller may also pass the memory to operations of
    /// its own, which it must complete or cancel itself. `memory` is `None` if its allocation
    /// failed; the error then names the purpose `what`.
    pub(crate) fn lent(
        link: &Arc<SharedTransport>,
        memory: Option<Scratch>,
        what: &str,
    ) -> Result<Posted> {
        let memory = memory
            .ok_or_else(|| failure!(DTL_ERROR_OUT_OF_MEMORY, "no memory for {what}; free some"))?;
        Ok(Posted { link: Arc::clone(link), memory, op: None })
    }

    /// Creates a buffer with a copy of `words`. `what` names the purpose of the memory in an error
    /// message.
    pub(crate) fn of_words(
        link: &Arc<SharedTransport>,
        words: &[u64],
        what: &str,
    ) -> Result<Posted> {
        Posted::lent(link, Scratch::of_words(words), what)
    }

    /// Creates a buffer for `count` 64-bit words. `what` names the purpose of the memory in an
    /// error message.
    pub(crate) fn for_words(
        link: &Arc<SharedTransport>,
        count: usize,
        what: &str,
    ) -> Result<Posted> {
        Posted::lent(link, Scratch::new(8 * count), what)
    }

    /// Posts an operation that uses the memory. `start` posts the operation and returns its id.
    pub(crate) fn post(&mut self, start: impl FnOnce(Region) -> Result<OpId>) -> Result<()> {
        self.op = Some(start(self.memory.region())?).filter(|op| *op != OpId::COMPLETED);
        Ok(())
    }

    /// Returns the memory region to pass to operations.
    pub(crate) fn region(&self) -> Region {
        self.memory.region()
    }

    /// Returns true if no operation is in flight.
    pub(crate) fn is_over(&self) -> bool {
        self.op.is_none()
    }

    /// Polls the operation in flight. Returns `Some` exactly once, when the operation is found to
    /// be complete, and `None` otherwise.
    pub(crate) fn poll(&mut self) -> Result<Option<Completion>> {
        let Some(op) = self.op else { return Ok(None) };
        let done = self.link.transport.outcome(op)?;
        self.op = self.op.filter(|_| done.is_none());
        Ok(done)
    }

    /// Cancels the operation. Returns `Some` if the operation completed before it could be
    /// canceled.
    pub(crate) fn cancel(&mut self) -> Result<Option<Completion>> {
        let Some(op) = self.op else { return Ok(None) };
        let done = self.link.cancel(op)?;
        self.op = None;
        Ok(done)
    }

    /// Returns the contents of the memory as 64-bit words; an empty list while an operation is in
    /// flight.
    #[inline]
    pub(crate) fn words(&self) -> Vec<u64> {
        if self.is_over() { self.memory.words() } else { Vec::new() }
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        // If cancellation fails, the operation stays posted.
        let _ = self.cancel();
        if !self.is_over() || self.link.has_lost() {
            std::mem::forget(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
#[path = "tests/posted.rs"]
mod tests;
