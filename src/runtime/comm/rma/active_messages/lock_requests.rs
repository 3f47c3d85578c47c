//! Origin side of window locks: lock requests and their cancellation.
//!
//! The target sends exactly one reply to every request that expects a reply. A call that stops
//! waiting for a reply passes the posted receive to `Origin::abandon`, which keeps it posted.
//! Therefore no later receive with the same tag matches that reply, and no reply remains unreceived
//! when the window is destroyed.

use super::wire_format::{Head, RequestKind};
use super::{Active, PendingReply, text};
use crate::error::Result;
use crate::runtime::comm::rma_path::RmaPath;
use crate::sys::sync::wait::Deadline;
use std::ops::Range;

impl Active {
    /// Acquires the lock of one target.
    pub(super) fn lock_one(&self, target: i32, exclusive: bool, deadline: Deadline) -> Result<()> {
        let head = Head { op: i32::from(exclusive), ..Head::new(RequestKind::Lock) };
        self.request_locks(target..target + 1, head, deadline).map(drop)
    }

    /// Acquires shared locks on all targets.
    ///
    /// A rank that waits for a lock in this function holds locks only on targets with lower ranks.
    /// Therefore no two ranks can each wait behind an exclusive request that waits for the other
    /// rank, which could happen if each rank queued for all targets at once. The order is also
    /// fair: shared locks do not overtake waiting exclusive locks. Waiting for one target after the
    /// other would take a round trip per target. Therefore all locks are first requested together,
    /// with requests that a target refuses if its lock is not free. Usually all locks are free. If
    /// a target refuses, this rank releases the locks of all targets above the first target that
    /// refused, waits for the lock of that target, and requests the remaining locks again.
    pub(super) fn lock_all(&self, targets: Range<i32>, deadline: Deadline) -> Result<()> {
        let mut end = targets.start;
        let mut lock = || {
            while end < targets.end {
                end = self.lock_free_ones(end..targets.end, deadline)?;
                if end < targets.end {
                    self.lock_one(end, false, deadline)?;
                    end += 1;
                }
            }
            Ok(())
        };
        // The first failure is returned, so that of the release is dropped.
        lock().inspect_err(|_| drop(self.leave(targets.start..end)))
    }

    /// Acquires shared locks on the targets, up to the first target whose lock is not free. Returns
    /// that target, or the end of `targets`.
    fn lock_free_ones(&self, targets: Range<i32>, deadline: Deadline) -> Result<i32> {
        let answers =
            self.request_locks(targets.clone(), Head::new(RequestKind::LockIfFree), deadline)?;
        let refused = answers.iter().filter(|answer| answer.is_refused).map(|answer| answer.target);
        let Some(first) = refused.min() else { return Ok(targets.end) };
        let above = answers.iter().filter(|answer| answer.target > first && !answer.is_refused);
        // An error is dropped: the next request to that target fails, too.
        above.for_each(|answer| drop(self.leave(answer.target..answer.target + 1)));
        Ok(first)
    }

    /// Requests the locks of the targets and waits for all replies. After a failure this rank holds
    /// none of these locks.
    fn request_locks(
        &self,
        targets: Range<i32>,
        head: Head,
        deadline: Deadline,
    ) -> Result<Vec<PendingReply>> {
        let mut answers = Vec::with_capacity(targets.len());
        let mut failed = targets.clone().try_for_each(|target| {
            answers.push(self.send_request(target, head, 0)?);
            Ok(())
        });
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
        if let Err(error) = failed.and(waited) {
            self.forget_locks(answers);
            return Err(error);
        }
        Ok(answers)
    }

    /// Cancels the lock requests whose replies `answers` describes, and releases the locks that
    /// were granted.
    fn forget_locks(&self, answers: Vec<PendingReply>) {
        for answer in answers {
            let head = Head { tag: answer.tag, ..Head::new(RequestKind::Forget) };
            let mut origin = self.origin.lock();
            // A dead target needs no message.
            drop(origin.post(answer.target, &head, &[]));
            if !answer.is_there {
                origin.abandon(answer.started);
            }
        }
    }
}
