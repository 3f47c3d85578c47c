//! Messages of the library to communicators that this rank has destroyed after a failure or a
//! shrink.
//!
//! The other ranks go on sending notices until they destroy it, too, and each rank of a shrink
//! passes the decision on also to those that have it. They are not received any more, so each would
//! take memory for as long as the link lives. Therefore a link remembers the contexts of the latest
//! such communicators, and the call that destroys the next one discards what has come. Absences are
//! noted before: communicators that were made from the destroyed one may depend on them.

use super::{next_message, read_absences};
use crate::runtime::comm::Comm;
use crate::runtime::comm::absence::Absences;
use crate::runtime::comm::shared_transport::Class;
use crate::sys::sync::lock::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// How many contexts are remembered. A notice that comes after so many later ends is kept.
const MOST: usize = 16;

/// The latest contexts, the oldest first.
#[derive(Default)]
pub(in crate::runtime::comm) struct Retired(Mutex<VecDeque<(u32, Arc<Absences>)>>);

/// Remembers the context of a communicator that is destroyed, and receives the messages to all that
/// are remembered.
pub(in crate::runtime::comm) fn retire(comm: &Comm) {
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
