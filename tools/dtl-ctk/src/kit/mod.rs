//! Infrastructure of the named tests: `catalog` (the list of tests), `report` (results), `expect`
//! (expected failures), `show` (list and explain), `checklist`, `stress`, `timing`, `costs` and
//! `page` (further commands and options), `current_slot` (the function of a backend's table that a worker is
//! executing). `vtables` and `slot_comm` call the functions of the backend's tables directly;
//! `calls`, `exec_calls`, `rank` and `win` are safe wrappers of the C API that return statuses as
//! values (`outcome`). `subject` is the backend under test, `malloc` counts what the C library has
//! allocated, `prelude` has the imports of test files.
//!
//! The tests are in `crate::tests`; the driver, the worker and the options are in the parent
//! folder.

pub(crate) mod calls;
pub(crate) mod catalog;
pub(crate) mod checklist;
pub(crate) mod costs;
pub(crate) mod current_slot;
pub(crate) mod exec_calls;
pub(crate) mod expect;
pub(crate) mod malloc;
pub(crate) mod outcome;
pub(crate) mod page;
pub(crate) mod prelude;
pub(crate) mod rank;
pub(crate) mod report;
pub(crate) mod show;
pub(crate) mod slot_comm;
pub(crate) mod stress;
pub(crate) mod subject;
pub(crate) mod timing;
pub(crate) mod vtables;
pub(crate) mod win;
