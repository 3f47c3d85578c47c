//! Queries of the default dispatcher by the library's own operations. Without registered handlers a
//! query costs one load and one branch.

use super::dispatch::bitmap_index::Slots;
use super::dispatch::{Action, DEFAULT, Query, Registration, find_quickly};
use crate::abi::devices::dispatch::*;
use crate::abi::enums::DTL_ENUM_SCHEDULE;
use crate::abi::handle::{dtl_backend_t, dtl_stream_t};
use crate::abi::word::*;
use crate::error::{Result, fail};
use crate::runtime::enums;
use crate::runtime::exec::stream::Stream;
use crate::runtime::memory::{self, Located, Owner};
use crate::runtime::registry::Backend;
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::memory::buf::Addr;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bit set of the library's operations that have a handler. A thread that registers a handler sees
/// its own later calls use it. This word orders nothing else, so relaxed accesses suffice.
static TAKEN: AtomicU32 = AtomicU32::new(0);

const fn bit(operation: dtl_enum_word_t) -> u32 {
    if operation >> 48 == DTL_OPERATION_ALLOC >> 48 {
        1_u32.wrapping_shl((operation >> 32) as u32)
    } else {
        0
    }
}

/// Returns true if a handler is registered for an operation of the library. Every call checks this.
#[must_use]
pub fn is_taken(operation: dtl_enum_word_t) -> bool {
    TAKEN.load(Ordering::Relaxed) & bit(operation) != 0
}

/// Records which operations have handlers, from the registrations of the default dispatcher.
pub(super) fn note<'a>(registered: impl Iterator<Item = &'a Registration>) {
    let theirs = registered.filter(|registration| !matches!(registration.action, Action::Own));
    let keys = theirs.flat_map(|registration| &registration.keys);
    TAKEN.store(keys.fold(0, |bits, key| bits | bit(key.operation)), Ordering::Relaxed);
}

pub(super) fn forget() {
    TAKEN.store(0, Ordering::Relaxed);
}

/// Creates a dispatcher query for one of the library's operations.
pub fn query(
    operation: dtl_enum_word_t,
    [source, destination, schedule]: Slots,
    args: *mut c_void,
) -> Query {
    Query {
        struct_size: size_of::<Query>() as u32,
        reserved: 0,
        operation,
        source,
        destination,
        schedule,
        args,
    }
}

/// Returns the program's handler for an operation that the library is about to execute. `None`: no
/// handler exists, or this thread is inside the handler; the library executes the operation.
pub fn theirs<'g>(inside: &'g Guard, query: &Query) -> Result<Option<&'g Registration>> {
    let Some(default) = find_quickly(inside, DEFAULT) else { return Ok(None) };
    let found = default.look(inside, query)?;
    let theirs = found.filter(|found| !matches!(found.action, Action::Own) && !found.is_running());
    theirs.map_or(Ok(()), |found| found.check_legal(query))?;
    Ok(theirs)
}

/// Executes an operation by the program's handler; returns false if there is no handler. For
/// operations whose handlers cannot name a backend.
pub fn perform(inside: &Guard, query: &Query) -> Result<bool> {
    match theirs(inside, query)? {
        Some(handler) => handler.invoke(query, None).map(|()| true),
        None => Ok(false),
    }
}

/// Stream in whose order memory is allocated.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    /// Handle of the stream, for handlers.
    pub handle: dtl_stream_t,
    /// Stream object.
    pub stream: &'a Stream,
}

/// Allocates memory by the handler of the memory kind; returns `None` if there is no handler. A
/// handler function may return memory that is usable at once or in the order of the stream.
pub fn alloc(
    owner: Owner,
    asked: &Backend,
    wanted: &memory::Request,
    order: Option<Order<'_>>,
) -> Result<Option<Addr>> {
    enums::schedule::check_memory_kind(wanted.kind)?;
    let inside = epoch::enter();
    let mut args = dtl_dispatch_alloc_t {
        struct_size: size_of::<dtl_dispatch_alloc_t>() as u32,
        reserved: 0,
        backend: asked.handle(),
        kind: wanted.kind,
        size_bytes: wanted.size,
        alignment: wanted.align,
        ptr: std::ptr::null_mut(),
        stream: order.map_or(dtl_stream_t::NULL, |order| order.handle),
    };
    let order = order.map(|order| order.stream);
    let slots = [DTL_DISPATCH_ANY, wanted.kind, DTL_DISPATCH_ANY];
    let query = query(DTL_OPERATION_ALLOC, slots, std::ptr::from_mut(&mut args).cast());
    let Some(handler) = theirs(&inside, &query)? else { return Ok(None) };
    if let Action::Backend(backend) = &handler.action {
        return alloc_from(owner, asked, backend, wanted, order).map(Some);
    }
    handler.invoke(&query, None)?;
    let addr = Addr::new(args.ptr);
    memory::adopt(owner, asked.handle(), addr, wanted, &handler.name)
        .inspect_err(|_| memory::discard(&inside, addr, order))?;
    Ok(Some(addr))
}

