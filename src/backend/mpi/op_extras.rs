//! What must be remembered of the few operations that are more than a request of MPI's.

use super::coll::collective::RetainedArgs;
use super::library::functions::Handle;
use crate::sys::compute::foreign_test::ForeignTester;
use crate::sys::memory::buf::{Region, Scratch};
use crate::sys::sync::lock::Mutex;
use std::sync::Arc;

/// What is special about an operation.
pub(super) enum OpExtra {
    /// A receive that MPI was requested to cancel.
    Canceled,
    /// A receive of a message that is longer than its buffer: into room for all of it.
    Roomy { room: Scratch, into: Region },
    /// A collective that reads lists until it is over.
    #[allow(dead_code, reason = "kept until the collective is over, and read by MPI only")]
    Keeps(RetainedArgs),
}

/// The odd ones among a transport's operations, by their request. Empty in most programs, and then
/// a look costs one load: they are counted next to what every question reads.
pub(super) struct OpExtras {
    asking: Arc<ForeignTester>,
    list: Mutex<Vec<(Handle, OpExtra)>>,
}

impl OpExtras {
    /// Empty side state for the operations that `asking` tests.
    pub(super) fn new(asking: Arc<ForeignTester>) -> Self {
        OpExtras { asking, list: Mutex::new(Vec::new()) }
    }

    /// Whether there may be any.
    pub(super) fn any(&self) -> bool {
        self.asking.has_odd()
    }

    pub(super) fn add(&self, request: Handle, odd: OpExtra) {
        let mut list = self.list.lock();
        list.push((request, odd));
        self.asking.set_odd(list.len());
    }

    /// Takes what is known of a request that is over.
    pub(super) fn take(&self, request: Handle) -> Option<OpExtra> {
        let mut list = self.list.lock();
        let at = list.iter().position(|(known, _)| *known == request)?;
        let (_, odd) = list.swap_remove(at);
        self.asking.set_odd(list.len());
        Some(odd)
    }

    /// Marks a receive as withdrawn; false: it was already, or has been matched.
    pub(super) fn cancel(&self, request: Handle) -> bool {
        let mut list = self.list.lock();
        if list.iter().any(|(known, _)| *known == request) {
            return false;
        }
        list.push((request, OpExtra::Canceled));
        self.asking.set_odd(list.len());
        true
    }
}
