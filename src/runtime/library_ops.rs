//! Queries of the default dispatcher by the library's own operations. Without registered handlers a
//! query is one load and a branch.

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

/// One bit for each of the library's operations that has a handler. A thread that registers a
/// handler sees it used by its later calls. Nothing else is ordered by this word, so relaxed
/// accesses suffice.
static TAKEN: AtomicU32 = AtomicU32::new(0);

const fn bit(operation: dtl_enum_word_t) -> u32 {
    if operation >> 48 == DTL_OPERATION_ALLOC >> 48 {
        1_u32.wrapping_shl((operation >> 32) as u32)
    } else {
        0
    }
}

/// Returns true if a handler is registered for one of the library's operations. Every call checks
/// this.
#[must_use]
pub fn is_taken(operation: dtl_enum_word_t) -> bool {
    TAKEN.load(Ordering::Relaxed) & bit(operation) != 0
}

/// Notes the handlers that are registered with the default dispatcher now.
pub(super) fn note<'a>(registered: impl Iterator<Item = &'a Registration>) {
    let theirs = registered.filter(|registration| !matches!(registration.action, Action::Own));
    let keys = theirs.flat_map(|registration| &registration.keys);
    TAKEN.store(keys.fold(0, |bits, key| bits | bit(key.operation)), Ordering::Relaxed);
}

pub(super) fn forget() {
    TAKEN.store(0, Ordering::Relaxed);
}

/// A query of the library.
#[must_use]
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

/// The program's handler for something that the library is about to do. `None`: there is none, or
/// this thread is in it, so the library does it its own way.
pub fn theirs<'g>(inside: &'g Guard, query: &Query) -> Result<Option<&'g Registration>> {
    let Some(default) = find_quickly(inside, DEFAULT) else { return Ok(None) };
    let found = default.look(inside, query)?;
    let theirs = found.filter(|found| !matches!(found.action, Action::Own) && !found.is_running());
    theirs.map_or(Ok(()), |found| found.check_legal(query))?;
    Ok(theirs)
}

/// Has a program's handler do it, if there is one. For operations that no backend can be named for.
pub fn perform(inside: &Guard, query: &Query) -> Result<bool> {
    match theirs(inside, query)? {
        Some(handler) => handler.invoke(query, None).map(|()| true),
        None => Ok(false),
    }
}

/// A stream in whose order memory is wanted.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    /// Its handle, for handlers.
    pub handle: dtl_stream_t,
    /// The stream.
    pub stream: &'a Stream,
}

/// Memory from the handler of its kind. What a function gives is there at once, or in the stream's
/// order: either will do.
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

/// Allocates memory of `from` for a request to `asked`, which may be another backend. The
/// allocation is in the order of a stream if the stream is `from`'s.
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

/// Copies between two located places, by the handler of their kinds. `axes` describes the layout,
/// if it is not contiguous.
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
        (Action::Backend(_), Some(_)) => Ok(false), // in pieces, which come here one by one
        (Action::Backend(backend), None) => copy_by(backend, dst, src).map(|()| true),
        _ => handler.invoke(&query, None).map(|()| true),
    }
}

/// Layout of a copy that is not contiguous, by the arguments of dtl_mem_copy_strided.
pub struct Axes<'a> {
    /// Where the first element goes.
    pub dst: Addr,
    /// Where it is.
    pub src: Addr,
    /// Elements along each axis.
    pub shape: &'a [u64],
    /// Bytes from one to the next.
    pub dst_strides: &'a [i64],
    /// Bytes from one to the next.
    pub src_strides: &'a [i64],
    /// Bytes of one.
    pub element_bytes: u64,
}

/// Copies by a named backend, whichever backend owns the memory.
pub fn copy_by(backend: &Backend, dst: &Located<'_>, src: &Located<'_>) -> Result<()> {
    backend.ready()?;
    match &backend.transfer {
        Some(transfer) => transfer.copy(dst.place, src.place),
        None => Err(backend.lacks("transfer")),
    }
}

/// Returns true if the program may have a handler for a copy; predicates are not called yet.
pub fn may_copy(inside: &Guard, dst: &Located<'_>, src: &Located<'_>) -> bool {
    let slots = [src.place.kind, dst.place.kind, DTL_DISPATCH_ANY];
    find_quickly(inside, DEFAULT)
        .is_some_and(|default| default.may_take(inside, DTL_OPERATION_COPY, &slots))
}

/// Refuses a schedule that no handler took, unless it is a built-in one, which streams implement.
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

/// Refuses a word that is not a schedule, or was never given out.
pub fn check_schedule_word(schedule: dtl_enum_word_t) -> Result<()> {
    match schedule {
        0 => Ok(()),
        _ => enums::check(schedule, DTL_ENUM_SCHEDULE)
            .map_err(|error| error.within("dtl_launch_t.schedule")),
    }
}
