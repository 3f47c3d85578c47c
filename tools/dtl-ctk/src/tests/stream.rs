//! Tests of streams: order, waiting, failures, ends.

use crate::kit::catalog::{Group, Need, tests_alone};
use crate::kit::exec_calls::{Hold, Job, Stream};
use crate::kit::outcome::{Outcome, ensure, optional, refused, skip, wrong};
use crate::kit::subject::{Subject, becomes, keeps_no_addresses, resident_bytes, thread_count};
use crate::tests::device::in_threads;
use dtl_sys::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const NEEDS: &[Need] = &[Need::Streams];
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "exec.stream_create, stream_destroy",
        needs: NEEDS,
        rule: "stream_create makes a stream on a device, not NULL; stream_destroy ends it, and \
            work in it may \
               finish first.",
        usually: "Streams share an object, are not freed, or take their work with them when they \
            end.",
        tests: tests_alone![
            "exec.stream.created_streams_are_distinct": "64 live streams have 64 handles and \
             pointers" => distinct;
            "exec.stream.destroyed_streams_leave_nothing": "500 streams with work leave no threads \
             and little memory" => leave_nothing;
            "exec.stream.destroy_does_not_lose_work": "work queued before the destroy runs, \
             once" => destroy_runs_work;
            "exec.stream.destroy_while_idle": "an unused stream can be destroyed" => destroy_idle;
            "exec.stream.unknown_flags_refused": "flags 1 << 40 are \
             DTL_ERROR_INVALID_ARGUMENT" => flags_refused;
            "exec.stream.device_beyond_count_refused": "a device that does not exist is \
             refused" => device_refused;
            "exec.stream.default_stays_the_same": "the default stream is the same each time, and \
             works" => default_same;
            "exec.stream.native_pointers_are_kept": "the backend's own pointer does not \
             change" => native_kept;
            "exec.stream.wrapped_stream_works": "the native pointer, wrapped, is a stream in which \
             work runs" => wrapped;
        ],
    },
    Group {
        slot: "exec.stream_host_callback",
        needs: NEEDS,
        rule: "stream_host_callback calls fn(user) on a host thread once the work before is done; \
            later work \
               waits for it. It is called even if work before it failed.",
        usually: "The function is called at once, twice, or with another pointer; or a failed \
            stream drops it.",
        tests: tests_alone![
            "exec.stream.callback_runs_once": "each of 200 functions is called exactly \
             once" => callback_once;
            "exec.stream.callback_gets_its_pointer": "each function gets its own \
             pointer" => callback_pointer;
            "exec.stream.callbacks_in_order": "1000 functions run in the order \
             queued" => callback_order;
            "exec.stream.callbacks_never_overlap": "of one stream, never two at a \
             time" => callback_alone;
            "exec.stream.callback_waits_for_earlier": "a function begins when the slow one before \
             it has ended" => callback_after_slow;
            "exec.stream.callback_after_a_failure_runs": "a function behind a failed one is \
             called" => callback_after_failure;
            "exec.stream.callback_may_use_memory": "a function may allocate and \
             free" => callback_memory;
            "exec.stream.callbacks_of_threads_all_run": "eight threads queue 100 each on one \
             stream: 800 calls" => callback_threads;
        ],
    },
    Group {
        slot: "exec.stream_synchronize",
        needs: NEEDS,
        rule: "stream_synchronize waits for all work in the stream; a failure of that work is the \
            status.",
        usually: "It waits for what had begun only, or the failure is dropped or changed on the \
            way.",
        tests: tests_alone![
            "exec.stream.synchronize_empty_returns": "a stream without work is done" => sync_empty;
            "exec.stream.synchronize_waits_for_slow_work": "slow work has ended when it \
             returns" => sync_slow;
            "exec.stream.synchronize_waits_for_all_work": "so have 30 pieces of work" => sync_all;
            "exec.stream.synchronize_reports_the_failure": "the status of a function that \
             failed" => sync_failure;
            "exec.stream.synchronize_reports_the_first_failure": "of two failures, the \
             first" => sync_first;
            "exec.stream.synchronize_reports_a_failure_once": "after it was reported the stream is \
             well again" => sync_once;
            "exec.stream.synchronize_by_several_threads": "eight threads wait for one stream, all \
             return" => sync_threads;
            "exec.stream.synchronize_does_not_wait_for_others": "another stream's work is none of \
             its business" => sync_other;
        ],
    },
];

