//! Members of a communicator that died or take no part in it.
//!
//! In reading order:
//! - `missing_ranks`: lists of such members
//! - `peer_close`: ranks that destroyed a communicator that other ranks still use
//! - `absence`: live ranks that take no part

pub(super) mod absence;
pub(super) mod missing_ranks;
pub(super) mod peer_close;
