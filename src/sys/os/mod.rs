//! Descriptors, sockets, processes, shared memory, the loader, the hardware. In reading order:
//!
//! - `fd`: descriptors that the library owns.
//! - `poller`: waiting for many descriptors (epoll), or for a few.
//! - `unix_socket`: Unix sockets that pass a descriptor.
//! - `tcp`: TCP sockets and the addresses of this machine.
//! - `process`: processes of this machine and their memory.
//! - `subprocess`: starting a program and reading its output.
//! - `close_on_fork`: descriptors that a forked child closes.
//! - `open_state`: open state of the library, in a page that a fork wipes.
//! - `thread`: threads that handle no signal.
//! - `hwinfo`: processors, caches, memory.
//! - `shm_segment`: memory shared between processes.
//! - `secure_path`: checks of the files that may be loaded.
//! - `dl`: the dynamic loader.

pub mod close_on_fork;
pub mod dl;
pub mod fd;
pub mod hwinfo;
pub mod open_state;
pub mod poller;
pub mod process;
pub mod secure_path;
pub mod shm_segment;
pub mod subprocess;
pub mod tcp;
pub mod thread;
pub mod unix_socket;
