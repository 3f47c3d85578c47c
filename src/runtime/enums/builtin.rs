//! Built-in enumerations and their members: the constants of `abi::word` and the names of these
//! constants.

use super::{All, Enumeration, UNDEFINED, attrs};
use crate::abi::enums::*;
use crate::abi::word::*;
use crate::runtime::append_only_table::AppendOnlyTable;
use crate::sys::sync::lock::RwLock;
use std::collections::BTreeMap;

/// Number of built-in enumerations.
pub(super) const COUNT: usize = ENUMERATIONS.len();

/// Number and name of each built-in enumeration, and the names of its members, separated by spaces.
/// The values of the members are 1, 2, 3 and so on. The enumeration words of the members in
/// `abi::word` contain the same values.
const ENUMERATIONS: [(dtl_enum_t, &str, &str); 8] = [
    (DTL_ENUM_MEMORY, "Memory", "Host Device Pinned Managed Shared"),
    (DTL_ENUM_DEVICE, "Device", "CPU GPU Accelerator None"),
    (DTL_ENUM_SCHEDULE, "Schedule", "Sequential Multicore Device"),
    (DTL_ENUM_LANGUAGE, "Language", "C CUDA OpenCL PTX SPIRV Binary"),
    (DTL_ENUM_INSTRUMENTATION, "Instrumentation", "None Timer Events Counters Spans"),
    (DTL_ENUM_OPERATION, "Operation", "Alloc Copy Launch Compile Free Instrument InstrumentData"),
    (DTL_ENUM_FEATURE, "Feature", FEATURES),
    (DTL_ENUM_DATA_INSTRUMENTATION, "DataInstrumentation", "None Save Restore"),
];

/// Names of what a backend may have.
const FEATURES: &str = "device memory transfer exec modules comm streams async shared_memory";

/// Defaults of the built-in schedules. Each row contains a schedule, its default memory kind and
/// its default inner schedule (the schedule of code that is nested in it).
const DEFAULTS: [(dtl_enum_word_t, dtl_enum_word_t, dtl_enum_word_t); 3] = [
    (DTL_SCHEDULE_SEQUENTIAL, DTL_MEMORY_HOST, DTL_SCHEDULE_SEQUENTIAL),
    (DTL_SCHEDULE_MULTICORE, DTL_MEMORY_HOST, DTL_SCHEDULE_SEQUENTIAL),
    (DTL_SCHEDULE_DEVICE, DTL_MEMORY_DEVICE, DTL_SCHEDULE_SEQUENTIAL),
];

/// Creates the enumerations that exist before any registration.
pub(super) fn all() -> All {
    let (by_number, mut numbers) = (AppendOnlyTable::new(), BTreeMap::new());
    for (number, name, members) in ENUMERATIONS {
        // Names contain no NUL, and values and numbers are unique: no step can fail.
        let Ok(enumeration) = Enumeration::new(number, name) else { continue };
        let mut members = (1..).zip(members.split(' '));
        let all_are_in = members.all(|(value, name)| enumeration.add(value, name, &[]).is_ok())
            && enumeration.add(UNDEFINED, "Undefined", &[attrs::UNDEFINED]).is_ok();
        let name = enumeration.name;
        if all_are_in && by_number.set(number as usize, enumeration).is_some() {
            numbers.insert(name, number);
        }
    }
    All { by_number, numbers: RwLock::new(numbers) }
}

/// Returns the default memory kind and the default inner schedule (the schedule of nested code) of
/// a built-in schedule.
pub(super) fn defaults(schedule: dtl_enum_word_t) -> Option<(dtl_enum_word_t, dtl_enum_word_t)> {
    DEFAULTS.iter().find(|row| row.0 == schedule).map(|row| (row.1, row.2))
}
