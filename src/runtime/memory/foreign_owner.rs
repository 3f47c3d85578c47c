//! Memory that a dispatch handler provided: one backend allocated it for a request to another
//! backend. Either backend may free it.

use super::{LEDGER, Owner, Request, host_alloc, stream_ordered};
use crate::abi::handle::dtl_backend_t;
use crate::error::{Result, fail};
use crate::runtime::exec::stream::Stream;
use crate::runtime::{log, registry};
use crate::sys::handles::epoch::Guard;
use crate::sys::memory::buf::Addr;
use crate::sys::memory::heap;

/// Accepts the memory that a dispatch handler provided for a request to another backend. Fails if
/// the memory does not satisfy the request.
pub fn adopt(
    owner: Owner,
    requested: dtl_backend_t,
    addr: Addr,
    wanted: &Request,
    who: &str,
) -> Result<()> {
    let &Request { size, align, .. } = wanted;
    let unfit = || {
        let alignment =
            if align == 0 { "as their kind is".to_owned() } else { format!("to {align}") };
        fail!(
            DTL_ERROR_NATIVE_BACKEND,
            "handler \"{who}\" gave {addr:?} for {size} bytes aligned {alignment}: not what \
             dtl_mem_alloc gave for as many"
        )
    };
    if addr.get() as u64 % align.max(1) != 0 {
        return unfit();
    }
    if let Some(block) = heap::find(addr) {
        if requested != host_alloc::backend() {
            return fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "\"{who}\" gave {addr:?}, plain memory of the host: only the host's backend gives \
                 that out; register memory of a kind of its own"
            );
        }
        let becomes_owners =
            || heap::retag(addr, host_alloc::NO_POOL, owner.tag()) == heap::FreeOutcome::Done;
        let is_owners = || block.tag == owner.tag() || becomes_owners();
        let is_right = block.base == addr.get() && block.size >= size && is_owners();
        return if is_right { Ok(()) } else { unfit() };
    }
    let mut ledger = LEDGER.write();
    match ledger.get_mut(&addr.get()) {
        Some(known) if known.size >= size && [0, owner.pool()].contains(&known.pool) => {
            (known.pool, known.requested) = (owner.pool(), requested);
            Ok(())
        }
        _ => unfit(),
    }
}

/// Frees memory that a dispatch handler returned and `adopt` rejected, if dtl_mem_alloc allocated
/// it. No other reference to this memory exists.
#[cold]
pub fn discard(inside: &Guard, addr: Addr, order: Option<&Stream>) {
    let handle = match heap::find(addr) {
        Some(block) => {
            (block.base == addr.get() && block.tag == host_alloc::NO_POOL).then(host_alloc::backend)
        }
        None => LEDGER
            .read()
            .get(&addr.get())
            .filter(|known| known.pool == 0)
            .map(|known| known.backend),
    };
    let Some(handle) = handle else { return };
    let freed = match order {
        // The handler may have queued work that uses the memory.
        Some(stream) => stream_ordered::free(inside, stream, addr),
        None => registry::find(inside, handle)
            .and_then(|backend| super::free(Owner::Program, backend, addr)),
    };
    log::failure(format_args!("freeing {addr:?}, which a handler gave for something else"), freed);
}
