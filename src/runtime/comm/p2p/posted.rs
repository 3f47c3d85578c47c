//! Memory of the library together with the operation that is posted into it. The memory is freed
//! only when the transport no longer uses it.

use super::send_recv::OpHandle;
use crate::error::{Error, Result};
use crate::runtime::comm::Comm;
use crate::runtime::comm::shared_transport::{Class, SharedTransport};
use crate::runtime::component::{Completion, OpId, SendMode};
use crate::sys::memory::buf::{Region, Scratch};
use std::sync::Arc;

/// Memory of the library and at most one operation that is posted into it.
///
/// Dropping this value cancels the operation and waits until the transport no longer uses the
/// memory. If the transport cannot cancel the operation, the memory is leaked: a transport that
/// still has a buffer may write to it at any time.
pub(in crate::runtime::comm) struct Posted {
    link: Arc<SharedTransport>,
    memory: Scratch,
    op: Option<OpId>,
}

impl Posted {
    /// Creates memory without an operation, to lend to operations that the caller completes or
    /// cancels. `memory` is `None` if its allocation failed; the error then names the purpose
    /// `what`.
    pub(in crate::runtime::comm) fn lent(
        link: &Arc<SharedTransport>,
        memory: Option<Scratch>,
        what: &str,
    ) -> Result<Posted> {
        match memory {
            Some(memory) => Ok(Posted { link: Arc::clone(link), memory, op: None }),
            None => Err(Error::new(
                crate::abi::status::DTL_ERROR_OUT_OF_MEMORY,
                format!("no memory for {what}; free some"),
            )),
        }
    }

    /// Posts an operation into the memory. `start` posts the operation and returns its id.
    pub(in crate::runtime::comm) fn post(
        &mut self,
        start: impl FnOnce(Region) -> Result<OpId>,
    ) -> Result<()> {
        self.op = Some(start(self.memory.region())?).filter(|op| *op != OpId::COMPLETED);
        Ok(())
    }

    /// Starts a send of a copy of `words` to rank `dest`.
    pub(in crate::runtime::comm) fn send(
        comm: &Comm,
        words: &[u64],
        (class, dest, tag): (Class, i32, i32),
        what: &str,
    ) -> Result<Posted> {
        let mut posted = Posted::lent(&comm.link, Scratch::of_words(words), what)?;
        let started = comm.start_send(class, posted.region(), dest, tag, SendMode::Standard)?;
        posted.op = started.op();
        Ok(posted)
    }

    /// Starts a receive of `count` words of 8 bytes from rank `source`.
    pub(in crate::runtime::comm) fn recv(
        comm: &Comm,
        count: usize,
        (class, source, tag): (Class, i32, i32),
        what: &str,
    ) -> Result<Posted> {
        let mut posted = Posted::lent(&comm.link, Scratch::new(8 * count), what)?;
        posted.op = comm.start_recv(class, posted.region(), source, tag).map(OpHandle::op)?;
        Ok(posted)
    }

    /// Returns the memory region, for operations.
    pub(in crate::runtime::comm) fn region(&self) -> Region {
        self.memory.region()
    }

    /// Returns true if no operation is in flight.
    pub(in crate::runtime::comm) fn is_over(&self) -> bool {
        self.op.is_none()
    }

    /// Makes progress. Returns `Some` exactly once, when the operation completes.
    pub(in crate::runtime::comm) fn poll(&mut self) -> Result<Option<Completion>> {
        let Some(op) = self.op else { return Ok(None) };
        let done = self.link.transport.outcome(op)?;
        if done.is_some() {
            self.op = None;
        }
        Ok(done)
    }

    /// Cancels the operation. Returns `Some` if the operation completed first.
    pub(in crate::runtime::comm) fn cancel(&mut self) -> Result<Option<Completion>> {
        let Some(op) = self.op else { return Ok(None) };
        let done = self.link.cancel(op)?;
        self.op = None;
        Ok(done)
    }

    /// Returns the received words; empty while the operation is in flight.
    pub(in crate::runtime::comm) fn words(&self) -> Vec<u64> {
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
mod tests {
    use super::*;
    use crate::runtime::comm::open::open_kind;

    /// Opens a communicator of two ranks in this process.
    fn pair() -> Vec<Comm> {
        let [_, threads] = crate::backend::inproc::backends();
        let ranks = threads
            .comm
            .as_ref()
            .and_then(|comm| comm.open_ranks(2))
            .expect("ranks")
            .expect("open");
        let backend = Arc::new(threads);
        let open =
            |rank| open_kind::assemble(Arc::clone(&backend), rank, 0, 1_000_000_000).expect("open");
        ranks.into_iter().map(open).collect()
    }

    #[test]
    fn dropping_it_cancels_the_operation() {
        let ranks = pair();
        let [zero, one] = &ranks[..] else { panic!("two") };
        drop(Posted::recv(zero, 2, (Class::Agreement, 1, 5), "a test").expect("posted"));
        let sent = Posted::send(one, &[7, 8], (Class::Agreement, 0, 5), "a test").expect("sent");
        assert!(sent.is_over(), "no receive has matched it, and it is short");
        let mut again = Posted::recv(zero, 2, (Class::Agreement, 1, 5), "a test").expect("posted");
        assert!(matches!(again.poll(), Ok(Some(done)) if done.size == 16));
        assert_eq!((again.words(), again.is_over()), (vec![7, 8], true));
    }

    #[test]
    fn what_the_transport_does_not_know_is_not_freed() {
        let ranks = pair();
        let [zero, _] = &ranks[..] else { panic!("two") };
        let mut posted = Posted::lent(&zero.link, Scratch::new(8), "a test").expect("memory");
        posted.post(|_| Ok(OpId(77 << 32))).expect("posted");
        assert!(posted.cancel().is_err() && !posted.is_over() && posted.words().is_empty());
        assert!(zero.link.has_lost());
        std::mem::forget(posted);
    }
}
