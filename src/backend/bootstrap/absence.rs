//! Timeouts for late and absent ranks, and the errors that name absent ranks.

use crate::abi::status::*;
use crate::error::{Error, Result, failure};
use crate::sys::sync::wait::Deadline;

/// Default timeout for opening a communicator, in nanoseconds.
const DEFAULT_TIMEOUT_NS: u64 = 30_000_000_000;
/// Time after the timeout within which rank 0's reply may still arrive, in nanoseconds.
pub(super) const GRACE_NS: u64 = 2_000_000_000;
/// Time, in nanoseconds, that rank 0 continues to wait for the other ranks after a failure, so that
/// it can report the failure to them.
pub(super) const LINGER_NS: u64 = 2_000_000_000;

/// Returns the timeout, in nanoseconds, for opening a communicator: `timeout_ns`, or the default if
/// `timeout_ns` is 0 or `u64::MAX`.
pub(crate) fn limit_ns(timeout_ns: u64) -> u64 {
    match timeout_ns {
        0 | u64::MAX => DEFAULT_TIMEOUT_NS,
        limit_ns => limit_ns,
    }
}

/// Parameters with which one rank opens a communicator.
#[derive(Clone, Copy)]
pub(crate) struct OpenRequest {
    /// Key of the call that opens the communicator. It is the same on all ranks of the communicator
    /// and differs from the keys of other such calls.
    pub(super) key: u64,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(super) limit_ns: u64,
    pub(super) deadline: Deadline,
}

impl OpenRequest {
    /// Creates the parameters and starts the timeout.
    pub(super) fn new(key: u64, (rank, size): (usize, usize), timeout_ns: u64) -> Self {
        let limit_ns = limit_ns(timeout_ns);
        OpenRequest { key, rank, size, limit_ns, deadline: Deadline::after(limit_ns) }
    }

    /// Returns the deadline for rank 0's reply: `GRACE_NS` after this rank's deadline, because rank
    /// 0 may wait until its own deadline before it replies.
    pub(super) fn late(&self) -> Deadline {
        Deadline::after(self.deadline.left_ns().saturating_add(GRACE_NS))
    }

    /// Creates the error for absent ranks. The arguments are strings that are inserted into the
    /// error message: `at` is the address or folder at which rank 0 waited for these ranks,
    /// `reason` is a further possible reason, and `hint` is additional information.
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

    /// Creates the error for an absent rank 0. `details` states the address or folder at which this
    /// rank expected rank 0, the reason why it did not reach rank 0, and the remedy.
    pub(super) fn root_absent(&self, details: &str) -> Error {
        failure!(DTL_ERROR_TIMEOUT, "rank 0 is missing after {}{details}", self.limit())
    }

    /// Formats the timeout for an error message.
    fn limit(&self) -> String {
        let ns = self.limit_ns;
        if ns < 1_000_000_000 {
            format!("{} ms", ns / 1_000_000)
        } else {
            format!("{:.1} s", ns as f64 / 1e9)
        }
    }

    /// Returns an error if the number of ranks that `rank` specified (`size`) differs from the
    /// number that rank 0 specified, otherwise `None`.
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

    /// Returns an error if the number of words that `rank` contributed (`len`) differs from the
    /// number that rank 0 contributed (`own`), otherwise `None`.
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

/// Deadline for the other ranks to join rank 0, and the first failure that occurred while rank 0
/// was waiting for them.
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

    /// Shortens rank 0's wait to at most `left_ns` nanoseconds. The earliest deadline of all ranks
    /// applies to every rank, so that each rank receives the names of the absent ranks.
    pub(super) fn shorten(&mut self, left_ns: u64) {
        if left_ns < self.deadline.left_ns() {
            self.deadline = Deadline::after(left_ns);
        }
    }

    /// Records `error` if it is the first failure. Rank 0 then waits for at most `linger_ns(first
    /// failure)` further nanoseconds, to report the failure to ranks that arrive later.
    pub(super) fn give_up(&mut self, error: Error, linger_ns: impl FnOnce(&Error) -> u64) {
        let linger_ns = linger_ns(self.failure.get_or_insert(error));
        self.shorten(linger_ns);
    }

    /// Returns the outcome of the wait, or `None` while rank 0 must still wait for the ranks in
    /// `missing`.
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
