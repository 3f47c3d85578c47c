//! Types of the C interface: `#[repr(C)]` data, constants and tables of function pointers. No
//! behaviour.
//!
//! The C headers in `include/` are generated from these files and from `ffi/`, in this order; `ffi`
//! states how items are assigned to headers and sections. The comments here are the text of the
//! headers, so they address C programmers. Structs only ever grow at their end.
//!
//! In reading order:
//! - `status`: status codes
//! - `handle`: handles
//! - `word`: enumeration words, dtypes, operations
//! - `enums`: extensible enumerations
//! - `runtime`: configuration, logging, versions
//! - `trace`: events of traces
//! - `devices`: devices, arrays, streams, selection, dispatch
//! - `comm`: communicators, windows, topology
//! - `backend`: tables of backends, plugins
//! - `layouts`: layouts of all structs, for plugins

#![allow(non_camel_case_types, reason = "the names are the C names")]

pub mod status;

pub mod handle;

pub mod word;

pub mod enums;

pub mod runtime;

pub mod trace;

pub mod devices;

pub mod comm;

pub mod backend;

pub mod layouts;

#[cfg(test)]
mod tests;
