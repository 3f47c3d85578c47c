//! Tests of events: when they are complete, what they carry, what time they tell.

use crate::kit::catalog::{Group, Need, tests_alone};
use crate::kit::exec_calls::{Event, Hold, Job, Kernel, Stream, shape};
use crate::kit::outcome::{Outcome, ensure, optional, refused, skip};
use crate::kit::subject::{Subject, becomes, open_files, quick, resident_bytes};
use crate::tests::device::in_threads;
use dtl_sys::*;
use std::thread;
use std::time::{Duration, Instant};

const NEEDS: &[Need] = &[Need::Streams];
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "exec.event_create, event_destroy",
        needs: NEEDS,
        rule: "event_create makes an event, not NULL; event_destroy ends it, recorded or not.",
        usually: "Events share an object, or are not freed.",
        tests: tests_alone![
            "exec.event.created_events_are_distinct": "500 live events have handles of their own \
             and records of their own" => distinct;
            "exec.event.destroyed_events_leave_nothing": "20 000 events leave little memory and no \
             open files" => leave_nothing;
            "exec.event.destroy_while_pending": "an event of running work can be \
             destroyed" => destroy_pending;
            "exec.event.unknown_flags_refused": "flags 1 << 40 are \
             DTL_ERROR_INVALID_ARGUMENT" => flags_refused;
        ],
    },
    Group {
        slot: "exec.event_record, event_query",
        needs: NEEDS,
        rule: "event_record marks the present end of the stream and replaces an earlier record; \
            event_query \
               tells whether the work before is done. Never recorded = done.",
        usually: "The event is complete at once, when the first piece of work is, or with a later \
            piece; or the \
                  old record goes on counting.",
        tests: tests_alone![
            "exec.event.never_recorded_is_complete": "query, sync and wait of a new \
             event" => never_recorded;
            "exec.event.empty_stream_completes": "a record on a stream without work is complete \
             soon" => empty_stream;
            "exec.event.pending_while_work_runs": "it is not complete while the work before it \
             runs" => pending;
            "exec.event.not_complete_early": "whenever it is complete, the work before it has \
             ended" => not_early;
            "exec.event.needs_all_work_before": "it waits for the last of 20 pieces" => needs_all;
            "exec.event.ignores_work_behind": "it does not wait for work queued after the \
             record" => ignores_later;
            "exec.event.completes_without_a_wait": "it becomes complete by \
             itself" => becomes_complete;
            "exec.event.stays_complete": "once complete it stays so" => stays_complete;
            "exec.event.new_record_replaces": "after a second record, it tells of that \
             one" => record_again;
            "exec.event.record_on_another_stream": "an event can move to another \
             stream" => record_elsewhere;
            "exec.event.records_from_threads": "eight threads record 100 times each on their own \
             streams" => record_threads;
        ],
    },
    Group {
        slot: "exec.event_sync",
        needs: NEEDS,
        rule: "event_sync waits for the event; a failure of the work before is the status.",
        usually: "It returns at once, never, or spins through the time limit.",
        tests: tests_alone![
            "exec.event.sync_waits": "when it returns, the work before the record has \
             ended" => sync_waits;
            "exec.event.sync_by_several_threads": "eight threads wait for one event, all \
             return" => sync_threads;
            "exec.event.sync_twice": "a second wait returns at once" => sync_twice;
            "exec.event.wait_times_out": "wait(50 ms) of a pending event is DTL_ERROR_TIMEOUT, not \
             early, not late" => wait_times_out;
            "exec.event.wait_zero_only_looks": "wait(0) of a pending event is DTL_ERROR_TIMEOUT at \
             once" => wait_zero;
            "exec.event.wait_after_timeout_succeeds": "after a time-out the event can still be \
             waited for" => wait_after;
            "exec.event.wait_long_returns_early": "wait(10 s) returns when the event is \
             complete" => wait_long;
        ],
    },
    Group {
        slot: "exec.event_query, event_sync, stream_wait_event",
        needs: NEEDS,
        rule: "A failure of the work before the record is the event's status.",
        usually: "The failure stays with the stream, or is reported as success by a completed \
            event.",
        tests: tests_alone![
            "exec.event.sync_carries_the_failure": "sync answers the status of the work that \
             failed" => failure_sync;
            "exec.event.query_carries_the_failure": "so does query" => failure_query;
            "exec.event.success_after_a_reported_failure": "a record after the failure was \
             reported is clean" => failure_cleared;
            "exec.event.failure_of_another_stream_stays_there": "an event of a well stream knows \
             nothing of it" => failure_elsewhere;
        ],
    },
    Group {
        slot: "exec.event_elapsed",
        needs: NEEDS,
        rule: "event_elapsed gives nanoseconds between two recorded, completed events.",
        usually: "Microseconds or milliseconds are taken for nanoseconds, start and stop are \
            swapped, or the time \
                  is that of the call of record instead of the work.",
        tests: tests_alone![
            "exec.event.elapsed_covers_the_work": "30 ms of work between two events take 30 ms at \
             least" => elapsed_covers;
            "exec.event.elapsed_not_longer_than_the_wall": "and not longer than the test's own \
             clock says" => elapsed_bounded;
            "exec.event.elapsed_adds_up": "first to second and second to third are first to \
             third" => elapsed_adds;
            "exec.event.elapsed_to_itself_is_zero": "from an event to itself it is \
             0" => elapsed_self;
            "exec.event.elapsed_backwards_refused": "from a later event to an earlier one is an \
             error" => elapsed_backwards;
            "exec.event.elapsed_without_timing_refused": "an event with DTL_EVENT_NO_TIMING has no \
             time" => elapsed_untimed;
        ],
    },
];

