//! Memory in a stream's order: there for the work that is queued next, gone behind the work that
//! was queued before.

use super::{
    Allocation, Owner, Request, admit, alignment, allocate, check, enter, find, foreign_owner,
    host_alloc, leave, settle, sound,
};
use crate::abi::status::DTL_ERROR_INVALID_STATE;
use crate::abi::word::DTL_OPERATION_ALLOC;
use crate::error::{Result, fail};
use crate::runtime::component::Extent;
use crate::runtime::device;
use crate::runtime::enums::describe;
use crate::runtime::enums::schedule::check_memory_kind;
use crate::runtime::exec::stream::Stream;
use crate::runtime::library_ops::{self, Order};
use crate::runtime::registry::{self, Backend};
use crate::runtime::trace::{self, Args};
use crate::sys::handles::epoch::Guard;
use crate::sys::memory::buf::Addr;
use crate::sys::memory::heap;
use std::sync::Arc;

/// Allocates: by the handler of the kind if the program has one, else on the stream's device.
pub fn alloc(order: Order<'_>, wanted: &Request) -> Result<Addr> {
    let Order { stream, .. } = order;
    let backend: &Backend = stream.home();
    let Request { kind, size, .. } = *wanted;
    trace::about(|| {
        Args::NONE.bytes(size).what(format_args!("{} of {}", describe(kind), backend.name()))
    });
    if library_ops::is_taken(DTL_OPERATION_ALLOC) {
        check(size, wanted.align)?;
        if let Some(addr) = library_ops::alloc(Owner::Program, backend, wanted, Some(order))? {
            return Ok(addr);
        }
    }
    alloc_own(stream, wanted)
}

/// Allocates on the stream's device, in its order where the backend can, else at once.
pub fn alloc_own(stream: &Stream, wanted: &Request) -> Result<Addr> {
    let Request { kind, size, align } = *wanted;
    let backend: &Backend = stream.home();
    let memory = backend.memory()?;
    let align = check(size, align)?;
    if let Some(code) = host_alloc::code(kind).filter(|_| host_alloc::serves(backend.handle())) {
        return host_alloc::alloc(code, host_alloc::NO_POOL, size, align);
    }
    check_memory_kind(kind)?;
    let align = alignment(backend, kind, size, wanted.align)?;
    let extent = Extent { kind, size, align };
    let queue = || memory.alloc_async(stream.token()?, kind, size, align);
    admit(Owner::Program, backend, stream.device(), extent, || match queue() {
        Some(taken) => {
            let addr = sound(backend, memory, taken?, extent)?;
            stream.note_work();
            Ok(addr)
        }
        None => device::on(backend, stream.device(), || allocate(backend, memory, extent)),
    })
}

/// Frees what `dtl_mem_alloc` or `alloc` gave, once the work queued so far is done; null is
/// nothing.
pub fn free(inside: &Guard, stream: &Stream, addr: Addr) -> Result<()> {
    if addr.is_null() {
        return Ok(());
    }
    let marked = heap::retag(addr, host_alloc::NO_POOL, host_alloc::LEAVING);
    if marked == heap::FreeOutcome::Done {
        let gone = behind(stream, move || free_plain(addr));
        // What was not queued is an allocation as before.
        return gone.inspect_err(|_| {
            let _ = heap::retag(addr, host_alloc::LEAVING, host_alloc::NO_POOL);
        });
    }
    if let Some(error) = host_alloc::refusal(marked, addr, "the program") {
        return Err(error);
    }
    let Some((_, allocation)) = find(addr) else {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{addr:?} is no live allocation of the library (freed twice, or not its first byte?)"
        );
    };
    let backend = registry::pin(inside, allocation.backend)?;
    let leaving = Leaving { allocation: leave(addr, &backend, 0)?, backend, addr, is_gone: false };
    match leaving.queue(stream) {
        Ok(queued) => queued,
        Err(leaving) => behind(stream, move || leaving.give()),
    }
}

/// A block whose time has come.
fn free_plain(addr: Addr) -> Result<()> {
    match heap::free(addr, heap::Label::new(0, host_alloc::LEAVING)) {
        heap::FreeOutcome::Done => Ok(()),
        _ => fail!(DTL_ERROR_INTERNAL, "{addr:?} was freed by somebody else meanwhile"),
    }
}

/// An allocation that was taken out of the ledger and is not given back yet: it is there again if
/// that fails.
struct Leaving {
    backend: Arc<Backend>,
    allocation: Allocation,
    addr: Addr,
    is_gone: bool,
}

impl Leaving {
    /// The backend's own way, if the memory and the stream are its.
    fn queue(mut self, stream: &Stream) -> std::result::Result<Result<()>, Self> {
        let queue = || {
            let ours = Arc::ptr_eq(stream.home(), &self.backend) && !self.allocation.imported;
            let (token, memory) = (stream.token().filter(|_| ours)?, self.backend.memory.as_ref()?);
            let Allocation { kind, room, align, .. } = self.allocation;
            // First: once it is queued, the address may belong to another allocation.
            let asked = foreign_owner::take(self.addr);
            let queued = memory.free_async(token, kind, self.addr, room, align);
            if !matches!(queued, Some(Ok(()))) {
                foreign_owner::put_back(self.addr, asked);
            }
            queued
        };
        match queue() {
            None => Err(self),
            Some(Ok(())) => {
                let is_home = host_alloc::serves(self.backend.handle());
                self.backend.memory_use.shrank(self.allocation.size, is_home);
                self.is_gone = true;
                stream.note_work();
                Ok(Ok(()))
            }
            Some(error) => Ok(error),
        }
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

/// Does something when the stream's work so far is done: on a stream of a backend's, the caller
/// waits for that.
fn behind(stream: &Stream, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    if stream.token().is_none() {
        return stream.run(work);
    }
    let finished = stream.synchronize();
    if finished.as_ref().is_err_and(|error| error.status() == DTL_ERROR_INVALID_STATE) {
        return finished; // it is the stream's own work that asks
    }
    work().and(finished)
}
