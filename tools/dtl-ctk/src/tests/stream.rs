//! Tests of streams: order, waiting, failures, destruction.

use crate::kit::prelude::*;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Alone "exec.stream.":
        created_streams_are_distinct, destroyed_streams_leave_nothing, destroy_does_not_lose_work,
        destroy_while_idle, unknown_flags_refused, device_beyond_count_refused,
        default_stays_the_same, native_pointers_are_kept, wrapped_stream_works, callback_runs_once,
        callback_gets_its_pointer, callbacks_in_order, callbacks_never_overlap,
        callback_waits_for_earlier, callback_after_a_failure_runs, callback_may_use_memory,
        callbacks_of_threads_all_run, synchronize_empty_returns, synchronize_waits_for_slow_work,
        synchronize_waits_for_all_work, synchronize_reports_the_failure,
        synchronize_reports_the_first_failure, synchronize_reports_a_failure_once,
        synchronize_by_several_threads, synchronize_does_not_wait_for_others;
];

fn created_streams_are_distinct(s: &Subject) -> Outcome {
    let streams: Vec<Stream> =
        (0..64).map(|_| Stream::new(s.backend, 0)).collect::<Result<_, _>>()?;
    let mut handles: Vec<u64> = streams.iter().map(|stream| stream.handle.id).collect();
    handles.sort_unstable();
    handles.dedup();
    ensure!(handles.len() == 64, "64 live streams have {} handles", handles.len());
    if s.computes && optional(streams[0].native())?.is_some() {
        let mut natives: Vec<usize> =
            streams.iter().filter_map(|one| one.native().ok()).map(<*mut _>::addr).collect();
        natives.sort_unstable();
        natives.dedup();
        ensure!(natives.len() == 64, "64 live streams have {} native pointers", natives.len());
    }
    Ok(())
}

fn destroyed_streams_leave_nothing(s: &Subject) -> Outcome {
    let round = || -> Outcome {
        let stream = stream(s)?;
        stream.callback(Job::new(|| 0))?;
        stream.synchronize()?;
        Ok(stream.destroy()?)
    };
    let most = Growth { bytes: 32 << 20, threads: Some(8), files: None };
    leaves_little((20, 500), &most, "500 streams were made and destroyed", round)?;
    keeps_no_addresses("stream", round)
}

fn destroy_does_not_lose_work(s: &Subject) -> Outcome {
    for _ in 0..10 {
        let (stream, first, last) = (stream(s)?, slow(5), slow(1));
        stream.callback(first)?;
        stream.callback(last)?;
        stream.destroy()?;
        ensure!(
            becomes(LONG, || last.runs() > 0),
            "work that was queued before the destroy did not run"
        );
        thread::sleep(Duration::from_millis(1));
        let runs = (first.runs(), last.runs());
        ensure!(runs == (1, 1), "the two functions ran {runs:?} times");
    }
    Ok(())
}

fn destroy_while_idle(s: &Subject) -> Outcome {
    for _ in 0..50 {
        stream(s)?.destroy()?;
    }
    Ok(())
}

fn unknown_flags_refused(s: &Subject) -> Outcome {
    refused(
        Stream::with_flags(s.backend, 0, 1 << 40),
        DTL_ERROR_INVALID_ARGUMENT,
        "stream flags 1 << 40",
    )
}

fn device_beyond_count_refused(s: &Subject) -> Outcome {
    if !s.has("device") {
        skip!("it has no device table");
    }
    refused(Stream::new(s.backend, s.devices), DTL_ERROR_OUT_OF_BOUNDS, "a stream on device count")
}

fn default_stays_the_same(s: &Subject) -> Outcome {
    let (one, again) = (Stream::default_of(s.backend, 0)?, Stream::default_of(s.backend, 0)?);
    ensure!(one.handle.id == again.handle.id, "two calls gave two default streams");
    let job = slow(1);
    one.callback(job)?;
    again.synchronize()?;
    check!(job.runs() == 1, "work in the default stream ran {} times", job.runs())
}

