//! Entries about communicators: messages, requests and collectives.
//!
//! In reading order:
//! - `types`: user-defined element types and reduction operations
//! - `communicator`: open, describe, destroy
//! - `threads`: communicators whose ranks are threads
//! - `mpi`: communicators over MPI
//! - `p2p`: blocking messages and probes
//! - `p2p_on`: messages in stream order
//! - `p2p_start`: nonblocking and persistent messages
//! - `request`: start, test, wait, cancel
//! - `collective_args`: checked arguments of collectives; exports no symbol
//! - `collective`: blocking collectives
//! - `collective_start`: nonblocking and persistent collectives
//! - `buffers`: registration of buffers
//! - `group`: duplicate, split, shrink; attributes; reports

pub mod types;

pub mod communicator;

pub mod threads;

pub mod mpi;

pub mod p2p;

pub mod p2p_on;

pub mod p2p_start;

pub mod request;

pub(super) mod collective_args;

pub mod collective;

pub mod collective_start;

pub mod buffers;

pub mod group;
