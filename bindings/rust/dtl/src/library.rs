//! Initialization, finalization, and functions that concern the library as a whole.

use crate::{Result, call, read_text, sys, text};
use std::ptr;

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
    /// See `dtl_finalize`. After a failure, the initialization remains in effect.
    pub fn finalize(self) -> Result {
        std::mem::forget(self);
        // SAFETY: this value's own initialization ends. Memory of the library is reached by `unsafe`
        // functions only, whose callers promise that the library is initialized, or with a borrow of
        // another `Library`, whose initialization keeps everything alive.
        unsafe { call!(dtl_finalize()) }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // A drop has nobody to report a failure to; `finalize` reports it.
        // SAFETY: the initialization that ends is this value's own; `finalize` has the argument.
        let _ = unsafe { sys::dtl_finalize() };
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
