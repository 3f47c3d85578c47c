//! State of the few operations that need more state than an MPI_Request.

use super::library::functions::{Count, Handle};
use crate::sys::compute::callback::ForeignTester;
use crate::sys::memory::buf::{Region, Scratch};
use crate::sys::sync::lock::Mutex;
use std::ffi::c_int;
use std::sync::Arc;

/// Argument that MPI reads until a collective completes. The memory that the argument owns does not
/// move.
#[allow(dead_code, reason = "read by MPI only")]
pub(crate) enum RetainedArg {
    List(Vec<c_int>),
    Counts(Vec<Count>),
    Data(Scratch),
}

/// State of an operation in addition to its MPI request.
pub(super) enum OpExtra {
    /// A receive for which MPI_Cancel has been called.
    Canceled,
    /// A receive whose buffer `into` is shorter than the message: `room` holds the whole message.
    Roomy { room: Scratch, into: Region },
    /// A collective with argument lists that MPI reads until the collective completes.
    #[allow(dead_code, reason = "kept until the collective is over, and read by MPI only")]
    Keeps(Vec<RetainedArg>),
}

/// Additional state of the operations of a transport (state that their MPI requests do not
/// contain), keyed by request. The list is empty in most programs. A lookup in an empty list costs
/// one load, because the number of entries is stored next to the data that is read whenever an
/// operation is tested.
pub(super) struct OpExtras {
    asking: Arc<ForeignTester>,
    list: Mutex<Vec<(Handle, OpExtra)>>,
}

impl OpExtras {
    /// Creates an empty list for the operations that `asking` tests.
    pub(super) fn new(asking: Arc<ForeignTester>) -> Self {
        OpExtras { asking, list: Mutex::new(Vec::new()) }
    }

    /// Returns true if the list may have entries.
    pub(super) fn any(&self) -> bool {
        self.asking.has_extras()
    }

    pub(super) fn add(&self, request: Handle, extras: OpExtra) {
        let mut list = self.list.lock();
        list.push((request, extras));
        self.asking.set_extras(list.len());
    }

    /// Removes and returns the list entry of a completed request; returns `None` if the request has
    /// no entry.
    pub(super) fn take(&self, request: Handle) -> Option<OpExtra> {
        let mut list = self.list.lock();
        let at = list.iter().position(|(known, _)| *known == request)?;
        let (_, extras) = list.swap_remove(at);
        self.asking.set_extras(list.len());
        Some(extras)
    }

    /// Marks a receive as canceled; returns false if the list already has an entry for it, because
    /// it was canceled before or is a matched receive into a temporary buffer.
    pub(super) fn cancel(&self, request: Handle) -> bool {
        let mut list = self.list.lock();
        if list.iter().any(|(known, _)| *known == request) {
            return false;
        }
        list.push((request, OpExtra::Canceled));
        self.asking.set_extras(list.len());
        true
    }
}