fn stream(s: &Subject) -> Outcome<Stream> {
    Ok(Stream::new(s.backend, 0)?)
}

fn event(s: &Subject) -> Outcome<Event> {
    Ok(Event::new(s.backend)?)
}

fn slow(ms: u64) -> &'static Job {
    Job::new(move || {
        thread::sleep(Duration::from_millis(ms));
        0
    })
}

/// A stream whose work lasts until it is released.
fn held(s: &Subject) -> Outcome<(Stream, Hold)> {
    let (stream, hold) = (stream(s)?, Hold::new());
    hold.on(&stream)?;
    Ok((stream, hold))
}

fn distinct(s: &Subject) -> Outcome {
    let events: Vec<Event> = (0..500).map(|_| Event::new(s.backend)).collect::<Result<_, _>>()?;
    let mut handles: Vec<u64> = events.iter().map(|event| event.handle.id).collect();
    handles.sort_unstable();
    handles.dedup();
    ensure!(handles.len() == 500, "500 live events have {} handles", handles.len());
    let (stream, hold) = held(s)?;
    events[0].record(&stream)?;
    let others = events[1..].iter().all(|event| event.is_complete().unwrap_or(false));
    hold.release();
    stream.synchronize()?;
    ensure!(others, "recording one event changed another");
    Ok(())
}

fn leave_nothing(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    let round = || -> Outcome {
        let event = Event::on(s.backend, &stream)?;
        Ok(event.destroy()?)
    };
    (0..1000).try_for_each(|_| round())?;
    stream.synchronize()?;
    let (memory, files) = (resident_bytes(), open_files());
    (0..20_000).try_for_each(|_| round())?;
    stream.synchronize()?;
    let grown = resident_bytes().saturating_sub(memory);
    ensure!(
        grown < 16 << 20,
        "{} MiB more after 20 000 events were made and destroyed",
        grown >> 20
    );
    ensure!(
        open_files() <= files + 4,
        "{} files are open; there were {files} before",
        open_files()
    );
    Ok(())
}

fn destroy_pending(s: &Subject) -> Outcome {
    for _ in 0..20 {
        let (stream, job) = (stream(s)?, slow(1));
        stream.callback(job)?;
        Event::on(s.backend, &stream)?.destroy()?;
        stream.synchronize()?;
        ensure!(job.runs() == 1, "the work before the destroyed event ran {} times", job.runs());
    }
    Ok(())
}

