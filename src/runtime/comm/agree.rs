//! Survivors agree on who they are, and get a communicator of their own.
//!
//! Flooding: in each round every rank sends the set of ranks that it knows to have failed to all
//! others, and takes theirs in. A rank that heard its own set from everybody in it decides, and says
//! so in the next round's message; who hears a decision adopts it and passes it on. A rank can only
//! miss another's message by its death, so no two survivors decide differently: who does not decide
//! in a round in which somebody did goes on to the next, where the decision reaches it, unless all who
//! had it died first. (Early-deciding flooding consensus with a perfect failure detector: Charron-Bost
//! and Schiper, "Uniform consensus is harder than consensus", 2004.)

use super::call::{Call, Kind};
use super::link::Class;
use super::p2p::Started;
use super::standing::State;
use super::{Comm, group, insert, on_device, report};
use crate::abi::handle::dtl_comm_t;
use crate::abi::status::*;
use crate::error::{Error, Result, fail};
use crate::runtime::backend::SendMode;
use crate::sys::buf::Scratch;
use crate::sys::clock::Deadline;
use crate::sys::park::Backoff;
use std::sync::atomic::Ordering;

/// Rounds of one agreement have tags of their own.
const ROUNDS: u32 = 1 << 12;

/// What a rank says in a round.
#[derive(Clone, PartialEq, Eq)]
struct Word {
    decided: bool,
    /// The context that this rank would give the new communicator, or the decided one.
    context: u32,
    /// By rank.
    failed: Vec<bool>,
}

impl Word {
    fn words(&self) -> Vec<u64> {
        let bits = self
            .failed
            .chunks(64)
            .map(|chunk| (0..).zip(chunk).fold(0_u64, |bits, (at, failed)| bits | u64::from(*failed) << at));
        [u64::from(self.decided) << 32 | u64::from(self.context)].into_iter().chain(bits).collect()
    }

    fn parse(words: &[u64], size: usize) -> Word {
        let (head, bits) = words.split_first().map_or((0, words), |(head, bits)| (*head, bits));
        let failed =
            (0..size).map(|rank| bits.get(rank / 64).is_some_and(|word| word >> (rank % 64) & 1 == 1));
        Word { decided: head >> 32 != 0, context: head as u32, failed: failed.collect() }
    }

    fn survivors(&self) -> Vec<i32> {
        (0..).zip(&self.failed).filter(|(_, failed)| !**failed).map(|(rank, _)| rank).collect()
    }
}

/// A working communicator of the ranks that are left. All of them call it.
pub fn shrink(comm: &Comm) -> Result<dtl_comm_t> {
    if comm.standing.state() == State::Closed {
        return Err(comm.ended());
    }
    // Who waits on the communicator shall come here too.
    comm.standing.set(State::Revoked);
    report::revoke(comm);
    let ticket = comm.recorder.begin(&Call::new(Kind::Shrink));
    let decision = agree(comm);
    comm.recorder.end(ticket);
    let decision = decision?;
    // Without a board: that would have to be agreed on too.
    let made = group::derive(comm, &decision.survivors(), decision.context, None)?;
    insert(on_device::pass_on(comm, made)?)
}

fn agree(comm: &Comm) -> Result<Word> {
    let first_tag = comm.shrinks.fetch_add(1, Ordering::Relaxed) % 0xFFFF * ROUNDS;
    let mut mine =
        Word { decided: false, context: comm.link.new_context()?, failed: vec![false; comm.size as usize] };
    for rank in comm.failed_ranks() {
        note(&mut mine.failed, rank);
    }
    let own_context = mine.context;
    for round in 0..ROUNDS {
        let heard = exchange(comm, (first_tag + round) as i32, &mine)?;
        let decided = heard.iter().flatten().find(|word| word.decided);
        let mut failed = mine.failed.clone();
        for (rank, word) in (0..).zip(&heard) {
            match word {
                Some(word) => {
                    word.survivors_missing_from(&failed).iter().for_each(|rank| note(&mut failed, *rank))
                }
                None if rank != comm.rank => note(&mut failed, rank),
                None => {}
            }
        }
        let agreed = heard.iter().flatten().all(|word| word.failed == mine.failed) && failed == mine.failed;
        let decision = match decided {
            Some(word) => Some(word.clone()),
            None if agreed => {
                let leader = mine.survivors().first().copied().unwrap_or(comm.rank);
                let theirs = heard.get(leader as usize).and_then(Option::as_ref).map(|word| word.context);
                let context = if leader == comm.rank { own_context } else { theirs.unwrap_or(0) };
                Some(Word { decided: true, context, failed: mine.failed.clone() })
            }
            None => None,
        };
        if let Some(decision) = decision {
            tell(comm, (first_tag + round + 1) as i32, &decision)?;
            return Ok(decision);
        }
        mine = Word { decided: false, context: own_context, failed };
    }
    fail!(DTL_ERROR_RANK_FAILURE, "the survivors came to no agreement in {ROUNDS} rounds")
}

