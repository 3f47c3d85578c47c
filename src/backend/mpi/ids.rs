//! An operation's word: MPI's request, and in the two lowest bits what it is.
//!
//! Requests are pointers, or `int`s in words that begin as zero, so the three highest bits of one
//! are equal and two of them can be left out. The lowest bit marks a send. The next bit marks a
//! persistent operation; the word then holds the address of its record (`persistent`).

use super::library::functions::Handle;
use super::persistent::PersistentRequest;
use crate::runtime::component::OpId;
use crate::sys::compute::foreign_test::{OTHER as KEPT, SEND, request_in};

/// The word of a request.
#[inline]
pub(super) fn id_of(request: Handle, is_send: bool) -> OpId {
    OpId(request << 2 | if is_send { SEND } else { 0 })
}

/// The word of what is started again and again; [`kept`] finds it until [`end`] takes it back.
pub(super) fn lend(kept: Box<PersistentRequest>) -> OpId {
    let is_send = kept.is_send();
    OpId(id_of(Box::into_raw(kept).expose_provenance() as u64, is_send).0 | KEPT)
}

/// The request, and whether it is a send.
#[inline]
pub(super) fn request_of(op: OpId) -> (Handle, bool) {
    match kept(op) {
        None => plain(op),
        Some(kept) => (kept.request(), kept.is_send()),
    }
}

/// What is known of one that is started again and again; `None`: it is an ordinary one.
#[inline]
pub(super) fn kept<'a>(op: OpId) -> Option<&'a PersistentRequest> {
    // SAFETY: the bit is set in words of `lend` only; runtime ends an operation once and does not
    // name it afterwards.
    is_kept(op).then(|| unsafe { &*address(op) })
}

/// Takes back what `lend` gave; `None`: it is an ordinary one.
pub(super) fn end(op: OpId) -> Option<Box<PersistentRequest>> {
    // SAFETY: the bit is set in words of `lend` only, which come from `Box::into_raw`; runtime ends
    // an operation once and does not name it afterwards, so the box is taken back once and no
    // borrow of it is left.
    is_kept(op).then(|| unsafe { Box::from_raw(address(op)) })
}

/// Whether it is started again and again.
#[inline]
pub(super) fn is_kept(op: OpId) -> bool {
    op.0 & KEPT != 0
}

fn address(op: OpId) -> *mut PersistentRequest {
    std::ptr::with_exposed_provenance_mut(plain(op).0 as usize)
}

/// The request of an ordinary one, and whether it is a send.
#[inline]
pub(super) fn plain(op: OpId) -> (Handle, bool) {
    (request_in(op.0), op.0 & SEND != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_tells_the_request_and_what_it_is() {
        for request in [0, 0x2C00_0000, 0xAC00_0001, 0x7FFF_FFFF_FFF0, !0xFFF] {
            for is_send in [false, true] {
                assert_eq!(request_of(id_of(request, is_send)), (request, is_send), "{request:#x}");
                assert!(kept(id_of(request, is_send)).is_none(), "{request:#x}");
            }
        }
    }
}
