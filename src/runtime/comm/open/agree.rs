//! Agreement of the survivors on the set of survivors, and creation of a communicator for them.
//!
//! The algorithm is flooding: in each round every rank sends its set of failed ranks to all other
//! ranks, and merges the sets that it receives into its own. A rank decides if every rank that is
//! not in its set has sent it the same set. It publishes the decision in the next round. A rank
//! that receives a decision adopts and forwards it. A rank can miss another rank's message only
//! because of that rank's death, so no two survivors decide differently: a rank that does not
//! decide in a round in which another rank decides receives the decision in the next round, unless
//! all ranks that had the decision died first. (Early-deciding flooding consensus with a perfect
//! failure detector: Charron-Bost and Schiper, "Uniform consensus is harder than consensus", 2004.)
//!
//! An agreement that does not complete within the time limit is suspended, not abandoned: its
//! receives stay posted, its messages stay valid, and the next call on this rank continues it. The
//! other ranks can decide with the messages that a late rank has already sent, and the late rank
//! adopts their decision.

use super::group::{derive, or_absent};
use super::shrinking::{AgreeMessage, Agreement, MailboxReservation, places_told};
use crate::abi::handle::dtl_comm_t;
use crate::abi::status::*;
use crate::error::{Result, fail, failure};
use crate::runtime::comm::coll::coll_device;
use crate::runtime::comm::comm_state::CommState;
use crate::runtime::comm::comm_table::insert;
use crate::runtime::comm::diagnostics::hang_report::{self, reports::Revocation};
use crate::runtime::comm::failure::missing_ranks::of_shrink;
use crate::runtime::comm::op_desc::{Kind, OpDesc};
use crate::runtime::comm::p2p::op_handle::OpHandle;
use crate::runtime::comm::p2p::request;
use crate::runtime::comm::posted::Posted;
use crate::runtime::comm::shared_transport::Class;
use crate::runtime::comm::{Comm, progress};
use crate::runtime::component::{Completion, OpId, SendMode};
use crate::sys::memory::buf::Region;
use crate::sys::sync::wait::Backoff;

/// Maximum number of rounds of one agreement. Each round uses a separate tag.
const ROUNDS: u32 = 1 << 12;

/// Creates a communicator of the surviving ranks of `comm`. Collective over the survivors.
pub fn shrink(comm: &Comm) -> Result<dtl_comm_t> {
    if comm.standing.state() == CommState::Closed {
        return Err(comm.ended());
    }
    comm.check_outside("dtl_comm_shrink")?;
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
    hang_report::revoke(comm, Revocation::Shrink);
    request::end_messages(comm);
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
        (decision.survivors(), decision.context, of_shrink(completed));
    let place = |rank: &i32| decision.places.get(*rank as usize).copied().unwrap_or(0);
    let places = survivors.iter().map(place).collect();
    let Some(reservation) = agreement.reservation.take() else {
        return fail!(
            DTL_ERROR_RANK_FAILURE,
            "an earlier call failed to make the communicator that the ranks had agreed on, and the \
             others have been told"
        );
    };
    let made = derive(comm, &survivors, context, (reservation, places), number);
    insert(coll_device::pass_on(comm, or_absent(comm, number, made)?)?)
}

