//! Trace file: a JSON array in Chrome's trace format, one event per line, written by a separate
//! thread.
//!
//! Each thread appends its events to a queue of its own (the journal of the thread). The writer
//! thread drains the journals every tenth of a second, or when a journal has many events, so the
//! file of a rank that is killed lacks at most the events of the last tenth of a second. The format
//! permits a file that lacks the end of the JSON array. A thread whose journal is full drains the
//! journals itself. If a write fails, the trace ends; library calls are not affected.

use super::args::{Phase, TraceEvent};
use super::text::{self, EventOrigin};
use super::tracks::Track;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::trace::spsc_queue;
use crate::runtime::{launch, log, open_state};
use crate::sys::os::process;
use crate::sys::sync::lock::{Condvar, Mutex};
use crate::sys::sync::wait;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Capacity of a journal (the event queue of a thread), in events. A journal occupies 384 KiB.
const ROOM: usize = 4096;
/// A thread wakes the writer thread each time it has appended this number of events to its journal
/// (event queue).
const MANY: usize = ROOM / 4;
/// Maximum time that the writer thread sleeps before it drains the journals (event queues of the
/// threads) again.
const PERIOD: Duration = Duration::from_millis(100);
/// Size in bytes of the collected JSON text at which the writer thread writes it to the file.
const BLOCK: usize = 1 << 18;

/// Trace file that is being written.
pub(super) struct Trace {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    rank: i32,
    has_failed: AtomicBool,
    state: Mutex<TraceFileState>,
    /// Condition variable that wakes the writer thread when the trace ends or a journal (event
    /// queue of a thread) has many events.
    awake: Condvar,
    /// Number of threads that are not traced, because no memory was left for their journals (event
    /// queues).
    left_out: AtomicU64,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// Queue of a thread's events for the trace file.
pub(super) struct Journal {
    /// Number (`Trace::number`) of the trace file to which the events are written.
    pub(super) trace: u64,
    events: spsc_queue::SpscQueue,
    origin: EventOrigin,
    /// True once the thread that appends events to this journal (event queue) has ended.
    pub(super) has_ended: AtomicBool,
}

/// State of the trace file, protected by the lock `Trace::state`. Only the thread that holds this
/// lock reads the journals (event queues of the threads).
#[derive(Default)]
struct TraceFileState {
    /// Open file. `None` if the file is complete or a write to it has failed; later events are then
    /// dropped.
    file: Option<File>,
    /// JSON text that is not yet written to the file.
    text: String,
    written: u64,
    journals: Vec<JournalState>,
    operations: Operations,
    /// Places of the tracks that the file has named; thread 0 is the track's group.
    named: BTreeSet<(i32, i32)>,
    is_over: bool,
    failure: Option<Error>,
}

/// Journal (event queue) of a thread, and the calls that the thread has in progress.
struct JournalState {
    journal: Arc<Journal>,
    open: Vec<TraceEvent>,
    /// True if the thread had ended before its journal (event queue) was last drained; no more
    /// events follow.
    has_ended: bool,
}

/// Operations in progress, and end events that were read before their begin events because the
/// journal with the end event was drained first. Such an end event is kept until its begin event is
/// read; if the operation began before this trace file was started, the end event is never written.
#[derive(Default)]
struct Operations {
    open: BTreeMap<u64, TraceEvent>,
    early: BTreeMap<u64, (EventOrigin, TraceEvent)>,
}

impl Operations {
    /// Processes `event`, the begin or end event of an operation. Returns the events to write now,
    /// in order.
    fn next(
        &mut self,
        place: EventOrigin,
        event: TraceEvent,
    ) -> [Option<(EventOrigin, TraceEvent)>; 2] {
        let is_begin = event.phase == Phase::OperationBegin;
        match (is_begin, self.early.remove(&event.id)) {
            (true, Some(end)) => [Some((place, event)), Some(end)],
            (true, None) => {
                self.open.insert(event.id, event);
                [Some((place, event)), None]
            }
            (false, _) if self.open.remove(&event.id).is_some() => [Some((place, event)), None],
            (false, _) => {
                self.early.insert(event.id, (place, event));
                [None, None]
            }
        }
    }
}

impl Trace {
    /// Creates the file and the thread that writes it.
    pub(super) fn open(path: &str, life: u32) -> Result<Arc<Self>> {
        let launch = launch::from_environment().ok().flatten();
        let (rank, size) = launch.map_or((0, 1), |launch| (launch.rank, launch.size));
        let path = text::of_life(text::expand(path, (rank, size), process::own_pid())?, life);
        if path.metadata().is_ok_and(|there| !there.is_file()) {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "cannot make the trace {}: that is a folder or a device; name a file that is not \
                 there yet",
                path.display()
            );
        }
        let file = create(&path).map_err(|error| file_error("make", &path, &error))?;
        // Created above; nobody has seen the file yet.
        Trace::begin(&path, file, rank).inspect_err(|_| drop(std::fs::remove_file(&path)))
    }

