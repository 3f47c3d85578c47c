//! Kind "rdma": ranks of any nodes over RDMA verbs (InfiniBand, RoCE), by queue pairs of reliable connections. The library is found
//! when somebody asks for this kind.
//!
//! Order of the files: `verbs` the types of libibverbs, `functions` its functions, `find` which library and which devices;
//! `config` how a communicator is made, `places` which ports and addresses; `presence` the backend.

pub mod config;
pub mod find;
pub mod functions;
pub mod places;
mod presence;
pub mod verbs;

pub use presence::backend;
