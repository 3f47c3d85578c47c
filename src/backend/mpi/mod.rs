//! Kind "mpi": ranks of an MPI job, over whichever MPI the program runs with. No MPI at build time.
//!
//! `find` (which library) -> `functions` and `constants` (what it has; values in `abi`) -> `session`
//! (started, entered, ended).

#[macro_use]
pub mod abi;
pub mod constants;
pub mod find;
pub mod functions;
pub mod session;
