//! Tests of what the library makes of a slot's answers. Registration itself: `abi`.

use crate::kit::calls::UNTOUCHED;
use crate::kit::catalog::{Group, tests_of_tables};
use crate::kit::exec_calls::{Event, Stream};
use crate::kit::outcome::{Outcome, ensure, refused, wrong};
use crate::kit::subject::becomes;
use crate::sample::{self, Parts};
use crate::tests::abi::registered;
use dtl_sys::*;
use std::time::Duration;

pub(crate) const GROUPS: &[Group] = &[Group {
    slot: "what slots answer",
    needs: &[],
    rule: "Outputs are read only after DTL_SUCCESS; a slot's failure becomes the caller's, with \
        its text.",
    usually: "The library and the header that the kit was built with do not belong together.",
    tests: tests_of_tables![
        "abi.answers.unknown_status_is_native_backend": "a slot that answers 31337 is \
         DTL_ERROR_NATIVE_BACKEND" => no_status;
        "abi.answers.text_reaches_last_error": "dtl_backend_set_error's text is in the \
         caller's" => error_text;
        "abi.answers.null_allocation_refused": "success with NULL is \
         DTL_ERROR_NATIVE_BACKEND" => null_allocation;
        "abi.answers.misaligned_allocation_refused": "an address that is not aligned as \
         asked" => misaligned;
        "abi.answers.null_stream_refused": "success with a NULL stream" => null_stream;
        "abi.answers.null_event_refused": "success with a NULL event" => null_event;
        "abi.answers.unavailable_says_why": "the reason of is_available reaches the \
         caller" => unavailable;
        "abi.answers.optional_slots_have_stand_ins": "with all optional slots NULL copies, fills \
         and queries work" => stand_ins;
    ],
}];

fn no_status() -> Outcome {
    let mut parts = Parts::new();
    parts.device.count = Some(sample::answers_nonsense);
    registered(&parts, |backend| {
        refused(backend.device_count(), DTL_ERROR_NATIVE_BACKEND, "a slot that answers 31337")
    })
}

fn error_text() -> Outcome {
    let mut parts = Parts::new();
    parts.device.count = Some(sample::fails_with_text);
    registered(&parts, |backend| match backend.device_count() {
        Err(refused) if refused.text.contains(sample::TEXT) => Ok(()),
        Err(refused) => wrong!("the text of the slot is not in \"{}\"", refused.text),
        Ok(_) => wrong!("a slot that fails succeeded"),
    })
}

fn null_allocation() -> Outcome {
    let mut parts = Parts::new();
    parts.memory.alloc = Some(sample::allocates_null);
    registered(&parts, |backend| {
        refused(
            backend.alloc(DTL_MEMORY_HOST, 64, 0),
            DTL_ERROR_NATIVE_BACKEND,
            "an allocation at NULL",
        )
    })
}

fn misaligned() -> Outcome {
    let mut parts = Parts::new();
    parts.memory.alloc = Some(sample::allocates_misaligned);
    parts.memory.free = Some(sample::frees_misaligned);
    registered(&parts, |backend| {
        refused(
            backend.alloc(DTL_MEMORY_HOST, 64, 64),
            DTL_ERROR_NATIVE_BACKEND,
            "an address that is not aligned",
        )
    })
}

fn null_stream() -> Outcome {
    let mut parts = Parts::new();
    parts.exec.stream_create = Some(sample::creates_null_stream);
    registered(&parts, |backend| {
        refused(Stream::new(backend, 0), DTL_ERROR_NATIVE_BACKEND, "a stream at NULL")
    })
}

fn null_event() -> Outcome {
    let mut parts = Parts::new();
    parts.exec.event_create = Some(sample::creates_null_event);
    registered(&parts, |backend| {
        refused(Event::new(backend), DTL_ERROR_NATIVE_BACKEND, "an event at NULL")
    })
}

fn unavailable() -> Outcome {
    let mut parts = Parts::new();
    parts.main.is_available = Some(sample::is_unavailable);
    registered(&parts, |backend| {
        match backend.available()? {
            Err(why) if why == sample::WHY => {}
            other => wrong!("the answer is {other:?}, the slot's reason \"{}\"", sample::WHY),
        }
        refused(
            backend.device_count(),
            DTL_ERROR_UNAVAILABLE,
            "a call on a backend that cannot run here",
        )
    })
}

fn stand_ins() -> Outcome {
    let mut parts = Parts::new();
    parts.only_required();
    registered(&parts, |backend| {
        let block = backend.alloc(DTL_MEMORY_HOST, 5000, 0)?;
        block.fill(0, 9, 5000)?;
        let stream = Stream::new(backend, 0)?;
        let bytes = crate::kit::subject::pattern(1, 5000);
        stream.copy(block.at(0), bytes.as_ptr().cast(), 5000)?;
        stream.synchronize()?;
        ensure!(block.all()? == bytes, "a copy without copy_async did not arrive");
        let done = becomes(Duration::from_secs(5), || stream.query().unwrap_or(false));
        ensure!(done, "a stream without stream_query is never done");
        ensure!(!std::ptr::eq(block.at(0), UNTOUCHED), "no memory");
        Ok(())
    })
}
