//! State of the shrink operations of a communicator. It persists between calls to `agree::shrink`.

use crate::runtime::comm::posted::Posted;
use crate::runtime::comm::shared_transport::SharedTransport;
use std::sync::Arc;

/// State of the shrink operations of one communicator.
#[derive(Default)]
pub(crate) struct Shrinking {
    /// Number of shrink operations that succeeded on this rank. All ranks complete the same shrink
    /// operations in the same order.
    pub(super) completed: u32,
    /// True while a call to `shrink` is in progress. That call has taken the agreement out of
    /// `suspended`.
    pub(super) is_busy: bool,
    /// Agreement that an earlier call to `shrink` has started but not completed.
    pub(super) suspended: Option<Box<Agreement>>,
}

impl Shrinking {
    /// Returns the number of successful shrink operations, and a flag that is true if a shrink is
    /// in progress or suspended.
    pub(crate) fn state(&self) -> (u32, bool) {
        (self.completed, self.is_busy || self.suspended.is_some())
    }
}

/// Agreement in progress.
pub(crate) struct Agreement {
    /// Tag of round 0.
    pub(super) first_tag: u32,
    pub(super) round: u32,
    pub(super) own_context: u32,
    /// Reservation of this rank's mailbox slot (shared memory for small collectives); `None` once
    /// the new communicator has acquired the slot.
    pub(super) reservation: Option<MailboxReservation>,
    /// Message that this rank sends in this round. If `decided` is true, the message contains the
    /// result of the agreement, which this rank forwards to the survivors.
    pub(super) mine: AgreeMessage,
    /// Received messages of this round, indexed by rank.
    pub(super) received: Vec<Option<AgreeMessage>>,
    /// Source ranks of the receives (`to_receive`) and destination ranks of the sends (`to_send`)
    /// that are still to be posted in this round.
    pub(super) to_receive: Vec<i32>,
    pub(super) to_send: Vec<i32>,
    pub(super) receiving: Vec<(i32, Posted)>,
    /// Sends in flight, from this and earlier rounds, each with its destination rank.
    pub(super) sending: Vec<(i32, Posted)>,
}

/// Message that a rank sends in one round of the agreement.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct AgreeMessage {
    pub(super) decided: bool,
    /// Context that the sender proposes for the new communicator or, if `decided` is true, the
    /// agreed context.
    pub(super) context: u32,
    /// For each rank: true if the rank has failed.
    pub(super) failed: Vec<bool>,
    /// For each rank: the mailbox slot (shared memory for small collectives) that the rank has
    /// reserved for the new communicator, or 0 if the slot is not known. A rank that concludes the
    /// agreement has received the slots of all survivors. Empty if there are more than
    /// `MOST_PLACES` ranks.
    pub(super) places: Vec<u32>,
}

/// Maximum number of ranks for which the messages of the agreement contain the numbers of mailbox
/// slots (shared memory for small collectives). Mailboxes support only communicators with few
/// ranks.
const MOST_PLACES: usize = 64;

pub(super) fn places_told(size: usize) -> usize {
    if size > MOST_PLACES { 0 } else { size }
}

impl AgreeMessage {
    pub(super) fn words(&self) -> Vec<u64> {
        let bits = self.failed.chunks(64).map(|chunk| {
            (0..).zip(chunk).fold(0_u64, |bits, (at, failed)| bits | u64::from(*failed) << at)
        });
        let head = u64::from(self.decided) << 32 | u64::from(self.context);
        [head].into_iter().chain(bits).chain(self.places.iter().copied().map(u64::from)).collect()
    }

    pub(super) fn parse(words: &[u64], size: usize) -> AgreeMessage {
        let (head, bits) = words.split_first().map_or((0, words), |(head, bits)| (*head, bits));
        let failed = (0..size)
            .map(|rank| bits.get(rank / 64).is_some_and(|word| word >> (rank % 64) & 1 == 1));
        let places =
            bits.iter().skip(size.div_ceil(64)).take(places_told(size)).map(|place| *place as u32);
        let (failed, places) = (failed.collect(), places.collect());
        AgreeMessage { decided: head >> 32 != 0, context: head as u32, failed, places }
    }

    pub(super) fn survivors(&self) -> Vec<i32> {
        (0..).zip(&self.failed).filter(|(_, failed)| !**failed).map(|(rank, _)| rank).collect()
    }
}

/// Reservation of a mailbox slot (shared memory for small collectives) for this rank. The slot is
/// reserved before the ranks exchange their slot numbers, so that another thread that creates a
/// communicator at the same time cannot obtain the slot. Drop releases the slot, unless the
/// communicator's mailboxes have acquired it.
pub(crate) struct MailboxReservation {
    link: Arc<SharedTransport>,
    /// Number of the reserved mailbox slot (shared memory for small collectives); 0 if no slot is
    /// reserved.
    pub(crate) place: u32,
}

impl MailboxReservation {
    pub(crate) fn reserve(link: &Arc<SharedTransport>) -> Self {
        let shared = link.shared_memory.as_ref();
        let place = shared.and_then(|shared| shared.part().reserve_place()).unwrap_or(0);
        MailboxReservation { link: Arc::clone(link), place }
    }
}

impl Drop for MailboxReservation {
    fn drop(&mut self) {
        if let (Some(shared), 1..) = (&self.link.shared_memory, self.place) {
            shared.part().release_place(self.place);
        }
    }
}
