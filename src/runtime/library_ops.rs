//! Queries of the default dispatcher by the library's own operations. Without registered handlers a
//! query costs one load and one branch.

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

/// Returns the program's handler for an operation that the library is about to execute. `None`: no
/// handler exists, or this thread is inside the handler; the library executes the operation.
pub fn theirs<'g>(inside: &'g Guard, query: &Query) -> Result<Option<&'g Registration>> {
    let Some(default) = find_quickly(inside, DEFAULT) else { return Ok(None) };
    let found = default.look(inside, query)?;
    let theirs = found.filter(|found| !matches!(found.action, Action::Own) && !found.is_running());
    theirs.map_or(Ok(()), |found| found.check_legal(query))?;
    Ok(theirs)
}

/// Executes an operation by the program's handler; returns false if there is no handler. For
/// operations whose handlers cannot name a backend.
pub fn perform(inside: &Guard, query: &Query) -> Result<bool> {
    match theirs(inside, query)? {
        Some(handler) => handler.invoke(query, None).map(|()| true),
        None => Ok(false),
    }
}

/// Checks a schedule that no handler accepted: must be 0 or built in, which streams implement.
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

/// Fails if a word is not a schedule, or was never assigned.
pub fn check_schedule_word(schedule: dtl_enum_word_t) -> Result<()> {
    match schedule {
        0 => Ok(()),
        _ => enums::check(schedule, DTL_ENUM_SCHEDULE)
            .map_err(|error| error.within("dtl_launch_t.schedule")),
    }
}
