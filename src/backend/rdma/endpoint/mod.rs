//! The connection to a peer.
//!
//! In reading order:
//! - `peer`: all state for a peer
//! - `qp_state`: one queue pair and what is in flight on it
//! - `connect`: first connection
//! - `reconnect`: a broken connection is made again

pub(super) mod connect;
pub(super) mod peer;
pub(super) mod qp_state;
pub(super) mod reconnect;
