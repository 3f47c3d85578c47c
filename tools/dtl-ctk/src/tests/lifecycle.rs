//! Tests of the availability query of a backend, and of the destruction of streams, events and
//! communicators. The library can report failures of that destruction only in the log.

use crate::api::{self, Comm};
use crate::kit::prelude::*;
use crate::kit::rank::IN_THREADS;
use crate::tests::comm_open::ranks_with;
use crate::tests::p2p::ring;
use std::ffi::{CStr, c_char, c_void};

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Backend "device.available.":
        asking_succeeds, says_why_not;
    Alone "exec.stream.":
        destroy_succeeds = stream_destroy;
    Alone "exec.event.":
        new_one_knows_no_old_record, destroy_succeeds = event_destroy;
    Ranks "comm.close.":
        succeeds = |p| without_warning("closing a communicator", || closed(p).map(|_| ())),
        leaves_no_files, takes_no_second;
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

/// Warnings that the library has logged during `without_warning`.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

extern "C" fn note(_level: i32, text: *const c_char, _user: *mut c_void) {
    // SAFETY: a text of the library's, valid during the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    if let Ok(mut warnings) = WARNINGS.lock() {
        warnings.push(text);
    }
}

/// Runs `work`. Fails if the library logs a warning that contains `begins` while `work` runs.
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

fn new_one_knows_no_old_record(s: &Subject) -> Outcome {
    let (held, go) = busy(s)?;
    let old: Vec<Event> = (0..8).map(|_| Event::on(s.backend, &held)).collect::<Result<_, _>>()?;
    old.into_iter().try_for_each(Event::destroy)?;
    let new: Vec<Event> = (0..8).map(|_| Event::new(s.backend)).collect::<Result<_, _>>()?;
    let pending = new.iter().filter(|event| !event.is_complete().unwrap_or(false)).count();
    go.release();
    held.synchronize()?;
    check!(pending == 0, "{pending} of 8 new events are pending with the records of destroyed ones")
}

/// Returns a job name that no other job on this node uses. All ranks get the same name.
pub(crate) fn job(p: &Rank) -> Outcome<String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut bytes = format!("dtl-ctk-{:010}-{number:010}", std::process::id()).into_bytes();
    if p.rank == 0 {
        (1..p.size).try_for_each(|other| p.send(&bytes, other, 8))?;
    } else {
        bytes = p.recv(bytes.len() as u64, 0, 8)?.bytes;
    }
    String::from_utf8(bytes).or_else(|error| wrong!("the job's name: {error}"))
}

/// Opens another communicator of the same kind, in a job with a new name, so that it has its own
/// transport.
fn another(p: &Rank) -> Outcome<Rank> {
    on_its_own(p)?;
    let job = job(p)?;
    let opened = std::thread::scope(|scope| {
        let limit = crate::api::limit_of(p.timeout_ns, p.no_time_limit);
        let job = &job;
        let opening = scope.spawn(move || api::open_as(Some(job), &p.kind, None, limit));
        // Others may still wait for what this rank has sent on the first one.
        while !opening.is_finished() {
            p.iprobe(p.previous(), 9)?;
            std::thread::sleep(Duration::from_micros(200));
        }
        opening.join().or_else(|_| wrong!("the thread that opens panicked"))
    })?;
    accepted(p, opened)
}

/// Skips the test if the ranks are threads of one process, because such a rank cannot open a
/// communicator by itself.
pub(crate) fn on_its_own(p: &Rank) -> Outcome {
    if IN_THREADS.load(Ordering::Relaxed) {
        skip!(
            "the ranks are threads of one process, where {} opens for all of them or has no job",
            p.kind
        );
    }
    Ok(())
}

/// Returns the opened communicator. Skips the test if the status is DTL_ERROR_NOT_SUPPORTED. Any
/// other failure fails the test.
pub(crate) fn accepted(p: &Rank, opened: Called<Comm>) -> Outcome<Rank> {
    match opened {
        Ok(comm) => Ok(Rank::of(comm, &p.kind, p.timeout_ns, p.no_time_limit)?),
        // The same answer on all ranks.
        Err(refused) if refused.status == DTL_ERROR_NOT_SUPPORTED => {
            skip!("the backend opens only once in a process: {refused}")
        }
        Err(refused) => wrong!("a second one cannot be opened: {refused}"),
    }
}

/// Opens a second communicator, exchanges messages on it and closes it. Returns the duration of the
/// close.
fn closed(p: &Rank) -> Outcome<Duration> {
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

fn leaves_no_files(p: &Rank) -> Outcome {
    closed(p)?;
    let before = open_files();
    (0..10).try_for_each(|_| closed(p).map(drop))?;
    let after = open_files();
    let few = after < before + 8;
    check!(few, "{after} files are open; there were {before} before ten communicators")
}

fn takes_no_second(p: &Rank) -> Outcome {
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
