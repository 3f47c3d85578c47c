//! Ranks in one process, with buffers and selectors for their messages, for tests.

use super::inproc;
use crate::runtime::comm::Comm;
use crate::runtime::comm::open::open_kind;
use crate::runtime::component::{BackendProbe, Selector, Transport};
use crate::runtime::registry::Backend;
use crate::sys::memory::buf::{Region, Scratch};
use std::sync::Arc;

/// Creates the backend "threads" and all ranks of one of its communicators.
pub(crate) fn threads(size: i32) -> (Arc<Backend>, Vec<Box<dyn Transport>>) {
    let [_, threads] = inproc::backends();
    let ranks = threads.comm.as_ref().and_then(|comm| comm.open_ranks(size));
    let ranks = ranks.expect("ranks of one process").expect("open");
    (Arc::new(threads), ranks)
}

/// Opens a communicator with `size` ranks, and returns one handle for each rank.
pub(crate) fn comms(size: i32) -> Vec<Comm> {
    let (backend, ranks) = threads(size);
    let open =
        |rank| open_kind::assemble(Arc::clone(&backend), rank, 0, 1_000_000_000).expect("open");
    ranks.into_iter().map(open).collect()
}

/// Returns the handle of the rank of `transport` in a communicator without a time limit.
pub(crate) fn comm_over(transport: Box<dyn Transport>) -> Comm {
    let backend = Arc::new(Backend::new(c"mock", 0, true, Box::new(Present)));
    open_kind::assemble(backend, transport, 0, u64::MAX).expect("assembled")
}

struct Present;

impl BackendProbe for Present {}

pub(super) fn buffer(bytes: &[u8]) -> Scratch {
    // SAFETY: the slice outlives the copy made here; `copy_of` only reads it.
    Scratch::copy_of(unsafe { Region::new(bytes.as_ptr().cast_mut().cast(), bytes.len()) })
        .expect("memory")
}

pub(super) fn bytes(scratch: &Scratch) -> &[u8] {
    // SAFETY: the tests read a buffer only after the operation on it is complete.
    unsafe { scratch.region().as_slice() }
}

pub(super) fn from(source: i32, word: u64) -> Selector {
    Selector { source, match_bits: word, ignore: 0 }
}
