//! Tests of the priorities of streams: the range, and streams at its ends. Order and failures of the
//! work in streams are tested in `stream`.

use crate::kit::prelude::*;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Alone "exec.stream.":
        priorities_contain_zero, priorities_same_each_time, priorities_of_both_ends_work,
        priorities_beyond_are_clamped, priorities_give_distinct_streams,
        priorities_of_no_device_refused;
];

fn with_priority(s: &Subject, device: i32, priority: i32) -> Called<Stream> {
    let backend = s.backend.handle;
    output!(DTL_STREAM_NULL, dtl_stream_create_with_priority(backend, device, 0, priority))
        .map(|handle| Stream { handle })
}

/// Returns the least and the greatest priority of a device.
fn range(s: &Subject, device: i32) -> Called<(i32, i32)> {
    let (mut least, backend) = (i32::MIN, s.backend.handle);
    output!(i32::MAX, dtl_stream_priority_range(backend, device, &raw mut least))
        .map(|greatest| (least, greatest))
}

/// Returns the numbers of the devices; 0 for a backend without devices.
fn devices(s: &Subject) -> std::ops::Range<i32> {
    0..s.devices.max(1)
}

/// Runs two pieces of work in a stream of a device and a priority.
fn works(s: &Subject, device: i32, priority: i32) -> Outcome {
    let stream = with_priority(s, device, priority)?;
    let (first, second) = (slow(2), slow(0));
    stream.callback(first)?;
    stream.callback(second)?;
    stream.synchronize()?;
    let runs = (first.runs(), second.runs());
    ensure!(
        runs == (1, 1),
        "two functions in a stream of priority {priority} on device {device} ran {runs:?} times"
    );
    Ok(stream.destroy()?)
}

fn priorities_contain_zero(s: &Subject) -> Outcome {
    for device in devices(s) {
        let (least, greatest) = range(s, device)?;
        ensure!(
            greatest <= 0 && 0 <= least,
            "device {device}: the least priority is {least}, the greatest {greatest}"
        );
    }
    Ok(())
}

fn priorities_same_each_time(s: &Subject) -> Outcome {
    for device in devices(s) {
        let first = range(s, device)?;
        for _ in 0..20 {
            let again = range(s, device)?;
            ensure!(again == first, "device {device}: {first:?}, then {again:?}");
        }
    }
    Ok(())
}

fn priorities_of_both_ends_work(s: &Subject) -> Outcome {
    for device in devices(s) {
        let (least, greatest) = range(s, device)?;
        for priority in [least, 0, greatest] {
            works(s, device, priority)?;
        }
    }
    Ok(())
}

fn priorities_beyond_are_clamped(s: &Subject) -> Outcome {
    for priority in [i32::MIN, i32::MAX] {
        works(s, 0, priority)?;
    }
    Ok(())
}

fn priorities_give_distinct_streams(s: &Subject) -> Outcome {
    let (least, greatest) = range(s, 0)?;
    let mut streams = Vec::new();
    for priority in [greatest, greatest, least, least, 0] {
        streams.push(with_priority(s, 0, priority)?);
    }
    let [held, others @ ..] = &streams[..] else { return Ok(()) };
    let hold = Hold::new();
    hold.on(held)?;
    for other in others {
        other.callback(slow(0))?;
        other.synchronize()?;
        ensure!(!hold.has_ended(), "a stream waits for the work of another one");
    }
    hold.release();
    Ok(held.synchronize()?)
}

fn priorities_of_no_device_refused(s: &Subject) -> Outcome {
    if !s.has("device") {
        skip!("it has no device table");
    }
    let stream = with_priority(s, s.devices, 1);
    refused(stream, DTL_ERROR_OUT_OF_BOUNDS, "a stream with a priority on device count")?;
    refused(range(s, s.devices), DTL_ERROR_OUT_OF_BOUNDS, "the priorities of device count")
}
