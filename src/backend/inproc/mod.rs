//! Transports between ranks of one process: "self" for one rank that sends to itself, "threads" for
//! several, usually one per thread. For ranks in different processes, see `shm`.
//!
//! In reading order:
//! - `comm_self`: transport "self"
//! - `threads`: transport "threads"
//! - `transport`: messages between the ranks
//! - `rank_state`: operations of one rank
//! - `coll_mailbox`: mailboxes of small collectives
//! - `wakeup`: doorbell for threads that wait for a message in a mailbox
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

/// Creates the backends "self" and "threads".
pub fn backends() -> [Backend; 2] {
    [comm_self::backend(), threads::backend()]
}
