//! Tests of asking a stream, and of streams that wait for events. Order, failures, ends: `stream`.

use crate::kit::catalog::{Group, Need, tests_alone};
use crate::kit::exec_calls::{Event, Job, Stream};
use crate::kit::outcome::{Outcome, ensure, refused, wrong};
use crate::kit::subject::{Subject, becomes, quick};
use crate::tests::event::failed;
use crate::tests::stream::{busy, failing, noted, noting, slow, stream};
use dtl_sys::*;
use std::time::{Duration, Instant};

const NEEDS: &[Need] = &[Need::Streams];
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "exec.stream_query",
        needs: NEEDS,
        rule: "stream_query tells whether all work is done, without waiting.",
        usually: "It answers done at once, or waits.",
        tests: tests_alone![
            "exec.stream.query_empty_is_done": "a stream without work is done" => query_empty;
            "exec.stream.query_pending_while_work_runs": "it is not done while work \
             runs" => query_pending;
            "exec.stream.query_done_in_the_end": "it becomes done without anybody \
             waiting" => query_becomes;
            "exec.stream.query_does_not_wait": "asking a busy stream takes no time" => query_quick;
            "exec.stream.query_tells_the_failure": "a failed stream's status" => query_failure;
        ],
    },
    Group {
        slot: "exec.stream_wait_event",
        needs: NEEDS,
        rule: "Work queued from now on waits for the event's record; its failure is the stream's.",
        usually: "The wait is forgotten, waits for a later record, or blocks a stream for ever.",
        tests: tests_alone![
            "exec.stream.wait_event_orders_streams": "work behind the wait begins after the other \
             stream's" => wait_orders;
            "exec.stream.wait_event_never_recorded_passes": "an event never recorded holds up \
             nothing" => wait_unrecorded;
            "exec.stream.wait_event_of_same_stream_passes": "a stream may wait for its own \
             event" => wait_own;
            "exec.stream.wait_event_keeps_its_record": "a record after the wait does not lengthen \
             it" => wait_keeps_record;
            "exec.stream.wait_event_keeps_its_record_unread": "nor if the waiting stream has not \
             come to it yet" => wait_keeps_unread;
            "exec.stream.wait_event_chain": "ten streams in a chain run in its order" => wait_chain;
            "exec.stream.wait_event_carries_the_failure": "a failure before the event reaches the \
             waiting stream" => wait_failure;
            "exec.stream.wait_event_join": "a stream that waits for three others runs \
             last" => wait_join;
            "exec.stream.wait_event_survives_destroy": "destroying the event does not end the \
             wait" => wait_destroyed;
        ],
    },
];

fn query_empty(s: &Subject) -> Outcome {
    ensure!(stream(s)?.query()?, "a stream that never had work is not done");
    Ok(())
}

fn query_pending(s: &Subject) -> Outcome {
    let (stream, hold) = busy(s)?;
    let done = stream.query()?;
    hold.release();
    stream.synchronize()?;
    ensure!(!done, "the stream is said to be done while its work runs");
    Ok(())
}

fn query_becomes(s: &Subject) -> Outcome {
    let (stream, job) = (stream(s)?, slow(10));
    stream.callback(job)?;
    let mut failure = None;
    let done = becomes(LIMIT, || match stream.query() {
        Ok(done) => done,
        Err(refused) => {
            failure = Some(refused);
            true
        }
    });
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    ensure!(done, "the stream never becomes done");
    ensure!(job.runs() == 1, "the stream is said to be done, its work is not");
    Ok(())
}

fn query_quick(s: &Subject) -> Outcome {
    let (stream, hold) = busy(s)?;
    let ended = quick("a query of a busy stream", Duration::from_millis(10), || {
        let begin = Instant::now();
        stream.query()?;
        Ok(begin.elapsed())
    });
    hold.release();
    stream.synchronize()?;
    ended
}

fn query_failure(s: &Subject) -> Outcome {
    let (stream, status) = (stream(s)?, DTL_ERROR_OUT_OF_BOUNDS);
    stream.callback(failing(status))?;
    let told = becomes(LIMIT, || !matches!(stream.query(), Ok(false)));
    ensure!(told, "the stream never becomes done");
    refused(stream.query(), status, "query of a stream whose work failed")
}

fn wait_orders(s: &Subject) -> Outcome {
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

fn wait_unrecorded(s: &Subject) -> Outcome {
    let (stream, job) = (stream(s)?, slow(0));
    stream.wait_event(&Event::new(s.backend)?)?;
    stream.callback(job)?;
    stream.synchronize()?;
    ensure!(job.runs() == 1, "the work ran {} times", job.runs());
    Ok(())
}

fn wait_own(s: &Subject) -> Outcome {
    let (stream, job) = (stream(s)?, slow(1));
    stream.callback(slow(2))?;
    let event = Event::on(s.backend, &stream)?;
    stream.wait_event(&event)?;
    stream.callback(job)?;
    stream.synchronize()?;
    ensure!(job.runs() == 1, "the work ran {} times", job.runs());
    Ok(())
}

fn wait_keeps_record(s: &Subject) -> Outcome {
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
    ensure!(ran, "the wait was lengthened by a record that came after it");
    Ok(())
}

fn wait_keeps_unread(s: &Subject) -> Outcome {
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

fn wait_chain(s: &Subject) -> Outcome {
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
    let is = noted(&notes);
    ensure!(is == (0..10).collect::<Vec<u64>>(), "the chain ran as {is:?}");
    Ok(())
}

fn wait_failure(s: &Subject) -> Outcome {
    let ((one, _kernel), other) = (failed(s)?, stream(s)?);
    let event = Event::on(s.backend, &one)?;
    let status = match other.wait_event(&event).and_then(|()| other.synchronize()) {
        Err(refused) => refused.status,
        Ok(()) => DTL_SUCCESS,
    };
    let _ = one.synchronize();
    ensure!(status == DTL_ERROR_OUT_OF_BOUNDS, "the waiting stream ended with status {status}");
    Ok(())
}

fn wait_join(s: &Subject) -> Outcome {
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
    ensure!(last.synchronize().is_ok(), "the last stream's work did not wait for all three");
    Ok(())
}

fn wait_destroyed(s: &Subject) -> Outcome {
    let (one, other, first) = (stream(s)?, stream(s)?, slow(15));
    one.callback(first)?;
    let event = Event::on(s.backend, &one)?;
    other.wait_event(&event)?;
    event.destroy()?;
    other.callback(Job::new(move || i32::from(first.runs() == 0)))?;
    ensure!(other.synchronize().is_ok(), "the wait ended when its event was destroyed");
    Ok(())
}
