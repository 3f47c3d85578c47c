//! Agreement of the survivors on the set of survivors, and creation of a communicator for them.
//!
//! The algorithm is flooding: in each round every rank sends the set of ranks that it has found to
//! have failed to all other ranks, and merges the sets that it receives. A rank that received its
//! own set from every rank outside of the set decides, and publishes the decision in the next
//! round. A rank that receives a decision adopts and forwards it. A rank can miss another rank's
//! message only because of that rank's death, so no two survivors decide differently: a rank that
//! does not decide in a round in which another rank decides receives the decision in the next
//! round, unless all ranks that had the decision died first. (Early-deciding flooding consensus
//! with a perfect failure detector: Charron-Bost and Schiper, "Uniform consensus is harder than
//! consensus", 2004.)
//!
//! An agreement that does not complete within the time limit is suspended, not abandoned: its
//! receives stay posted, its messages stay valid, and the next call on this rank continues it. So a
//! late rank adopts the decision reached with its messages, and attempts need no numbers.

use super::group::{MailboxReservation, derive};
use crate::abi::handle::dtl_comm_t;
use crate::abi::status::*;
use crate::error::{Error, Result, fail};
use crate::runtime::comm::comm_handles::check_outside;
use crate::runtime::comm::comm_state::CommState;
use crate::runtime::comm::diagnostics::hang_report;
use crate::runtime::comm::op_desc::{Kind, OpDesc};
use crate::runtime::comm::p2p::posted::Posted;
use crate::runtime::comm::shared_transport::Class;
use crate::runtime::comm::{Comm, absence, coll, insert, progress};
use crate::runtime::component::Completion;
use crate::sys::sync::wait::Backoff;

/// Maximum number of rounds of one agreement; each round has a tag of its own.
const ROUNDS: u32 = 1 << 12;

/// Message that a rank sends in a round.
#[derive(Clone, PartialEq, Eq)]
struct AgreeMessage {
    decided: bool,
    /// Context that this rank proposes for the new communicator, or the decided context.
    context: u32,
    /// For each rank: true if the rank has failed.
    failed: Vec<bool>,
    /// For each rank: the mailbox slot that the rank has reserved for the new communicator, or 0 if
    /// the slot is not known. A rank that decides has received the slots of all survivors. Empty if
    /// there are too many ranks for mailboxes.
    places: Vec<u32>,
}

/// Maximum number of ranks for which mailbox slots are sent; mailboxes support few ranks only.
const MOST_PLACES: usize = 64;

fn places_told(size: usize) -> usize {
    if size > MOST_PLACES { 0 } else { size }
}

impl AgreeMessage {
    fn words(&self) -> Vec<u64> {
        let bits = self.failed.chunks(64).map(|chunk| {
            (0..).zip(chunk).fold(0_u64, |bits, (at, failed)| bits | u64::from(*failed) << at)
        });
        let head = u64::from(self.decided) << 32 | u64::from(self.context);
        [head].into_iter().chain(bits).chain(self.places.iter().copied().map(u64::from)).collect()
    }

    fn parse(words: &[u64], size: usize) -> AgreeMessage {
        let (head, bits) = words.split_first().map_or((0, words), |(head, bits)| (*head, bits));
        let failed = (0..size)
            .map(|rank| bits.get(rank / 64).is_some_and(|word| word >> (rank % 64) & 1 == 1));
        let places =
            bits.iter().skip(size.div_ceil(64)).take(places_told(size)).map(|place| *place as u32);
        let (failed, places) = (failed.collect(), places.collect());
        AgreeMessage { decided: head >> 32 != 0, context: head as u32, failed, places }
    }

    fn survivors(&self) -> Vec<i32> {
        (0..).zip(&self.failed).filter(|(_, failed)| !**failed).map(|(rank, _)| rank).collect()
    }
}

