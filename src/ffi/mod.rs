//! C in, C out: each entry validates, makes one safe call, converts. Decides nothing.
//!
//! The comments on the functions are the text of the C headers. A file is a section of a header, with
//! the first paragraph of the file's comment as its title; the sections have the order of the files.
//! `dtl: header(NAME)` in that comment names the header (default: dtl.h). `dtl: section(PATH)` on an
//! item moves it, and those after it, to the section of another file; types stand in the section of
//! the functions that use them.
//!
//! Entries on the path of every message are put into a section of their own (`.text.hot.dtl`), here
//! and in kind `mpi`. They then lie side by side in two pages instead of seven: after a large
//! message the processor has to fetch each page again.
//!
//! In reading order:
//! - `guard`: the wrappers that every entry runs in
//! - `args`: conversion of C arguments
//! - `elements`: size and bounds of elements in the caller's memory
//! - `library`: init, backends, devices
//! - `memory`: allocation, copies, arrays
//! - `exec`: streams, events, kernels
//! - `dispatch`: where an operation runs
//! - `comm`: communicators
//! - `rma`: windows
//! - `topology`: placement of ranks
//! - `clock`: the clock
//! - `host`: the table of functions for plugins and for the layers below
#![allow(clippy::missing_safety_doc, reason = "the functions' C documentation is their contract")]

mod args;
mod elements;
mod guard;
pub mod host;

pub mod library;

pub mod memory;

pub mod exec;

pub mod dispatch;

pub mod comm;

pub mod rma;

pub mod topology;

pub mod clock;
