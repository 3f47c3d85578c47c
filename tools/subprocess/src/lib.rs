//! Child processes of libdtl's programs: starts them so that they end when their parent ends, binds
//! them to processors, and sends them signals. Reads this process's signals from a descriptor
//! instead of installing signal handlers.
//!
//! `start` prepares a command, `child` reads the output of a child process and ends it, `signals`
//! sends and receives signals, `cpus` binds processes to processors, `fd` has functions for file
//! descriptors, `memory` copies between processes, `random` creates random numbers for names.
//! This crate does not use libdtl, and libdtl does not use this crate: a library must not interfere
//! with the signals and child processes of the program that uses it.

mod child;
mod cpus;
mod fd;
mod memory;
mod random;
mod signals;
mod start;

pub use child::{end, listen};
pub use cpus::{allowed_cpus, bind};
pub use fd::{is_open, is_own_peer, set_nonblocking, wait_readable};
pub use memory::{allow_copies, read_memory, write_memory};
pub use random::random_u64;
pub use signals::{
    Signal, Signals, has_exited, is_ignored, kill_group, reset_sigchld, send_signal,
};
pub use start::{Setup, prepare};
