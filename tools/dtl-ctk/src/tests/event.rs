//! Tests of events: completion, failures, times.

use crate::kit::prelude::*;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Alone "exec.event.":
        created_events_are_distinct, destroyed_events_leave_nothing, destroy_while_pending,
        unknown_flags_refused, never_recorded_is_complete, empty_stream_completes,
        pending_while_work_runs, not_complete_early, needs_all_work_before, ignores_work_behind,
        completes_without_a_wait, stays_complete, new_record_replaces, record_on_another_stream,
        records_from_threads, sync_waits, sync_by_several_threads, sync_twice,
        wait_times_out = |s| quick("wait(50 ms)", Duration::from_millis(1500), || in_vain(s, 50)),
        wait_zero_only_looks = |s| quick("wait(0)", Duration::from_secs(1), || in_vain(s, 0)),
        wait_after_timeout_succeeds, wait_long_returns_early, sync_carries_the_failure,
        query_carries_the_failure, success_after_a_reported_failure,
        failure_of_another_stream_stays_there, elapsed_covers_the_work,
        elapsed_not_longer_than_the_wall, elapsed_adds_up, elapsed_to_itself_is_zero,
        elapsed_backwards_refused, elapsed_without_timing_refused;
];

fn event(s: &Subject) -> Outcome<Event> {
    Ok(Event::new(s.backend)?)
}

fn created_events_are_distinct(s: &Subject) -> Outcome {
    let events: Vec<Event> = (0..500).map(|_| Event::new(s.backend)).collect::<Result<_, _>>()?;
    let mut handles: Vec<u64> = events.iter().map(|event| event.handle.id).collect();
    handles.sort_unstable();
    handles.dedup();
    ensure!(handles.len() == 500, "500 live events have {} handles", handles.len());
    let (stream, hold) = busy(s)?;
    events[0].record(&stream)?;
    let others = events[1..].iter().all(|event| event.is_complete().unwrap_or(false));
    hold.release();
    stream.synchronize()?;
    check!(others, "recording one event changed another")
}

fn destroyed_events_leave_nothing(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    let most = Growth { bytes: 16 << 20, threads: None, files: Some(4) };
    leaves_little((1, 20), &most, "20 000 events were made and destroyed", || {
        (0..1000).try_for_each(|_| Event::on(s.backend, &stream)?.destroy())?;
        Ok(stream.synchronize()?)
    })
}

fn destroy_while_pending(s: &Subject) -> Outcome {
    for _ in 0..20 {
        let job = slow(1);
        let (stream, event) = after(s, job)?;
        event.destroy()?;
        stream.synchronize()?;
        ensure!(job.runs() == 1, "the work before the destroyed event ran {} times", job.runs());
    }
    Ok(())
}

fn unknown_flags_refused(s: &Subject) -> Outcome {
    let event = Event::with_flags(s.backend, 1 << 40);
    refused(event, DTL_ERROR_INVALID_ARGUMENT, "event flags 1 << 40")
}

fn never_recorded_is_complete(s: &Subject) -> Outcome {
    let event = event(s)?;
    ensure!(event.is_complete()?, "an event that was never recorded is pending");
    event.sync()?;
    Ok(event.wait(0)?)
}

fn empty_stream_completes(s: &Subject) -> Outcome {
    let event = Event::on(s.backend, &stream(s)?)?;
    Ok(event.wait(5_000_000_000)?)
}

fn pending_while_work_runs(s: &Subject) -> Outcome {
    let (_stream, event, hold) = held(s)?;
    let complete = event.is_complete()?;
    hold.release();
    event.sync()?;
    check!(!complete, "the event is complete while the work before it runs")
}

fn not_complete_early(s: &Subject) -> Outcome {
    for _ in 0..20 {
        let job = slow(2);
        let (_stream, event) = after(s, job)?;
        let begin = Instant::now();
        while !event.is_complete()? {
            ensure!(begin.elapsed() < LONG, "the event never becomes complete");
            std::hint::spin_loop();
        }
        ensure!(job.runs() == 1, "the event is complete, the work before it has not ended");
    }
    Ok(())
}

fn needs_all_work_before(s: &Subject) -> Outcome {
    let ((stream, first), job, last) = (busy(s)?, slow(1), Hold::new());
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
    check!(
        begun && !is_early && runs == 20,
        "the event is complete before the last of 20 pieces of work"
    )
}

fn ignores_work_behind(s: &Subject) -> Outcome {
    let ((stream, event), hold) = (after(s, slow(1))?, Hold::new());
    hold.on(&stream)?;
    let result = event.wait(1_500_000_000);
    hold.release();
    stream.synchronize()?;
    check!(result.is_ok(), "the event waited for work that was queued after its record")
}

