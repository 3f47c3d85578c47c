//! Defaults of schedules: the memory kind of allocations under a schedule, and the schedule of code
//! that is nested in it (inner schedule).

use super::{Member, builtin, describe, existing};
use crate::abi::devices::device::*;
use crate::abi::enums::{DTL_ENUM_MEMORY, DTL_ENUM_SCHEDULE, dtl_enum_t};
use crate::abi::word::dtl_enum_word_t;
use crate::error::{Result, fail, failure};

/// Returns the member that `word` denotes, or its template. Fails unless it belongs to the
/// enumeration `number`; `name` is the parameter's name.
fn check(name: &str, word: dtl_enum_word_t, number: dtl_enum_t) -> Result<&'static Member> {
    let member = existing(word).map_err(|error| error.within(name))?;
    if (word >> 48) as dtl_enum_t == number {
        return Ok(member);
    }
    let wanted = if number == DTL_ENUM_MEMORY { "memory kind" } else { "schedule" };
    fail!(DTL_ERROR_TYPE, "{name} is {}, which is no {wanted}", member.full_name())
}

/// Fails if `kind` is not a memory kind, for example if it is a property flag of memory kinds. The
/// names of these flags also begin with DTL_MEMORY_.
pub fn check_memory_kind(kind: dtl_enum_word_t) -> Result<()> {
    if (kind >> 48) as dtl_enum_t == DTL_ENUM_MEMORY {
        return Ok(());
    }
    let properties: Vec<&str> =
        PROPERTIES.iter().filter(|(bit, _)| kind & bit != 0).map(|(_, name)| *name).collect();
    let is = match existing(kind) {
        Ok(member) => member.full_name(),
        Err(_) if kind != 0 && kind <= PROPERTIES.iter().map(|(bit, _)| bit).sum() => {
            format!("{kind:#x} ({}, a property of memory kinds)", properties.join(" | "))
        }
        Err(_) => format!("{kind:#x}"),
    };
    fail!(
        DTL_ERROR_NOT_SUPPORTED,
        "kind is {is}, which is not a memory kind: use DTL_MEMORY_HOST, DTL_MEMORY_DEVICE or \
         another member of DTL_ENUM_MEMORY"
    )
}

/// Bits of dtl_mem_kind_info_t.properties and their names.
const PROPERTIES: [(u64, &str); 7] = [
    (DTL_MEMORY_HOST_ACCESSIBLE, "DTL_MEMORY_HOST_ACCESSIBLE"),
    (DTL_MEMORY_DEVICE_ACCESSIBLE, "DTL_MEMORY_DEVICE_ACCESSIBLE"),
    (DTL_MEMORY_UNIFIED, "DTL_MEMORY_UNIFIED"),
    (DTL_MEMORY_ATOMICS, "DTL_MEMORY_ATOMICS"),
    (DTL_MEMORY_PAGEABLE, "DTL_MEMORY_PAGEABLE"),
    (DTL_MEMORY_THREAD_SAFE, "DTL_MEMORY_THREAD_SAFE"),
    (DTL_MEMORY_EXPORTABLE, "DTL_MEMORY_EXPORTABLE"),
];

/// Sets the default memory kind and inner schedule (the schedule of nested code) of a schedule.
/// Fails if the schedule already has other defaults.
pub fn set_defaults(
    schedule: dtl_enum_word_t,
    kind: dtl_enum_word_t,
    inner: dtl_enum_word_t,
) -> Result<()> {
    let member = check("schedule", schedule, DTL_ENUM_SCHEDULE)?;
    check("default_memory_kind", kind, DTL_ENUM_MEMORY)?;
    check("inner_schedule", inner, DTL_ENUM_SCHEDULE)?;
    if schedule as u32 != 0 {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{} is an instance: defaults are those of its template (dtl_ev_template)",
            describe(schedule)
        );
    }
    let wanted = (kind, inner);
    let has = *member.defaults.get_or_init(|| builtin::defaults(schedule).unwrap_or(wanted));
    if has == wanted {
        return Ok(());
    }
    fail!(
        DTL_ERROR_ALREADY_EXISTS,
        "{} has the defaults {} and {} already: they stay, as other parts of the program go by \
         them",
        describe(schedule),
        describe(has.0),
        describe(has.1)
    )
}

/// Returns the default memory kind and inner schedule (the schedule of nested code) of a schedule.
/// For an instance, returns the defaults of its template.
pub fn defaults(schedule: dtl_enum_word_t) -> Result<(dtl_enum_word_t, dtl_enum_word_t)> {
    let member = check("schedule", schedule, DTL_ENUM_SCHEDULE)?;
    builtin::defaults(member.word).or_else(|| member.defaults.get().copied()).ok_or_else(|| {
        failure!(
            DTL_ERROR_NOT_FOUND,
            "{} has no defaults: who registers it sets them with dtl_schedule_set_defaults",
            member.full_name()
        )
    })
}
