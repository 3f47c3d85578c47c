//! Discards messages to communicators that this rank has destroyed after a failure or a shrink.
//!
//! Other ranks continue to send notices (messages of the hang report) until they destroy the
//! communicator, and each rank that executes a shrink forwards the set of survivors even to ranks
//! that already have this set. No call receives these messages, so each of them would use memory
//! until the transport is closed. Therefore the shared transport stores the contexts of the latest
//! destroyed communicators, and each call that destroys another communicator discards the messages
//! that have arrived for these contexts. Before that, the call records the absent ranks that these
//! messages name, because communicators that were created from the destroyed one may need this
//! information.

use super::{next_message, read_absences};
use crate::runtime::comm::Comm;
use crate::runtime::comm::shared_transport::Class;
use std::sync::Arc;

/// Maximum number of destroyed communicators whose contexts are stored. Messages to communicators
/// destroyed earlier stay in memory.
const MOST: usize = 16;

/// Stores the context of a destroyed communicator. Records the absent ranks that the messages on
/// all stored contexts report, and discards these messages.
pub(crate) fn retire(comm: &Comm) {
    let retired = &comm.link.retired.0;
    // No lock is held while the transport is called.
    let mut all = std::mem::take(&mut *retired.lock());
    all.push_back((comm.context, Arc::clone(&comm.reports.absences)));
    for (context, absences) in &all {
        read_absences(comm, *context, absences);
        while next_message(comm, *context, Class::Agreement).is_some() {}
    }
    let mut now = retired.lock();
    all.append(&mut now);
    all.drain(..all.len().saturating_sub(MOST));
    *now = all;
}