fn flags_refused(s: &Subject) -> Outcome {
    refused(
        Event::with_flags(s.backend, 1 << 40),
        DTL_ERROR_INVALID_ARGUMENT,
        "event flags 1 << 40",
    )
}

fn never_recorded(s: &Subject) -> Outcome {
    let event = event(s)?;
    ensure!(event.is_complete()?, "an event that was never recorded is pending");
    event.sync()?;
    Ok(event.wait(0)?)
}

fn empty_stream(s: &Subject) -> Outcome {
    let event = Event::on(s.backend, &stream(s)?)?;
    Ok(event.wait(5_000_000_000)?)
}

fn pending(s: &Subject) -> Outcome {
    let (stream, hold) = held(s)?;
    let event = Event::on(s.backend, &stream)?;
    let complete = event.is_complete()?;
    hold.release();
    event.sync()?;
    ensure!(!complete, "the event is complete while the work before it runs");
    Ok(())
}

fn not_early(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    for _ in 0..20 {
        let job = slow(2);
        stream.callback(job)?;
        let event = Event::on(s.backend, &stream)?;
        let begin = Instant::now();
        while !event.is_complete()? {
            ensure!(begin.elapsed() < LIMIT, "the event never becomes complete");
            std::hint::spin_loop();
        }
        ensure!(job.runs() == 1, "the event is complete, the work before it has not ended");
    }
    Ok(())
}

fn needs_all(s: &Subject) -> Outcome {
    let ((stream, first), job, last) = (held(s)?, slow(1), Hold::new());
    (0..19).try_for_each(|_| stream.callback(job))?;
    stream.callback(last.job)?;
    let event = Event::on(s.backend, &stream)?;
    first.release();
    // A record that overtook the last piece is reached before that begins.
    let begun = last.begins();
    let is_early = event.is_complete()? && !last.has_ended();
    last.release();
    event.sync()?;
    let runs = job.runs() + last.job.runs();
    ensure!(
        begun && !is_early && runs == 20,
        "the event is complete before the last of 20 pieces of work"
    );
    Ok(())
}

fn ignores_later(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    stream.callback(slow(1))?;
    let event = Event::on(s.backend, &stream)?;
    let hold = Hold::new();
    hold.on(&stream)?;
    let result = event.wait(1_500_000_000);
    hold.release();
    stream.synchronize()?;
    ensure!(result.is_ok(), "the event waited for work that was queued after its record");
    Ok(())
}

fn becomes_complete(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    stream.callback(slow(5))?;
    let event = Event::on(s.backend, &stream)?;
    let complete = becomes(LIMIT, || event.is_complete().unwrap_or(true));
    ensure!(complete, "the event does not become complete while nobody waits");
    ensure!(event.is_complete()?, "the event is pending again");
    Ok(())
}

fn stays_complete(s: &Subject) -> Outcome {
    let (stream, event) = (stream(s)?, event(s)?);
    event.record(&stream)?;
    event.sync()?;
    stream.callback(slow(10))?;
    for _ in 0..100 {
        ensure!(
            event.is_complete()?,
            "a complete event became pending when work was queued behind it"
        );
    }
    Ok(stream.synchronize()?)
}

fn record_again(s: &Subject) -> Outcome {
    let (stream, event) = (stream(s)?, event(s)?);
    event.record(&stream)?;
    event.sync()?;
    for _ in 0..10 {
        let job = slow(3);
        stream.callback(job)?;
        event.record(&stream)?;
        event.sync()?;
        ensure!(job.runs() == 1, "the second record was taken for the first, which is done");
    }
    Ok(())
}

fn record_elsewhere(s: &Subject) -> Outcome {
    let (one, event) = (stream(s)?, event(s)?);
    event.record(&one)?;
    event.sync()?;
    let (other, hold) = held(s)?;
    event.record(&other)?;
    let is_early = event.is_complete()? && !hold.has_ended();
    hold.release();
    event.sync()?;
    ensure!(!is_early && hold.job.runs() == 1, "the event did not follow its second stream");
    Ok(())
}

