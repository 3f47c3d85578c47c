//! Stream-ordered memory: can be used by work that is queued after the allocation, and is freed
//! once the work that was queued before the free has completed.

use super::{Allocation, allocate, enter, find, host_alloc, leave, settle, sound};
use crate::abi::status::DTL_ERROR_INVALID_STATE;
use crate::error::{Result, fail};
use crate::runtime::component::{Extent, Memory};
use crate::runtime::device;
use crate::runtime::exec::stream::Stream;
use crate::runtime::registry::{self, Backend};
use crate::sys::handles::epoch::Guard;
use crate::sys::memory::buf::Addr;
use crate::sys::memory::heap;
use std::sync::Arc;

/// Allocates memory from a backend on the device of `stream`, a stream of that backend: in stream
/// order if the backend supports stream-ordered allocation, else synchronously.
pub(super) fn take(
    backend: &Backend,
    memory: &dyn Memory,
    stream: &Stream,
    extent: Extent,
) -> Result<Addr> {
    match stream.token().map(|token| memory.alloc_async(token, extent)).transpose()?.flatten() {
        Some(addr) => {
            let addr = sound(backend, memory, addr, extent)?;
            stream.note_work();
            Ok(addr)
        }
        None => device::on(backend, stream.device(), || allocate(backend, memory, extent)),
    }
}

/// Frees memory that `dtl_mem_alloc` or `dtl_mem_alloc_async` returned, after the work queued on
/// the stream so far. A null address is ignored.
pub fn free(inside: &Guard, stream: &Stream, addr: Addr) -> Result<()> {
    if addr.is_null() {
        return Ok(());
    }
    let marked = heap::retag(addr, host_alloc::NO_POOL, host_alloc::LEAVING);
    if marked == heap::FreeOutcome::Done {
        let gone = behind(stream, move || free_plain(addr));
        // If the free was not queued, the block becomes an ordinary allocation again.
        return gone.inspect_err(|_| {
            let _ = heap::retag(addr, host_alloc::LEAVING, host_alloc::NO_POOL);
        });
    }
    host_alloc::check_freed(marked, addr, "the program")?;
    let Some((_, allocation)) = find(addr) else {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{addr:?} is no live allocation of the library (freed twice, or not its first byte?)"
        );
    };
    let backend = registry::pin(inside, allocation.backend)?;
    let leaving = Leaving { allocation: leave(addr, &backend, 0)?, backend, addr, is_gone: false };
    match leaving.queue(stream)? {
        None => Ok(()),
        Some(leaving) => behind(stream, move || leaving.give()),
    }
}

/// Frees a block from the library's own allocator. Called after the preceding work of the stream
/// has completed.
fn free_plain(addr: Addr) -> Result<()> {
    match heap::free(addr, heap::Label::new(0, host_alloc::LEAVING)) {
        heap::FreeOutcome::Done => Ok(()),
        _ => fail!(DTL_ERROR_INTERNAL, "{addr:?} was freed by somebody else meanwhile"),
    }
}

/// Allocation that was removed from the ledger (the table of live allocations) and has not been
/// freed yet. If the free fails, dropping this object adds the allocation to the ledger again.
struct Leaving {
    backend: Arc<Backend>,
    allocation: Allocation,
    addr: Addr,
    is_gone: bool,
}

impl Leaving {
    /// Queues a stream-ordered free if the memory and the stream belong to the same backend and the
    /// backend supports stream-ordered frees. Returns `Some(self)` otherwise.
    fn queue(mut self, stream: &Stream) -> Result<Option<Self>> {
        let ours = Arc::ptr_eq(stream.backend(), &self.backend) && !self.allocation.imported;
        let (Some(token), Some(memory)) =
            (stream.token().filter(|_| ours), self.backend.memory.as_ref())
        else {
            return Ok(Some(self));
        };
        if memory.free_async(token, self.addr, self.allocation.occupied())?.is_none() {
            return Ok(Some(self));
        }
        let is_home = host_alloc::serves(self.backend.handle());
        self.backend.memory_use.shrank(self.allocation.size, is_home);
        self.is_gone = true;
        stream.note_work();
        Ok(None)
    }

    fn give(mut self) -> Result<()> {
        settle(&self.backend, &self.allocation, self.addr)?;
        self.is_gone = true;
        Ok(())
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if !self.is_gone {
            enter(self.addr, self.allocation);
        }
    }
}

/// Runs `work` after the work queued so far on the stream. On a backend's stream, this function
/// waits for that work and then runs `work` itself.
fn behind(stream: &Stream, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    if stream.token().is_none() {
        return stream.run(work);
    }
    let finished = stream.synchronize();
    if finished.as_ref().is_err_and(|error| error.status() == DTL_ERROR_INVALID_STATE) {
        return finished; // the caller is work of the stream itself
    }
    work().and(finished)
}
