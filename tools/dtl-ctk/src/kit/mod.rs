//! The named tests' machinery, in the order in which a run goes through it: `options` (what is
//! wanted), `catalog` (which tests there are), `drive` (which of them run, and when to stop),
//! `session` (a worker process and its watch), `worker` (runs tests and reports, `step` where it
//! is), `report` (what the user gets). `bare` and `wire` are the backend's own slots; `calls`,
//! `exec_calls`, `peer` and `win` are the library as tests see it: safe, with statuses as values.
//!
//! The tests themselves are in `crate::tests`.

pub(crate) mod bare;
pub(crate) mod calls;
pub(crate) mod catalog;
pub(crate) mod checklist;
pub(crate) mod drive;
pub(crate) mod exec_calls;
pub(crate) mod expect;
pub(crate) mod malloc;
pub(crate) mod options;
pub(crate) mod outcome;
pub(crate) mod peer;
pub(crate) mod report;
pub(crate) mod session;
pub(crate) mod show;
pub(crate) mod step;
pub(crate) mod stress;
pub(crate) mod subject;
pub(crate) mod timing;
pub(crate) mod win;
pub(crate) mod wire;
pub(crate) mod worker;
