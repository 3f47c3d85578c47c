//! The way that needs nothing of a transport but messages: an origin asks, the target does it when it serves.
//!
//! `message` is what is asked, `origin` the asking side, `serve` the serving one, `locks` who has the lock. A target
//! serves in every call of its process that waits, and in a thread while there is none (`window::progress`); where
//! all ranks are in one process, whoever waits serves for all.
//!
//! Small data travel with the request. A large put sends a request, then its data from where they are to where they go;
//! what is fetched comes as a message into the caller's buffer. Only accumulated data go in pieces through buffers.

mod locks;
mod message;
mod origin;
mod serve;

use super::progress as serving;
use super::way::{Asked, Begun, Reach, Spot, Swap, Ticket, Way};
use crate::abi::status::*;
use crate::abi::word::DTL_OP_NO_OP;
use crate::error::{Error, Result};
use crate::runtime::backend::SendMode;
use crate::runtime::comm::link::Class;
use crate::runtime::comm::p2p::Started;
use crate::runtime::comm::types::Reduction;
use crate::runtime::comm::{Comm, progress};
use crate::sys::buf::Region;
use crate::sys::lock::{Mutex, MutexGuard};
use crate::sys::park::Backoff;
use message::{Head, INLINE, PIECE, What, answer_tag, data_tag};
use origin::{Origin, Room};
use serve::Server;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) struct Active {
    comm: Arc<Comm>,
    memory: Region,
    /// Whether all ranks are threads of this process.
    is_one_process: bool,
    origin: Mutex<Origin>,
    server: Mutex<Server>,
    is_closed: AtomicBool,
}

/// An answer that is waited for.
struct Answer {
    target: i32,
    tag: i32,
    started: Started,
    /// What is done at the target when it is there.
    goal: u64,
    is_there: bool,
}

impl Active {
    pub(super) fn new(comm: Arc<Comm>, memory: Region, is_one_process: bool) -> Result<Active> {
        let origin = Mutex::new(Origin::new(comm.size.unsigned_abs() as usize));
        let server = Mutex::new(Server::new(memory)?);
        Ok(Active { comm, memory, is_one_process, origin, server, is_closed: AtomicBool::new(false) })
    }

    /// This rank's own memory, if it is the target.
    fn own(&self, spot: Spot) -> Option<Region> {
        (spot.target == self.comm.rank).then(|| self.memory.part(spot.offset, spot.len))
    }

