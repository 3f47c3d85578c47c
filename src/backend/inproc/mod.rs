//! Ranks within one process: kind "self" is one rank that sends to itself, kind "threads" has
//! many, meant for one thread each. Not for processes (`shm`).
//!
//! In reading order:
//! - `comm_self`: kind "self"
//! - `threads`: kind "threads"
//! - `transport`: messages between the ranks
//! - `rank_state`: operations of one rank
//! - `coll_mailbox`: mailboxes of small collectives
//! - `wakeup`: wakes threads that wait for a post
//! - `shared_region`: memory of windows

mod coll_mailbox;
mod comm_self;
mod rank_state;
mod shared_region;
#[cfg(test)]
mod tests;
mod threads;
mod transport;
mod wakeup;

use crate::runtime::registry::Backend;

/// The backends "self" and "threads".
#[must_use]
pub fn backends() -> [Backend; 2] {
    [comm_self::backend(), threads::backend()]
}
