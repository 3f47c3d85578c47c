//! MPI library: discovery, loading, initialization; its functions and constants.
//!
//! In reading order:
//! - `abi`: values and layouts of MPI's binary interfaces
//! - `functions`: MPI's functions
//! - `constants`: MPI's constants
//! - `discovery`: choice of the MPI library
//! - `launcher`: libraries that fit the launcher
//! - `mpi_library`: loading, initialization, finalization
//! - `errors`: error codes

pub mod abi;
pub mod constants;
pub mod discovery;
pub(super) mod errors;
pub mod functions;
pub mod launcher;
pub mod mpi_library;