    /// Writes the first lines of the new file and creates the thread that writes the rest.
    fn begin(path: &Path, file: File, rank: i32) -> Result<Arc<Self>> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let mut text = text::beginning(rank);
        if text.try_reserve(BLOCK + BLOCK / 8).is_err() {
            return fail!(
                DTL_ERROR_OUT_OF_MEMORY,
                "no memory for the text of the trace {}",
                path.display()
            );
        }
        let mut state = TraceFileState { file: Some(file), text, ..TraceFileState::default() };
        state.write().map_err(|error| file_error("write to", path, &error))?;
        let trace = Arc::new(Trace {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            path: path.to_owned(),
            rank,
            has_failed: AtomicBool::new(false),
            state: Mutex::new(state),
            awake: Condvar::new(),
            left_out: AtomicU64::new(0),
            writer: Mutex::new(None),
        });
        let its = Arc::clone(&trace);
        let writer = process::spawn("dtl-trace", move || its.work()).map_err(|error| {
            let path = path.display();
            failure!(DTL_ERROR_LIMIT, "no thread to write the trace {path}: {error}")
        })?;
        *trace.writer.lock() = Some(writer);
        Ok(trace)
    }

    /// Returns true if a write to the file has failed. The file then accepts no more events.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Returns the error from the failed write, if any.
    pub(super) fn failure(&self) -> Option<Error> {
        self.state.lock().failure.clone()
    }

    /// Creates a journal (event queue) for the calling thread. Returns `None` if no memory is left;
    /// the thread is then not traced.
    pub(super) fn join(&self) -> Option<Arc<Journal>> {
        let Some(events) = spsc_queue::SpscQueue::new(ROOM) else {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let journal = Arc::new(Journal {
            trace: self.number,
            events,
            origin: self.origin(),
            has_ended: AtomicBool::new(false),
        });
        let mut state = self.state.lock();
        text::name_thread(&mut state.text, journal.origin);
        state.journals.push(JournalState {
            journal: Arc::clone(&journal),
            open: Vec::new(),
            has_ended: false,
        });
        Some(journal)
    }

    /// Returns the origin (rank and thread id) of the events of the calling thread.
    fn origin(&self) -> EventOrigin {
        EventOrigin { rank: self.rank, thread: process::thread_id() }
    }

    /// Appends an event of the calling thread to `journal`, the thread's own journal.
    pub(super) fn put(&self, journal: &Journal, event: &TraceEvent) {
        let record = event.to_record();
        loop {
            match journal.events.push(&record) {
                Some(number) if number % MANY == MANY - 1 => return self.awake.notify_all(),
                Some(_) => return,
                // A forked child has a copy of this state, but the file belongs to the parent.
                None if open_state::is_fork() => return,
                None => self.drain(&mut self.state.lock()),
            }
        }
    }

    /// Runs the loop of the writer thread, which takes only the trace's own lock. Any other lock
    /// that it holds at a fork would stay locked forever in the child, where the writer thread does
    /// not exist.
    fn work(&self) {
        let mut state = self.state.lock();
        while !state.is_over && state.failure.is_none() {
            state = self.awake.wait_for(state, PERIOD);
            self.drain(&mut state);
        }
        let failure = state.failure.clone().filter(|_| !state.is_over);
        drop(state);
        if let Some(error) = failure {
            log::warning!("the trace ends here: {error}");
        }
    }

    /// Removes all events from the journals (the event queues of the threads), converts them to
    /// JSON, and writes them to the file.
    fn drain(&self, state: &mut TraceFileState) {
        let mut known = std::mem::take(&mut state.journals);
        for known in &mut known {
            let place = known.journal.origin;
            known.has_ended = known.journal.has_ended.load(Ordering::Acquire);
            while let Some(event) = known.journal.events.take().and_then(TraceEvent::of_record) {
                let now = match event.phase {
                    Phase::Begin => {
                        known.open.push(event);
                        [Some((place, event)), None]
                    }
                    Phase::End => [known.open.pop().map(|_| (place, event)), None],
                    Phase::Complete | Phase::Counter => {
                        [Some((state.place_of(event.id, self.rank, place), event)), None]
                    }
                    _ => state.operations.next(place, event),
                };
                now.iter()
                    .flatten()
                    .for_each(|(place, event)| text::event(&mut state.text, *place, event));
                if state.text.len() >= BLOCK {
                    self.write(state);
                }
            }
        }
        known.retain(|known| !known.has_ended || !known.open.is_empty());
        state.journals = known;
        self.write(state);
    }

    fn write(&self, state: &mut TraceFileState) {
        if let Err(error) = state.write() {
            state.failure = Some(file_error("write to", &self.path, &error));
            self.has_failed.store(true, Ordering::Relaxed);
            super::HAS_FAILED.store(true, Ordering::Release);
        }
    }

    /// Drains the journals (the event queues of the threads), writes end events for the calls and
    /// operations that are still in progress, writes the end of the file, and joins the writer
    /// thread.
    pub(super) fn close(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.is_over = true;
        self.drain(&mut state);
        let now = wait::node_ns();
        for known in std::mem::take(&mut state.journals) {
            for begin in known.open.iter().rev() {
                text::unfinished(&mut state.text, known.journal.origin, begin, now);
            }
        }
        let origin = self.origin();
        for begin in std::mem::take(&mut state.operations).open.values() {
            text::unfinished(&mut state.text, origin, begin, now);
        }
        text::end(&mut state.text, self.rank, now);
        self.write(&mut state);
        state.file = None;
        let outcome = state.failure.take().map_or(Ok(()), Err);
        drop(state);
        self.awake.notify_all();
        let writer = self.writer.lock().take();
        // The writer does not panic; if it did, the file is closed all the same.
        writer.into_iter().for_each(|writer| drop(writer.join()));
        match self.left_out.load(Ordering::Relaxed) {
            0 => outcome,
            threads => outcome.and(fail!(
                DTL_ERROR_OUT_OF_MEMORY,
                "no memory to trace {threads} of the threads: the others are in {}",
                self.path.display()
            )),
        }
    }
}

