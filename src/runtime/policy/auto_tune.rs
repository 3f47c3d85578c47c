//! Policy `auto_tune`: measures the run time of a task on every resource, then assigns the task to
//! the fastest resource.
//!
//! During the tuning of a task, the runs that one thread submits are assigned to the resources in
//! turn. The times of the first `warmups` x `resources` runs are ignored. The next `samples` x
//! `resources` runs, which all threads share, are timed. The resource with the shortest time is
//! selected, because noise only adds time. A new tuning of the task starts without the times of
//! earlier tunings, so a resource that has become slow is no longer selected.
//!
//! For a task whose tuning is complete, a selection costs one load from a memory location that no
//! thread writes until the next tuning. Tuning takes no lock (see `tuning_run`).

use super::tuning_run::{Report, Trial, TuningRun};
use crate::abi::devices::policy::dtl_task_key_t;
use crate::error::{Result, fail};
use crate::runtime::log;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Maximum number of tasks that one policy tunes.
const MOST_TASKS: usize = 1024;
/// Number of run counters of each task. Threads whose thread numbers are equal modulo STRIPES share
/// a counter, and concurrent increments by these threads may be lost.
const STRIPES: usize = 8;

/// Run of a task during its tuning: index of the task's entry in `Tuner::entries`, and index in
/// `Trial::parts` of the group of runs to which the run belongs.
#[derive(Clone, Copy)]
pub struct Run {
    place: u32,
    part: u32,
}

struct TuningEntry {
    key: dtl_task_key_t,
    trial: Trial,
    /// Number of runs since the last tuning of the task, indexed by the thread number modulo
    /// STRIPES.
    since: [Stripe; STRIPES],
}

#[repr(align(64))]
struct Stripe(AtomicU64);

/// Auto-tuner of a policy: one entry for each task key, with the state of the tuning and the
/// fastest resource.
pub(super) struct Tuner {
    entries: Box<[OnceLock<Box<TuningEntry>>]>,
    resources: usize,
    /// Number of untimed runs on each resource.
    warmups: usize,
    samples: usize,
    resample: u64,
    /// Number of tasks that are being tuned.
    tuning: AtomicU32,
}

impl Tuner {
    /// Creates a tuner for `resources` resources, without task entries.
    pub(super) fn new(resources: usize, warmups: u32, samples: u32, resample: u64) -> Self {
        Tuner {
            entries: (0..MOST_TASKS).map(|_| OnceLock::new()).collect(),
            resources,
            warmups: warmups as usize,
            samples: samples as usize,
            resample,
            tuning: AtomicU32::new(0),
        }
    }

    /// Returns true if the tuning of any task is in progress.
    pub(super) fn is_tuning(&self) -> bool {
        self.tuning.load(Ordering::Relaxed) != 0
    }

    /// Selects the resource for the task `key`. Returns the index of the resource and, if this
    /// execution of the task is a tuning run, the [`Run`]. Returns `None` if the task has no entry:
    /// the caller must add one with [`Tuner::enter`] first.
    #[inline(always)] // row: select_tuned
    pub(super) fn select(
        &self,
        key: dtl_task_key_t,
        thread: usize,
    ) -> Option<(usize, Option<Run>)> {
        let first = place_of(key);
        let mut places = first..first + MOST_TASKS;
        let (place, entry) = loop {
            let place = places.next()? % MOST_TASKS;
            let entry = self.entries.get(place)?.get()?;
            if entry.key == key {
                break (place, entry);
            }
        };
        if let Some(best) = entry.trial.best() {
            if !self.is_due(entry, thread) {
                return Some((best as usize, None));
            }
        }
        Some(next_run(entry, place, thread))
    }

    /// Counts a run of a task whose tuning is complete. If a new tuning of the task is due, starts
    /// it and returns true.
    #[inline(always)] // row: select_tuned
    fn is_due(&self, entry: &TuningEntry, thread: usize) -> bool {
        if self.resample == 0 {
            return false;
        }
        let Some(Stripe(since)) = entry.since.get(thread % STRIPES) else { return false };
        let runs = since.load(Ordering::Relaxed) + 1;
        let is_due = runs > self.resample;
        since.store(if is_due { 0 } else { runs }, Ordering::Relaxed);
        if is_due {
            self.begin_anew(entry);
        }
        is_due
    }

    /// Adds an entry for the task `key`. Fails with LIMIT if the table is full.
    #[cold]
    pub(super) fn enter(&self, key: dtl_task_key_t) -> Result<()> {
        let first = place_of(key);
        for place in first..first + MOST_TASKS {
            let Some(entry) = self.entries.get(place % MOST_TASKS) else { continue };
            let make = || {
                self.tuning.fetch_add(1, Ordering::Relaxed);
                Box::new(self.entry(key))
            };
            if entry.get_or_init(make).key == key {
                return Ok(());
            }
        }
        fail!(
            DTL_ERROR_LIMIT,
            "{MOST_TASKS} tasks are tuned by this policy, and {{{:#x}, {:#x}}} would be one more: \
             give tasks that may share a resource the same key",
            key.task,
            key.variant
        )
    }

    fn entry(&self, key: dtl_task_key_t) -> TuningEntry {
        TuningEntry {
            key,
            trial: Trial::new(self.resources, self.warmups, self.samples),
            since: std::array::from_fn(|_| Stripe(AtomicU64::new(0))),
        }
    }

    /// Reports that the tuning run `run` on `resource` has ended. `time_ns` is `None` if the run
    /// failed, because the time of a failed run does not count.
    pub(super) fn ended(&self, run: Run, resource: usize, time_ns: Option<u64>) {
        let Some(entry) = self.entries.get(run.place as usize).and_then(OnceLock::get) else {
            return;
        };
        let turn = TuningRun { resource, part: run.part as usize };
        if let Report::Last(best, least) = entry.trial.report(turn, time_ns) {
            self.tuning.fetch_sub(1, Ordering::Relaxed);
            log::info!(
                "auto_tune: task {{{:#x}, {:#x}}} goes to resource {best} ({least} ns)",
                entry.key.task,
                entry.key.variant
            );
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_anew(&self, entry: &TuningEntry) {
        if entry.trial.begin_anew() {
            self.tuning.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Assigns the next run of a tuning in progress. Returns the index of the run's resource, and the
/// run. If all runs of the tuning are already assigned, returns the fastest resource so far and
/// `None`.
#[inline(never)]
fn next_run(entry: &TuningEntry, place: usize, thread: usize) -> (usize, Option<Run>) {
    match entry.trial.take_run(thread) {
        Some(TuningRun { resource, part }) => {
            (resource, Some(Run { place: place as u32, part: part as u32 }))
        }
        None => (entry.trial.leader() as usize, None),
    }
}

/// Returns the index of the entry at which the search for a task starts (Fibonacci hashing: Knuth,
/// TAOCP vol. 3, 6.4).
#[inline(always)] // row: select_tuned
fn place_of(key: dtl_task_key_t) -> usize {
    let mixed = (key.task ^ key.variant.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 54) as usize
}
