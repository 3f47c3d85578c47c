//! Declarations of libdtl's C interface, generated from the sources of `dtl.h`.
//!
//! Names, layouts and comments are those of the header, whose first comment has the rules that hold
//! for all of it. `DTL_<NOUN>_NULL` and `DTL_<NAME>_INIT` are constants here. Functions without
//! pointer parameters are declared `safe`: any handle and any number is a valid argument, and a
//! destroyed or invented handle is a status. A pointer into memory of the library is therefore as
//! good as the code that has the handle. The safe interface is the crate `dtl-binding`.
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