/// Returns the native stream. Skips the test if the backend has no native streams.
fn native_of(stream: &Stream) -> Outcome<*mut std::ffi::c_void> {
    match optional(stream.native())? {
        Some(native) => Ok(native),
        None => skip!("the backend has no streams of its own"),
    }
}

fn native_pointers_are_kept(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    let before = native_of(&stream)?;
    ensure!(!before.is_null(), "the native pointer is NULL");
    stream.callback(slow(1))?;
    stream.synchronize()?;
    check!(native_of(&stream)?.addr() == before.addr(), "the native pointer changed")
}

fn wrapped_stream_works(s: &Subject) -> Outcome {
    let (stream, job) = (stream(s)?, slow(1));
    let wrapped = Stream::wrap(s.backend, native_of(&stream)?)?;
    wrapped.callback(job)?;
    wrapped.synchronize()?;
    ensure!(job.runs() == 1, "work in the wrapped stream ran {} times", job.runs());
    wrapped.destroy()?;
    let after = slow(0);
    stream.callback(after)?;
    stream.synchronize()?;
    check!(after.runs() == 1, "the stream is of no use after the wrapping one was destroyed")
}

fn callback_runs_once(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    let jobs: Vec<&'static Job> = (0..200).map(|_| Job::new(|| 0)).collect();
    jobs.iter().try_for_each(|job| stream.callback(job))?;
    stream.synchronize()?;
    thread::sleep(Duration::from_millis(2));
    match jobs.iter().position(|job| job.runs() != 1) {
        Some(at) => wrong!("function {at} of 200 was called {} times", jobs[at].runs()),
        None => Ok(()),
    }
}

/// Creates `count` functions to run on streams or executors. Each function appends its index to the
/// returned list.
pub(crate) fn noting(count: u64) -> (Vec<&'static Job>, &'static Notes<u64>) {
    let notes = Notes::new();
    let job = |number| {
        Job::new(move || {
            notes.add(number);
            0
        })
    };
    ((0..count).map(job).collect(), notes)
}

fn callback_gets_its_pointer(s: &Subject) -> Outcome {
    let (stream, (jobs, notes)) = (stream(s)?, noting(50));
    jobs.iter().rev().try_for_each(|job| stream.callback(job))?;
    stream.synchronize()?;
    let (mut is, should): (Vec<u64>, Vec<u64>) = (notes.list(), (0..50).collect());
    is.sort_unstable();
    check!(is == should, "50 functions with 50 pointers; called were {is:?}")
}

fn callbacks_in_order(s: &Subject) -> Outcome {
    let (stream, (jobs, notes)) = (stream(s)?, noting(1000));
    jobs.iter().try_for_each(|job| stream.callback(job))?;
    stream.synchronize()?;
    let is = notes.list();
    match is.iter().zip(0..).find(|(is, should)| **is != *should) {
        Some((is, should)) => wrong!("function {is} ran in the place of function {should}"),
        None => Ok(()),
    }
}

fn callbacks_never_overlap(s: &Subject) -> Outcome {
    let (stream, inside, overlaps) = (stream(s)?, counter(), counter());
    let job = Job::new(|| {
        if inside.fetch_add(1, Ordering::SeqCst) > 0 {
            overlaps.fetch_add(1, Ordering::SeqCst);
        }
        thread::sleep(Duration::from_millis(2));
        inside.fetch_sub(1, Ordering::SeqCst);
        0
    });
    (0..20).try_for_each(|_| stream.callback(job))?;
    stream.synchronize()?;
    // Whether synchronize waits for them is another test's question.
    becomes(LONG, || job.runs() == 20);
    let overlaps = overlaps.load(Ordering::SeqCst);
    check!(overlaps == 0, "two functions of one stream ran at the same time")
}

fn callback_waits_for_earlier(s: &Subject) -> Outcome {
    let (stream, first, early) = (stream(s)?, slow(20), counter());
    stream.callback(first)?;
    stream.callback(Job::new(move || {
        early.store(u64::from(first.runs() == 0), Ordering::SeqCst);
        0
    }))?;
    stream.synchronize()?;
    let early = early.load(Ordering::SeqCst) == 1;
    check!(!early, "the second function began while the first one ran")
}

