//! Discards messages to communicators that this rank has destroyed after a failure or a shrink.
//!
//! Other ranks continue to send notices until they destroy the communicator, and each rank of a
//! shrink forwards the decision also to ranks that already have it. No call receives these
//! messages, so each would use memory for as long as the link lives. Therefore a link stores the
//! contexts of the latest such communicators, and the call that destroys the next one discards the
//! messages that have arrived. Absences are recorded first, because communicators that were created
//! from the destroyed one may depend on them.

use super::{next_message, read_absences};
use crate::runtime::comm::Comm;
use crate::runtime::comm::shared_transport::Class;
use std::sync::Arc;

/// Maximum number of stored contexts. Notices to older communicators stay in memory.
const MOST: usize = 16;

/// Stores the context of a destroyed communicator, and receives messages to all stored contexts.
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
