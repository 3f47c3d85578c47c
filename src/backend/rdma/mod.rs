//! Kind "rdma": `meet` is how the ranks learn of each other when a communicator is opened, `oob` the sockets by which they
//! connect queue pairs and hear of deaths; `address` where those listen, `channel` what both send through.

mod address;
mod channel;
pub mod meet;
pub mod oob;
