//! Communicators: how they are opened, made from others, found by handle and closed.
//!
//! In reading order:
//! - `open_kind`: opening by kind and ranks; the predefined communicators
//! - `open_over`: opening over another communicator
//! - `group`: communicators from communicators
//! - `agree`: agreement of survivors (shrink)
//! - `shared_transport`: an open transport and the contexts on it
//! - `rank_map`: which ranks of a transport a communicator has
//! - `comm_state`: open or closed, and the size, in one word
//! - `comm_handles`: communicators by handle
//! - `attribute`: attributes under keys
//! - `absence`: live ranks that take no part
//! - `departed`: ranks that destroyed a communicator in use

pub(super) mod absence;
pub mod agree;
pub mod attribute;
pub(super) mod comm_handles;
pub(super) mod comm_state;
pub(super) mod departed;
pub mod group;
pub mod open_kind;
pub(super) mod open_over;
pub(super) mod rank_map;
pub(super) mod shared_transport;
