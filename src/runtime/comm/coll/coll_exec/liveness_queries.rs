//! Queries to the other ranks while a collective waits for a long time.

use super::report_on;
use crate::error::{Result, failure};
use crate::runtime::comm::Comm;
use crate::runtime::comm::diagnostics::hang_report::{self, DeadlineQuery};
use crate::runtime::comm::op_desc::OpDesc;
use crate::sys::sync::wait::Deadline;
use std::collections::BTreeSet;

/// Timer for the queries that a rank sends during a long wait, to compare its collective with those
/// of the ranks that it waits for.
#[derive(Default)]
pub(super) struct LivenessQueries {
    /// Time of the next query; `None` before the first call to `send_due`.
    next: Option<Deadline>,
    news: u64,
}

impl LivenessQueries {
    pub(super) fn send_due(
        &mut self,
        comm: &Comm,
        call: &OpDesc,
        inquiry: &DeadlineQuery,
        awaited: impl FnOnce() -> BTreeSet<i32>,
    ) -> Result<()> {
        let first = || Deadline::after(hang_report::FIRST_QUESTION_NS);
        let next = self.next.get_or_insert_with(first);
        if next.passed() {
            *next = Deadline::after(hang_report::NEXT_QUESTION_NS);
            hang_report::query(comm, &awaited());
        }
        let news = comm.reports.news();
        if news != self.news {
            self.news = news;
            if hang_report::mismatch(comm, call) {
                let error = failure!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "the ranks are in different collectives (this one in {call})"
                );
                return Err(report_on(comm, &error, Some(call.tag), inquiry));
            }
        }
        Ok(())
    }
}
