//! Late and absent ranks: time limits, and what is reported of ranks that do not come.

use crate::abi::status::*;
use crate::error::{Error, Result};
use crate::sys::sync::clock::Deadline;

/// How long ranks wait for each other by default.
const DEFAULT_TIMEOUT_NS: u64 = 30_000_000_000;
/// How long an answer may take beyond the time limit.
pub(super) const GRACE_NS: u64 = 2_000_000_000;
/// How long rank 0 waits for the others after a failure, to report it to them.
pub(super) const LINGER_NS: u64 = 2_000_000_000;

/// Returns how long the ranks of an opening wait for each other.
pub(in crate::backend) fn limit_ns(timeout_ns: u64) -> u64 {
    match timeout_ns {
        0 | u64::MAX => DEFAULT_TIMEOUT_NS,
        limit_ns => limit_ns,
    }
}

/// One rank's part in the opening of a communicator.
#[derive(Clone, Copy)]
pub(in crate::backend) struct OpenRequest {
    /// Equal on the ranks of this opening, and on no others.
    pub(super) key: u64,
    pub(in crate::backend) rank: usize,
    pub(in crate::backend) size: usize,
    pub(super) limit_ns: u64,
    pub(super) deadline: Deadline,
}

impl OpenRequest {
    /// The time limit begins now.
    pub(super) fn new(key: u64, (rank, size): (usize, usize), timeout_ns: u64) -> Self {
        let limit_ns = limit_ns(timeout_ns);
        OpenRequest { key, rank, size, limit_ns, deadline: Deadline::after(limit_ns) }
    }

    /// Until when rank 0 has to answer: it does so at its own limit.
    pub(super) fn late(&self) -> Deadline {
        Deadline::after(self.deadline.left_ns().saturating_add(GRACE_NS))
    }

    /// Makes the error of ranks that did not come. `at`: where they were awaited; `reason`: another
    /// reason than those that hold everywhere; `hint`: what else was found.
    pub(super) fn absent(&self, ranks: &[usize], [at, reason, hint]: [&str; 3]) -> Error {
        let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
        let text = format!(
            "rank {} of {} missing after {}{at}: not started, started with another job name\
             {reason}, or failed (see its own output){hint}; start all ranks, or raise the time \
             limit",
            ranks.join(", "),
            self.size,
            self.limit()
        );
        Error::new(DTL_ERROR_TIMEOUT, text)
    }

    /// Makes the error of a rank 0 that did not come. `details`: where, why, and what to do.
    pub(super) fn root_absent(&self, details: &str) -> Error {
        let text = format!("rank 0 is missing after {}{details}", self.limit());
        Error::new(DTL_ERROR_TIMEOUT, text)
    }

    /// The time limit in words.
    fn limit(&self) -> String {
        let ns = self.limit_ns;
        if ns < 1_000_000_000 {
            format!("{} ms", ns / 1_000_000)
        } else {
            format!("{:.1} s", ns as f64 / 1e9)
        }
    }

    /// Makes the error of a rank whose size differs from rank 0's.
    pub(super) fn other_size(&self, rank: u64, size: u64) -> Option<Error> {
        let own = self.size;
        (size != own as u64).then(|| {
            let text = format!(
                "the ranks disagree on their number: rank {rank} says {size}, rank 0 says {own}; \
                 pass the same size on all"
            );
            Error::new(DTL_ERROR_INVALID_ARGUMENT, text)
        })
    }

    /// Makes the error of a rank whose contribution differs in length from rank 0's.
    pub(super) fn other_length(&self, rank: u64, len: usize, own: usize) -> Option<Error> {
        (len != own).then(|| {
            let text = format!(
                "rank {rank} says {len} words, rank 0 says {own}; use one version of libdtl on all \
                 ranks"
            );
            Error::new(DTL_ERROR_INVALID_ARGUMENT, text)
        })
    }
}

/// Rank 0's wait for the others: until when, and why it does not go on.
pub(super) struct ArrivalDeadline {
    deadline: Deadline,
    failure: Option<Error>,
}

impl ArrivalDeadline {
    pub(super) fn new(deadline: Deadline) -> Self {
        ArrivalDeadline { deadline, failure: None }
    }

    pub(super) fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Shortens the wait. The first limit that passes is everybody's, so that every rank gets the
    /// names of the missing ones.
    pub(super) fn shorten(&mut self, left_ns: u64) {
        if left_ns < self.deadline.left_ns() {
            self.deadline = Deadline::after(left_ns);
        }
    }

    /// Records a failure unless there is one. Rank 0 waits on for as long as `linger_ns` of the
    /// first failure, to report it to those who are still to come.
    pub(super) fn give_up(&mut self, error: Error, linger_ns: impl FnOnce(&Error) -> u64) {
        let linger_ns = linger_ns(self.failure.get_or_insert(error));
        self.shorten(linger_ns);
    }

    /// Returns the outcome, or `None` while there are ranks to wait for.
    pub(super) fn outcome(
        &mut self,
        missing: &[usize],
        absent: impl FnOnce(&[usize]) -> Error,
    ) -> Option<Result<()>> {
        if !missing.is_empty() && !self.deadline.passed() {
            return None;
        }
        Some(match self.failure.take() {
            Some(error) => Err(error),
            None if missing.is_empty() => Ok(()),
            None => Err(absent(missing)),
        })
    }
}
