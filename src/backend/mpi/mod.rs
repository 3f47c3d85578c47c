//! The kind `mpi`: communicators of whichever MPI the program runs with. No MPI at build or link time.

#[macro_use]
pub mod abi;
