//! Consecutive tunings of one task: assignment of runs to resources, their times, and detection of
//! the last run.
//!
//! The runs of a tuning are divided into parts. The first part holds the warm-ups. Each further
//! part holds a share of the samples, in whole rounds over the resources. A thread starts with its
//! own share. When all runs of that share are assigned, the thread continues with the other shares,
//! in an order (0 1 2 3 and 1 0 3 2) that separates two threads of equal speed. So threads rarely
//! write the same cache line, and no run is left over if a thread stops submitting.
//!
//! The algorithm needs no lock. Every run of a tuning ends exactly once, and the next tuning starts
//! only after the end of the last run. So a time is always reported to the current tuning. In each
//! part, `runs` assigns the runs and `ended` counts the runs that were reported as ended. The last
//! report of a part increments the `ended` of the tuning, which counts the completed parts.
//!
//! Memory ordering: a thread stores a time before it increments the part's `ended`. The thread that
//! completes a part increments the part's `ended` before it increments the tuning's `ended`. Both
//! increments are release operations. The thread that makes the last increment sees all stores
//! (acquire, in both counters) and publishes `best` (release). The thread that resets `best` to
//! start a new tuning (acquire; only one thread can succeed) sees the whole previous tuning. It
//! clears the state, then resets the counter `runs` of each part (release), which makes the runs
//! available. A thread that gets a run acquires `runs`, so no time is stored before the state is
//! cleared. A thread that finds no run left reads `leader` (the fastest resource so far), which is
//! only a hint. `tests/models` checks the algorithm.

use crate::sys::sync::{AtomicU32, AtomicU64, Ordering};

/// Value of `Trial::best` while the task is being tuned.
const TUNING: u32 = u32::MAX;

/// Index in `Trial::parts` of the group of runs that contains the warm-ups (runs whose times are
/// discarded).
const WARMUPS: usize = 0;
/// Number of parts (groups of runs) into which the samples (timed runs) are divided, a power of
/// two. Threads whose thread numbers are equal modulo SHARES start with the same part.
const SHARES: usize = 4;

/// Part (group) of the runs of a tuning. Each part occupies its own pair of cache lines, because
/// different threads write different parts, and a prefetcher loads lines in pairs.
#[repr(align(128))]
struct RunShard {
    /// Number of runs in this group.
    most: u64,
    /// Number of the next run to assign in this group.
    runs: AtomicU64,
    ended: AtomicU64,
}

impl RunShard {
    fn new(most: usize) -> Self {
        RunShard { most: most as u64, runs: AtomicU64::new(0), ended: AtomicU64::new(0) }
    }

    /// Assigns a run and returns its number; `None` if all runs of this group are assigned.
    #[inline]
    fn take_run(&self) -> Option<u64> {
        if self.runs.load(Ordering::Relaxed) >= self.most {
            return None;
        }
        let run = self.runs.fetch_add(1, Ordering::Acquire);
        (run < self.most).then_some(run)
    }
}

/// State of the successive tunings of one task. Assigns runs to resources and collects the times of
/// the runs.
pub(super) struct Trial {
    /// Index of the fastest resource, or TUNING while the task is being tuned.
    best: AtomicU32,
    /// Index of the fastest resource so far. Submissions use this resource once all runs of a
    /// tuning have been assigned, until all of these runs have ended.
    leader: AtomicU32,
    parts: [RunShard; 1 + SHARES],
    /// Number of elements of `parts` (groups of runs) whose runs have all ended.
    ended: AtomicU32,
    /// Shortest run time of each resource in nanoseconds; u64::MAX if no timed run of the resource
    /// has succeeded.
    least_ns: Box<[AtomicU64]>,
}

/// Run of a task during its tuning. A submission of the task executes this run on `resource`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TuningRun {
    pub(super) resource: usize,
    /// Index in `Trial::parts` of the group of runs to which this run belongs.
    pub(super) part: usize,
}

/// State of a tuning after the end of one of its runs has been reported.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// At least one other run of the tuning has not ended.
    OneOfMany,
    /// All runs of the tuning have ended. The fields are the index of the fastest resource and its
    /// shortest time in nanoseconds.
    Last(u32, u64),
    /// All runs of the tuning have ended without a valid time. The tuning restarts.
    NoneGood,
}

