//! Descriptors, sockets, processes, shared memory, the loader, the hardware. In reading order:
//!
//! - `process`: this process: identity, processors, descriptors; running a program; threads that
//!   handle no signal.
//! - `foreign_process`: memory and files of other processes.
//! - `poller`: repeated waiting for many descriptors (epoll).
//! - `unix_socket`: Unix sockets that pass a descriptor.
//! - `tcp`: TCP sockets and the addresses of this machine.
//! - `close_on_fork`: descriptors that a forked child closes.
//! - `hwinfo`: memory and processor of this machine.
//! - `shm_segment`: memory shared between processes.
//! - `dl`: the dynamic loader, and checks of the files that may be loaded.

pub mod close_on_fork;
pub mod dl;
pub mod foreign_process;
pub mod hwinfo;
pub mod poller;
pub mod process;
pub mod shm_segment;
pub mod tcp;
pub mod unix_socket;
