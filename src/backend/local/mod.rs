//! Ranks within one process: kind "self" is one rank that sends to itself, kind "threads" has many,
//! meant for one thread each. Not for processes (`shm`).
//!
//! `alone` and `threads` are the kinds, `fabric` moves the messages of both between their `side`s,
//! `board` and `bell` are for small collectives, `part` is for windows.

mod alone;
mod bell;
mod board;
mod fabric;
mod part;
mod side;
#[cfg(test)]
mod tests;
mod threads;

use crate::runtime::registry::Backend;

/// The backends "self" and "threads".
#[must_use]
pub fn backends() -> [Backend; 2] {
    [alone::backend(), threads::backend()]
}
