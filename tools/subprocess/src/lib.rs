//! Child processes of libdtl's programs: start them so that they end with their parent, signal them,
//! read signals without a handler, place them on processors.
//!
//! `start` prepares a command, `signals` sends and receives signals, `cpus` binds to processors, `fd`
//! has what the programs need of descriptors, `random` makes names. It does not use libdtl, and libdtl
//! does not use it: a library must not touch the signals and children of its program.

mod cpus;
mod fd;
mod random;
mod signals;
mod start;

pub use cpus::{allowed_cpus, bind};
pub use fd::{is_open, set_nonblocking, wait_readable};
pub use random::random_u64;
pub use signals::{
    Signal, Signals, has_exited, is_ignored, kill_group, reset_sigchld, send_signal,
};
pub use start::{Setup, prepare};