impl TraceFileState {
    /// Returns the place of an event of a track, whose names are written before its first event.
    /// Track 0 is the rank's own process; `place` is that of the thread which recorded the event.
    fn place_of(&mut self, track: u64, rank: i32, place: EventOrigin) -> EventOrigin {
        let Ok(track) = Track::find(track) else { return place };
        let place = track.origin(rank);
        if self.named.insert((place.rank, place.thread)) {
            let is_first = self.named.insert((place.rank, 0));
            text::name_track(&mut self.text, rank, &track, is_first);
        }
        place
    }

    fn write(&mut self) -> io::Result<()> {
        let (before, wanted) = (self.written, self.written + self.text.len() as u64);
        let written = match &mut self.file {
            None => Ok(()),
            // The write would raise a signal (SIGXFSZ) that ends the program.
            Some(_) if wanted > process::file_size_limit() => {
                Err(io::ErrorKind::FileTooLarge.into())
            }
            Some(file) => file
                .write_all(self.text.as_bytes())
                .inspect_err(|_| drop(cut_back(file, before, self.text.as_bytes()))),
        };
        self.text.clear();
        self.written = wanted;
        if written.is_err() {
            self.file = None;
        }
        written
    }
}

/// Truncates the file after its last complete line, if a full disk has left a partial line.
/// `before` is the file offset at which `text` begins.
fn cut_back(file: &File, before: u64, text: &[u8]) -> io::Result<()> {
    let there = usize::try_from(file.metadata()?.len().saturating_sub(before)).unwrap_or(0);
    let part = text.get(..there).unwrap_or(text);
    match part.iter().rposition(|byte| *byte == b'\n') {
        _ if part.is_empty() => Ok(()),
        last => file.set_len(before + last.map_or(0, |last| last as u64 + 1)),
    }
}

fn create(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    process::keep_fd(file.into()).map(File::from)
}

/// Creates the error for a file that cannot be created or written.
fn file_error(what: &str, path: &Path, error: &io::Error) -> Error {
    use crate::abi::status::*;
    let (status, advice) = match error.kind() {
        io::ErrorKind::AlreadyExists => {
            (DTL_ERROR_ALREADY_EXISTS, "; remove it, or name another (%p: process id)")
        }
        io::ErrorKind::NotFound if path.parent().is_some_and(Path::is_dir) => {
            (DTL_ERROR_UNAVAILABLE, "; its folder takes no new files: name another folder")
        }
        io::ErrorKind::NotFound => (DTL_ERROR_NOT_FOUND, "; make its folder first"),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            (DTL_ERROR_LIMIT, "; what was written before is there")
        }
        _ if process::fd_shortage(error).is_some() => (DTL_ERROR_LIMIT, ""),
        _ => (DTL_ERROR_UNAVAILABLE, "; name a place where a file can be written"),
    };
    Error::new(status, format!("cannot {what} the trace {}: {error}{advice}", path.display()))
}

#[cfg(test)]
#[path = "tests/file.rs"]
mod tests;
