//! What must be remembered of the few operations that are more than a request of MPI's.

use super::functions::Handle;
use crate::sys::buf::{Region, Scratch};
use crate::sys::lock::Mutex;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is special about an operation.
pub(super) enum Odd {
    /// A receive that MPI was asked to withdraw.
    Canceled,
    /// A send of a copy: the program may withdraw it, MPI cannot.
    Copied(Scratch),
    /// Such a send that was withdrawn. MPI goes on with the copy.
    Detached(Scratch),
    /// A receive of a message that is longer than its buffer: into room for all of it.
    Roomy { room: Scratch, into: Region },
    /// A collective that reads lists until it is over.
    #[allow(dead_code, reason = "kept until the collective is over, and read by MPI only")]
    Listed(Vec<Vec<c_int>>),
}

/// The odd ones among a transport's operations, by their request. Empty in most programs, and then a
/// look costs one load.
#[derive(Default)]
pub(super) struct Oddities {
    count: AtomicUsize,
    list: Mutex<Vec<(Handle, Odd)>>,
    /// Copies that MPI may still read although nobody asks after them any more.
    orphans: Mutex<Vec<Scratch>>,
}

impl Oddities {
    /// Whether there may be any. Relaxed: who started an operation is the one who asks after it, or heard
    /// of it from that thread.
    #[inline]
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
        self.take_if(request, |_| true)
    }

    fn take_if(&self, request: Handle, wanted: impl Fn(&Odd) -> bool) -> Option<Odd> {
        let mut list = self.list.lock();
        let at = list.iter().position(|(known, odd)| *known == request && wanted(odd))?;
        let (_, odd) = list.swap_remove(at);
        self.count.store(list.len(), Ordering::Relaxed);
        Some(odd)
    }

    /// Marks a receive as withdrawn; false: it was already.
    pub(super) fn cancel(&self, request: Handle) -> bool {
        let mut list = self.list.lock();
        if list.iter().any(|(known, odd)| *known == request && matches!(odd, Odd::Canceled)) {
            return false;
        }
        list.push((request, Odd::Canceled));
        self.count.store(list.len(), Ordering::Relaxed);
        true
    }

    /// Lets go of a send of a copy; false: it is none.
    pub(super) fn detach(&self, request: Handle) -> bool {
        let mut list = self.list.lock();
        let Some((_, odd)) = list.iter_mut().find(|(known, _)| *known == request) else { return false };
        match std::mem::replace(odd, Odd::Canceled) {
            Odd::Copied(copy) | Odd::Detached(copy) => {
                *odd = Odd::Detached(copy);
                true
            }
            other => {
                *odd = other;
                false
            }
        }
    }

    /// Whether a send was withdrawn; its copy stays for MPI.
    pub(super) fn end_detached(&self, request: Handle) -> bool {
        match self.take_if(request, |odd| matches!(odd, Odd::Detached(_))) {
            Some(Odd::Detached(copy)) => {
                self.orphans.lock().push(copy);
                true
            }
            _ => false,
        }
    }
}

impl Drop for Oddities {
    fn drop(&mut self) {
        // MPI may read them until it is finalised.
        std::mem::take(&mut *self.orphans.lock()).into_iter().for_each(std::mem::forget);
    }
}
