//! What C sees: `#[repr(C)]` data, constants and tables of function pointers. No behaviour.
//!
//! `include/dtl.h` is generated from these files and from `ffi/`, in this order. The comments here
//! are the header's text, so they speak to C programmers. Structs only ever grow at their end.

#![allow(non_camel_case_types, reason = "the names are the C names")]

pub mod status;

pub mod handle;

pub mod word;

pub mod enums;

pub mod runtime;

pub mod trace;

pub mod device;

pub mod array;

pub mod exec;

pub mod policy;

pub mod dispatch;

pub mod comm;

pub mod rdma;

pub mod topology;

pub mod window;

pub mod vtable_comm;

pub mod vtable;

pub mod environment;

pub mod plugin;

pub mod layouts;

#[cfg(test)]
mod tests;
