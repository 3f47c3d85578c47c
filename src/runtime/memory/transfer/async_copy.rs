//! Copies and fills in stream order.
//!
//! On a stream that the library implements, the worker thread of the stream copies with the
//! functions of `transfer`. On a backend's stream, the copy_async function of the backend is used
//! if the source or destination is memory of that backend. If the backend has no copy_async, the
//! calling thread waits for the stream and then copies, because a host callback in a backend's
//! stream must not call the backend.

use crate::abi::devices::device::DTL_PREFETCH_HOST;
use crate::abi::word::DTL_OPERATION_COPY;
use crate::error::Result;
use crate::runtime::component::Token;
use crate::runtime::exec::handles;
use crate::runtime::exec::stream::Stream;
use crate::runtime::memory::handlers;
use crate::runtime::memory::{Located, locate, transfer};
use crate::runtime::registry::Backend;
use crate::runtime::{library_ops, trace};
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::memory::buf::Region;
use std::sync::Arc;

/// Queues a copy of `src` to `dst`, which have the same length. Returns an error immediately if a
/// range is invalid.
pub fn copy(inside: &Guard, stream: &Stream, dst: Region, src: Region) -> Result<()> {
    if dst.is_empty() {
        return Ok(());
    }
    transfer::check_apart(dst, src)?;
    let (to, from) = (locate(inside, "destination", dst)?, locate(inside, "source", src)?);
    trace::about(|| transfer::what(&to, &from));
    let Some(token) = stream.token() else {
        return stream.run(move || transfer::copy(&epoch::enter(), dst, src));
    };
    // A handler of the program must not run in a backend's callback, either.
    if !library_ops::is_taken(DTL_OPERATION_COPY) || !handlers::may_copy(inside, &to, &from) {
        if let Some(result) = by_backend(stream, token, &to, &from) {
            return result;
        }
    }
    stream.run_here(|| transfer::copy(inside, dst, src))
}

/// Queues an asynchronous copy through the stream's backend if source and destination are memory of
/// that backend or host memory that no backend owns. Returns `None` if the backend cannot queue the
/// copy.
fn by_backend(
    stream: &Stream,
    token: Token,
    to: &Located<'_>,
    from: &Located<'_>,
) -> Option<Result<()>> {
    let owner = to.owner.or(from.owner)?;
    let ours = |side: &Located<'_>| side.owner.is_none_or(|owner| is_on(stream, owner));
    if !ours(to) || !ours(from) {
        return None;
    }
    let result = owner.transfer.as_ref()?.copy_async(token, to.place, from.place).transpose()?;
    stream.note_work();
    Some(result)
}

fn is_on(stream: &Stream, backend: &Backend) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(stream.backend()), backend)
}

/// Queues a fill of all bytes of `dst` with `value`.
pub fn fill(inside: &Guard, stream: &Stream, dst: Region, value: u8) -> Result<()> {
    if dst.is_empty() {
        return Ok(());
    }
    let to = locate(inside, "destination", dst)?;
    let Some(token) = stream.token() else {
        return stream.run(move || transfer::fill(&epoch::enter(), dst, value));
    };
    if let Some(transfer) =
        to.owner.filter(|owner| is_on(stream, owner)).and_then(|home| home.transfer.as_ref())
    {
        if let Some(result) = transfer.fill_async(token, to.place, value).transpose() {
            stream.note_work();
            return result;
        }
    }
    stream.run_here(|| transfer::fill(inside, dst, value))
}

/// Queues the migration of memory to a device, or to the host for DTL_PREFETCH_HOST. Memory that
/// cannot migrate stays where it is.
pub fn prefetch(inside: &Guard, stream: &Stream, region: Region, device: i32) -> Result<()> {
    if device != DTL_PREFETCH_HOST {
        handles::check_device(stream.backend(), device)?;
    }
    if region.is_empty() {
        return Ok(());
    }
    let at = locate(inside, "ptr", region)?;
    let (Some(token), Some(owner)) =
        (stream.token(), at.owner.filter(|owner| is_on(stream, owner)))
    else {
        return Ok(());
    };
    let Some(queued) =
        owner.transfer.as_ref().and_then(|way| way.prefetch(token, at.place, device).transpose())
    else {
        return Ok(());
    };
    stream.note_work();
    queued
}
