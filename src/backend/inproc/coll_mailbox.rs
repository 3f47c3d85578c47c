//! Mailboxes through which ranks in this process exchange the messages of small collectives;
//! `backend::coll_mailbox` describes the mailboxes. This module allocates the memory; `wakeup`
//! wakes threads that sleep until a message is published.

use super::wakeup::Doorbell;
use crate::backend::coll_mailbox::{self, MailboxView, Places};
use crate::error::{Result, fail};
use crate::runtime::component::{self, Member, Post};
use crate::sys::memory::buf::Region;
use crate::sys::os::shm_segment::SharedMapping;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Mailboxes of all ranks for small collectives. Their memory is allocated when the first mailbox
/// is reserved.
pub(super) struct Mailboxes {
    ranks: usize,
    room: OnceLock<Option<MailboxMemory>>,
}

struct MailboxMemory {
    memory: Arc<SharedMapping>,
    bells: Vec<Arc<Doorbell>>,
}

impl Mailboxes {
    pub(super) fn new(ranks: usize) -> Self {
        Mailboxes { ranks, room: OnceLock::new() }
    }

    /// Returns the memory of the mailboxes, allocating it if necessary; `None` if the number of
    /// ranks is 1 or above `MOST_RANKS`, or if memory is exhausted.
    fn room(&self) -> Option<&MailboxMemory> {
        let make = || {
            let len = coll_mailbox::PLACES * coll_mailbox::place_bytes(self.ranks);
            let memory = SharedMapping::private(len).ok()?;
            let bells = (0..coll_mailbox::PLACES).map(|_| Arc::default()).collect();
            Some(MailboxMemory { memory, bells })
        };
        let has_mailboxes = (2..=coll_mailbox::MOST_RANKS).contains(&self.ranks);
        if has_mailboxes { self.room.get_or_init(make).as_ref() } else { None }
    }

    /// Reserves a slot for a rank's mailbox. Returns `None` if no slot is free, or if `room` does
    /// not return memory for the mailboxes.
    pub(super) fn reserve(
        &self,
        places: &mut Places,
        has_left: impl Fn(usize) -> bool,
    ) -> Option<u32> {
        self.room()?;
        let (place, _) = places.reserve(has_left)?;
        u32::try_from(place).ok()
    }

    /// Opens the mailboxes of `members` for rank `own`. Returns `None` if `room` does not return
    /// memory for the mailboxes.
    pub(super) fn open(
        &self,
        places: &mut Places,
        own: usize,
        context: u32,
        members: &[Member],
    ) -> Option<Result<Box<dyn component::CollMailbox>>> {
        let room = self.room()?;
        // The doorbell of the first member's place, which all members can compute. Communicators
        // may share a doorbell.
        let bell = members.first().and_then(|first| room.bells.get(first.place as usize));
        let Some(bell) = bell.map(Arc::clone) else {
            return Some(fail!(DTL_ERROR_INTERNAL, "no slot for the mailboxes of {members:?}"));
        };
        let slots = room.memory.span(0, room.memory.len());
        let mailbox = places.open(slots, (self.ranks, own), context, members);
        Some(mailbox.map(|mailbox| Box::new(Local { mailbox, bell }) as _))
    }
}

struct Local {
    mailbox: MailboxView,
    bell: Arc<Doorbell>,
}

impl component::CollMailbox for Local {
    fn room(&self) -> usize {
        self.mailbox.room()
    }

    fn post(&self, number: u64, what: u32, data: Region) -> bool {
        let is_up = self.mailbox.post(number, what, data);
        if is_up {
            self.bell.ring();
        }
        is_up
    }

    fn look(&self, rank: i32, number: u64) -> Option<Post> {
        self.mailbox.look(rank, number)
    }

    fn finish(&self, number: u64, met: bool) {
        self.mailbox.finish(number, met);
    }

    fn leave(&self) {
        self.mailbox.leave();
        self.bell.ring();
    }

    fn has_left(&self, rank: i32) -> bool {
        self.mailbox.has_left(rank)
    }

    fn rest(&self, rank: i32, number: u64, limit: Duration) -> bool {
        self.bell.sleep(|| self.mailbox.look(rank, number).is_some(), limit);
        true
    }
}