/// State of the shrinks of one communicator.
#[derive(Default)]
pub(in crate::runtime::comm) struct Shrinking {
    /// Number of shrinks that succeeded on this rank, equal and in the same order on all ranks.
    completed: u32,
    /// True while a call of `shrink` is in progress; that call then owns the agreement.
    is_busy: bool,
    /// Agreement that an earlier call has not completed.
    suspended: Option<Box<Agreement>>,
}

impl Shrinking {
    /// Returns the number of successful shrinks, and true if one is in progress or suspended.
    pub(in crate::runtime::comm) fn state(&self) -> (u32, bool) {
        (self.completed, self.is_busy || self.suspended.is_some())
    }
}

/// Creates a working communicator of the surviving ranks. Collective over the survivors.
pub fn shrink(comm: &Comm) -> Result<dtl_comm_t> {
    if comm.standing.state() == CommState::Closed {
        return Err(comm.ended());
    }
    check_outside(comm, "dtl_comm_shrink")?;
    let (completed, suspended) = {
        let mut shrinking = comm.shrinking.lock();
        if shrinking.is_busy {
            return fail!(
                DTL_ERROR_BUSY,
                "another thread is in dtl_comm_shrink on this communicator: call it again when \
                 that call has returned"
            );
        }
        shrinking.is_busy = true;
        (shrinking.completed, shrinking.suspended.take())
    };
    let mut agreement = suspended;
    let made = continue_shrink(comm, completed, &mut agreement);
    let mut shrinking = comm.shrinking.lock();
    shrinking.is_busy = false;
    match made {
        Ok(_) => shrinking.completed += 1,
        Err(_) => shrinking.suspended = agreement,
    }
    made
}

fn continue_shrink(
    comm: &Comm,
    completed: u32,
    agreement: &mut Option<Box<Agreement>>,
) -> Result<dtl_comm_t> {
    // Wakes the ranks that wait on the communicator, so that they call shrink, too.
    comm.standing.revoke();
    hang_report::revoke(comm);
    let agreement = match agreement {
        Some(suspended) => suspended,
        None => agreement.insert(Box::new(Agreement::new(comm, completed)?)),
    };
    let ticket = comm.recorder.begin(OpDesc::new(Kind::Shrink).words());
    let reached = agreement.reach(comm);
    comm.recorder.end(ticket);
    reached?;
    // The survivors have sent the notices of their shrinks before their agreement messages.
    hang_report::serve_own(comm);
    let decision = &agreement.mine;
    if !decision.survivors().contains(&comm.rank) {
        return fail!(DTL_ERROR_RANK_FAILURE, "the other ranks have agreed that this rank failed");
    }
    let (survivors, context, number) =
        (decision.survivors(), decision.context, absence::of_shrink(completed));
    let place = |rank: &i32| decision.places.get(*rank as usize).copied().unwrap_or(0);
    let places = survivors.iter().map(place).collect();
    let Some(seat) = agreement.seat.take() else {
        return fail!(
            DTL_ERROR_RANK_FAILURE,
            "an earlier call failed to make the communicator that the ranks had agreed on, and the \
             others have been told"
        );
    };
    let made = derive(comm, &survivors, context, Some((seat, places)), number)?;
    insert(coll::coll_device::pass_on(comm, made)?)
}

/// Agreement in progress.
struct Agreement {
    /// Tag of round 0.
    first_tag: u32,
    round: u32,
    own_context: u32,
    /// Reservation of this rank's mailbox slot, until the new communicator acquires the slot.
    seat: Option<MailboxReservation>,
    /// Message of this rank in this round. A decided message is the result, sent to the survivors.
    mine: AgreeMessage,
    /// Received messages of this round, by rank.
    heard: Vec<Option<AgreeMessage>>,
    /// Ranks for which this round's receive, or this round's send, is still to be posted.
    to_receive: Vec<i32>,
    to_send: Vec<i32>,
    receiving: Vec<(i32, Posted)>,
    /// Sends in flight, of all rounds, with their destinations.
    sending: Vec<(i32, Posted)>,
}

const MEMORY: &str = "the survivors' agreement";