pub(crate) fn stream(s: &Subject) -> Outcome<Stream> {
    Ok(Stream::new(s.backend, 0)?)
}

/// A job that sleeps a little.
pub(crate) fn slow(ms: u64) -> &'static Job {
    Job::new(move || {
        thread::sleep(Duration::from_millis(ms));
        0
    })
}

/// A job that fails.
pub(crate) fn failing(status: i32) -> &'static Job {
    Job::new(move || status)
}

fn distinct(s: &Subject) -> Outcome {
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

fn leave_nothing(s: &Subject) -> Outcome {
    let round = || -> Outcome {
        let stream = stream(s)?;
        stream.callback(Job::new(|| 0))?;
        stream.synchronize()?;
        Ok(stream.destroy()?)
    };
    (0..20).try_for_each(|_| round())?;
    let (threads, memory) = (thread_count(), resident_bytes());
    (0..500).try_for_each(|_| round())?;
    let few = becomes(Duration::from_secs(5), || thread_count() <= threads + 8);
    ensure!(
        few,
        "{} threads run; there were {threads} before 500 streams were made and destroyed",
        thread_count()
    );
    let grown = resident_bytes().saturating_sub(memory);
    ensure!(grown < 32 << 20, "{} MiB more after 500 streams were made and destroyed", grown >> 20);
    keeps_no_addresses("stream", round)
}

fn destroy_runs_work(s: &Subject) -> Outcome {
    for _ in 0..10 {
        let (stream, first, last) = (stream(s)?, slow(5), slow(1));
        stream.callback(first)?;
        stream.callback(last)?;
        stream.destroy()?;
        ensure!(
            becomes(LIMIT, || last.runs() > 0),
            "work that was queued before the destroy did not run"
        );
        thread::sleep(Duration::from_millis(1));
        let runs = (first.runs(), last.runs());
        ensure!(runs == (1, 1), "the two functions ran {runs:?} times");
    }
    Ok(())
}

fn destroy_idle(s: &Subject) -> Outcome {
    for _ in 0..50 {
        stream(s)?.destroy()?;
    }
    Ok(())
}

fn flags_refused(s: &Subject) -> Outcome {
    refused(
        Stream::with_flags(s.backend, 0, 1 << 40),
        DTL_ERROR_INVALID_ARGUMENT,
        "stream flags 1 << 40",
    )
}

fn device_refused(s: &Subject) -> Outcome {
    if !s.has("device") {
        skip!("it has no device table");
    }
    refused(Stream::new(s.backend, s.devices), DTL_ERROR_OUT_OF_BOUNDS, "a stream on device count")
}

fn default_same(s: &Subject) -> Outcome {
    let (one, again) = (Stream::default_of(s.backend, 0)?, Stream::default_of(s.backend, 0)?);
    ensure!(one.handle.id == again.handle.id, "two calls gave two default streams");
    let job = slow(1);
    one.callback(job)?;
    again.synchronize()?;
    ensure!(job.runs() == 1, "work in the default stream ran {} times", job.runs());
    Ok(())
}

/// A stream's own pointer, for backends that have streams.
fn native_of(stream: &Stream) -> Outcome<*mut std::ffi::c_void> {
    match optional(stream.native())? {
        Some(native) => Ok(native),
        None => skip!("the backend has no streams of its own"),
    }
}

fn native_kept(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    let before = native_of(&stream)?;
    ensure!(!before.is_null(), "the native pointer is NULL");
    stream.callback(slow(1))?;
    stream.synchronize()?;
    ensure!(native_of(&stream)?.addr() == before.addr(), "the native pointer changed");
    Ok(())
}

fn wrapped(s: &Subject) -> Outcome {
    let (stream, job) = (stream(s)?, slow(1));
    let wrapped = Stream::wrap(s.backend, native_of(&stream)?)?;
    wrapped.callback(job)?;
    wrapped.synchronize()?;
    ensure!(job.runs() == 1, "work in the wrapped stream ran {} times", job.runs());
    wrapped.destroy()?;
    let after = slow(0);
    stream.callback(after)?;
    stream.synchronize()?;
    ensure!(after.runs() == 1, "the stream is of no use after the wrapping one was destroyed");
    Ok(())
}

fn callback_once(s: &Subject) -> Outcome {
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

/// Jobs that write down their number.
pub(crate) fn noting(count: u64) -> (Vec<&'static Job>, Arc<Mutex<Vec<u64>>>) {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let job = |number| {
        let notes = Arc::clone(&notes);
        Job::new(move || {
            if let Ok(mut notes) = notes.lock() {
                notes.push(number);
            }
            0
        })
    };
    ((0..count).map(job).collect(), notes)
}

pub(crate) fn noted(notes: &Mutex<Vec<u64>>) -> Vec<u64> {
    notes.lock().map(|notes| notes.clone()).unwrap_or_default()
}

fn callback_pointer(s: &Subject) -> Outcome {
    let (stream, (jobs, notes)) = (stream(s)?, noting(50));
    jobs.iter().rev().try_for_each(|job| stream.callback(job))?;
    stream.synchronize()?;
    let (mut is, should): (Vec<u64>, Vec<u64>) = (noted(&notes), (0..50).collect());
    is.sort_unstable();
    ensure!(is == should, "50 functions with 50 pointers; called were {is:?}");
    Ok(())
}

fn callback_order(s: &Subject) -> Outcome {
    let (stream, (jobs, notes)) = (stream(s)?, noting(1000));
    jobs.iter().try_for_each(|job| stream.callback(job))?;
    stream.synchronize()?;
    let is = noted(&notes);
    match is.iter().zip(0..).find(|(is, should)| **is != *should) {
        Some((is, should)) => wrong!("function {is} ran in the place of function {should}"),
        None => Ok(()),
    }
}

fn callback_alone(s: &Subject) -> Outcome {
    let (stream, inside, both) =
        (stream(s)?, Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let ended = Arc::new(AtomicU64::new(0));
    for _ in 0..20 {
        let (inside, both, ended) = (Arc::clone(&inside), Arc::clone(&both), Arc::clone(&ended));
        stream.callback(Job::new(move || {
            if inside.fetch_add(1, Ordering::SeqCst) > 0 {
                both.store(true, Ordering::SeqCst);
            }
            thread::sleep(Duration::from_millis(2));
            inside.fetch_sub(1, Ordering::SeqCst);
            ended.fetch_add(1, Ordering::SeqCst);
            0
        }))?;
    }
    stream.synchronize()?;
    // Whether synchronize waits for them is another test's question.
    becomes(LIMIT, || ended.load(Ordering::SeqCst) == 20);
    ensure!(!both.load(Ordering::SeqCst), "two functions of one stream ran at the same time");
    Ok(())
}

fn callback_after_slow(s: &Subject) -> Outcome {
    let (stream, first) = (stream(s)?, slow(20));
    let early = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&early);
    stream.callback(first)?;
    stream.callback(Job::new(move || {
        seen.store(first.runs() == 0, Ordering::SeqCst);
        0
    }))?;
    stream.synchronize()?;
    ensure!(!early.load(Ordering::SeqCst), "the second function began while the first one ran");
    Ok(())
}

fn callback_after_failure(s: &Subject) -> Outcome {
    let (stream, after) = (stream(s)?, slow(0));
    stream.callback(failing(DTL_ERROR_CANCELED))?;
    stream.callback(after)?;
    let _ = stream.synchronize();
    ensure!(
        after.runs() == 1,
        "the function behind a failed one was called {} times",
        after.runs()
    );
    Ok(())
}

fn callback_memory(s: &Subject) -> Outcome {
    let Some(kind) = s.kinds.first().copied() else { skip!("it has no memory") };
    let (stream, backend) = (stream(s)?, s.backend);
    stream.callback(Job::new(move || {
        match backend.alloc(kind.word, 1000, 0).and_then(|block| block.free()) {
            Ok(()) => 0,
            Err(refused) => refused.status,
        }
    }))?;
    Ok(stream.synchronize()?)
}

fn callback_threads(s: &Subject) -> Outcome {
    let (stream, job) = (stream(s)?, Job::new(|| 0));
    in_threads(8, |_| (0..100).try_for_each(|_| stream.callback(job)).map_err(Into::into))?;
    stream.synchronize()?;
    ensure!(job.runs() == 800, "800 calls were queued by eight threads, {} were made", job.runs());
    Ok(())
}

fn sync_empty(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    (0..10).try_for_each(|_| stream.synchronize()).map_err(Into::into)
}

fn sync_slow(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    for _ in 0..5 {
        let job = slow(10);
        stream.callback(job)?;
        stream.synchronize()?;
        ensure!(job.runs() == 1, "synchronize returned before the work was done");
    }
    Ok(())
}

fn sync_all(s: &Subject) -> Outcome {
    let (stream, job, last) = (stream(s)?, slow(1), slow(20));
    (0..29).try_for_each(|_| stream.callback(job))?;
    stream.callback(last)?;
    stream.synchronize()?;
    let runs = job.runs() + last.runs();
    ensure!(runs == 30, "synchronize returned after {runs} of 30 pieces of work");
    Ok(())
}

fn sync_failure(s: &Subject) -> Outcome {
    for status in [DTL_ERROR_CANCELED, DTL_ERROR_OUT_OF_BOUNDS, DTL_ERROR_BACKEND] {
        let stream = stream(s)?;
        stream.callback(failing(status))?;
        refused(stream.synchronize(), status, "synchronize after work that failed")?;
    }
    Ok(())
}

fn sync_first(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    stream.callback(failing(DTL_ERROR_OUT_OF_BOUNDS))?;
    stream.callback(failing(DTL_ERROR_CANCELED))?;
    refused(stream.synchronize(), DTL_ERROR_OUT_OF_BOUNDS, "synchronize after two failures")
}

fn sync_once(s: &Subject) -> Outcome {
    let (stream, job) = (stream(s)?, slow(0));
    stream.callback(failing(DTL_ERROR_CANCELED))?;
    ensure!(stream.synchronize().is_err(), "the failure was not reported at all");
    stream.callback(job)?;
    stream.synchronize()?;
    ensure!(job.runs() == 1, "work after a reported failure does not run");
    Ok(())
}

fn sync_threads(s: &Subject) -> Outcome {
    let (stream, job) = (stream(s)?, slow(20));
    stream.callback(job)?;
    in_threads(8, |_| {
        stream.synchronize()?;
        ensure!(job.runs() == 1, "a thread returned before the work was done");
        Ok(())
    })
}

fn sync_other(s: &Subject) -> Outcome {
    let ((busy, hold), free) = (busy(s)?, stream(s)?);
    free.synchronize()?;
    let waited = hold.job.runs() > 0;
    hold.release();
    busy.synchronize()?;
    ensure!(!waited, "an idle stream's synchronize waited for another stream's work");
    Ok(())
}

/// A stream whose work lasts until it is released.
pub(crate) fn busy(s: &Subject) -> Outcome<(Stream, Hold)> {
    let (stream, hold) = (stream(s)?, Hold::new());
    hold.on(&stream)?;
    Ok((stream, hold))
}
