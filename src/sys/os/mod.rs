//! Descriptors, sockets, processes, shared memory, the loader, the hardware. In reading order:
//!
//! - `fd`: descriptors that the library owns.
//! - `poller`: waiting for many descriptors (epoll), or for a few.
//! - `unix_socket`: Unix sockets that pass a descriptor.
//! - `tcp`: TCP sockets and the addresses of this machine.
//! - `process`: processes of this machine and their memory; starting a program and reading its
//!   output; threads that handle no signal.
//! - `close_on_fork`: descriptors that a forked child closes.
//! - `hwinfo`: processors, caches, memory.
//! - `shm_segment`: memory shared between processes.
//! - `dl`: the dynamic loader, and checks of the files that may be loaded.

pub mod close_on_fork;
pub mod dl;
pub mod fd;
pub mod hwinfo;
pub mod poller;
pub mod process;
pub mod shm_segment;
pub mod tcp;
pub mod unix_socket;
