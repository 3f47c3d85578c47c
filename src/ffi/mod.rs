//! C in, C out: each entry validates, makes one safe call, converts. Decides nothing.
//!
//! The comments on the functions are the text of the C headers. A file is a section, in the order
//! of the files, with the first paragraph of its comment as the title. `dtl: header(NAME)` there is
//! the header (else dtl.h). `dtl: section(PATH)` moves an item and those after it to another one.
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
