//! Creation of communicators: opening, and derivation from other communicators.
//!
//! In reading order:
//! - `open_kind`: opening by kind and ranks; the predefined communicators
//! - `open_over`: opening over another communicator
//! - `group`: deriving communicators from communicators
//! - `shrinking`: state of a communicator's shrinks
//! - `agree`: agreement of survivors (shrink)
//! - `buffer_list`: registered buffers of a communicator
//! - `buffers`: buffers that the program registers with a communicator
//! - `grow`: new processes that join the ranks
//! - `attribute`: attributes of a communicator, identified by keys

pub mod agree;
pub mod attribute;
pub(super) mod buffer_list;
pub mod buffers;
pub mod group;
pub mod grow;
pub mod open_kind;
pub(super) mod open_over;
pub(super) mod shrinking;