fn completes_without_a_wait(s: &Subject) -> Outcome {
    let (_stream, event) = after(s, slow(5))?;
    let complete = becomes(LONG, || event.is_complete().unwrap_or(true));
    ensure!(complete, "the event does not become complete while nobody waits");
    check!(event.is_complete()?, "the event is pending again")
}

fn stays_complete(s: &Subject) -> Outcome {
    let (stream, event) = complete(s)?;
    stream.callback(slow(10))?;
    for _ in 0..100 {
        let stays = event.is_complete()?;
        ensure!(stays, "a complete event became pending when work was queued behind it");
    }
    Ok(stream.synchronize()?)
}

fn new_record_replaces(s: &Subject) -> Outcome {
    let (stream, event) = complete(s)?;
    for _ in 0..10 {
        let job = slow(3);
        stream.callback(job)?;
        event.record(&stream)?;
        event.sync()?;
        ensure!(job.runs() == 1, "the second record was taken for the first, which is done");
    }
    Ok(())
}

fn record_on_another_stream(s: &Subject) -> Outcome {
    let ((_one, event), (other, hold)) = (complete(s)?, busy(s)?);
    event.record(&other)?;
    let is_early = event.is_complete()? && !hold.has_ended();
    hold.release();
    event.sync()?;
    check!(!is_early && hold.job.runs() == 1, "the event did not follow its second stream")
}

fn records_from_threads(s: &Subject) -> Outcome {
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
        let job = slow(ms);
        let (_stream, event) = after(s, job)?;
        event.sync()?;
        ensure!(job.runs() == 1, "sync returned before the work was done");
    }
    Ok(())
}

fn sync_by_several_threads(s: &Subject) -> Outcome {
    let job = slow(20);
    let (_stream, event) = after(s, job)?;
    in_threads(8, |_| {
        event.sync()?;
        check!(job.runs() == 1, "a thread returned before the work was done")
    })
}

fn sync_twice(s: &Subject) -> Outcome {
    let (_stream, event) = after(s, slow(1))?;
    event.sync()?;
    quick("the second sync", Duration::from_secs(1), || {
        let begin = Instant::now();
        event.sync()?;
        Ok(begin.elapsed())
    })
}

/// Waits at most `ms` milliseconds for an event that stays pending, and checks that the wait times
/// out. Returns the duration of the wait.
fn in_vain(s: &Subject, ms: u64) -> Outcome<Duration> {
    let (_stream, event, hold) = held(s)?;
    let begin = Instant::now();
    let result = event.wait(ms * 1_000_000);
    let took = begin.elapsed();
    hold.release();
    event.sync()?;
    refused(result, DTL_ERROR_TIMEOUT, &format!("wait({ms} ms)"))?;
    ensure!(took >= Duration::from_millis(ms), "wait({ms} ms) gave up after {took:?}");
    Ok(took)
}

fn wait_after_timeout_succeeds(s: &Subject) -> Outcome {
    let (_stream, event, hold) = held(s)?;
    refused(event.wait(1_000_000), DTL_ERROR_TIMEOUT, "wait(1 ms)")?;
    hold.release();
    event.wait(5_000_000_000)?;
    check!(hold.job.runs() == 1, "the event is complete, the work before it has not ended")
}

fn wait_long_returns_early(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    quick("wait(10 s) for 10 ms of work", Duration::from_secs(5), || {
        stream.callback(slow(10))?;
        let event = Event::on(s.backend, &stream)?;
        let begin = Instant::now();
        event.wait(10_000_000_000)?;
        Ok(begin.elapsed())
    })
}

/// Creates a stream on which a kernel fails. The work is a kernel because a backend that launches
/// kernels itself must propagate the failure; the library itself propagates the failure of a
/// callback.
pub(crate) fn failed(s: &Subject) -> Outcome<(Stream, Kernel)> {
    if !s.computes {
        skip!("the backend computes nothing, so nothing fails in it");
    }
    let (stream, kernel) = (stream(s)?, Kernel::new(s.backend, |_| DTL_ERROR_OUT_OF_BOUNDS)?);
    stream.launch(&kernel, &shape([1; 3], [1; 3], 0), &[])?;
    Ok((stream, kernel))
}

fn sync_carries_the_failure(s: &Subject) -> Outcome {
    let (stream, _kernel) = failed(s)?;
    let event = Event::on(s.backend, &stream)?;
    refused(event.sync(), DTL_ERROR_OUT_OF_BOUNDS, "sync of an event behind failed work")
}

fn query_carries_the_failure(s: &Subject) -> Outcome {
    let (stream, _kernel) = failed(s)?;
    let event = Event::on(s.backend, &stream)?;
    let told = becomes(LONG, || !matches!(event.is_complete(), Ok(false)));
    ensure!(told, "the event never becomes complete");
    refused(event.is_complete(), DTL_ERROR_OUT_OF_BOUNDS, "query of an event behind failed work")
}

