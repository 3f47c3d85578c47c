//! Detects that a collective can no longer complete because a rank has died, has left the
//! communicator, has never opened it (its creation failed on that rank), or has abandoned the
//! collective. Determines the reason.

use super::{CollWork, Run, report_on};
use crate::error::{Error, Result, failure};
use crate::runtime::comm::Comm;
use crate::runtime::comm::diagnostics::hang_report::DeadlineQuery;
use crate::runtime::comm::diagnostics::hang_report::reports::CollFailure;
use crate::runtime::comm::failure::missing_ranks::MissingRanks;
use crate::sys::sync::wait::now_ns;

/// Time in nanoseconds for which a collective may continue after this rank detects that a rank is
/// dead or absent, because data that the missing rank sent may still complete the collective.
const GRACE_NS: u64 = 100_000_000;

impl Run {
    /// Returns an error if the collective can no longer complete. If `looks` is true, also checks
    /// whether ranks have destroyed the communicator.
    pub(super) fn check_hope(
        &mut self,
        comm: &Comm,
        inquiry: &DeadlineQuery,
        looks: bool,
    ) -> Result<()> {
        comm.check_open()?;
        comm.ends_with.as_ref().map_or(Ok(()), |outer| outer.check_open())?;
        // A rank that is missing may have revoked the communicator before: that is the reason.
        self.check_ranks(comm, inquiry, looks).map_err(|error| comm.revoked_or(error))
    }

    fn check_ranks(&mut self, comm: &Comm, inquiry: &DeadlineQuery, looks: bool) -> Result<()> {
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

    /// Returns true if no earlier collective is in progress, that is, if the ranks are executing
    /// this collective. Otherwise this collective fails when the earlier collective fails, and its
    /// error names the earlier collective.
    fn is_next(&self, comm: &Comm) -> bool {
        match (&self.work, &comm.mailboxes) {
            (CollWork::Flat(steps), Some(mailboxes)) => steps.is_next(mailboxes),
            _ => true,
        }
    }

    /// Returns true if a rank died or left the communicator before it contributed its data to the
    /// collective.
    fn is_lost(&mut self, comm: &Comm, looks: bool) -> Result<bool> {
        match (&mut self.work, &comm.mailboxes) {
            (CollWork::Flat(steps), Some(mailboxes)) => Ok(steps.is_lost(comm, mailboxes, looks)),
            (CollWork::Steps(schedule), Some(_)) if looks => {
                schedule.end_with_left(comm).map(|()| false)
            }
            _ => Ok(false),
        }
    }

    /// Returns an error whose message names the ranks that prevent the collective from completing:
    /// ranks that have failed or do not participate in the communicator. A rank that abandoned the
    /// collective and then destroyed the communicator is not named. The notice (internal message)
    /// that it sent before it destroyed the communicator names the ranks that made it abandon the
    /// collective.
    fn why_lost(&self, comm: &Comm) -> Error {
        let gone = comm.gone();
        comm.catch_up_with_left();
        let reported = comm.reports.given_up(self.number).map(|first| first.gone);
        let reported = reported.unwrap_or_default();
        self.cannot_complete(comm, &reported.or(|| gone))
    }

    fn cannot_complete(&self, comm: &Comm, gone: &MissingRanks) -> Error {
        comm.reports.note_cause(gone);
        let why = comm.gone_text_of(gone);
        failure!(DTL_ERROR_RANK_FAILURE, "{} cannot complete {why}", self.call)
    }

    /// Returns the error for a collective that another rank has abandoned, directly or by
    /// abandoning an earlier collective. If that rank named failed or absent ranks as the reason,
    /// the error names them too, and the other ranks are not queried for their operations.
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

    /// Adds to `error` the reason that another rank reported. This is necessary because the rank
    /// for which this rank waited may have left after abandoning the collective for that reason.
    pub(super) fn with_cause(&self, comm: &Comm, error: Error) -> Error {
        if comm.is_broken() {
            return error; // The error already has the reason of the first failure.
        }
        comm.catch_up_with_left();
        let failed = comm.failed_ranks();
        let reported = comm.reports.given_up(self.number);
        let reported = reported.and_then(|first| Some((first.rank, first.cause(comm)?)));
        match reported {
            Some((rank, gone))
                if !(gone.absent.is_empty()
                    && gone.failed.iter().all(|rank| failed.contains(rank))) =>
            {
                let cause = comm.gone_text_of(&gone);
                let text = format!("{}; rank {rank} gave it up before {cause}", error.text());
                Error::new(error.status(), text)
            }
            _ => error,
        }
    }
}
