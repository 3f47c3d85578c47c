//! Kind "rdma": ranks of any nodes over RDMA verbs (InfiniBand, RoCE), by queue pairs of reliable
//! connections. The library is searched for when this kind is first used.
//!
//! In reading order:
//! - `verbs`: libibverbs and its objects
//! - `config`: configuration of a communicator
//! - `memory`: registered memory
//! - `protocol`: small messages in slots
//! - `endpoint`: the connection to a peer
//! - `operation`: operations in flight
//! - `engine`: state of a communicator, and its progress
//! - `rndv`: large messages
//! - `window`: put and get
//! - `atomics`: accumulate, compare-and-swap
//! - `cq`: polling of completion queues
//! - `events`: asynchronous events
//! - `watchdog`: completions that a device loses
//! - `wire`: the interface to `p2p_protocol`
//! - `backend`: opens communicators

mod atomics;
mod backend;
pub mod config;
mod cq;
pub mod endpoint;
mod engine;
mod events;
pub mod memory;
mod operation;
pub mod protocol;
mod rndv;
pub mod verbs;
mod watchdog;
mod window;
mod wire;
pub use self::backend::backend;

use super::bootstrap::liveness;
use super::{p2p_protocol, peer_map};

/// Memory of a communicator without any rank, without what the device's library keeps.
pub const FIXED_BYTES: usize = p2p_protocol::LENT_FIXED_BYTES + size_of::<wire::RdmaWire>();
/// Memory for each rank, with or without messages. Nothing of it is registered, and the device has
/// no object for it.
pub const RANK_BYTES: usize =
    p2p_protocol::RANK_BYTES + peer_map::BYTES_PER_RANK + liveness::RANK_BYTES;
/// Memory for each rank with messages, as configured by default, without waiting ones.
pub const PARTNER_BYTES: usize = p2p_protocol::PARTNER_BYTES
    + liveness::PARTNER_BYTES
    + endpoint::peer::bytes(config::DEPTH, 1)
    + PARTNER_REGISTERED;
/// What is registered of that.
pub const PARTNER_REGISTERED: usize = endpoint::peer::registered(config::DEPTH);

// As docs/how-to/use-rdma.md has it, and tests/c/test_rdma.c measures.
const _: () = assert!(FIXED_BYTES <= 1200 && RANK_BYTES == 88);
const _: () = assert!(PARTNER_REGISTERED == 198_784 && PARTNER_BYTES / 1000 == 210);
