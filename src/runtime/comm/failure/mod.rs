//! Members of a communicator that have died or do not participate in it.
//!
//! In reading order:
//! - `missing_ranks`: lists of such members
//! - `peer_close`: ranks that destroyed a communicator that other ranks still use
//! - `absence`: live ranks that do not participate

pub(super) mod absence;
pub(super) mod missing_ranks;
pub(super) mod peer_close;
