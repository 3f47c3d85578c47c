//! Built-in enumerations and their members: the constants of `abi::word` and the names of these
//! constants.

use super::{All, Enumeration, UNDEFINED, attrs, value_of};
use crate::abi::enums::*;
use crate::abi::word::*;
use crate::runtime::append_only_table::AppendOnlyTable;
use crate::sys::sync::lock::RwLock;
use std::collections::BTreeMap;

/// Number of built-in enumerations.
pub(super) const COUNT: usize = ENUMERATIONS.len();

const ENUMERATIONS: [(dtl_enum_t, &str); 7] = [
    (DTL_ENUM_MEMORY, "Memory"),
    (DTL_ENUM_DEVICE, "Device"),
    (DTL_ENUM_SCHEDULE, "Schedule"),
    (DTL_ENUM_LANGUAGE, "Language"),
    (DTL_ENUM_INSTRUMENTATION, "Instrumentation"),
    (DTL_ENUM_OPERATION, "Operation"),
    (DTL_ENUM_FEATURE, "Feature"),
];

/// Members of the built-in enumerations, in the order of their registration. The upper 16 bits of a
/// word are the number of its enumeration.
const MEMBERS: [(dtl_enum_word_t, &str); 36] = [
    (DTL_MEMORY_HOST, "Host"),
    (DTL_MEMORY_DEVICE, "Device"),
    (DTL_MEMORY_PINNED, "Pinned"),
    (DTL_MEMORY_MANAGED, "Managed"),
    (DTL_MEMORY_SHARED, "Shared"),
    (DTL_DEVICE_CPU, "CPU"),
    (DTL_DEVICE_GPU, "GPU"),
    (DTL_DEVICE_ACCELERATOR, "Accelerator"),
    (DTL_DEVICE_NONE, "None"),
    (DTL_SCHEDULE_SEQUENTIAL, "Sequential"),
    (DTL_SCHEDULE_MULTICORE, "Multicore"),
    (DTL_SCHEDULE_DEVICE, "Device"),
    (DTL_LANGUAGE_C, "C"),
    (DTL_LANGUAGE_CUDA, "CUDA"),
    (DTL_LANGUAGE_OPENCL, "OpenCL"),
    (DTL_LANGUAGE_PTX, "PTX"),
    (DTL_LANGUAGE_SPIRV, "SPIRV"),
    (DTL_LANGUAGE_BINARY, "Binary"),
    (DTL_INSTRUMENTATION_NONE, "None"),
    (DTL_INSTRUMENTATION_TIMER, "Timer"),
    (DTL_INSTRUMENTATION_EVENTS, "Events"),
    (DTL_INSTRUMENTATION_COUNTERS, "Counters"),
    (DTL_INSTRUMENTATION_SPANS, "Spans"),
    (DTL_OPERATION_ALLOC, "Alloc"),
    (DTL_OPERATION_COPY, "Copy"),
    (DTL_OPERATION_LAUNCH, "Launch"),
    (DTL_OPERATION_COMPILE, "Compile"),
    (DTL_FEATURE_DEVICE, "device"),
    (DTL_FEATURE_MEMORY, "memory"),
    (DTL_FEATURE_TRANSFER, "transfer"),
    (DTL_FEATURE_EXEC, "exec"),
    (DTL_FEATURE_MODULES, "modules"),
    (DTL_FEATURE_COMM, "comm"),
    (DTL_FEATURE_STREAMS, "streams"),
    (DTL_FEATURE_ASYNC, "async"),
    (DTL_FEATURE_SHARED_MEMORY, "shared_memory"),
];

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
    for (number, name) in ENUMERATIONS {
        // Names contain no NUL, and values and numbers are unique: no step can fail.
        let Ok(enumeration) = Enumeration::new(number, name) else { continue };
        let members = MEMBERS.iter().filter(|(word, _)| word >> 48 == u64::from(number));
        let mut members = members.map(|(word, name)| enumeration.add(value_of(*word), name, &[]));
        let all_are_in = members.all(|added| added.is_ok())
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
