//! Communication: the structs of C.
//!
//! In reading order:
//! - `communicator`: communicators and requests
//! - `rdma`: configuration of kind "rdma"
//! - `topology`: nodes and processors
//! - `window`: one-sided communication

pub mod communicator;

pub mod rdma;

pub mod topology;

pub mod window;
