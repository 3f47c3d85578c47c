//! Kind "rdma": ranks of any nodes over RDMA verbs (InfiniBand, RoCE), by queue pairs of reliable connections. The library is found
//! when somebody asks for this kind.
//!
//! Order of the files: `verbs` the types of libibverbs, `functions` its functions, `find` which library and which devices;
//! `config` how a communicator is made.

mod cache;
pub mod config;
mod connect;
mod errors;
pub mod find;
pub mod functions;
mod oob;
mod payload;
mod peer;
mod queue;
mod rail;
mod slots;
mod state;
pub mod verbs;
mod window;
mod wire;