impl Word {
    /// Ranks that this one says have failed and `known` does not.
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

/// Sends our word to all who may be alive and takes theirs. `None`: ourselves, or one that failed.
fn exchange(comm: &Comm, tag: i32, mine: &Word) -> Result<Vec<Option<Word>>> {
    let alive: Vec<i32> = mine.survivors().into_iter().filter(|rank| *rank != comm.rank).collect();
    let words = mine.words();
    let mut receives = Vec::new();
    for &rank in &alive {
        let Some(room) = Scratch::new(8 * words.len()) else { return Err(no_memory()) };
        let started = comm.start_recv(Class::Agreement, room.region(), rank, tag);
        receives.push((rank, room, started));
    }
    tell(comm, tag, mine)?;
    let mut heard = vec![None; comm.size as usize];
    let deadline = comm.deadline();
    for (rank, room, started) in receives {
        let arrived = match started {
            Ok(started) => finish(comm, started, deadline)?,
            Err(error) if error.status() == DTL_ERROR_RANK_FAILURE => false,
            Err(error) => return Err(error),
        };
        if let Some(slot) = heard.get_mut(rank as usize).filter(|_| arrived) {
            *slot = Some(Word::parse(&room.words(), comm.size as usize));
        }
    }
    Ok(heard)
}

/// Waits for an operation; false: its peer failed.
fn finish(comm: &Comm, started: Started, deadline: Deadline) -> Result<bool> {
    let mut backoff = Backoff::new();
    loop {
        match comm.poll(started)? {
            Some(done) if done.status == DTL_ERROR_RANK_FAILURE => return Ok(false),
            Some(done) => return comm.check_done(&done, "agreement with", done.source).map(|()| true),
            None => comm.pause(&mut backoff),
        }
        if backoff.is_long() && deadline.passed() {
            comm.take_back(started)?;
            report::gather(comm, None, deadline);
            let error = Error::new(DTL_ERROR_TIMEOUT, "not every survivor called dtl_comm_shrink in time");
            return Err(report::attach(comm, &error, None));
        }
        if backoff.is_long() {
            report::serve(comm);
        }
    }
}

/// Sends our word to all who may be alive.
fn tell(comm: &Comm, tag: i32, mine: &Word) -> Result<()> {
    let Some(message) = Scratch::of_words(&mine.words()) else { return Err(no_memory()) };
    let deadline = comm.deadline();
    for rank in mine.survivors().into_iter().filter(|rank| *rank != comm.rank) {
        let region = message.region();
        // One that has died meanwhile is noticed when its own word does not come.
        if let Ok(started) = comm.start_send(Class::Agreement, region, rank, tag, SendMode::Standard) {
            finish(comm, started, deadline)?;
        }
    }
    Ok(())
}

#[cold]
fn no_memory() -> Error {
    Error::new(DTL_ERROR_OUT_OF_MEMORY, "no memory for the survivors' agreement")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_way() {
        let mut failed = vec![false; 70];
        (failed[3], failed[69]) = (true, true);
        let word = Word { decided: true, context: 77, failed };
        let again = Word::parse(&word.words(), 70);
        assert!(again == word && again.survivors().len() == 68);
    }
}
