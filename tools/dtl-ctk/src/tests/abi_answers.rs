//! Tests of the library's reaction to the results of a backend's functions. Tests of registration
//! are in `abi`.

use crate::kit::prelude::*;
use crate::sample::{self, Parts};
use crate::tests::abi::registered;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Tables "abi.answers.":
        unknown_status_is_native_backend = || no_good(
            |parts| parts.device.count = Some(sample::answers_nonsense),
            Backend::device_count,
            "a slot that answers 31337",
        ),
        text_reaches_last_error,
        null_allocation_refused = || no_good(
            |parts| parts.memory.alloc = Some(sample::allocates_null),
            |backend| backend.alloc(DTL_MEMORY_HOST, 64, 0),
            "an allocation at NULL",
        ),
        misaligned_allocation_refused = || no_good(
            |parts| {
                parts.memory.alloc = Some(sample::allocates_misaligned);
                parts.memory.free = Some(sample::frees_misaligned);
            },
            |backend| backend.alloc(DTL_MEMORY_HOST, 64, 64),
            "an address that is not aligned",
        ),
        null_stream_refused = || no_good(
            |parts| parts.exec.stream_create = Some(sample::creates_null_stream),
            |backend| Stream::new(backend, 0),
            "a stream at NULL",
        ),
        null_event_refused = || no_good(
            |parts| parts.exec.event_create = Some(sample::creates_null_event),
            Event::new,
            "an event at NULL",
        ),
        unavailable_says_why, optional_slots_have_stand_ins;
];

/// Checks that a call on a backend with modified function tables fails with
/// DTL_ERROR_NATIVE_BACKEND.
fn no_good<T>(
    change: impl FnOnce(&mut Parts),
    call: impl FnOnce(Backend) -> Called<T>,
    when: &str,
) -> Outcome {
    registered(&Parts::with(change), |backend| {
        refused(call(backend), DTL_ERROR_NATIVE_BACKEND, when)
    })
}

fn text_reaches_last_error() -> Outcome {
    let parts = Parts::with(|parts| parts.device.count = Some(sample::fails_with_text));
    registered(&parts, |backend| match backend.device_count() {
        Err(refused) if refused.text.contains(sample::TEXT) => Ok(()),
        Err(refused) => wrong!("the text of the slot is not in \"{}\"", refused.text),
        Ok(_) => wrong!("a slot that fails succeeded"),
    })
}

fn unavailable_says_why() -> Outcome {
    let parts = Parts::with(|parts| parts.main.is_available = Some(sample::is_unavailable));
    registered(&parts, |backend| {
        match backend.available()? {
            Err(why) if why == sample::WHY => {}
            other => wrong!("the answer is {other:?}, the slot's reason \"{}\"", sample::WHY),
        }
        let when = "a call on a backend that cannot run here";
        refused(backend.device_count(), DTL_ERROR_UNAVAILABLE, when)
    })
}

fn optional_slots_have_stand_ins() -> Outcome {
    registered(&Parts::with(Parts::only_required), |backend| {
        let block = backend.alloc(DTL_MEMORY_HOST, 5000, 0)?;
        block.fill(0, 9, 5000)?;
        let stream = Stream::new(backend, 0)?;
        let bytes = pattern(1, 5000);
        stream.copy(block.at(0), bytes.as_ptr().cast(), 5000)?;
        stream.synchronize()?;
        ensure!(block.all()? == bytes, "a copy without copy_async did not arrive");
        let done = becomes(Duration::from_secs(5), || stream.query().unwrap_or(false));
        ensure!(done, "a stream without stream_query is never done");
        check!(!std::ptr::eq(block.at(0), UNTOUCHED), "no memory")
    })
}
