//! Arithmetic on user memory, thread teams, calls of user functions. In reading order:
//!
//! - `reduce`: the reductions of collectives.
//! - `shared_atomics`: atomic operations on memory that processes share.
//! - `team`: threads that work on one job, and their shares of a loop.
//! - `callback`: functions that the program or another library provides, and the arguments of
//!   kernels.

pub mod callback;
pub mod reduce;
pub mod shared_atomics;
pub mod team;
