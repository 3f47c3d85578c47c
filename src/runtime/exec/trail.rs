//! How the work that the library itself does in a backend's stream ended: host callbacks, kernels
//! from functions, copies that the backend cannot queue. The backend does not know that such work
//! can fail, so its events are simply done behind it; what an event was recorded behind is a
//! [`Mark`], which the library looks at when the backend's event is done.
//!
//! Pieces are numbered in the stream's order. Of all failures that nobody was told of only the
//! first matters: an event carries it if it lies before the record, and what fails later lies
//! behind that one.
//!
//! Not here: failures of a backend's own work, which its slots answer; streams of the library's own
//! (`queue`).

use crate::error::{Error, Result};
use crate::sys::sync::lock::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first failure nobody was told of, with its number. Replaced when it is told; marks keep what
/// they found.
type First = Arc<Mutex<Option<(u64, Error)>>>;

/// See the module's text.
#[derive(Default)]
pub(super) struct Trail {
    /// Pieces that have not ended, and one more while a failure waits to be told. 0: a record has
    /// nothing to carry.
    open: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    first: First,
}

/// The pieces before an event's record.
#[derive(Clone)]
pub(super) struct Mark {
    first: First,
    upto: u64,
    /// The trail, to tell it from others.
    of: usize,
}

impl Trail {
    /// Whether a record made now carries something, perhaps: one load. What this thread queued
    /// before is seen; what another thread queues at the same time has no order.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) != 0
    }

    /// A piece is about to be queued; `end` gets its number.
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
        // The only failure stays open until it is told.
        if !(is_only && first.is_some()) {
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A failure at the stream's present end.
    pub(super) fn note(&self, result: Result<()>) {
        if result.is_err() {
            self.end(self.begin(), result);
        }
    }

    /// The failure that waits to be told.
    pub(super) fn peek(&self) -> Option<Error> {
        if !self.is_open() {
            return None;
        }
        let state = self.state.lock();
        let first = state.first.lock();
        first.as_ref().map(|(_, error)| error.clone())
    }

    /// The same; from now on it is told.
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

    /// What an event that is recorded now carries.
    pub(super) fn mark(self: &Arc<Self>) -> Option<Mark> {
        if !self.is_open() {
            return None;
        }
        let state = self.state.lock();
        Some(Mark { first: Arc::clone(&state.first), upto: state.last, of: self.id() })
    }

    /// What tells it from every other trail that lives.
    pub(super) fn id(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }
}

impl Mark {
    /// How the pieces ended, once they have.
    pub(super) fn result(&self) -> Result<()> {
        match &*self.first.lock() {
            Some((number, error)) if *number <= self.upto => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Whether it is behind work that the calling thread is doing, if it is not reached.
    pub(super) fn is_behind_caller(&self) -> bool {
        super::current::is(self.of)
    }
}
