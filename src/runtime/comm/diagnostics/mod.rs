//! Reports on what a communicator does: recorder, hang report, dry run.
//!
//! In reading order:
//! - `op_kind`: kinds of operations
//! - `op_desc`: what an operation is, for records and comparison
//! - `flight_recorder`: the last operations of each rank
//! - `hang_report`: exchange of states when a collective does not end
//! - `dry_run`: schedules without messages

pub mod dry_run;
pub(super) mod flight_recorder;
pub mod hang_report;
pub(super) mod op_desc;
pub(super) mod op_kind;
