//! One task's tunings, one after another: assignment of runs to resources, their times, and
//! detection of the last run.
//!
//! The runs of a tuning are in parts: the warm-ups, which come first, and shares of the samples, in
//! whole rounds over the resources. A thread begins with its own share; when all runs of that one
//! are handed out it goes on with others, in an order that keeps two as fast apart (0 1 2 3 and 1 0
//! 3 2). So few runs write a line that threads share, and none is left behind if one of them
//! submits no more.
//!
//! Without a lock, as every run of a tuning ends exactly once, and the next one begins only behind
//! the last of them: so a time is always reported to the present tuning. Of each part `runs` hands
//! runs out and `ended` counts the reports; the last of a part is counted as one end of the
//! tuning's.
//!
//! Memory ordering: a time is reported before its run's end is counted, and a part's last end
//! before the part's (release). The thread that counts the last end sees them all (acquire, in both
//! counters) and publishes `best` (release). The thread that takes `best` away to tune anew
//! (acquire; only one thread can) sees the whole previous tuning. It clears that and hands runs out
//! by each part's `runs` (release), which a thread that gets a run acquires: no time is reported
//! before the clearing. A thread that finds no run left reads `leader`, which is only a hint.
//! `tests/models` tries it.

use crate::sys::sync::{AtomicU32, AtomicU64, Ordering};

/// `best` while the task is tuned.
const TUNING: u32 = u32::MAX;

/// The part of the warm-ups.
const WARMUPS: usize = 0;
/// Parts of the samples, a power of two; threads so far apart begin with the same one.
const SHARES: usize = 4;

/// Some of a tuning's runs. What threads write is on lines of its own: two, as a prefetcher takes
/// pairs.
#[repr(align(128))]
struct RunShard {
    /// How many runs it has.
    most: u64,
    /// Number of the next run.
    runs: AtomicU64,
    ended: AtomicU64,
}

impl RunShard {
    fn new(most: usize) -> Self {
        RunShard { most: most as u64, runs: AtomicU64::new(0), ended: AtomicU64::new(0) }
    }

    /// Number of a run; `None` = all are handed out.
    #[inline]
    fn take_run(&self) -> Option<u64> {
        if self.runs.load(Ordering::Relaxed) >= self.most {
            return None;
        }
        let run = self.runs.fetch_add(1, Ordering::Acquire);
        (run < self.most).then_some(run)
    }
}

/// The tunings of one task, one after another: hands out runs and collects their times.
pub(super) struct Trial {
    /// Index of the fastest resource, or TUNING.
    best: AtomicU32,
    /// Fastest so far: for those that come while all runs are handed out and some are not over.
    leader: AtomicU32,
    parts: [RunShard; 1 + SHARES],
    /// Parts that have ended.
    ended: AtomicU32,
    /// Nanoseconds by resource; u64::MAX = no run has succeeded.
    least_ns: Box<[AtomicU64]>,
}

/// A run that is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TuningRun {
    pub(super) resource: usize,
    /// The part that its end is reported to.
    pub(super) part: usize,
}

/// What a report was to its tuning.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// Others are to come.
    OneOfMany,
    /// The last, and this resource is the fastest, with this time.
    Last(u32, u64),
    /// The last, and all have failed: it has begun again.
    NoneGood,
}

impl Trial {
    /// A task that is tuned on so many resources, with so many runs on each.
    #[must_use]
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

    /// The fastest resource; `None` = the task is tuned now.
    #[inline(always)] // row: select_tuned
    #[must_use]
    pub(super) fn best(&self) -> Option<u32> {
        let best = self.best.load(Ordering::Acquire);
        (best != TUNING).then_some(best)
    }

    /// The fastest resource so far.
    #[must_use]
    pub(super) fn leader(&self) -> u32 {
        self.leader.load(Ordering::Relaxed)
    }

    /// A run of the tuning for this thread; `None` = all are handed out.
    #[must_use]
    pub(super) fn take_run(&self, thread: usize) -> Option<TuningRun> {
        let of = |part: usize| {
            let run = self.parts.get(part)?.take_run()?;
            Some(TuningRun { resource: run as usize % self.least_ns.len(), part })
        };
        of(WARMUPS).or_else(|| (0..SHARES).find_map(|next| of(1 + (thread ^ next) % SHARES)))
    }

    /// A run of a part has ended; `None` = its time does not count.
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
            self.restart(); // nothing but failures: no reason to prefer any
            return Report::NoneGood;
        }
        self.leader.store(best, Ordering::Relaxed);
        self.best.store(best, Ordering::Release);
        Report::Last(best, least)
    }

    /// All runs of a part are over.
    #[cold]
    fn is_last_part(&self) -> bool {
        let parts = self.parts.iter().filter(|part| part.most > 0).count();
        self.ended.fetch_add(1, Ordering::AcqRel) as usize + 1 == parts
    }

    /// Begins a tuning, unless one is on: whether it did.
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

    /// All runs are over, and no other thread is here.
    fn restart(&self) {
        self.ended.store(0, Ordering::Relaxed);
        self.parts.iter().for_each(|part| part.ended.store(0, Ordering::Relaxed));
        self.least_ns.iter().for_each(|least| least.store(u64::MAX, Ordering::Relaxed));
        self.parts.iter().for_each(|part| part.runs.store(0, Ordering::Release));
    }

    /// The fastest resource and its time; of equals the first.
    fn least(&self) -> (u32, u64) {
        let times = self.least_ns.iter().map(|least| least.load(Ordering::Relaxed)).enumerate();
        times
            .min_by_key(|&(_, time)| time)
            .map_or((0, u64::MAX), |(index, time)| (index as u32, time))
    }
}