impl Trial {
    /// Starts the tuning of a task on `resources` resources, with `warmups` untimed and `samples`
    /// timed runs on each.
    pub(super) fn new(resources: usize, warmups: usize, samples: usize) -> Self {
        let rounds =
            |part| if part == WARMUPS { warmups } else { (samples + SHARES - part) / SHARES };
        Trial {
            best: AtomicU32::new(TUNING),
            leader: AtomicU32::new(0),
            parts: std::array::from_fn(|part| RunShard::new(rounds(part) * resources)),
            ended: AtomicU32::new(0),
            least_ns: (0..resources).map(|_| AtomicU64::new(u64::MAX)).collect(),
        }
    }

    /// Returns the index of the fastest resource; `None` while the task is being tuned.
    #[inline(always)] // row: select_tuned
    pub(super) fn best(&self) -> Option<u32> {
        let best = self.best.load(Ordering::Acquire);
        (best != TUNING).then_some(best)
    }

    /// Returns the index of the resource with the shortest time that has been reported so far.
    pub(super) fn leader(&self) -> u32 {
        self.leader.load(Ordering::Relaxed)
    }

    /// Assigns a run of the tuning to the thread with the number `thread`; returns `None` if all
    /// runs are assigned.
    #[must_use]
    pub(super) fn take_run(&self, thread: usize) -> Option<TuningRun> {
        let of = |part: usize| {
            let run = self.parts.get(part)?.take_run()?;
            Some(TuningRun { resource: run as usize % self.least_ns.len(), part })
        };
        of(WARMUPS).or_else(|| (0..SHARES).find_map(|next| of(1 + (thread ^ next) % SHARES)))
    }

    /// Reports the end of a run and its duration in nanoseconds; `None` = the run failed or was not
    /// timed.
    pub(super) fn report(
        &self,
        TuningRun { resource, part }: TuningRun,
        time_ns: Option<u64>,
    ) -> Report {
        if let (Some(time), Some(least)) =
            (time_ns.filter(|_| part != WARMUPS), self.least_ns.get(resource))
        {
            if time < least.load(Ordering::Relaxed) {
                least.fetch_min(time, Ordering::Relaxed);
                self.leader.store(self.least().0, Ordering::Relaxed);
            }
        }
        let Some(RunShard { most, ended, .. }) = self.parts.get(part) else {
            return Report::OneOfMany;
        };
        if ended.fetch_add(1, Ordering::AcqRel) + 1 != *most || !self.is_last_part() {
            return Report::OneOfMany;
        }
        let (best, least) = self.least();
        if least == u64::MAX {
            self.restart(); // all runs failed, so no resource is preferred
            return Report::NoneGood;
        }
        self.leader.store(best, Ordering::Relaxed);
        self.best.store(best, Ordering::Release);
        Report::Last(best, least)
    }

    /// Counts a part (group of runs) as completed. Returns true if it was the last part to
    /// complete.
    #[cold]
    fn is_last_part(&self) -> bool {
        let parts = self.parts.iter().filter(|part| part.most > 0).count();
        self.ended.fetch_add(1, Ordering::AcqRel) as usize + 1 == parts
    }

    /// Starts a new tuning unless one is in progress. Returns true if this call started it.
    pub(super) fn begin_anew(&self) -> bool {
        let best = self.best.load(Ordering::Relaxed);
        let is_mine = best != TUNING
            && self
                .best
                .compare_exchange(best, TUNING, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if is_mine {
            self.restart();
        }
        is_mine
    }

    /// Resets the state for a new tuning. All runs must have ended, and no other thread may be in
    /// this function.
    fn restart(&self) {
        self.ended.store(0, Ordering::Relaxed);
        self.parts.iter().for_each(|part| part.ended.store(0, Ordering::Relaxed));
        self.least_ns.iter().for_each(|least| least.store(u64::MAX, Ordering::Relaxed));
        self.parts.iter().for_each(|part| part.runs.store(0, Ordering::Release));
    }

    /// Returns the index of the fastest resource and its shortest time in nanoseconds. Of several
    /// resources with equal times, returns the first.
    fn least(&self) -> (u32, u64) {
        let times = self.least_ns.iter().map(|least| least.load(Ordering::Relaxed)).enumerate();
        times
            .min_by_key(|&(_, time)| time)
            .map_or((0, u64::MAX), |(index, time)| (index as u32, time))
    }
}
