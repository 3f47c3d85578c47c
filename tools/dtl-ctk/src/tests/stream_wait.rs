//! Tests of querying streams, and of streams that wait for events. Order, failures and destruction
//! are tested in `stream`.

use crate::kit::prelude::*;
use crate::tests::event::failed;
use crate::tests::stream::noting;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Alone "exec.stream.":
        query_empty_is_done, query_pending_while_work_runs, query_done_in_the_end,
        query_does_not_wait, query_tells_the_failure, wait_event_orders_streams,
        wait_event_never_recorded_passes, wait_event_of_same_stream_passes,
        wait_event_keeps_its_record, wait_event_keeps_its_record_unread, wait_event_chain,
        wait_event_carries_the_failure, wait_event_join, wait_event_survives_destroy;
];

fn query_empty_is_done(s: &Subject) -> Outcome {
    check!(stream(s)?.query()?, "a stream that never had work is not done")
}

fn query_pending_while_work_runs(s: &Subject) -> Outcome {
    let (stream, hold) = busy(s)?;
    let done = stream.query()?;
    hold.release();
    stream.synchronize()?;
    check!(!done, "the stream is said to be done while its work runs")
}

fn query_done_in_the_end(s: &Subject) -> Outcome {
    let (stream, job) = (stream(s)?, slow(10));
    stream.callback(job)?;
    let mut failure = None;
    let done = becomes(LONG, || {
        stream.query().unwrap_or_else(|refused| {
            failure = Some(refused);
            true
        })
    });
    failure.map_or(Ok(()), Err)?;
    ensure!(done, "the stream never becomes done");
    check!(job.runs() == 1, "the stream is said to be done, its work is not")
}

fn query_does_not_wait(s: &Subject) -> Outcome {
    quick("a query of a busy stream", Duration::from_millis(10), || {
        // New work for each try: a query that waits has outlasted the work before.
        let (stream, hold) = busy(s)?;
        let begin = Instant::now();
        let result = stream.query();
        let took = begin.elapsed();
        hold.release();
        stream.synchronize()?;
        result?;
        Ok(took)
    })
}

fn query_tells_the_failure(s: &Subject) -> Outcome {
    let (stream, status) = (stream(s)?, DTL_ERROR_OUT_OF_BOUNDS);
    stream.callback(failing(status))?;
    let told = becomes(LONG, || !matches!(stream.query(), Ok(false)));
    ensure!(told, "the stream never becomes done");
    refused(stream.query(), status, "query of a stream whose work failed")
}

fn wait_event_orders_streams(s: &Subject) -> Outcome {
    for _ in 0..10 {
        let (one, other, first) = (stream(s)?, stream(s)?, slow(5));
        one.callback(first)?;
        let event = Event::on(s.backend, &one)?;
        other.wait_event(&event)?;
        other.callback(Job::new(
            move || if first.runs() == 1 { 0 } else { DTL_ERROR_INVALID_STATE },
        ))?;
        match other.synchronize() {
            Err(refused) if refused.status == DTL_ERROR_INVALID_STATE => {
                wrong!("the waiting stream's work ran too early")
            }
            ended => ended?,
        }
    }
    Ok(())
}

fn wait_event_never_recorded_passes(s: &Subject) -> Outcome {
    let (stream, job) = (stream(s)?, slow(0));
    stream.wait_event(&Event::new(s.backend)?)?;
    stream.callback(job)?;
    stream.synchronize()?;
    check!(job.runs() == 1, "the work ran {} times", job.runs())
}

fn wait_event_of_same_stream_passes(s: &Subject) -> Outcome {
    let (stream, job) = (stream(s)?, slow(1));
    stream.callback(slow(2))?;
    let event = Event::on(s.backend, &stream)?;
    stream.wait_event(&event)?;
    stream.callback(job)?;
    stream.synchronize()?;
    check!(job.runs() == 1, "the work ran {} times", job.runs())
}

fn wait_event_keeps_its_record(s: &Subject) -> Outcome {
    let (one, other, job) = (stream(s)?, stream(s)?, slow(0));
    let event = Event::on(s.backend, &one)?;
    other.wait_event(&event)?;
    let (busy, hold) = busy(s)?;
    event.record(&busy)?;
    other.callback(job)?;
    let ran = hold.outlasts(job);
    hold.release();
    busy.synchronize()?;
    other.synchronize()?;
    check!(ran, "the wait was lengthened by a record that came after it")
}

fn wait_event_keeps_its_record_unread(s: &Subject) -> Outcome {
    let (one, job) = (stream(s)?, slow(0));
    let event = Event::on(s.backend, &one)?;
    event.sync()?;
    let ((other, come), (busy, go)) = (busy(s)?, busy(s)?);
    other.wait_event(&event)?;
    event.record(&busy)?;
    other.callback(job)?;
    come.release();
    let ran = go.outlasts(job);
    go.release();
    busy.synchronize()?;
    ensure!(ran, "the wait was queued for a record that is done, and took a later one");
    Ok(other.synchronize()?)
}

fn wait_event_chain(s: &Subject) -> Outcome {
    let (jobs, notes) = noting(10);
    let mut last: Option<(Stream, Event)> = None;
    let mut kept = Vec::new();
    for job in &jobs {
        let stream = stream(s)?;
        if let Some((before, event)) = last.take() {
            stream.wait_event(&event)?;
            kept.push((before, event));
        }
        stream.callback(slow(2))?;
        stream.callback(job)?;
        let event = Event::on(s.backend, &stream)?;
        last = Some((stream, event));
    }
    if let Some((stream, _)) = &last {
        stream.synchronize()?;
    }
    let is = notes.list();
    check!(is == (0..10).collect::<Vec<u64>>(), "the chain ran as {is:?}")
}

fn wait_event_carries_the_failure(s: &Subject) -> Outcome {
    let ((one, _kernel), other) = (failed(s)?, stream(s)?);
    let event = Event::on(s.backend, &one)?;
    let status = match other.wait_event(&event).and_then(|()| other.synchronize()) {
        Err(refused) => refused.status.0,
        Ok(()) => DTL_SUCCESS,
    };
    let _ = one.synchronize();
    check!(status == DTL_ERROR_OUT_OF_BOUNDS, "the waiting stream ended with status {status}")
}

fn wait_event_join(s: &Subject) -> Outcome {
    let (last, jobs) = (stream(s)?, [slow(15), slow(1), slow(8)]);
    let mut kept = Vec::new();
    for job in jobs {
        let one = stream(s)?;
        one.callback(job)?;
        let event = Event::on(s.backend, &one)?;
        last.wait_event(&event)?;
        kept.push((one, event));
    }
    last.callback(Job::new(move || i32::from(jobs.iter().any(|job| job.runs() == 0))))?;
    check!(last.synchronize().is_ok(), "the last stream's work did not wait for all three")
}

fn wait_event_survives_destroy(s: &Subject) -> Outcome {
    let (one, other, first) = (stream(s)?, stream(s)?, slow(15));
    one.callback(first)?;
    let event = Event::on(s.backend, &one)?;
    other.wait_event(&event)?;
    event.destroy()?;
    other.callback(Job::new(move || i32::from(first.runs() == 0)))?;
    check!(other.synchronize().is_ok(), "the wait ended when its event was destroyed")
}
