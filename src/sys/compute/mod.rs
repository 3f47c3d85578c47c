//! Arithmetic on user memory, thread teams, calls to user callbacks. In reading order:
//!
//! - `elements`: reductions of elements in private memory, and atomic updates of elements in memory
//!   that processes share.
//! - `team`: threads that work on one job, and their shares of a loop.
//! - `callback`: user callbacks, functions of other libraries, and the arguments of kernels.

pub mod callback;
pub mod elements;
pub mod team;
