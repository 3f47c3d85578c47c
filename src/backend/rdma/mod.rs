//! Kind "rdma": ranks of any nodes over RDMA verbs (InfiniBand, RoCE), by queue pairs of reliable
//! connections. The library is searched for when this kind is first used.
//!
//! Order of the files: `verbs` the types of libibverbs, `functions` its functions, `find` which
//! library and which devices, `errors` what its failures mean; `config` how a communicator is made,
//! `places` on which ports, `presence` makes it, `meet` how its ranks learn of each other; `rail`
//! an opened port, `queue` a queue pair, `slots` what travels in slots, `heads` what is left out of
//! it, `lane` what is under way on a queue pair, `peer` all that there is for a peer, `oob` the
//! sockets by which connections are made and deaths are noticed (`address` where they listen,
//! `channel` what goes through them), `connect` how a connection is made, `reconnect` made anew
//! when it has broken; `operation` and `state` are what a communicator consists of and what moves
//! it on, with `polling` for completions, `payload` for large messages, `window` for one-sided ones
//! and `atomics` for those that change what is there, `cache` for registrations, `devices` for
//! those of device memory, `events` for asynchronous events of devices, `watch` for completions
//! that devices lose; `wire` is how `frames` sees it.

mod address;
mod atomics;
mod cache;
mod channel;
pub mod config;
mod connect;
mod devices;
mod errors;
mod events;
pub mod find;
pub mod functions;
mod heads;
mod lane;
pub mod meet;
pub mod oob;
mod operation;
mod payload;
mod peer;
pub mod places;
mod polling;
mod presence;
mod queue;
mod rail;
mod reconnect;
mod slots;
mod state;
pub mod verbs;
mod watch;
mod window;
mod wire;

pub use presence::backend;

use super::{frames, sparse};

/// Memory of a communicator without any rank, without what the device's library keeps.
pub const FIXED_BYTES: usize = frames::LENT_FIXED_BYTES + size_of::<wire::RdmaWire>();
/// Memory for each rank, with or without messages. Nothing of it is registered, and the device has
/// no object for it.
pub const RANK_BYTES: usize = frames::RANK_BYTES + sparse::BYTES_PER_RANK + oob::RANK_BYTES;
/// Memory for each rank with messages, as configured by default, without waiting ones.
pub const PARTNER_BYTES: usize =
    frames::PARTNER_BYTES + oob::PARTNER_BYTES + peer::bytes(config::DEPTH, 1) + PARTNER_REGISTERED;
/// What is registered of that.
pub const PARTNER_REGISTERED: usize = peer::registered(config::DEPTH);

// As docs/how-to/use-rdma.md has it, and tests/c/test_rdma.c measures.
const _: () = assert!(FIXED_BYTES <= 1200 && RANK_BYTES == 88);
const _: () = assert!(PARTNER_REGISTERED == 198_784 && PARTNER_BYTES / 1000 == 210);
