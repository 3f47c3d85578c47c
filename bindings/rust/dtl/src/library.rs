//! Initialization, finalization, and functions that concern the library as a whole.

use crate::{Error, Result, call, read_text, sys, text};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Guard that keeps the library initialized. Dropping the last value of this type finalizes the
/// library, which destroys all objects.
///
/// A program that never finalizes the library does not need this type, because the first call
/// initializes the library.
#[derive(Debug)]
#[must_use = "dropping it finalises the library"]
pub struct Library {
    _private: (),
}

impl Library {
    /// Initializes the library with the settings from its environment variables.
    ///
    /// # Errors
    /// See `dtl_init`.
    pub fn init() -> Result<Library> {
        // SAFETY: NULL is a valid configuration.
        unsafe { call!(dtl_init(ptr::null())) }?;
        Ok(Library { _private: () })
    }

    /// Releases this initialization of the library. Releasing the last initialization finalizes the
    /// library, which destroys all objects.
    ///
    /// # Errors
    /// See `dtl_finalize`. After a failure, the initialization remains in effect. DTL_ERROR_BUSY is
    /// also returned while a [`scope`](crate::scope()) or an epoch of a window is open: then this
    /// initialization ends with the last of them.
    pub fn finalize(self) -> Result {
        std::mem::forget(self);
        // Locked during the call: no scope opens meanwhile.
        let mut scopes = scopes();
        if scopes.open > 0 {
            scopes.postponed += 1;
            let text = format!(
                "{} scopes or epochs are open. Finalize after their ends; this initialization ends \
                 with the last of them.",
                scopes.open
            );
            return Err(Error::busy("dtl_finalize", text));
        }
        GENERATION.fetch_add(1, Ordering::Relaxed);
        // SAFETY: this value's own initialization ends. Memory of the library is reached by `unsafe`
        // functions only, whose callers promise that the library is initialized, or with a borrow of
        // another `Library`, whose initialization keeps everything alive.
        unsafe { call!(dtl_finalize()) }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let mut scopes = scopes();
        if scopes.open > 0 {
            scopes.postponed += 1;
            return;
        }
        GENERATION.fetch_add(1, Ordering::Relaxed);
        // A drop has nobody to report a failure to; `finalize` reports it.
        // SAFETY: the initialization that ends is this value's own; `finalize` has the argument.
        let _ = unsafe { sys::dtl_finalize() };
    }
}

/// Number of finalizations by this crate, plus 1. What was created in an earlier generation may have
/// been destroyed.
static GENERATION: AtomicU32 = AtomicU32::new(1);

/// Returns the current generation.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Scopes and epochs of all threads, in which buffers are lent to the library.
struct Scopes {
    /// Number of open ones.
    open: usize,
    /// Number of initializations that were dropped meanwhile.
    postponed: usize,
}

fn scopes() -> MutexGuard<'static, Scopes> {
    static SCOPES: Mutex<Scopes> = Mutex::new(Scopes { open: 0, postponed: 0 });
    // A panic of another thread has left the numbers consistent.
    SCOPES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the library from being finalized by a [`Library`] while buffers are lent to it.
pub(crate) struct OpenScope {
    _private: (),
}

impl OpenScope {
    pub(crate) fn enter() -> OpenScope {
        scopes().open += 1;
        OpenScope { _private: () }
    }
}

impl Drop for OpenScope {
    fn drop(&mut self) {
        let postponed = {
            let mut scopes = scopes();
            scopes.open -= 1;
            if scopes.open > 0 { 0 } else { std::mem::take(&mut scopes.postponed) }
        };
        // Each drop ends one initialization, or postpones it again.
        (0..postponed).for_each(|_| drop(Library { _private: () }));
    }
}

/// Returns the version of the linked library.
#[must_use]
pub fn version() -> String {
    // SAFETY: the text ends with NUL and lives for ever.
    unsafe { text::text_of(sys::dtl_version_string()) }
}

/// Returns a string that lists all automatic choices that the library has made so far, each with
/// its reason, one choice per line.
///
/// # Errors
/// See `dtl_explain`.
pub fn explain() -> Result<String> {
    read_text("dtl_explain", |buf, cap, out_len| {
        // SAFETY: `read_text` passes `cap` writable bytes and a place for the length.
        unsafe { sys::dtl_explain(buf, cap, out_len) }
    })
}
