//! Allocations and copies through handlers (functions or backends) that the program registered with
//! the default dispatcher.

use super::{Allocation, Located, Owner, Request, adopt, alloc_own, check, discard};
use crate::abi::devices::dispatch::*;
use crate::abi::handle::{dtl_backend_t, dtl_stream_t};
use crate::abi::word::*;
use crate::error::Result;
use crate::from_c::blank;
use crate::runtime::dispatch::{Action, DEFAULT, find_quickly};
use crate::runtime::enums::{self, describe};
use crate::runtime::exec::stream::Stream;
use crate::runtime::library_ops::{is_taken, perform, query, theirs};
use crate::runtime::registry::Backend;
use crate::runtime::trace::{self, Args};
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::memory::buf::Addr;

/// Allocates memory: through the dispatch handler that the user has registered for the memory kind,
/// if there is one, else from the backend. If a stream of the backend is passed, requests a
/// stream-ordered allocation on that stream.
pub fn alloc(
    owner: Owner,
    backend: &Backend,
    wanted: &Request,
    order: Option<Order<'_>>,
) -> Result<Addr> {
    let Request { kind, size, align } = *wanted;
    trace::about(|| {
        Args::NONE.bytes(size).what(format_args!("{} of {}", describe(kind), backend.name()))
    });
    if is_taken(DTL_OPERATION_ALLOC) {
        check(size, align)?;
        if let Some(addr) = by_handler(owner, backend, wanted, order)? {
            return Ok(addr);
        }
    }
    alloc_own(owner, backend, wanted, order.map(|order| order.stream))
}

/// Stream of a stream-ordered allocation.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    /// Handle of the stream. The handle is passed to dispatch handlers.
    pub handle: dtl_stream_t,
    /// Stream object.
    pub stream: &'a Stream,
}

/// Allocates memory through the dispatch handler for the memory kind; returns `None` if there is no
/// handler. The memory that a handler function returns may be usable immediately, or only in the
/// order of the stream.
fn by_handler(
    owner: Owner,
    requested: &Backend,
    wanted: &Request,
    order: Option<Order<'_>>,
) -> Result<Option<Addr>> {
    enums::schedule::check_memory_kind(wanted.kind)?;
    let inside = epoch::enter();
    let mut args = dtl_dispatch_alloc_t {
        backend: requested.handle(),
        kind: wanted.kind,
        size_bytes: wanted.size,
        alignment: wanted.align,
        stream: order.map_or(dtl_stream_t { id: 0 }, |order| order.handle),
        ..blank()
    };
    let order = order.map(|order| order.stream);
    let slots = [DTL_DISPATCH_ANY, wanted.kind, DTL_DISPATCH_ANY];
    let query = query(DTL_OPERATION_ALLOC, slots, std::ptr::from_mut(&mut args).cast());
    let Some(handler) = theirs(&inside, &query)? else { return Ok(None) };
    if let Action::Backend(backend) = &handler.action {
        return alloc_from(owner, requested, backend, wanted, order).map(Some);
    }
    handler.invoke(&query, None)?;
    let addr = Addr::new(args.ptr);
    adopt(owner, requested.handle(), addr, wanted, &handler.name)
        .inspect_err(|_| discard(&inside, addr, order))?;
    Ok(Some(addr))
}

/// Allocates memory of backend `from` for a request to the same or to another backend. The
/// allocation is stream-ordered if the stream belongs to `from`.
pub fn alloc_from(
    owner: Owner,
    requested: &Backend,
    from: &Backend,
    wanted: &Request,
    order: Option<&Stream>,
) -> Result<Addr> {
    let order = order.filter(|stream| stream.backend().handle() == from.handle());
    let addr = alloc_own(owner, from, wanted, order)?;
    if requested.handle() == from.handle() {
        return Ok(addr);
    }
    let adopted = adopt(owner, requested.handle(), addr, wanted, from.name());
    if adopted.is_err() {
        super::free(owner, from, addr)?;
    }
    adopted.map(|()| addr)
}

