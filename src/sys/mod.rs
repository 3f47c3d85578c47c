//! The operating system and raw memory: safe interfaces over small unsafe code. No module here
//! depends on a backend. In reading order, each folder using those before it only:
//!
//! - `sync`: atomics, locks, waiting, time.
//! - `handles`: objects that threads share by handle, and when their memory may be freed.
//! - `memory`: addresses and regions, the allocator of host memory.
//! - `compute`: reductions, atomic operations on user memory, teams of threads, calls of functions
//!   that the program provides.
//! - `os`: descriptors, sockets, processes, shared memory, the loader, the hardware.
//!
//! In reading order:
//! - `sync`: atomics, locks, waiting, time
//! - `handles`: objects by handle, and when they are freed
//! - `memory`: regions, the host allocator
//! - `compute`: reductions, atomics on user memory, thread teams
//! - `os`: descriptors, processes, shared memory, the loader

pub mod compute;
pub mod handles;
pub mod memory;
pub mod os;
pub mod sync;