/// Allocates memory of backend `from` for a request to the same or to another backend. The
/// allocation is stream-ordered if the stream belongs to `from`.
pub fn alloc_from(
    owner: Owner,
    asked: &Backend,
    from: &Backend,
    wanted: &memory::Request,
    order: Option<&Stream>,
) -> Result<Addr> {
    let addr = match order.filter(|stream| stream.home().handle() == from.handle()) {
        Some(stream) => memory::stream_ordered::alloc_own(stream, wanted)?,
        None => memory::alloc_own(owner, from, wanted)?,
    };
    if asked.handle() == from.handle() {
        return Ok(addr);
    }
    let adopted = memory::adopt(owner, asked.handle(), addr, wanted, from.name());
    if adopted.is_err() {
        memory::free(owner, from, addr)?;
    }
    adopted.map(|()| addr)
}

/// Copies from `src` to `dst` by the handler of their memory kinds; returns false if there is no
/// handler. `axes` describes a layout that is not contiguous.
pub fn copy(
    inside: &Guard,
    dst: &Located<'_>,
    src: &Located<'_>,
    axes: Option<&Axes<'_>>,
) -> Result<bool> {
    let home = |side: &Located<'_>| side.owner.map_or(dtl_backend_t::NULL, Backend::handle);
    let mut args = dtl_dispatch_copy_t {
        struct_size: size_of::<dtl_dispatch_copy_t>() as u32,
        ndim: 0,
        dst: dst.place.region.addr().ptr(),
        src: src.place.region.addr().ptr(),
        size_bytes: dst.place.region.len() as u64,
        dst_backend: home(dst),
        src_backend: home(src),
        element_bytes: 1,
        shape: std::ptr::null(),
        dst_strides_bytes: std::ptr::null(),
        src_strides_bytes: std::ptr::null(),
    };
    if let Some(axes) = axes {
        (args.dst, args.src) = (axes.dst.ptr(), axes.src.ptr());
        args.ndim = axes.shape.len() as u32;
        args.element_bytes = axes.element_bytes;
        args.size_bytes = axes.shape.iter().product::<u64>() * axes.element_bytes;
        args.shape = axes.shape.as_ptr();
        (args.dst_strides_bytes, args.src_strides_bytes) =
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
    /// Distance in bytes between neighbouring elements at the destination, by axis.
    pub dst_strides: &'a [i64],
    /// Distance in bytes between neighbouring elements at the source, by axis.
    pub src_strides: &'a [i64],
    /// Size of an element in bytes.
    pub element_bytes: u64,
}

/// Copies by the given backend, whichever backend owns the memory.
pub fn copy_by(backend: &Backend, dst: &Located<'_>, src: &Located<'_>) -> Result<()> {
    backend.ready()?;
    match &backend.transfer {
        Some(transfer) => transfer.copy(dst.place, src.place),
        None => Err(backend.lacks("transfer")),
    }
}

/// Returns true if the program may have a handler for a copy; predicates are not called.
pub fn may_copy(inside: &Guard, dst: &Located<'_>, src: &Located<'_>) -> bool {
    let slots = [src.place.kind, dst.place.kind, DTL_DISPATCH_ANY];
    find_quickly(inside, DEFAULT)
        .is_some_and(|default| default.may_take(inside, DTL_OPERATION_COPY, &slots))
}

/// Checks a schedule that no handler accepted: must be 0 or built in, which streams implement.
pub fn check_schedule(schedule: dtl_enum_word_t) -> Result<()> {
    match schedule {
        0 | DTL_SCHEDULE_SEQUENTIAL | DTL_SCHEDULE_MULTICORE | DTL_SCHEDULE_DEVICE => Ok(()),
        _ => {
            check_schedule_word(schedule)?;
            fail!(
                DTL_ERROR_NOT_FOUND,
                "no handler for {}; dtl_dispatch_register adds one to the default dispatcher",
                super::dispatch::text::of_query(&query(
                    DTL_OPERATION_LAUNCH,
                    [0, 0, schedule],
                    std::ptr::null_mut()
                ))
            )
        }
    }
}

/// Fails if a word is not a schedule, or was never assigned.
pub fn check_schedule_word(schedule: dtl_enum_word_t) -> Result<()> {
    match schedule {
        0 => Ok(()),
        _ => enums::check(schedule, DTL_ENUM_SCHEDULE)
            .map_err(|error| error.within("dtl_launch_t.schedule")),
    }
}
