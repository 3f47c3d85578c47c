//! Communication: the structs of C.
//!
//! In reading order:
//! - `rdma`: configuration of kind "rdma"
//! - `communicator`: communicators and requests
//! - `topology`: nodes and processors
//! - `window`: one-sided communication

pub mod rdma;

pub mod communicator;

pub mod topology;

pub mod window;
