//! Declarations of libdtl's C interface, generated from the sources of `dtl.h`.
//!
//! Names, layouts and comments are those of the header, whose first comment has the rules that hold
//! for all of it. `DTL_<NOUN>_NULL` and `DTL_<NAME>_INIT` are constants here. The safe interface is
//! the crate `dtl-binding`.
//!
//! A function is declared `safe` if it takes numbers and handles only, because any number and any
//! handle is a valid argument: a destroyed or invented handle is a status. Unsafe are functions
//! with pointer parameters, and those that end an object whose memory was handed out by address:
//! the caller promises that nobody uses that memory any more.
//!
//! Not here: the macros and inline functions of the header that need no library. Of `DTL_PLUGIN_INIT`
//! and `DTL_LAYOUTS` there is no form in Rust, because they hold what a C compiler computed.

#![no_std]
#![allow(non_camel_case_types, reason = "the names are the C names")]

#[allow(clippy::type_complexity, reason = "slots are spelled out, as they are in the header")]
#[rustfmt::skip]
mod items;

pub use items::*;

/// As sbuf (as rbuf of a scatter) of a collective: the rank's contribution is in the other buffer.
pub const DTL_IN_PLACE: *mut core::ffi::c_void = core::ptr::without_provenance_mut(usize::MAX);
