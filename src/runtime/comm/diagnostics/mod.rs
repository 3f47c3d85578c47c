//! Diagnostics of a communicator.
//!
//! In reading order:
//! - `hang_report`: exchange of states when a collective does not complete
//! - `dry_run`: computation of the steps of collectives without sending messages

pub mod dry_run;
pub mod hang_report;