    /// The asking side, for something to be started.
    fn asking(&self) -> Result<MutexGuard<'_, Origin>> {
        let origin = self.origin.lock();
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::new(DTL_ERROR_CANCELED, "the window was destroyed by another thread"));
        }
        Ok(origin)
    }

    fn serve_here(&self) {
        if self.is_one_process {
            serving::serve_all();
        } else {
            self.serve();
        }
    }

    /// Waits, serving others, until `look` is true; what is waited for is told by `what`.
    fn until(&self, what: impl Fn() -> String, mut look: impl FnMut() -> Result<bool>) -> Result<()> {
        let (deadline, mut backoff) = (self.comm.deadline(), Backoff::new());
        while !look()? {
            self.serve_here();
            self.comm.pause(&mut backoff);
            if backoff.is_long() {
                self.comm.check_open()?;
                if deadline.passed() {
                    let millis = self.comm.timeout_ns / 1_000_000;
                    let text = format!("{} within {millis} ms (the communicator's time limit)", what());
                    return Err(Error::new(DTL_ERROR_TIMEOUT, text));
                }
                progress::others(&self.comm);
            }
        }
        Ok(())
    }

    /// Waits until one more request may be sent to a target.
    fn make_room(&self, target: i32) -> Result<()> {
        let room = || self.asking()?.room(&self.comm, target);
        match room()? {
            Room::Free => Ok(()),
            Room::Flush => self.finish(target..target + 1, Reach::Target),
            Room::Later => {
                let what = || format!("operations before it, of target {target} among others, did not end");
                self.until(what, || Ok(room()? != Room::Later))
            }
        }
    }

    /// Asks a target for something that it answers by a message without data.
    fn ask(&self, target: i32, head: Head, goal: u64) -> Result<Answer> {
        let mut origin = self.asking()?;
        let tag = answer_tag(origin.next());
        let started = self.comm.start_recv(Class::User, Region::EMPTY, target, tag)?;
        if let Err(error) = origin.post(&self.comm, target, &Head { tag, ..head }, &[]) {
            self.comm.take_back(started)?;
            return Err(error);
        }
        Ok(Answer { target, tag, started, goal, is_there: false })
    }

    /// Whether an answer is there, or will never be.
    fn is_answered(&self, answer: &mut Answer, what: &str, failed: &mut Result<()>) -> bool {
        if answer.is_there {
            return true;
        }
        let end = match self.comm.poll(answer.started) {
            Ok(None) => return false,
            Ok(Some(done)) => self.comm.check_done(&done, what, answer.target),
            Err(error) => Err(error),
        };
        answer.is_there = true;
        note_first(failed, end);
        true
    }

    /// Waits until operations on these targets are over; the first failure after all of them are.
    fn finish(&self, targets: Range<i32>, reach: Reach) -> Result<()> {
        let (mut answers, mut failed) = (Vec::new(), Ok(()));
        if reach == Reach::Target {
            for target in targets.clone() {
                let Some(goal) = self.origin.lock().unanswered(target) else { continue };
                match self.ask(target, Head::new(What::Flush), goal) {
                    Ok(answer) => answers.push(answer),
                    Err(error) => {
                        self.origin.lock().answered(target, goal);
                        note_first(&mut failed, Err(error));
                    }
                }
            }
        }
        let waited = self.until(
            || format!("operations on {} did not end", text(&targets)),
            || {
                let is_local = self.origin.lock().collect(&self.comm, &targets, false)?;
                let mut answers = answers.iter_mut();
                let all = answers.all(|answer| self.is_answered(answer, "flush of", &mut failed));
                Ok(is_local && all)
            },
        );
        for answer in &answers {
            if answer.is_there {
                self.origin.lock().answered(answer.target, answer.goal);
            } else {
                self.comm.take_back(answer.started)?;
            }
        }
        waited?;
        note_first(&mut failed, self.origin.lock().failure(&targets));
        failed
    }

    /// Sends a request that is answered by data.
    fn fetch(
        &self,
        (head, data, target): (Head, &[Region], i32),
        into: Region,
        what: &'static str,
        asked: Asked,
    ) -> Result<Begun> {
        self.make_room(target)?;
        let mut origin = self.asking()?;
        let number = origin.next();
        let tag = answer_tag(number);
        let started = self.comm.start_recv(Class::User, into, target, tag)?;
        if let Err(error) = origin.post(&self.comm, target, &Head { tag, ..head }, data) {
            self.comm.take_back(started)?;
            return Err(error);
        }
        Ok(origin.add(number, (what, target), started, asked))
    }

    /// The pieces of an accumulation: each is applied as a whole.
    fn in_pieces(to: Spot, element: usize, mut each: impl FnMut(usize, usize) -> Result<()>) -> Result<()> {
        let most = PIECE / element.max(1) * element.max(1);
        (0..to.len).step_by(most.max(1)).try_for_each(|at| each(at, most.min(to.len - at)))
    }

    /// Gives up locks that were asked for; those that were granted are given back.
    fn forget_locks(&self, answers: &[Answer]) {
        for answer in answers {
            if !answer.is_there {
                // Of one that has died nothing is wanted any more.
                drop(self.comm.take_back(answer.started));
            }
            let head = Head { tag: answer.tag, ..Head::new(What::Forget) };
            drop(self.asking().and_then(|mut origin| origin.post(&self.comm, answer.target, &head, &[])));
        }
    }
}

fn note_first(first: &mut Result<()>, next: Result<()>) {
    if first.is_ok() {
        *first = next;
    }
}

fn text(targets: &Range<i32>) -> String {
    if targets.len() == 1 {
        format!("target {}", targets.start)
    } else {
        format!("targets {} to {}", targets.start, targets.end - 1)
    }
}

fn of(what: What, by: &Reduction) -> Head {
    Head { op: by.op, dtype: by.dtype, ..Head::new(what) }
}

