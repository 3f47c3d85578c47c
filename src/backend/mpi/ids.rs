//! Encoding of an MPI operation in a 64-bit word: MPI's request, and two low bits for the kind of
//! the operation.
//!
//! A request is a pointer, or an `int` in a zeroed word. So its three highest bits are equal, and
//! the encoding omits two of them. The lowest bit marks a send. The next bit marks a persistent
//! operation, for which the word holds the address of its `PersistentRequest`.

use super::library::functions::Handle;
use super::persistent::PersistentRequest;
use crate::runtime::component::OpId;
use crate::sys::compute::callback::{OTHER as KEPT, SEND, request_in};

/// Encodes a request, and whether it is a send, as an operation ID.
pub(super) fn id_of(request: Handle, is_send: bool) -> OpId {
    OpId(request << 2 | if is_send { SEND } else { 0 })
}

/// Encodes a persistent request as an operation ID, which then owns the `PersistentRequest`.
/// [`kept`] returns a reference to the `PersistentRequest` until [`end`] reclaims it.
pub(super) fn lend(kept: Box<PersistentRequest>) -> OpId {
    let is_send = kept.is_send;
    OpId(id_of(Box::into_raw(kept).expose_provenance() as u64, is_send).0 | KEPT)
}

/// Returns the request of an operation, and whether the operation is a send.
pub(super) fn request_of(op: OpId) -> (Handle, bool) {
    match kept(op) {
        None => plain(op),
        Some(kept) => (kept.request(), kept.is_send),
    }
}

/// Returns the `PersistentRequest` of a persistent operation; returns `None` for other operations.
pub(super) fn kept<'a>(op: OpId) -> Option<&'a PersistentRequest> {
    // SAFETY: only words of `lend` have the bit set; the runtime completes an operation once and
    // does not use its word afterwards.
    is_kept(op).then(|| unsafe { &*address(op) })
}

/// Takes the `PersistentRequest` back from the operation ID `op`, to which [`lend`] passed its
/// ownership; returns `None` if `op` is not persistent.
pub(super) fn end(op: OpId) -> Option<Box<PersistentRequest>> {
    // SAFETY: only words of `lend` have the bit set, and they come from `Box::into_raw`; the
    // runtime completes an operation once and does not use its word afterwards, so the box is
    // reclaimed once and no borrow of it is left.
    is_kept(op).then(|| unsafe { Box::from_raw(address(op)) })
}

/// Returns true if the operation is persistent.
pub(super) fn is_kept(op: OpId) -> bool {
    op.0 & KEPT != 0
}

fn address(op: OpId) -> *mut PersistentRequest {
    std::ptr::with_exposed_provenance_mut(plain(op).0 as usize)
}

/// Decodes an operation that is not persistent: returns its MPI request, and true if it is a send.
pub(super) fn plain(op: OpId) -> (Handle, bool) {
    (request_in(op.0), op.0 & SEND != 0)
}

#[cfg(test)]
#[path = "tests/ids.rs"]
mod tests;