fn callback_after_a_failure_runs(s: &Subject) -> Outcome {
    let (stream, after) = (stream(s)?, slow(0));
    stream.callback(failing(DTL_ERROR_CANCELED))?;
    stream.callback(after)?;
    let _ = stream.synchronize();
    check!(after.runs() == 1, "the function behind a failed one was called {} times", after.runs())
}

fn callback_may_use_memory(s: &Subject) -> Outcome {
    let Some(kind) = s.kinds.first().copied() else { skip!("it has no memory") };
    let (stream, backend) = (stream(s)?, s.backend);
    stream.callback(Job::new(move || {
        match backend.alloc(kind.word, 1000, 0).and_then(|block| block.free()) {
            Ok(()) => 0,
            Err(refused) => refused.status.0,
        }
    }))?;
    Ok(stream.synchronize()?)
}

fn callbacks_of_threads_all_run(s: &Subject) -> Outcome {
    let (stream, job) = (stream(s)?, Job::new(|| 0));
    in_threads(8, |_| (0..100).try_for_each(|_| stream.callback(job)).map_err(Into::into))?;
    stream.synchronize()?;
    check!(job.runs() == 800, "800 calls were queued by eight threads, {} were made", job.runs())
}

fn synchronize_empty_returns(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    (0..10).try_for_each(|_| stream.synchronize()).map_err(Into::into)
}

fn synchronize_waits_for_slow_work(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    for _ in 0..5 {
        let job = slow(10);
        stream.callback(job)?;
        stream.synchronize()?;
        ensure!(job.runs() == 1, "synchronize returned before the work was done");
    }
    Ok(())
}

fn synchronize_waits_for_all_work(s: &Subject) -> Outcome {
    let (stream, job, last) = (stream(s)?, slow(1), slow(20));
    (0..29).try_for_each(|_| stream.callback(job))?;
    stream.callback(last)?;
    stream.synchronize()?;
    let runs = job.runs() + last.runs();
    check!(runs == 30, "synchronize returned after {runs} of 30 pieces of work")
}

fn synchronize_reports_the_failure(s: &Subject) -> Outcome {
    for status in [DTL_ERROR_CANCELED, DTL_ERROR_OUT_OF_BOUNDS, DTL_ERROR_BACKEND] {
        let stream = stream(s)?;
        stream.callback(failing(status))?;
        refused(stream.synchronize(), status, "synchronize after work that failed")?;
    }
    Ok(())
}

fn synchronize_reports_the_first_failure(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    stream.callback(failing(DTL_ERROR_OUT_OF_BOUNDS))?;
    stream.callback(failing(DTL_ERROR_CANCELED))?;
    refused(stream.synchronize(), DTL_ERROR_OUT_OF_BOUNDS, "synchronize after two failures")
}

fn synchronize_reports_a_failure_once(s: &Subject) -> Outcome {
    let (stream, job) = (stream(s)?, slow(0));
    stream.callback(failing(DTL_ERROR_CANCELED))?;
    ensure!(stream.synchronize().is_err(), "the failure was not reported at all");
    stream.callback(job)?;
    stream.synchronize()?;
    check!(job.runs() == 1, "work after a reported failure does not run")
}

fn synchronize_by_several_threads(s: &Subject) -> Outcome {
    let (stream, job) = (stream(s)?, slow(20));
    stream.callback(job)?;
    in_threads(8, |_| {
        stream.synchronize()?;
        check!(job.runs() == 1, "a thread returned before the work was done")
    })
}

fn synchronize_does_not_wait_for_others(s: &Subject) -> Outcome {
    let ((busy, hold), free) = (busy(s)?, stream(s)?);
    free.synchronize()?;
    let waited = hold.job.runs() > 0;
    hold.release();
    busy.synchronize()?;
    check!(!waited, "an idle stream's synchronize waited for another stream's work")
}
