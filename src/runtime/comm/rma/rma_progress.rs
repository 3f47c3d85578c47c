//! Executes requests from other ranks on the windows of this process: in every call that waits, and
//! in a separate thread while no call waits.
//!
//! The thread is created with the first window whose RMA path needs it, and ends when the last such
//! window is destroyed. Requests from other ranks do not wake the thread, so it polls at intervals.
//! The intervals are short after the thread has found a request, and become longer while it finds
//! none.

use crate::error::{Result, failure};
use crate::runtime::comm::progress_list::{ProgressList, TURNS};
use crate::runtime::comm::rma_path::RmaPath;
use crate::runtime::log;
use crate::sys::{handles::epoch, os::process::spawn, sync::lock::Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

static SERVED: ProgressList<dyn RmaPath> = ProgressList::new();
static THREAD: Mutex<Thread> = Mutex::new(Thread { needed: 0, running: None });

struct Thread {
    /// Number of windows that need the thread that executes requests from other ranks.
    needed: usize,
    running: Option<(JoinHandle<()>, Arc<ThreadControl>)>,
}

/// State shared with the thread that executes requests from other ranks. This state is not static,
/// because a fork may leave its mutex locked. The child does not need the state, because the thread
/// does not exist in the child.
#[derive(Default)]
struct ThreadControl {
    ends: AtomicBool,
    /// Version of `needed` and `new`; incremented when they change.
    version: AtomicU64,
    /// Number of windows that need the thread that executes requests from other ranks.
    needed: AtomicUsize,
    /// RMA paths of new windows that the progress thread does not poll yet.
    new: Mutex<Vec<Weak<dyn RmaPath>>>,
}

/// Sleep times of the progress thread between polls. Each sleep time applies while the number of
/// successive polls that have found no request does not exceed the number in the same tuple.
const SLEEPS: [(u32, Duration); 3] = [
    (64, Duration::from_micros(50)),
    (512, Duration::from_micros(200)),
    (2000, Duration::from_millis(1)),
];
const LONGEST_SLEEP: Duration = Duration::from_millis(5);
/// Number of polls by the progress thread after each sleep, at intervals of `BETWEEN_LOOKS`. An MPI
/// library may detect a message in one poll and receive it in the next. A large message needs more
/// polls, because the MPI library requests its fragments one after the other. With one poll after
/// each sleep, a large message took 10 to 23 ms.
const LOOKS: u32 = 5;
const BETWEEN_LOOKS: Duration = Duration::from_micros(50);

/// Registers the RMA path of a new window, so that requests from other ranks on this window are
/// executed.
pub(super) fn add(path: &Arc<dyn RmaPath>, needs_thread: bool) -> Result<()> {
    if needs_thread {
        let mut thread = THREAD.lock();
        thread.start()?;
        thread.needed += 1;
        thread.tell(Some(path));
    }
    SERVED.add(path);
    Ok(())
}

/// Removes the RMA path of a window that is being destroyed, so that requests on this window are no
/// longer executed.
pub(super) fn remove(path: &Arc<dyn RmaPath>) {
    if SERVED.remove(Arc::as_ptr(path).addr()) && path.needs_thread() {
        let mut thread = THREAD.lock();
        thread.needed = thread.needed.saturating_sub(1);
        if thread.needed == 0 { thread.end() } else { thread.tell(None) }
    }
}

impl Thread {
    fn start(&mut self) -> Result<()> {
        if self.running.is_some() {
            return Ok(());
        }
        let control = Arc::new(ThreadControl::default());
        let its = Arc::clone(&control);
        let handle = spawn("dtl-window", move || work(&its)).map_err(|error| {
            failure!(
                DTL_ERROR_LIMIT,
                "no thread to serve the window while this process computes: {error}"
            )
        })?;
        self.running = Some((handle, control));
        Ok(())
    }

    /// Passes to the progress thread the RMA path of a new window, if any, and the number of
    /// windows that need the thread, and wakes the thread.
    fn tell(&self, new: Option<&Arc<dyn RmaPath>>) {
        if let Some((handle, control)) = &self.running {
            control.new.lock().extend(new.map(Arc::downgrade));
            control.needed.store(self.needed, Ordering::Relaxed);
            control.version.fetch_add(1, Ordering::Release);
            handle.thread().unpark();
        }
    }

    fn end(&mut self) {
        if let Some((handle, control)) = self.running.take() {
            control.ends.store(true, Ordering::Release);
            handle.thread().unpark();
            if handle.join().is_err() {
                log::warning!("the thread that serves windows ended by a panic: please report it");
            }
        }
    }
}

/// Stops executing other ranks' requests to the windows of this process. Called at finalize.
pub(super) fn stop() {
    SERVED.clear();
    let mut thread = THREAD.lock();
    thread.needed = 0;
    thread.end();
}

/// Discards the list of windows and the state of the progress thread in a forked child, in which
/// the thread does not exist.
pub(super) fn forget() {
    SERVED.clear();
    let mut thread = THREAD.lock();
    thread.needed = 0;
    std::mem::forget(thread.running.take());
}

/// Executes requests from other ranks on the next few windows of this process, in round-robin
/// order.
pub(crate) fn serve_some() {
    if SERVED.len() > 0 {
        for path in SERVED.turns().iter().flatten() {
            path.serve();
        }
    }
}

/// Executes requests from other ranks on all windows of this process. Called by operations on a
/// window whose ranks are all threads of this process.
pub(super) fn serve_all() {
    let rounds = SERVED.len().div_ceil(TURNS);
    (0..rounds).for_each(|_| serve_some());
}

/// Main loop of the progress thread: executes requests from other ranks until `ThreadControl::ends`
/// is set.
fn work(control: &ThreadControl) {
    let (mut known, mut paths) = (0, Vec::<Weak<dyn RmaPath>>::new());
    let mut vain = 0_u32;
    log::enter_progress_thread();
    while !control.ends.load(Ordering::Acquire) {
        let version = control.version.load(Ordering::Acquire);
        if version != known {
            paths.append(&mut control.new.lock());
            // Destroyed windows are removed once they are as many as the live windows.
            if paths.len() > 2 * control.needed.load(Ordering::Relaxed) {
                paths.retain(|path| path.strong_count() > 0);
            }
            (known, vain) = (version, 0);
        }
        if look(&paths, if sleep_after(vain) > BETWEEN_LOOKS { LOOKS } else { 1 }) {
            vain = 0;
            thread::yield_now();
        } else {
            vain = vain.saturating_add(1);
            thread::park_timeout(sleep_after(vain));
        }
        log::deliver(0);
    }
}

/// Polls all windows for requests from other ranks, up to `times` times or until a request has been
/// executed. Returns true if a request has been executed.
fn look(paths: &[Weak<dyn RmaPath>], times: u32) -> bool {
    (0..times).any(|number| {
        if number > 0 {
            thread::park_timeout(BETWEEN_LOOKS);
        }
        let _aside = epoch::aside();
        let served = paths.iter().filter_map(Weak::upgrade).filter(|path| path.needs_thread());
        served.fold(false, |any, path| path.serve() | any)
    })
}

fn sleep_after(vain: u32) -> Duration {
    SLEEPS.iter().find(|(looks, _)| vain <= *looks).map_or(LONGEST_SLEEP, |(_, sleep)| *sleep)
}