impl Agreement {
    fn new(comm: &Comm, completed: u32) -> Result<Agreement> {
        let size = comm.size as usize;
        let own_context = comm.link.new_context()?;
        let (failed, places) = (vec![false; size], vec![0; places_told(size)]);
        let mut mine = AgreeMessage { decided: false, context: own_context, failed, places };
        let reservation = MailboxReservation::reserve(&comm.link);
        if let Some(place) = mine.places.get_mut(comm.rank as usize) {
            *place = reservation.place;
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
            reservation: Some(reservation),
            mine,
            received: Vec::new(),
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
        self.received = vec![None; comm.size as usize];
        self.to_receive = if self.mine.decided { Vec::new() } else { others.clone() };
        self.to_send = others;
    }

    /// Continues the agreement until this rank has a decision and has sent it to all survivors.
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
                    let error = failure!(
                        DTL_ERROR_TIMEOUT,
                        "not every survivor called dtl_comm_shrink in time; call it again to \
                         continue"
                    );
                    return Err(hang_report::attach(comm, &error, None));
                }
                progress::others(comm);
            }
        }
    }

    /// Posts the receives and sends of this round that have not been posted yet. If posting fails,
    /// the next call posts the rest.
    fn post(&mut self, comm: &Comm) -> Result<()> {
        if self.to_receive.is_empty() && self.to_send.is_empty() {
            return Ok(());
        }
        let (tag, words) = ((self.first_tag + self.round) as i32, self.mine.words());
        while let Some(&rank) = self.to_receive.last() {
            let posted = post_recv(comm, words.len(), rank, tag);
            self.receiving.extend(unless_failed(posted)?.map(|posted| (rank, posted)));
            self.to_receive.pop();
        }
        while let Some(&rank) = self.to_send.last() {
            // A rank that has died meanwhile is detected when its own message does not arrive.
            let posted = post_send(comm, &words, rank, tag);
            self.sending.extend(unless_failed(posted)?.map(|posted| (rank, posted)));
            self.to_send.pop();
        }
        Ok(())
    }

    /// Polls the operations in flight, and stores each message that has arrived as an element of
    /// `received`. The elements of ranks that have failed or do not participate in the communicator
    /// stay `None`.
    fn poll(&mut self, comm: &Comm) -> Result<()> {
        let mut at = 0;
        while let Some((rank, posted)) = self.receiving.get_mut(at) {
            let Some(arrived) = ending(comm, *rank, posted)? else {
                at += 1;
                continue;
            };
            let (rank, posted) = self.receiving.swap_remove(at);
            if let Some(slot) = self.received.get_mut(rank as usize).filter(|_| arrived) {
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
    /// the failed ranks that the messages named.
    fn conclude_round(&mut self, comm: &Comm) -> Result<()> {
        let (mine, received) = (&self.mine, &self.received);
        let decided = received.iter().flatten().find(|word| word.decided);
        let (mut failed, mut places) = (mine.failed.clone(), mine.places.clone());
        for word in received.iter().flatten() {
            places
                .iter_mut()
                .zip(&word.places)
                .for_each(|(known, theirs)| *known = (*known).max(*theirs));
        }
        for (rank, word) in (0..).zip(received) {
            match word {
                Some(word) => failed
                    .iter_mut()
                    .zip(&word.failed)
                    .for_each(|(known, theirs)| *known |= *theirs),
                None if rank != comm.rank => note(&mut failed, rank),
                None => {}
            }
        }
        let agreed = received.iter().flatten().all(|word| word.failed == mine.failed)
            && failed == mine.failed;
        self.mine = match decided {
            Some(word) => word.clone(),
            None if agreed => {
                let leader = mine.survivors().first().copied().unwrap_or(comm.rank);
                let theirs =
                    received.get(leader as usize).and_then(Option::as_ref).map(|word| word.context);
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

const MEMORY: &str = "the survivors' agreement";

/// Copies `words` to a new buffer and starts a send of this buffer to rank `dest`.
pub(crate) fn post_send(comm: &Comm, words: &[u64], dest: i32, tag: i32) -> Result<Posted> {
    post(Posted::of_words(&comm.link, words, MEMORY)?, |data| {
        comm.start_send(Class::Agreement, data, dest, tag, SendMode::Standard)
    })
}

/// Starts a receive of `count` words of 8 bytes from rank `source`.
pub(crate) fn post_recv(comm: &Comm, count: usize, source: i32, tag: i32) -> Result<Posted> {
    post(Posted::for_words(&comm.link, count, MEMORY)?, |data| {
        comm.start_recv(Class::Agreement, data, source, tag)
    })
}

fn post(mut posted: Posted, start: impl FnOnce(Region) -> Result<OpHandle>) -> Result<Posted> {
    posted.post(|data| start(data).map(|started| started.op().unwrap_or(OpId::COMPLETED)))?;
    Ok(posted)
}

/// Returns the operation in `posted`, or `None` if the operation could not be posted because its
/// peer has failed.
fn unless_failed(posted: Result<Posted>) -> Result<Option<Posted>> {
    match posted {
        Ok(posted) => Ok(Some(posted)),
        Err(error) if error.status() == DTL_ERROR_RANK_FAILURE => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns `Some(true)` if an operation is complete, `Some(false)` if its peer has failed or does
/// not participate in the communicator, and `None` if the operation is in flight.
fn ending(comm: &Comm, peer: i32, posted: &mut Posted) -> Result<Option<bool>> {
    let done = match posted.poll()? {
        Some(done) => Some(done),
        None if posted.is_over() => return Ok(Some(true)),
        // The peer sent its message before its notice: a message not received by now never arrives.
        None if comm.is_absent(peer) => {
            comm.receive_earlier(peer);
            posted.cancel()?
        }
        None => return Ok(None),
    };
    match done {
        None | Some(Completion { status: DTL_ERROR_RANK_FAILURE, .. }) => Ok(Some(false)),
        Some(mut done) => comm.check_done(&mut done, "agreement with", peer).map(|()| Some(true)),
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
