//! Failures of the work that the library itself does in a backend's stream: host callbacks, kernels
//! that are host functions, and copies that the backend cannot queue. Such failures are not
//! reported to the backend, so its events complete even after failed work. An event therefore
//! carries a [`Mark`] that covers the library's work queued before the event was recorded. The
//! library reads the mark when the backend's event has completed.
//!
//! Pieces of work are numbered in the order of the stream. Only the first unreported failure
//! matters. An event carries this failure if the failed piece was queued before the event was
//! recorded. Later failures need not be recorded: an event that is recorded after one of them is
//! also recorded after the first one.
//!
//! The functions of a backend return the failures of the backend's own work. `host_stream` handles
//! the failures in the library's own streams.

use crate::error::{Error, Result};
use crate::hints;
use crate::sys::sync::lock::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Cell for the first unreported failure and the number of the failed piece of work. When the
/// failure is reported, a new, empty cell replaces this one. A [`Mark`] keeps the cell that was
/// current when the mark was created.
type First = Arc<Mutex<Option<(u64, Error)>>>;

/// Record of the failures of the library's own work in one backend stream.
#[derive(Default)]
pub(super) struct DeferredErrors {
    /// Number of pieces of work that have not ended, plus 1 while a failure is unreported. If it is
    /// 0, an event is recorded without a [`Mark`].
    open: AtomicU64,
    state: Mutex<DeferredState>,
}

#[derive(Default)]
struct DeferredState {
    last: u64,
    first: First,
}

/// Position in the sequence of the library's own pieces of work in a backend stream. Covers the
/// pieces that were queued before an event was recorded.
#[derive(Clone)]
pub(super) struct Mark {
    first: First,
    upto: u64,
    /// Id of the `DeferredErrors` object that numbers these pieces of work.
    of: usize,
}

impl DeferredErrors {
    /// Returns true if an event recorded now may need a [`Mark`]. Costs one load. The value of this
    /// relaxed load includes all unfinished pieces of work that the calling thread has queued.
    /// Pieces that another thread queues concurrently have no defined order relative to the
    /// recording of the event.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) != 0
    }

    /// Counts a piece of work that is about to be queued. Returns the number of the piece, which
    /// the caller must pass to `end`.
    pub(super) fn begin(&self) -> u64 {
        let mut state = self.state.lock();
        self.open.fetch_add(1, Ordering::Relaxed);
        state.last += 1;
        state.last
    }

    /// Records the end and the result of the piece of work `number`.
    pub(super) fn end(&self, number: u64, result: Result<()>) {
        let state = self.state.lock();
        let mut first = state.first.lock();
        let is_only = first.is_none();
        if let Err(error) = result {
            if first.as_ref().is_none_or(|(earlier, _)| number < *earlier) {
                *first = Some((number, error));
            }
        }
        // The first failure keeps `open` above 0 until it is reported.
        if !(is_only && first.is_some()) {
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// If `result` is a failure, records it as the failure of a piece of work at the current end of
    /// the stream.
    pub(super) fn note(&self, result: Result<()>) {
        if result.is_err() {
            self.end(self.begin(), result);
        }
    }

    /// Returns the unreported failure, if any, without marking it as reported.
    #[inline]
    pub(super) fn peek(&self) -> Option<Error> {
        if !self.is_open() {
            return None;
        }
        hints::out_of_line(|| {
            let state = self.state.lock();
            let first = state.first.lock();
            first.as_ref().map(|(_, error)| error.clone())
        })
    }

    /// Returns the unreported failure, if any, and marks it as reported.
    pub(super) fn take(&self) -> Option<Error> {
        if !self.is_open() {
            return None;
        }
        let mut state = self.state.lock();
        let first = state.first.lock().clone().map(|(_, error)| error)?;
        state.first = First::default();
        self.open.fetch_sub(1, Ordering::Relaxed);
        Some(first)
    }

    /// Returns the [`Mark`] (position in the sequence of the library's work in the stream) for an
    /// event that is recorded now; `None` if all of the library's work has ended and all failures
    /// have been reported.
    pub(super) fn mark(self: &Arc<Self>) -> Option<Mark> {
        if !self.is_open() {
            return None;
        }
        let state = self.state.lock();
        Some(Mark { first: Arc::clone(&state.first), upto: state.last, of: self.id() })
    }

    /// Returns a number that is unique among all existing `DeferredErrors` objects.
    pub(super) fn id(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }
}

impl Mark {
    /// Returns the first failure among the pieces of work up to this position in the stream. The
    /// result is valid only if these pieces have ended.
    pub(super) fn result(&self) -> Result<()> {
        match &*self.first.lock() {
            Some((number, error)) if *number <= self.upto => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Returns true if the calling thread is executing a piece of work that the mark covers. The
    /// result is valid only until the stream has executed all work that the mark covers.
    pub(super) fn is_behind_caller(&self) -> bool {
        super::reentrancy::is(self.of)
    }
}
