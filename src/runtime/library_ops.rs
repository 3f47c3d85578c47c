//! Dispatch of the library's own operations: queries whether the program has registered, with the
//! default dispatcher, a handler for an operation. Without registered handlers a query costs one
//! load and one branch.

use super::dispatch::bitmap_index::Slots;
use super::dispatch::{Action, DEFAULT, Query, Registration, find_quickly};
use crate::abi::enums::DTL_ENUM_SCHEDULE;
use crate::abi::word::*;
use crate::error::{Result, fail};
use crate::from_c::blank;
use crate::runtime::enums;
use crate::sys::handles::epoch::Guard;
use std::ffi::c_void;

pub use super::dispatch::snapshot::is_taken;

/// Creates a dispatcher query for one of the library's operations.
pub fn query(
    operation: dtl_enum_word_t,
    [source, destination, schedule]: Slots,
    args: *mut c_void,
) -> Query {
    Query { operation, source, destination, schedule, args, ..blank() }
}

/// Returns the handler that the program has registered for an operation that the library is about
/// to execute. Returns `None` if no handler exists or if this thread is already inside the handler;
/// the library then executes the operation itself.
pub fn theirs<'g>(inside: &'g Guard, query: &Query) -> Result<Option<&'g Registration>> {
    let Some(default) = find_quickly(inside, DEFAULT) else { return Ok(None) };
    let found = default.look(inside, query)?;
    let theirs = found.filter(|found| !matches!(found.action, Action::Own) && !found.is_running());
    theirs.map_or(Ok(()), |found| found.check_legal(query))?;
    Ok(theirs)
}

/// Executes an operation with the handler that the program has registered for it; returns false if
/// there is no such handler. This function is used for operations that a handler cannot redirect to
/// another backend.
pub fn perform(inside: &Guard, query: &Query) -> Result<bool> {
    match theirs(inside, query)? {
        Some(handler) => handler.invoke(query, None).map(|()| true),
        None => Ok(false),
    }
}

/// Checks the schedule of a launch for which no handler is registered. It must be 0 or a built-in
/// schedule, because streams implement only these.
pub fn check_schedule(schedule: dtl_enum_word_t) -> Result<()> {
    match schedule {
        0 | DTL_SCHEDULE_SEQUENTIAL | DTL_SCHEDULE_MULTICORE | DTL_SCHEDULE_DEVICE => Ok(()),
        _ => {
            check_schedule_word(schedule)?;
            fail!(
                DTL_ERROR_NOT_FOUND,
                "no handler for {}; dtl_dispatch_register adds one to the default dispatcher",
                super::dispatch::text::of_query(&query(
                    DTL_OPERATION_LAUNCH,
                    [0, 0, schedule],
                    std::ptr::null_mut()
                ))
            )
        }
    }
}

/// Fails unless `schedule` is 0 or the number of an existing schedule.
pub fn check_schedule_word(schedule: dtl_enum_word_t) -> Result<()> {
    match schedule {
        0 => Ok(()),
        _ => enums::check(schedule, DTL_ENUM_SCHEDULE)
            .map_err(|error| error.within("dtl_launch_t.schedule")),
    }
}
