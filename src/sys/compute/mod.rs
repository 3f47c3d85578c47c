//! Arithmetic on user memory, thread teams, calls to user functions. In reading order:
//!
//! - `elements`: operations on elements: reductions of private memory, updates of memory that
//!   processes share.
//! - `team`: threads that work on one job, and their shares of a loop.
//! - `callback`: functions that the program or another library provides, and the arguments of
//!   kernels.

pub mod callback;
pub mod elements;
pub mod team;
