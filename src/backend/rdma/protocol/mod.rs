//! Eager and rendezvous messages over queue pairs, and their progress.
//!
//! In reading order:
//! - `engine`: state of a communicator, and its progress
//! - `operation`: operations in flight
//! - `eager_slots`: small messages in registered slots
//! - `header_cache`: headers that are sent once
//! - `rndv`: large messages
//! - `watchdog`: completions that a device loses
//! - `wire`: the interface to `p2p_protocol`

pub(super) mod eager_slots;
pub(super) mod engine;
pub(super) mod header_cache;
pub(super) mod operation;
pub(super) mod rndv;
pub(super) mod watchdog;
pub(super) mod wire;
