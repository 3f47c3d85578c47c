//! Communicators of kind "rdma": ranks on any nodes communicate over RDMA verbs (InfiniBand, RoCE)
//! using reliable connected (RC) queue pairs. The first use of this kind loads libibverbs.
//!
//! In reading order:
//! - `verbs`: libibverbs and its objects
//! - `config`: configuration of a communicator
//! - `memory`: registered memory
//! - `protocol`: eager slots for small messages
//! - `endpoint`: connection to a peer
//! - `atomic_op`: atomic operations in flight
//! - `operation`: operations in flight
//! - `engine`: state of a communicator, and its progress
//! - `rndv`: rendezvous of large messages
//! - `window`: put and get
//! - `atomics`: accumulate, compare-and-swap
//! - `cq`: polling of completion queues
//! - `events`: asynchronous events
//! - `watchdog`: completions that a device loses
//! - `wire`: interface to `p2p_protocol`
//! - `backend`: opens communicators

mod atomic_op;
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

/// Memory of a communicator in bytes, excluding the memory per rank and memory that libibverbs
/// allocates.
pub const FIXED_BYTES: usize = p2p_protocol::LENT_FIXED_BYTES + size_of::<engine::RdmaEngine>();
/// Bytes of memory per rank, whether or not messages are exchanged with the rank. No part of this
/// memory is registered, and no device object exists for a rank with which no messages are
/// exchanged.
pub const RANK_BYTES: usize =
    p2p_protocol::RANK_BYTES + peer_map::BYTES_PER_RANK + liveness::RANK_BYTES;
/// Additional memory, in bytes, for each rank with which this rank exchanges messages, in the
/// default configuration. Queued messages are not included.
pub const PARTNER_BYTES: usize = p2p_protocol::PARTNER_BYTES
    + liveness::PARTNER_BYTES
    + endpoint::peer::bytes(config::DEPTH, 1)
    + PARTNER_REGISTERED;
/// Registered part of `PARTNER_BYTES`, in bytes.
pub const PARTNER_REGISTERED: usize = endpoint::peer::registered(config::DEPTH);

// docs/how-to/use-rdma.md states these sizes, and tests/c/test_rdma.c measures them.
const _: () = assert!(FIXED_BYTES <= 1216 && RANK_BYTES == 88);
const _: () = assert!(PARTNER_REGISTERED == 198_784 && PARTNER_BYTES / 1000 == 210);
