//! The MPI library: found, loaded, started; its functions and constants.
//!
//! In reading order:
//! - `abi`: values and layouts of MPI's binary interfaces
//! - `functions`: MPI's functions
//! - `constants`: MPI's constants
//! - `discovery`: which MPI
//! - `launcher`: which MPI fits the launcher
//! - `mpi_library`: loaded, started, ended
//! - `thread_level`: levels of thread support
//! - `errors`: error codes

pub mod abi;
pub mod constants;
pub mod discovery;
pub(super) mod errors;
pub mod functions;
pub mod launcher;
pub mod mpi_library;
pub(super) mod thread_level;
