//! Whether a collective can still come to its end, and why not: ranks that died, left or are
//! absent, and ranks that gave it up.

use super::{CollWork, Run, report_on};
use crate::abi::status::DTL_ERROR_RANK_FAILURE;
use crate::error::{Error, Result};
use crate::runtime::comm::Comm;
use crate::runtime::comm::absence::MissingRanks;
use crate::runtime::comm::diagnostics::hang_report::{CollFailure, DeadlineQuery};
use crate::sys::sync::clock::now_ns;

/// How long a collective may go on after a death was seen: what the dead rank sent may complete it.
const GRACE_NS: u64 = 100_000_000;

impl Run {
    /// Whether it can still come to its end; `looks`: also whether ranks have destroyed the
    /// communicator.
    pub(super) fn check_hope(
        &mut self,
        comm: &Comm,
        inquiry: &DeadlineQuery,
        looks: bool,
    ) -> Result<()> {
        comm.check_open()?;
        match self.is_lost(comm, looks) {
            Ok(false) => {}
            Ok(true) => return Err(self.why_lost(comm)),
            Err(error) => return Err(self.with_cause(comm, error)),
        }
        if let Some(first) = comm.reports.given_up(self.number) {
            return Err(self.given_up(comm, &first, inquiry));
        }
        if comm.has_gone() && self.is_next(comm) {
            let since = *self.death_seen.get_or_insert_with(now_ns);
            if now_ns() - since > GRACE_NS {
                return Err(self.why_lost(comm));
            }
        }
        Ok(())
    }

    /// Whether it is this one that the ranks are at: one begun later fails with it, and names it.
    fn is_next(&self, comm: &Comm) -> bool {
        match (&self.work, &comm.flat) {
            (CollWork::Flat(steps), Some(flat)) => steps.is_next(flat),
            _ => true,
        }
    }

    /// Whether a rank has gone without its part.
    fn is_lost(&mut self, comm: &Comm, looks: bool) -> Result<bool> {
        match (&mut self.work, &comm.flat) {
            (CollWork::Flat(steps), Some(flat)) => Ok(steps.is_lost(comm, flat, looks)),
            (CollWork::Steps(schedule), Some(_)) if looks => {
                schedule.end_with_left(comm).map(|()| false)
            }
            _ => Ok(false),
        }
    }

    /// Returns the error that names the gone ranks as the reason. A rank that gave up, and has
    /// destroyed the communicator since, is none: its notice names those that are.
    fn why_lost(&self, comm: &Comm) -> Error {
        let gone = comm.gone();
        comm.catch_up_with_left();
        let told = comm
            .reports
            .given_up(self.number)
            .map_or_else(MissingRanks::default, |first| first.gone);
        self.cannot_complete(comm, &told.or(|| gone))
    }

    fn cannot_complete(&self, comm: &Comm, gone: &MissingRanks) -> Error {
        comm.reports.note_cause(gone);
        let text = format!("{} cannot complete {}", self.call, comm.gone_text_of(gone));
        Error::new(DTL_ERROR_RANK_FAILURE, text)
    }

    /// Another rank has given it up, or one before it. If that is because of ranks that are gone,
    /// these are the reason here, too: the other ranks need not be queried for where they are.
    fn given_up(&self, comm: &Comm, first: &CollFailure, inquiry: &DeadlineQuery) -> Error {
        if let Some(gone) = first.cause(comm) {
            return self.cannot_complete(comm, &gone);
        }
        let (number, who) = (first.number, first.rank);
        let text = match number == self.number {
            true => format!("rank {who} gave up {}", self.call),
            false => format!("rank {who} gave up collective #{number}, before {}", self.call),
        };
        report_on(comm, &Error::new(first.status, text), i32::try_from(number).ok(), inquiry)
    }

    /// The rank that this one waited for may be gone because it had given the collective up, and
    /// reported why.
    pub(super) fn with_cause(&self, comm: &Comm, error: Error) -> Error {
        if comm.is_broken() {
            return error; // It has the reason of the first failure.
        }
        comm.catch_up_with_left();
        let failed = comm.failed_ranks();
        let told = comm.reports.given_up(self.number);
        let told = told.and_then(|first| Some((first.rank, first.cause(comm)?)));
        match told {
            Some((_, gone))
                if gone.absent.is_empty()
                    && gone.failed.iter().all(|rank| failed.contains(rank)) =>
            {
                error
            }
            Some((rank, gone)) => {
                let cause = comm.gone_text_of(&gone);
                Error::new(
                    error.status(),
                    format!("{}; rank {rank} gave it up before {cause}", error.text()),
                )
            }
            None => error,
        }
    }
}