impl Way for Active {
    fn describe(&self) -> &'static str {
        if self.needs_thread() {
            "messages, served by the target's calls and a thread"
        } else {
            "messages, served by whoever waits in this process"
        }
    }

    fn put(&self, to: Spot, from: Region, asked: Asked) -> Result<Begun> {
        if let Some(own) = self.own(to) {
            own.copy_from(from);
            return Ok(Begun::Over);
        }
        self.make_room(to.target)?;
        let mut origin = self.asking()?;
        if to.len <= INLINE {
            let head = Head::new(What::Put).at(to.offset, to.len);
            origin.post(&self.comm, to.target, &head, &[from])?;
            origin.note(to.target);
            return Ok(Begun::Over);
        }
        let number = origin.next();
        let tag = data_tag(number);
        let head = Head { tag, ..Head::new(What::PutLarge) }.at(to.offset, to.len);
        origin.post(&self.comm, to.target, &head, &[])?;
        origin.note(to.target);
        let started = self.comm.start_send(Class::User, from, to.target, tag, SendMode::Standard)?;
        Ok(origin.add(number, ("put to", to.target), started, asked))
    }

    fn get(&self, into: Region, from: Spot, asked: Asked) -> Result<Begun> {
        if let Some(own) = self.own(from) {
            into.copy_from(own);
            return Ok(Begun::Over);
        }
        let head = Head::new(What::Get).at(from.offset, from.len);
        self.fetch((head, &[], from.target), into, "get from", asked)
    }

    fn accumulate(&self, to: Spot, from: Region, by: &Reduction) -> Result<Begun> {
        if let Some(own) = self.own(to) {
            let _alone = self.server.lock();
            by.apply(own, from);
            return Ok(Begun::Over);
        }
        Self::in_pieces(to, by.element, |at, len| {
            self.make_room(to.target)?;
            let head = of(What::Accumulate, by).at(to.offset + at, len);
            let mut origin = self.asking()?;
            origin.post(&self.comm, to.target, &head, &[from.part(at, len)])?;
            origin.note(to.target);
            Ok(())
        })?;
        Ok(Begun::Over)
    }

    fn get_accumulate(&self, to: Spot, from: Region, result: Region, by: &Reduction) -> Result<Begun> {
        if let Some(own) = self.own(to) {
            let _alone = self.server.lock();
            result.copy_from(own);
            by.apply(own, from);
            return Ok(Begun::Over);
        }
        let mut begun = Begun::Over;
        Self::in_pieces(to, by.element, |at, len| {
            let head = of(What::GetAccumulate, by).at(to.offset + at, len);
            let data = if by.op == DTL_OP_NO_OP { Region::EMPTY } else { from.part(at, len) };
            let (request, into) = ((head, &[data][..], to.target), result.part(at, len));
            begun = self.fetch(request, into, "accumulate at", false)?;
            Ok(())
        })?;
        Ok(begun)
    }

    fn compare_and_swap(&self, to: Spot, swap: Swap) -> Result<Begun> {
        if let Some(own) = self.own(to) {
            let _alone = self.server.lock();
            swap.result.copy_from(own);
            own.swap_if(swap.expected, swap.value);
            return Ok(Begun::Over);
        }
        let head = Head::new(What::Swap).at(to.offset, to.len);
        self.fetch((head, &[swap.value, swap.expected], to.target), swap.result, "compare and swap at", false)
    }

    fn lock(&self, targets: Range<i32>, exclusive: bool) -> Result<()> {
        let (mut answers, mut failed) = (Vec::new(), Ok(()));
        for target in targets.clone() {
            let head = Head { op: i32::from(exclusive), ..Head::new(What::Lock) };
            match self.ask(target, head, 0) {
                Ok(answer) => answers.push(answer),
                Err(error) => {
                    note_first(&mut failed, Err(error));
                    break;
                }
            }
        }
        let waited = self.until(
            || {
                format!(
                    "{} did not grant the lock (another rank has it, or the target serves nobody)",
                    text(&targets)
                )
            },
            || {
                let all = answers.iter_mut().all(|answer| self.is_answered(answer, "lock of", &mut failed));
                Ok(all || failed.is_err())
            },
        );
        note_first(&mut failed, waited);
        if failed.is_err() {
            self.forget_locks(&answers);
        }
        failed
    }

    fn unlock(&self, targets: Range<i32>) -> Result<()> {
        let mut finished = self.finish(targets.clone(), Reach::Target);
        if finished.as_ref().is_err_and(|error| error.status() == DTL_ERROR_TIMEOUT) {
            return finished;
        }
        for target in targets {
            let head = Head::new(What::Unlock);
            let posted = self.asking().and_then(|mut origin| origin.post(&self.comm, target, &head, &[]));
            note_first(&mut finished, posted);
        }
        finished
    }

    fn flush(&self, targets: Range<i32>, reach: Reach) -> Result<()> {
        self.finish(targets, reach)
    }

    fn is_over(&self, ticket: Ticket) -> Result<bool> {
        let asked = self.origin.lock().ask(&self.comm, ticket);
        match asked {
            Some(Ok(false)) => {
                self.serve_here();
                Ok(false)
            }
            Some(end) => end,
            None => Err(Error::new(DTL_ERROR_CANCELED, "the window was destroyed")),
        }
    }

    fn withdraw(&self, ticket: Ticket) -> Result<()> {
        let taken = self.origin.lock().take(ticket);
        taken.map_or(Ok(()), |started| self.comm.take_back(started).map(drop))
    }

    fn serve(&self) -> bool {
        let Some(mut server) = self.server.try_lock() else { return false };
        !self.is_closed.load(Ordering::Acquire) && server.turn(&self.comm)
    }

    fn needs_thread(&self) -> bool {
        !self.is_one_process
    }

    fn close(&self) {
        let mut server = self.server.lock();
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            server.close(&self.comm);
            self.origin.lock().close(&self.comm);
        }
    }
}