fn success_after_a_reported_failure(s: &Subject) -> Outcome {
    let (stream, _kernel) = failed(s)?;
    ensure!(stream.synchronize().is_err(), "the failure was not reported at all");
    let event = Event::on(s.backend, &stream)?;
    Ok(event.sync()?)
}

fn failure_of_another_stream_stays_there(s: &Subject) -> Outcome {
    let ((sick, _kernel), well) = (failed(s)?, stream(s)?);
    well.callback(slow(1))?;
    let event = Event::on(s.backend, &well)?;
    event.sync()?;
    check!(sick.synchronize().is_err(), "the failure was not reported at all")
}

/// Records two events around work of `ms` milliseconds. Returns two durations in nanoseconds: the
/// time between the events, and the elapsed time on a host clock.
fn timed(s: &Subject, ms: u64) -> Outcome<(u64, u64)> {
    let (stream, start, stop) = (stream(s)?, event(s)?, event(s)?);
    stream.callback(slow(1))?;
    let begin = Instant::now();
    start.record(&stream)?;
    stream.callback(slow(ms))?;
    stop.record(&stream)?;
    stop.sync()?;
    let wall = begin.elapsed().as_nanos() as u64;
    Ok((between(&start, &stop)?, wall))
}

fn elapsed_covers_the_work(s: &Subject) -> Outcome {
    let (ns, _) = timed(s, 30)?;
    // Clocks of different origin may differ by a little.
    check!(ns >= 29_000_000, "30 ms of work took {ns} ns")
}

fn elapsed_not_longer_than_the_wall(s: &Subject) -> Outcome {
    let (ns, wall) = timed(s, 30)?;
    check!(ns <= wall + wall / 20 + 1_000_000, "the events say {ns} ns, the test's clock {wall} ns")
}

fn elapsed_adds_up(s: &Subject) -> Outcome {
    let (stream, events) = (stream(s)?, [event(s)?, event(s)?, event(s)?]);
    for event in &events {
        event.record(&stream)?;
        stream.callback(slow(5))?;
    }
    stream.synchronize()?;
    let [a, b, c] = &events;
    let (whole, parts) = (between(a, c)?, a.elapsed(b)? + b.elapsed(c)?);
    check!(whole.abs_diff(parts) <= 2000, "{whole} ns in all, {parts} ns in two parts")
}

fn elapsed_to_itself_is_zero(s: &Subject) -> Outcome {
    let (_stream, event) = complete(s)?;
    let ns = between(&event, &event)?;
    check!(ns == 0, "from an event to itself are {ns} ns")
}

fn elapsed_backwards_refused(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    let (first, second) = (Event::on(s.backend, &stream)?, event(s)?);
    stream.callback(slow(5))?;
    second.record(&stream)?;
    second.sync()?;
    first.sync()?;
    between(&first, &second)?;
    let back = second.elapsed(&first);
    check!(back.is_err(), "the time from a later event to an earlier one is {back:?}")
}

fn elapsed_without_timing_refused(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    let (one, other) = (Event::with_flags(s.backend, DTL_EVENT_NO_TIMING)?, event(s)?);
    one.record(&stream)?;
    other.record(&stream)?;
    stream.synchronize()?;
    refused(one.elapsed(&other), DTL_ERROR_INVALID_ARGUMENT, "from an event without timing")?;
    refused(other.elapsed(&one), DTL_ERROR_INVALID_ARGUMENT, "to an event without timing")
}

/// Queues a job on a new stream and records an event after it.
fn after(s: &Subject, job: &'static Job) -> Outcome<(Stream, Event)> {
    let stream = stream(s)?;
    stream.callback(job)?;
    let event = Event::on(s.backend, &stream)?;
    Ok((stream, event))
}

/// Records an event on a stream whose work runs until the returned `Hold` is released.
fn held(s: &Subject) -> Outcome<(Stream, Event, Hold)> {
    let (stream, hold) = busy(s)?;
    let event = Event::on(s.backend, &stream)?;
    Ok((stream, event, hold))
}

/// Returns a completed event and the stream on which it was recorded.
fn complete(s: &Subject) -> Outcome<(Stream, Event)> {
    let stream = stream(s)?;
    let event = Event::on(s.backend, &stream)?;
    event.sync()?;
    Ok((stream, event))
}

/// Returns the time between two events in nanoseconds. Skips the test if the backend does not time
/// events.
fn between(start: &Event, stop: &Event) -> Outcome<u64> {
    match optional(start.elapsed(stop))? {
        Some(ns) => Ok(ns),
        None => skip!("the backend does not time its events"),
    }
}