fn record_threads(s: &Subject) -> Outcome {
    in_threads(8, |_| {
        let (stream, event) = (stream(s)?, event(s)?);
        for round in 0..100u64 {
            let job = Job::new(|| 0);
            stream.callback(job)?;
            event.record(&stream)?;
            event.sync()?;
            ensure!(job.runs() == 1, "round {round}: complete before the work was done");
        }
        Ok(())
    })
}

fn sync_waits(s: &Subject) -> Outcome {
    for ms in [1, 5, 20] {
        let (stream, job) = (stream(s)?, slow(ms));
        stream.callback(job)?;
        Event::on(s.backend, &stream)?.sync()?;
        ensure!(job.runs() == 1, "sync returned before the work was done");
    }
    Ok(())
}

fn sync_threads(s: &Subject) -> Outcome {
    let (stream, job) = (stream(s)?, slow(20));
    stream.callback(job)?;
    let event = Event::on(s.backend, &stream)?;
    in_threads(8, |_| {
        event.sync()?;
        ensure!(job.runs() == 1, "a thread returned before the work was done");
        Ok(())
    })
}

fn sync_twice(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    stream.callback(slow(1))?;
    let event = Event::on(s.backend, &stream)?;
    event.sync()?;
    quick("the second sync", Duration::from_secs(1), || {
        let begin = Instant::now();
        event.sync()?;
        Ok(begin.elapsed())
    })
}

/// Waits for an event that cannot come, for so many milliseconds; how long that took.
fn in_vain(s: &Subject, ms: u64) -> Outcome<Duration> {
    let (stream, hold) = held(s)?;
    let event = Event::on(s.backend, &stream)?;
    let begin = Instant::now();
    let result = event.wait(ms * 1_000_000);
    let took = begin.elapsed();
    hold.release();
    event.sync()?;
    refused(result, DTL_ERROR_TIMEOUT, &format!("wait({ms} ms)"))?;
    ensure!(took >= Duration::from_millis(ms), "wait({ms} ms) gave up after {took:?}");
    Ok(took)
}

fn wait_times_out(s: &Subject) -> Outcome {
    quick("wait(50 ms)", Duration::from_millis(1500), || in_vain(s, 50))
}

fn wait_zero(s: &Subject) -> Outcome {
    quick("wait(0)", Duration::from_secs(1), || in_vain(s, 0))
}

fn wait_after(s: &Subject) -> Outcome {
    let (stream, hold) = held(s)?;
    let event = Event::on(s.backend, &stream)?;
    refused(event.wait(1_000_000), DTL_ERROR_TIMEOUT, "wait(1 ms)")?;
    hold.release();
    event.wait(5_000_000_000)?;
    ensure!(hold.job.runs() == 1, "the event is complete, the work before it has not ended");
    Ok(())
}

fn wait_long(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    quick("wait(10 s) for 10 ms of work", Duration::from_secs(5), || {
        stream.callback(slow(10))?;
        let event = Event::on(s.backend, &stream)?;
        let begin = Instant::now();
        event.wait(10_000_000_000)?;
        Ok(begin.elapsed())
    })
}

/// A stream whose work has failed: a kernel's, which the backend does itself if it launches. What
/// callbacks answer is the library's to carry.
pub(crate) fn failed(s: &Subject) -> Outcome<(Stream, Kernel)> {
    if !s.computes {
        skip!("the backend computes nothing, so nothing fails in it");
    }
    let (stream, kernel) = (stream(s)?, Kernel::new(s.backend, |_| DTL_ERROR_OUT_OF_BOUNDS)?);
    stream.launch(&kernel, &shape([1; 3], [1; 3], 0), &[])?;
    Ok((stream, kernel))
}

fn failure_sync(s: &Subject) -> Outcome {
    let (stream, _kernel) = failed(s)?;
    let event = Event::on(s.backend, &stream)?;
    refused(event.sync(), DTL_ERROR_OUT_OF_BOUNDS, "sync of an event behind failed work")
}

