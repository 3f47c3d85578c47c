//! Tests of what a backend says of itself before anything is done with it, and of how what it made
//! ends: there the library has nobody to tell of a failure but the log.

use crate::api::{Comm, Failure};
use crate::kit::calls::Backend;
use crate::kit::catalog::{Group, Need, ranks, tests_alone, tests_of_backends};
use crate::kit::exec_calls::{Event, Job, Stream};
use crate::kit::outcome::{Outcome, call, ensure, skip, wrong};
use crate::kit::peer::{IN_THREADS, Peer};
use crate::kit::subject::{Subject, open_files};
use crate::tests::open::ranks_with;
use crate::tests::p2p::ring;
use crate::tests::stream::busy;
use dtl_sys::{DTL_LOG_WARN, dtl_log_fn_t, dtl_log_set_callback};
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Before the others: they need a backend that can run here.
pub(crate) const BEFORE: &[Group] = &[Group {
    slot: "is_available",
    needs: &[],
    rule: "is_available must not fail on a machine without the hardware; if it answers 0, `why` \
        says why not.",
    usually: "The slot passes on a failure of the driver, or answers 0 without a reason: then \
        nothing of the \
              backend is tested, and nobody knows why.",
    tests: tests_of_backends![
        "device.available.asking_succeeds": "is_available answers yes or no, and does not \
         fail" => asking_succeeds;
        "device.available.says_why_not": "if it cannot run here there is a reason, and it is \
         text" => says_why_not;
    ],
}];

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "exec.stream_destroy, event_destroy",
        needs: &[Need::Streams],
        rule: "destroy slots succeed for what create slots made. The library has no caller to tell \
            of their failure: it \
               logs a warning.",
        usually: "The slot refuses its own streams or events, or answers what a driver's call \
            answered.",
        tests: tests_alone![
            "exec.stream.destroy_succeeds": "20 streams with work are destroyed without a \
             warning" => stream_destroy;
            "exec.event.new_one_knows_no_old_record": "events made where others were destroyed are \
             as never recorded" => event_new;
            "exec.event.destroy_succeeds": "20 recorded events are destroyed without a \
             warning" => event_destroy;
        ],
    },
    Group {
        slot: "comm.close, cancel",
        needs: &[],
        rule: "close closes what open gave; cancel ends the receives that are still posted then.",
        usually: "A socket or file stays open, receives are not ended, or the slot answers a \
            failure.",
        tests: &[
            ranks(
                1,
                "comm.close.succeeds",
                "a communicator opened besides is closed without a warning",
                close_succeeds,
                None,
            ),
            ranks(
                1,
                "comm.close.leaves_no_files",
                "ten opened and closed ones leave no open files",
                close_leaves,
                None,
            ),
            ranks(
                1,
                "comm.close.takes_no_second",
                "receives that are posted at the end hold up nothing",
                close_is_quick,
                None,
            ),
        ],
    },
];

fn asking_succeeds(backend: Backend) -> Outcome {
    match backend.available()? {
        // The library's text for a slot that failed: the slot's name is in it.
        Err(why) if why.starts_with("backend ") && why.contains(": is_available") => {
            wrong!("is_available failed: {why}")
        }
        _ => Ok(()),
    }
}

fn says_why_not(backend: Backend) -> Outcome {
    if let Err(why) = backend.available()? {
        ensure!(
            !why.is_empty() && why != "it gives no reason",
            "it cannot run here and does not say why"
        );
        ensure!(!why.contains('\u{FFFD}'), "the reason is no UTF-8 text: {why}");
    }
    Ok(())
}

/// What the library has logged since `warned` began.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

extern "C" fn note(_level: i32, text: *const c_char, _user: *mut c_void) {
    // SAFETY: a text of the library's, valid during the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    if let Ok(mut warnings) = WARNINGS.lock() {
        warnings.push(text);
    }
}

/// Fails if the work makes the library log a warning of this beginning.
pub(crate) fn without_warning(begins: &str, work: impl FnOnce() -> Outcome) -> Outcome {
    let listen = |function: dtl_log_fn_t| {
        call!(dtl_log_set_callback(function, ptr::null_mut(), DTL_LOG_WARN))
    };
    listen(Some(note))?;
    let outcome = work();
    listen(None)?;
    let warnings =
        WARNINGS.lock().map(|mut warnings| std::mem::take(&mut *warnings)).unwrap_or_default();
    outcome?;
    match warnings.iter().find(|warning| warning.contains(begins)) {
        Some(warning) => wrong!("the library warns: {warning}"),
        None => Ok(()),
    }
}

fn busy_stream(s: &Subject) -> Outcome<Stream> {
    let stream = Stream::new(s.backend, 0)?;
    stream.callback(Job::new(|| 0))?;
    Ok(stream)
}

