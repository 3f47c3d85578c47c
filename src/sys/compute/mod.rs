//! Arithmetic on user memory, thread teams, calls of user functions. In reading order:
//!
//! - `fnv`: a hash of bytes.
//! - `reduce`: the reductions of collectives.
//! - `shared_atomics`: atomic operations on memory that processes share.
//! - `team`: threads that work on one job.
//! - `work_stealing`: the shares of a loop.
//! - `kernel_args`: the arguments of a kernel.
//! - `callback`: functions that the program provides.
//! - `foreign_test`: a fast completion test of a request of another library.

pub mod callback;
pub mod fnv;
pub mod foreign_test;
pub mod kernel_args;
pub mod reduce;
pub mod shared_atomics;
pub mod team;
pub mod work_stealing;