impl Agreement {
    fn new(comm: &Comm, completed: u32) -> Result<Agreement> {
        let size = comm.size as usize;
        let own_context = comm.link.new_context()?;
        let (failed, places) = (vec![false; size], vec![0; places_told(size)]);
        let mut mine = AgreeMessage { decided: false, context: own_context, failed, places };
        let seat = MailboxReservation::reserve(comm);
        if let Some(place) = mine.places.get_mut(comm.rank as usize) {
            *place = seat.place;
        }
        for rank in
            comm.failed_ranks().into_iter().chain(comm.absent_ranks()).chain(comm.left_ranks())
        {
            note(&mut mine.failed, rank);
        }
        let mut agreement = Agreement {
            first_tag: completed % 0xFFFF * ROUNDS,
            round: 0,
            own_context,
            seat: Some(seat),
            mine,
            heard: Vec::new(),
            to_receive: Vec::new(),
            to_send: Vec::new(),
            receiving: Vec::new(),
            sending: Vec::new(),
        };
        agreement.begin_round(comm);
        Ok(agreement)
    }

    fn begin_round(&mut self, comm: &Comm) {
        let mut others = self.mine.survivors();
        others.retain(|rank| *rank != comm.rank);
        self.heard = vec![None; comm.size as usize];
        self.to_receive = if self.mine.decided { Vec::new() } else { others.clone() };
        self.to_send = others;
    }

    /// Continues the agreement until a decision is reached and has been sent to all survivors.
    fn reach(&mut self, comm: &Comm) -> Result<()> {
        let deadline = comm.deadline();
        let mut backoff = Backoff::new();
        loop {
            self.post(comm)?;
            self.poll(comm)?;
            if self.receiving.is_empty() && !self.mine.decided {
                self.conclude_round(comm)?;
                continue;
            }
            if self.mine.decided && self.sending.is_empty() {
                return Ok(());
            }
            comm.pause(&mut backoff);
            if backoff.is_long() {
                if comm.standing.state() == CommState::Closed {
                    return Err(comm.ended());
                }
                if deadline.passed() {
                    hang_report::gather(comm, None, deadline);
                    let text = "not every survivor called dtl_comm_shrink in time; call it again \
                        to continue";
                    return Err(hang_report::attach(
                        comm,
                        &Error::new(DTL_ERROR_TIMEOUT, text),
                        None,
                    ));
                }
                progress::others(comm);
            }
        }
    }

    /// Posts the remaining operations of this round. After a failure the next call posts the rest.
    fn post(&mut self, comm: &Comm) -> Result<()> {
        if self.to_receive.is_empty() && self.to_send.is_empty() {
            return Ok(());
        }
        let (tag, words) = ((self.first_tag + self.round) as i32, self.mine.words());
        while let Some(&rank) = self.to_receive.last() {
            let message = (Class::Agreement, rank, tag);
            let posted = Posted::recv(comm, words.len(), message, MEMORY);
            self.receiving.extend(unless_failed(posted)?.map(|posted| (rank, posted)));
            self.to_receive.pop();
        }
        while let Some(&rank) = self.to_send.last() {
            // A rank that has died meanwhile is detected when its own message does not arrive.
            let posted = Posted::send(comm, &words, (Class::Agreement, rank, tag), MEMORY);
            self.sending.extend(unless_failed(posted)?.map(|posted| (rank, posted)));
            self.to_send.pop();
        }
        Ok(())
    }