fn failure_query(s: &Subject) -> Outcome {
    let (stream, _kernel) = failed(s)?;
    let event = Event::on(s.backend, &stream)?;
    let told = becomes(LIMIT, || !matches!(event.is_complete(), Ok(false)));
    ensure!(told, "the event never becomes complete");
    refused(event.is_complete(), DTL_ERROR_OUT_OF_BOUNDS, "query of an event behind failed work")
}

fn failure_cleared(s: &Subject) -> Outcome {
    let (stream, _kernel) = failed(s)?;
    ensure!(stream.synchronize().is_err(), "the failure was not reported at all");
    let event = Event::on(s.backend, &stream)?;
    Ok(event.sync()?)
}

fn failure_elsewhere(s: &Subject) -> Outcome {
    let ((sick, _kernel), well) = (failed(s)?, stream(s)?);
    well.callback(slow(1))?;
    let event = Event::on(s.backend, &well)?;
    event.sync()?;
    ensure!(sick.synchronize().is_err(), "the failure was not reported at all");
    Ok(())
}

/// Two events around so many milliseconds of work; what they and the test's clock say.
fn timed(s: &Subject, ms: u64) -> Outcome<(u64, u64)> {
    let stream = stream(s)?;
    let (start, stop) = (event(s)?, event(s)?);
    stream.callback(slow(1))?;
    let begin = Instant::now();
    start.record(&stream)?;
    stream.callback(slow(ms))?;
    stop.record(&stream)?;
    stop.sync()?;
    let wall = begin.elapsed().as_nanos() as u64;
    match optional(start.elapsed(&stop))? {
        Some(ns) => Ok((ns, wall)),
        None => skip!("the backend does not time its events"),
    }
}

fn elapsed_covers(s: &Subject) -> Outcome {
    let (ns, _) = timed(s, 30)?;
    // Clocks of different origin may differ by a little.
    ensure!(ns >= 29_000_000, "30 ms of work took {ns} ns");
    Ok(())
}

fn elapsed_bounded(s: &Subject) -> Outcome {
    let (ns, wall) = timed(s, 30)?;
    ensure!(
        ns <= wall + wall / 20 + 1_000_000,
        "the events say {ns} ns, the test's clock {wall} ns"
    );
    Ok(())
}

fn elapsed_adds(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    let events = [event(s)?, event(s)?, event(s)?];
    for event in &events {
        event.record(&stream)?;
        stream.callback(slow(5))?;
    }
    stream.synchronize()?;
    let [a, b, c] = &events;
    let Some(whole) = optional(a.elapsed(c))? else {
        skip!("the backend does not time its events")
    };
    let parts = a.elapsed(b)? + b.elapsed(c)?;
    ensure!(whole.abs_diff(parts) <= 2000, "{whole} ns in all, {parts} ns in two parts");
    Ok(())
}

fn elapsed_self(s: &Subject) -> Outcome {
    let event = Event::on(s.backend, &stream(s)?)?;
    event.sync()?;
    match optional(event.elapsed(&event))? {
        Some(ns) => ensure!(ns == 0, "from an event to itself are {ns} ns"),
        None => skip!("the backend does not time its events"),
    }
    Ok(())
}

fn elapsed_backwards(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    let (first, second) = (Event::on(s.backend, &stream)?, event(s)?);
    stream.callback(slow(5))?;
    second.record(&stream)?;
    second.sync()?;
    first.sync()?;
    if optional(first.elapsed(&second))?.is_none() {
        skip!("the backend does not time its events");
    }
    ensure!(
        second.elapsed(&first).is_err(),
        "the time from a later event to an earlier one is {:?}",
        second.elapsed(&first)
    );
    Ok(())
}

fn elapsed_untimed(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    let (one, other) = (Event::with_flags(s.backend, DTL_EVENT_NO_TIMING)?, event(s)?);
    one.record(&stream)?;
    other.record(&stream)?;
    stream.synchronize()?;
    refused(one.elapsed(&other), DTL_ERROR_INVALID_ARGUMENT, "from an event without timing")?;
    refused(other.elapsed(&one), DTL_ERROR_INVALID_ARGUMENT, "to an event without timing")
}
