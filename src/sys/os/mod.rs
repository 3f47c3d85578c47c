//! Interfaces of the operating system: descriptors, sockets, processes, shared memory, the dynamic
//! loader, hardware information. In reading order:
//!
//! - `process`: ids, processors and descriptors of this process; running programs; starting threads
//!   in which signals are blocked.
//! - `foreign_process`: memory and files of other processes.
//! - `poller`: polling of many descriptors (epoll).
//! - `unix_socket`: Unix sockets that pass a descriptor.
//! - `tcp`: TCP sockets and the addresses of this machine.
//! - `close_on_fork`: descriptors that a forked child closes.
//! - `hwinfo`: memory sizes and processor name of this machine, affinity mask of a thread.
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