    /// Stores the messages that have arrived. The slots of failed and absent ranks stay empty.
    fn poll(&mut self, comm: &Comm) -> Result<()> {
        let mut at = 0;
        while let Some((rank, posted)) = self.receiving.get_mut(at) {
            let Some(arrived) = ending(comm, *rank, posted)? else {
                at += 1;
                continue;
            };
            let (rank, posted) = self.receiving.swap_remove(at);
            if let Some(slot) = self.heard.get_mut(rank as usize).filter(|_| arrived) {
                *slot = Some(AgreeMessage::parse(&posted.words(), comm.size as usize));
            }
        }
        let mut at = 0;
        while let Some((rank, posted)) = self.sending.get_mut(at) {
            if ending(comm, *rank, posted)?.is_some() {
                self.sending.swap_remove(at);
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    /// Concludes a round whose messages have all arrived: decides, or begins the next round with
    /// the failures that the messages reported.
    fn conclude_round(&mut self, comm: &Comm) -> Result<()> {
        let (mine, heard) = (&self.mine, &self.heard);
        let decided = heard.iter().flatten().find(|word| word.decided);
        let (mut failed, mut places) = (mine.failed.clone(), mine.places.clone());
        for word in heard.iter().flatten() {
            places
                .iter_mut()
                .zip(&word.places)
                .for_each(|(known, told)| *known = (*known).max(*told));
        }
        for (rank, word) in (0..).zip(heard) {
            match word {
                Some(word) => word
                    .survivors_missing_from(&failed)
                    .iter()
                    .for_each(|rank| note(&mut failed, *rank)),
                None if rank != comm.rank => note(&mut failed, rank),
                None => {}
            }
        }
        let agreed =
            heard.iter().flatten().all(|word| word.failed == mine.failed) && failed == mine.failed;
        self.mine = match decided {
            Some(word) => word.clone(),
            None if agreed => {
                let leader = mine.survivors().first().copied().unwrap_or(comm.rank);
                let theirs =
                    heard.get(leader as usize).and_then(Option::as_ref).map(|word| word.context);
                let context =
                    if leader == comm.rank { self.own_context } else { theirs.unwrap_or(0) };
                AgreeMessage { decided: true, context, failed, places }
            }
            None => AgreeMessage { decided: false, context: self.own_context, failed, places },
        };
        self.round += 1;
        if self.round >= ROUNDS {
            return fail!(
                DTL_ERROR_RANK_FAILURE,
                "the survivors came to no agreement in {ROUNDS} rounds"
            );
        }
        self.begin_round(comm);
        Ok(())
    }
}

/// Returns the posted operation in `posted`, or `None` if the peer of the operation has failed.
fn unless_failed(posted: Result<Posted>) -> Result<Option<Posted>> {
    match posted {
        Ok(posted) => Ok(Some(posted)),
        Err(error) if error.status() == DTL_ERROR_RANK_FAILURE => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns `Some(true)` if an operation is complete, `Some(false)` if its peer failed or is absent,
/// and `None` if the operation is in flight.
fn ending(comm: &Comm, peer: i32, posted: &mut Posted) -> Result<Option<bool>> {
    let done = match posted.poll()? {
        Some(done) => Some(done),
        None if posted.is_over() => return Ok(Some(true)),
        // The peer sent its message before its notice: a message not received by now never arrives.
        None if comm.is_absent(peer) => {
            comm.receive_earlier(peer);
            match posted.cancel()? {
                Some(done) => Some(done),
                None => return Ok(Some(false)),
            }
        }
        None => return Ok(None),
    };
    match done {
        Some(Completion { status: DTL_ERROR_RANK_FAILURE, .. }) => Ok(Some(false)),
        Some(done) => comm.check_done(&done, "agreement with", peer).map(|()| Some(true)),
        None => Ok(None),
    }
}

impl AgreeMessage {
    /// Returns the ranks that this message reports as failed and that are not set in `known`.
    fn survivors_missing_from(&self, known: &[bool]) -> Vec<i32> {
        let pairs = (0..).zip(self.failed.iter().zip(known));
        pairs.filter(|(_, (theirs, ours))| **theirs && !**ours).map(|(rank, _)| rank).collect()
    }
}

fn note(failed: &mut [bool], rank: i32) {
    if let Some(slot) = usize::try_from(rank).ok().and_then(|rank| failed.get_mut(rank)) {
        *slot = true;
    }
}

#[cfg(test)]
#[path = "tests/agree.rs"]
mod tests;
