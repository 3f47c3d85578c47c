//! Mailboxes for small collectives in the shared memory segment; `backend::coll_mailbox` describes
//! them. A rank that waits for a message sleeps for a limited time, because there is no wakeup
//! between processes.

use super::segment::{PeerState, Segment};
use crate::backend::coll_mailbox::Places;
use crate::backend::os_error::memory_error;
use crate::error::Result;
use crate::runtime::component::{CollMailbox, Member};

/// Reserves a slot (area of the segment with one mailbox per rank) for the mailbox of rank `own`,
/// and allocates the memory of that mailbox. Returns `None` if no slot is free, memory is
/// exhausted, or the segment has no mailboxes.
pub(crate) fn reserve(segment: &Segment, places: &mut Places, own: usize) -> Option<u32> {
    if !segment.has_mailboxes() {
        return None;
    }
    let (place, is_first) = places.reserve(|rank| segment.state(rank) != PeerState::Present)?;
    // Commit before the place is sent to the other ranks, because they read the mailbox without
    // checking whether it has pages.
    if is_first && segment.commit_mailboxes(place, own..own + 1).is_err() {
        places.forget(place);
        return None;
    }
    u32::try_from(place).ok()
}

/// Allocates the memory of all mailboxes in slot 0 (a slot is an area of the segment with one
/// mailbox per rank). Slot 0 is never reserved, so any rank may be the first to use it.
pub(crate) fn commit_first(segment: &Segment) -> Result<()> {
    let commit = segment.commit_mailboxes(0, 0..segment.size());
    commit.map_err(|error| memory_error("memory for small collectives", &error))
}

/// Opens the mailboxes of `members` (ranks of the segment), which must include `own`.
pub(crate) fn open(
    segment: &Segment,
    places: &mut Places,
    own: usize,
    context: u32,
    members: &[Member],
) -> Result<Box<dyn CollMailbox>> {
    if members.iter().any(|member| member.place == 0) {
        commit_first(segment)?;
    }
    Ok(Box::new(places.open(segment.slots(), (segment.size(), own), context, members)?))
}
