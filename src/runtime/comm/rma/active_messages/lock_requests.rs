//! Locks of targets: requested, given up, given back.
//!
//! Every request that has an answer gets exactly one. A call that stops waiting for its answer
//! leaves the receive with the origin (`Origin::abandon`), so that no later receive with the same
//! tag takes that answer, and nothing is left unreceived at the end.

use super::wire_format::{Head, RequestKind};
use super::{Active, PendingReply, note_first, text};
use crate::error::Result;
use crate::sys::sync::clock::Deadline;
use std::ops::Range;

impl Active {
    /// Takes the lock of one target.
    pub(super) fn lock_one(&self, target: i32, exclusive: bool, deadline: Deadline) -> Result<()> {
        let head = Head { op: i32::from(exclusive), ..Head::new(RequestKind::Lock) };
        self.request_locks(target..target + 1, head, deadline).map(drop)
    }

    /// Takes shared locks of all these targets.
    ///
    /// A rank that waits here holds locks of lower ranks only than the one that it waits for. So no
    /// two of them can each wait behind an exclusive lock that waits for the other, which could
    /// happen if each queued for all targets at once. It is also fair: shared locks do not pass
    /// exclusive ones that wait. Waiting for one target after the other would take a round trip
    /// each. So the locks of all are first requested together on condition that they are free,
    /// which they usually are. If one is refused, the locks above the first refused one are given
    /// back, that one is waited for, and the rest are requested again.
    pub(super) fn lock_all(&self, targets: Range<i32>, deadline: Deadline) -> Result<()> {
        let mut end = targets.start;
        let locked = loop {
            match self.lock_free_ones(end..targets.end, deadline) {
                Ok(first_taken) => end = first_taken,
                Err(error) => break Err(error),
            }
            if end == targets.end {
                break Ok(());
            }
            match self.lock_one(end, false, deadline) {
                Ok(()) => end += 1,
                Err(error) => break Err(error),
            }
        };
        if locked.is_err() {
            // The first failure counts.
            drop(self.give_back(targets.start..end));
        }
        locked
    }

    /// Takes the locks that are free, up to the first that is not. Returns that one's target, or
    /// the end.
    fn lock_free_ones(&self, targets: Range<i32>, deadline: Deadline) -> Result<i32> {
        let answers =
            self.request_locks(targets.clone(), Head::new(RequestKind::LockIfFree), deadline)?;
        let refused = answers.iter().filter(|answer| answer.is_refused).map(|answer| answer.target);
        let Some(first) = refused.min() else { return Ok(targets.end) };
        let above = answers.iter().filter(|answer| answer.target > first && !answer.is_refused);
        // An error is dropped: the next request to that target fails, too.
        above.for_each(|answer| drop(self.give_back(answer.target..answer.target + 1)));
        Ok(first)
    }

    /// Asks for the locks of these targets and waits until all have answered. After a failure this
    /// rank has none.
    fn request_locks(
        &self,
        targets: Range<i32>,
        head: Head,
        deadline: Deadline,
    ) -> Result<Vec<PendingReply>> {
        let (mut answers, mut failed) = (Vec::with_capacity(targets.len()), Ok(()));
        for target in targets.clone() {
            match self.send_request(target, head, 0) {
                Ok(answer) => answers.push(answer),
                Err(error) => {
                    note_first(&mut failed, Err(error));
                    break;
                }
            }
        }
        let what = |limit: &str| {
            let whose = text(&targets);
            format!(
                "{whose} did not grant the lock {limit}: another rank has it, or the target serves \
                 nobody"
            )
        };
        let waited = self.until(deadline, what, || {
            let all =
                answers.iter_mut().all(|answer| self.is_answered(answer, "lock of", &mut failed));
            Ok(all || failed.is_err())
        });
        note_first(&mut failed, waited);
        if failed.is_err() {
            self.forget_locks(answers);
            return failed.map(|()| Vec::new());
        }
        Ok(answers)
    }

    /// Gives up locks that were requested; those that were granted are given back.
    fn forget_locks(&self, answers: Vec<PendingReply>) {
        for answer in answers {
            let head = Head { tag: answer.tag, ..Head::new(RequestKind::Forget) };
            let mut origin = self.origin.lock();
            // A target that has died needs no message.
            drop(origin.post(&self.comm, answer.target, &head, &[]));
            if !answer.is_there {
                origin.abandon(answer.started);
            }
        }
    }

    /// Gives locks back. Nothing answers; the first failure.
    pub(super) fn give_back(&self, targets: Range<i32>) -> Result<()> {
        let mut given = Ok(());
        for target in targets {
            let head = Head::new(RequestKind::Unlock);
            let posted = self
                .lock_origin()
                .and_then(|mut origin| origin.post(&self.comm, target, &head, &[]));
            note_first(&mut given, posted);
        }
        given
    }
}
