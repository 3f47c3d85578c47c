//! Initialization, finalization, and functions that concern the library as a whole.

use crate::{Error, Result, call, read_text, sys, text};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Guard that keeps the library initialized. The library is finalized when the last of them
/// is dropped. That destroys all objects.
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
        uses().libraries += 1;
        Ok(Library { _private: () })
    }

    /// Releases this initialization of the library. Releasing the last initialization finalizes the
    /// library, which destroys all objects.
    ///
    /// # Errors
    /// See `dtl_finalize`. DTL_ERROR_BUSY is also returned while a [`scope`](crate::scope()) or an
    /// epoch of a window is open, or a [`Memory`](crate::Memory) exists: then this initialization
    /// ends with the last of them. After any other DTL_ERROR_BUSY it ends with the next [`Library`]
    /// that is finalized or dropped, so `Library::init()?.finalize()` tries again.
    pub fn finalize(self) -> Result {
        std::mem::forget(self);
        release_all().unwrap_or_else(|open| {
            let text = format!(
                "{open} scopes, epochs or allocations exist. Finalize after their ends; this \
                 initialization ends with the last of them."
            );
            Err(Error::busy("dtl_finalize", text))
        })
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // A drop has nobody to report a failure to; `finalize` reports it.
        let _ = release_all();
    }
}

/// Ends one initialization, and those whose end was postponed. See [`release`].
fn release_all() -> std::result::Result<Result, usize> {
    let mut outcome = release()?;
    let postponed = std::mem::take(&mut uses().postponed);
    for _ in 0..postponed {
        outcome = outcome.and(release()?);
    }
    Ok(outcome)
}

/// Ends one initialization. If something relies on the library, postpones the end, and returns how
/// much does.
fn release() -> std::result::Result<Result, usize> {
    let mut state = uses();
    if state.open > 0 {
        state.postponed += 1;
        return Err(state.open);
    }
    state.libraries -= 1;
    // The last finalization waits for work, which may be in a function of this crate: the lock is
    // not held meanwhile. Any other affects nothing.
    let is_last = state.libraries == 0;
    state.is_closing = is_last;
    let lock = (!is_last).then_some(state);
    GENERATION.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the initialization that ends is that of a `Library`, while nothing is lent to the
    // library and no `Memory` exists. Other memory of the library is reached by `unsafe` functions
    // only, whose callers promise that the library is initialized, or with a borrow of another
    // `Library`, whose initialization keeps everything alive.
    let outcome = unsafe { call!(dtl_finalize()) };
    drop(lock);
    let mut state = uses();
    state.is_closing &= !is_last;
    if outcome.as_ref().is_err_and(|error| error.status == sys::DTL_ERROR_BUSY) {
        // It remains in effect, and no `Library` is left that could end it.
        state.libraries += 1;
        state.postponed += 1;
    }
    Ok(outcome)
}

/// Number of finalizations by this crate, plus 1. What was created in an earlier generation may have
/// been destroyed.
static GENERATION: AtomicU32 = AtomicU32::new(1);

/// Returns the current generation.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Initializations, and what relies on them.
struct Uses {
    /// Number of [`Library`] values, and of postponed ends of such.
    libraries: usize,
    /// Number of scopes and epochs, in which buffers are lent to the library, and of its memory.
    open: usize,
    /// Number of initializations that were to end while something was open or in a call.
    postponed: usize,
    /// True while the last [`Library`] finalizes the library.
    is_closing: bool,
}

fn uses() -> MutexGuard<'static, Uses> {
    static USES: Mutex<Uses> =
        Mutex::new(Uses { libraries: 0, open: 0, postponed: 0, is_closing: false });
    // A panic of another thread has left the numbers consistent.
    USES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the library from being finalized by a [`Library`].
#[derive(Debug)]
pub(crate) struct KeepOpen {
    _private: (),
}

impl KeepOpen {
    /// Fails while the library is being finalized.
    pub(crate) fn enter(call: &'static str) -> Result<KeepOpen> {
        let mut state = uses();
        if state.is_closing {
            let text = "the library is being finalized: call Library::init before any other call";
            return Err(Error::state(call, text.to_owned()));
        }
        state.open += 1;
        Ok(KeepOpen { _private: () })
    }
}

impl Drop for KeepOpen {
    fn drop(&mut self) {
        let postponed = {
            let mut state = uses();
            state.open -= 1;
            if state.open > 0 { 0 } else { std::mem::take(&mut state.postponed) }
        };
        // Each ends one initialization, or postpones its end again.
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
