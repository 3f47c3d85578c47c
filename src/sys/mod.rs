//! Safe interfaces to the operating system and to raw memory, built on a small amount of unsafe
//! code. No module here depends on a backend. In reading order (each directory uses only the
//! directories before it):
//!
//! - `sync`: atomics, locks, waiting, time
//! - `handles`: objects that threads share by handle, and the reclamation of their memory
//! - `memory`: addresses and regions, the allocator of host memory
//! - `compute`: reductions, atomic operations on user memory, thread teams, user callbacks
//! - `os`: file descriptors, sockets, processes, shared memory, the dynamic loader, the hardware

pub mod compute;
pub mod handles;
pub mod memory;
pub mod os;
pub mod sync;
