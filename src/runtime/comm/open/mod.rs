//! Communicators: how they are opened and made from others.
//!
//! In reading order:
//! - `open_kind`: opening by kind and ranks; the predefined communicators
//! - `open_over`: opening over another communicator
//! - `group`: communicators from communicators
//! - `agree`: agreement of survivors (shrink)
//! - `attribute`: attributes under keys

pub mod agree;
pub mod attribute;
pub mod group;
pub mod open_kind;
pub(super) mod open_over;
