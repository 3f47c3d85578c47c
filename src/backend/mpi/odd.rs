//! What must be remembered of the few operations that are more than a request of MPI's.

use super::collective::Kept;
use super::functions::Handle;
use crate::sys::buf::{Region, Scratch};
use crate::sys::lock::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is special about an operation.
pub(super) enum Odd {
    /// A receive that MPI was asked to withdraw.
    Canceled,
    /// A receive of a message that is longer than its buffer: into room for all of it.
    Roomy { room: Scratch, into: Region },
    /// A collective that reads lists until it is over.
    #[allow(dead_code, reason = "kept until the collective is over, and read by MPI only")]
    Keeps(Kept),
}

/// The odd ones among a transport's operations, by their request. Empty in most programs, and then a
/// look costs one load: the count stands first, next to what every message reads.
#[derive(Default)]
#[repr(C)]
pub(super) struct Oddities {
    count: AtomicUsize,
    list: Mutex<Vec<(Handle, Odd)>>,
}

impl Oddities {
    /// Whether there may be any. Relaxed: who started an operation is the one who asks after it, or heard
    /// of it from that thread.
    #[inline(always)]
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub(super) fn add(&self, request: Handle, odd: Odd) {
        let mut list = self.list.lock();
        list.push((request, odd));
        self.count.store(list.len(), Ordering::Relaxed);
    }

    /// Takes what is known of a request that is over.
    pub(super) fn take(&self, request: Handle) -> Option<Odd> {
        let mut list = self.list.lock();
        let at = list.iter().position(|(known, _)| *known == request)?;
        let (_, odd) = list.swap_remove(at);
        self.count.store(list.len(), Ordering::Relaxed);
        Some(odd)
    }

    /// Marks a receive as withdrawn; false: it was already, or has been matched.
    pub(super) fn cancel(&self, request: Handle) -> bool {
        let mut list = self.list.lock();
        if list.iter().any(|(known, _)| *known == request) {
            return false;
        }
        list.push((request, Odd::Canceled));
        self.count.store(list.len(), Ordering::Relaxed);
        true
    }
}