/// Frees memory through the dispatch handler for its kind. Returns false without freeing if there
/// is no such handler.
pub fn free(requested: &Backend, addr: Addr, allocation: &Allocation) -> Result<bool> {
    let inside = epoch::enter();
    let mut args = dtl_dispatch_free_t {
        backend: requested.handle(),
        kind: allocation.kind,
        ptr: addr.ptr(),
        size_bytes: allocation.size,
        ..blank()
    };
    let slots = [allocation.kind, DTL_DISPATCH_ANY, DTL_DISPATCH_ANY];
    perform(&inside, &query(DTL_OPERATION_FREE, slots, std::ptr::from_mut(&mut args).cast()))
}

/// Copies from `src` to `dst` through the dispatch handler for their memory kinds. Returns false
/// without copying if there is no such handler, or if the handler is a backend and `axes` (a
/// noncontiguous layout) is given.
pub fn copy(
    inside: &Guard,
    dst: &Located<'_>,
    src: &Located<'_>,
    axes: Option<&Axes<'_>>,
) -> Result<bool> {
    let home = |side: &Located<'_>| side.owner.map_or(dtl_backend_t { id: 0 }, Backend::handle);
    let mut args = dtl_dispatch_copy_t {
        dst: dst.place.region.addr().ptr(),
        src: src.place.region.addr().ptr(),
        size_bytes: dst.place.region.len() as u64,
        dst_backend: home(dst),
        src_backend: home(src),
        element_bytes: 1,
        ..blank()
    };
    let shape: Vec<i64>;
    if let Some(axes) = axes {
        shape = axes.shape.iter().map(|&count| count as i64).collect();
        (args.dst, args.src) = (axes.dst.ptr(), axes.src.ptr());
        args.ndim = axes.shape.len() as i32;
        args.element_bytes = axes.element_bytes;
        args.size_bytes = axes.shape.iter().product::<u64>() * axes.element_bytes;
        args.shape = shape.as_ptr();
        (args.dst_strides, args.src_strides) =
            (axes.dst_strides.as_ptr(), axes.src_strides.as_ptr());
    }
    let slots = [src.place.kind, dst.place.kind, DTL_DISPATCH_ANY];
    let query = query(DTL_OPERATION_COPY, slots, std::ptr::from_mut(&mut args).cast());
    let Some(handler) = theirs(inside, &query)? else { return Ok(false) };
    match (&handler.action, axes) {
        (Action::Backend(_), Some(_)) => Ok(false), // copied piece by piece, by later queries
        (Action::Backend(backend), None) => copy_by(backend, dst, src).map(|()| true),
        _ => handler.invoke(&query, None).map(|()| true),
    }
}

/// Layout of a noncontiguous copy, in the form of the arguments of dtl_mem_copy_strided.
pub struct Axes<'a> {
    /// Address of the first element at the destination.
    pub dst: Addr,
    /// Address of the first element at the source.
    pub src: Addr,
    /// Number of elements along each axis.
    pub shape: &'a [u64],
    /// Stride of each axis at the destination, in elements.
    pub dst_strides: &'a [i64],
    /// Stride of each axis at the source, in elements.
    pub src_strides: &'a [i64],
    /// Size of an element in bytes.
    pub element_bytes: u64,
}

/// Copies through the given backend, regardless of which backend owns the memory.
pub fn copy_by(backend: &Backend, dst: &Located<'_>, src: &Located<'_>) -> Result<()> {
    backend.ready()?;
    match &backend.transfer {
        Some(transfer) => transfer.copy(dst.place, src.place),
        None => Err(backend.lacks("transfer")),
    }
}

/// Returns true if a handler that the user has registered may apply to a copy. Does not call the
/// predicates, which decide whether a handler accepts a copy.
pub fn may_copy(inside: &Guard, dst: &Located<'_>, src: &Located<'_>) -> bool {
    let slots = [src.place.kind, dst.place.kind, DTL_DISPATCH_ANY];
    find_quickly(inside, DEFAULT)
        .is_some_and(|default| default.may_take(inside, DTL_OPERATION_COPY, &slots))
}
