//! Connection to a peer.
//!
//! In reading order:
//! - `peer`: all state for a peer
//! - `qp_state`: one queue pair and its work requests in flight
//! - `connect`: first connection
//! - `reconnect`: re-establishment of a broken connection

pub(super) mod connect;
pub(super) mod peer;
pub(super) mod qp_state;
pub(super) mod reconnect;