fn stream_destroy(s: &Subject) -> Outcome {
    without_warning("destroying a stream", || {
        (0..20).try_for_each(|_| Ok(busy_stream(s)?.destroy()?))
    })
}

fn event_destroy(s: &Subject) -> Outcome {
    let stream = busy_stream(s)?;
    without_warning("destroying an event", || {
        (0..20).try_for_each(|_| Event::on(s.backend, &stream)?.destroy())?;
        Ok(stream.synchronize()?)
    })
}

fn event_new(s: &Subject) -> Outcome {
    let (held, go) = busy(s)?;
    let old: Vec<Event> = (0..8).map(|_| Event::on(s.backend, &held)).collect::<Result<_, _>>()?;
    old.into_iter().try_for_each(Event::destroy)?;
    let new: Vec<Event> = (0..8).map(|_| Event::new(s.backend)).collect::<Result<_, _>>()?;
    let pending = new.iter().filter(|event| !event.is_complete().unwrap_or(false)).count();
    go.release();
    held.synchronize()?;
    ensure!(
        pending == 0,
        "{pending} of 8 new events are pending with the records of destroyed ones"
    );
    Ok(())
}

/// A name that no other job on this node uses, the same on all ranks.
pub(crate) fn job(p: &Peer) -> Outcome<CString> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut bytes = format!("dtl-ctk-{:010}-{number:010}", std::process::id()).into_bytes();
    if p.rank == 0 {
        (1..p.size).try_for_each(|other| p.send(&bytes, other, 8))?;
    } else {
        bytes = p.recv(bytes.len() as u64, 0, 8)?.bytes;
    }
    CString::new(bytes).or_else(|error| wrong!("the job's name: {error}"))
}

/// Another communicator of the kind, with a transport of its own.
fn another(p: &Peer) -> Outcome<Peer> {
    on_its_own(p)?;
    let job = job(p)?;
    let opened = std::thread::scope(|scope| {
        let limit = crate::api::limit_of(p.timeout_ns, p.no_time_limit);
        let job = &job;
        let opening = scope.spawn(move || Comm::open_as(Some(job), &p.kind, None, limit));
        // Others may still wait for what this rank has sent on the first one.
        while !opening.is_finished() {
            p.iprobe(p.previous(), 9)?;
            std::thread::sleep(Duration::from_micros(200));
        }
        opening.join().or_else(|_| wrong!("the thread that opens panicked"))
    })?;
    accepted(p, opened)
}

/// Skips where no rank can open a communicator by itself.
pub(crate) fn on_its_own(p: &Peer) -> Outcome {
    if IN_THREADS.load(Ordering::Relaxed) {
        skip!(
            "the ranks are threads of one process, where {} opens for all of them or has no job",
            p.kind
        );
    }
    Ok(())
}

/// What an open gave, which may be refused only as one that this backend does not have.
pub(crate) fn accepted(p: &Peer, opened: Result<Comm, Failure>) -> Outcome<Peer> {
    match opened {
        Ok(comm) => Peer::of(comm, &p.kind, p.timeout_ns, p.no_time_limit),
        // The same answer on all ranks.
        Err(failure) if failure.text.ends_with("(DTL_ERROR_NOT_SUPPORTED)") => {
            skip!("the backend opens only once in a process: {}", failure.text)
        }
        Err(failure) => wrong!("a second one cannot be opened: {}", failure.text),
    }
}

/// Closes a second communicator after some messages; how long that took.
fn closed(p: &Peer) -> Outcome<Duration> {
    let other = another(p)?;
    if other.size != p.size {
        skip!("the kind's ranks are those of one call, so it has {} here", other.size);
    }
    ring(&other, 1000, 1)?;
    other.barrier()?;
    let begin = Instant::now();
    other.destroy()?;
    let took = begin.elapsed();
    p.barrier()?;
    Ok(took)
}

fn close_succeeds(p: &Peer) -> Outcome {
    without_warning("closing a communicator", || closed(p).map(|_| ()))
}

fn close_leaves(p: &Peer) -> Outcome {
    closed(p)?;
    let before = open_files();
    (0..10).try_for_each(|_| closed(p).map(|_| ()))?;
    let after = open_files();
    ensure!(
        after < before + 8,
        "{after} files are open; there were {before} before ten communicators"
    );
    Ok(())
}

fn close_is_quick(p: &Peer) -> Outcome {
    let mut least = Duration::MAX;
    for _ in 0..10 {
        least = least.min(closed(p)?);
        // The library gives a transport a second to end its receives. The ranks stay in step.
        if ranks_with(p, least > Duration::from_millis(900))? == 0 {
            return Ok(());
        }
    }
    wrong!("closing takes {least:?}, with nothing under way")
}
