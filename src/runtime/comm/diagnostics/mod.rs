//! Reports on what a communicator does.
//!
//! In reading order:
//! - `hang_report`: exchange of states when a collective does not end
//! - `dry_run`: schedules without messages

pub mod dry_run;
pub mod hang_report;
