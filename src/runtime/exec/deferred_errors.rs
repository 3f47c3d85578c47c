//! Failures of the work that the library itself does in a backend's stream: host callbacks, kernels
//! from functions, copies that the backend cannot queue. The backend does not see such failures, so
//! its events complete behind failed work, too. An event therefore carries a [`Mark`] of the work
//! before its record; the library reads it when the backend's event is done.
//!
//! Pieces are numbered in the stream's order. Only the first unreported failure matters: an event
//! carries it if it lies before the record, and what fails later lies behind that one.
//!
//! Not here: failures of a backend's own work, which its slots answer; streams of the library's own
//! (`host_stream`).

use crate::error::{Error, Result};
use crate::sys::sync::lock::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// First unreported failure, with the number of its piece. Replaced when it is reported; marks keep
/// the one they found.
type First = Arc<Mutex<Option<(u64, Error)>>>;

/// Record of the failures of the library's own work in one backend stream.
#[derive(Default)]
pub(super) struct DeferredErrors {
    /// Pieces that have not ended, plus one while a failure is unreported. 0: a record has nothing
    /// to carry.
    open: AtomicU64,
    state: Mutex<DeferredState>,
}

#[derive(Default)]
struct DeferredState {
    last: u64,
    first: First,
}

/// The pieces before an event's record.
#[derive(Clone)]
pub(super) struct Mark {
    first: First,
    upto: u64,
    /// Id of the trail.
    of: usize,
}

impl DeferredErrors {
    /// Returns true if a record made now may carry something: one load. Pieces that this thread
    /// queued before are seen; pieces that another thread queues concurrently have no order.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) != 0
    }

    /// Counts a piece that is about to be queued. Returns its number, for `end`.
    pub(super) fn begin(&self) -> u64 {
        let mut state = self.state.lock();
        self.open.fetch_add(1, Ordering::Relaxed);
        state.last += 1;
        state.last
    }

    /// A piece has ended.
    pub(super) fn end(&self, number: u64, result: Result<()>) {
        let state = self.state.lock();
        let mut first = state.first.lock();
        let is_only = first.is_none();
        if let Err(error) = result {
            if first.as_ref().is_none_or(|(earlier, _)| number < *earlier) {
                *first = Some((number, error));
            }
        }
        // The only failure stays open until it is reported.
        if !(is_only && first.is_some()) {
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Records a failure at the stream's present end.
    pub(super) fn note(&self, result: Result<()>) {
        if result.is_err() {
            self.end(self.begin(), result);
        }
    }

    /// Returns the unreported failure, if any; it stays unreported.
    pub(super) fn peek(&self) -> Option<Error> {
        if !self.is_open() {
            return None;
        }
        let state = self.state.lock();
        let first = state.first.lock();
        first.as_ref().map(|(_, error)| error.clone())
    }

    /// Returns the unreported failure, if any, and counts it as reported.
    pub(super) fn take(&self) -> Option<Error> {
        if !self.is_open() {
            return None;
        }
        let mut state = self.state.lock();
        let told = state.first.lock().clone().map(|(_, error)| error)?;
        state.first = First::default();
        self.open.fetch_sub(1, Ordering::Relaxed);
        Some(told)
    }

    /// Returns the mark that an event recorded now carries; `None`: nothing to carry.
    pub(super) fn mark(self: &Arc<Self>) -> Option<Mark> {
        if !self.is_open() {
            return None;
        }
        let state = self.state.lock();
        Some(Mark { first: Arc::clone(&state.first), upto: state.last, of: self.id() })
    }

    /// Returns a number that no other live trail has.
    pub(super) fn id(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }
}

impl Mark {
    /// Returns the first failure of the pieces, once they have ended.
    pub(super) fn result(&self) -> Result<()> {
        match &*self.first.lock() {
            Some((number, error)) if *number <= self.upto => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Returns true if the calling thread is doing work before the mark, provided that the mark is
    /// not reached.
    pub(super) fn is_behind_caller(&self) -> bool {
        super::reentrancy::is(self.of)
    }
}
