//! One task's tunings, one after another: who runs where, how long that took, and who is last.
//!
//! Without a lock, as every run of a tuning ends exactly once, and the next one begins only behind the last of them: so
//! whoever reports a time reports it to the tuning that is on. `runs` hands runs out, `ended` counts the reports.
//!
//! Memory ordering: a time is reported before its `ended` is counted (release), and who counts the last sees them all
//! (acquire). It publishes `best` (release); who takes that away to tune anew (acquire, and one alone can) sees the whole
//! tuning before, clears it and hands runs out by `runs` (release), which who gets one acquires: no time comes before
//! the clearing. A thread that finds no run left reads `leader`, which is only a hint. `tests/models` tries it.

use crate::sys::sync::{AtomicU32, AtomicU64, Ordering};

/// `best` while the task is tuned.
const TUNING: u32 = u32::MAX;

/// What threads that tune write, on one line of its own: who has come for the end of one run has it for the beginning of the next.
#[repr(align(64))]
struct Numbers {
    /// Number of the next run.
    runs: AtomicU64,
    ended: AtomicU64,
}

/// See the module's text.
pub(super) struct Trial {
    /// Index of the fastest resource, or TUNING.
    best: AtomicU32,
    /// Fastest so far: for those that come while all runs are handed out and some are not over.
    leader: AtomicU32,
    numbers: Numbers,
    /// Nanoseconds by resource; u64::MAX = no run has succeeded.
    least_ns: Box<[AtomicU64]>,
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
    /// A task that is tuned on so many resources.
    #[must_use]
    pub(super) fn new(resources: usize) -> Self {
        Trial {
            best: AtomicU32::new(TUNING),
            leader: AtomicU32::new(0),
            numbers: Numbers { runs: AtomicU64::new(0), ended: AtomicU64::new(0) },
            least_ns: (0..resources).map(|_| AtomicU64::new(u64::MAX)).collect(),
        }
    }

    /// The fastest resource; `None` = the task is tuned now.
    #[inline(always)]
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

    /// Number of a run of the tuning, of `in_all`; `None` = all are handed out.
    #[must_use]
    pub(super) fn take_run(&self, in_all: u64) -> Option<u64> {
        if self.numbers.runs.load(Ordering::Relaxed) >= in_all {
            return None;
        }
        let run = self.numbers.runs.fetch_add(1, Ordering::Acquire);
        (run < in_all).then_some(run)
    }

    /// A run has ended, one of `in_all`; `None` = its time does not count.
    pub(super) fn report(&self, resource: usize, time_ns: Option<u64>, in_all: u64) -> Report {
        if let (Some(time), Some(least)) = (time_ns, self.least_ns.get(resource)) {
            if time < least.load(Ordering::Relaxed) {
                least.fetch_min(time, Ordering::Relaxed);
                self.leader.store(self.least().0, Ordering::Relaxed);
            }
        }
        if self.numbers.ended.fetch_add(1, Ordering::AcqRel) + 1 != in_all {
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

    /// Begins a tuning, unless one is on: whether it did.
    pub(super) fn begin_anew(&self) -> bool {
        let best = self.best.load(Ordering::Relaxed);
        let is_mine = best != TUNING
            && self.best.compare_exchange(best, TUNING, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if is_mine {
            self.restart();
        }
        is_mine
    }

    /// All runs are over, and no other thread is here.
    fn restart(&self) {
        self.numbers.ended.store(0, Ordering::Relaxed);
        self.least_ns.iter().for_each(|least| least.store(u64::MAX, Ordering::Relaxed));
        self.numbers.runs.store(0, Ordering::Release);
    }

    /// The fastest resource and its time; of equals the first.
    fn least(&self) -> (u32, u64) {
        let times = self.least_ns.iter().map(|least| least.load(Ordering::Relaxed)).enumerate();
        times.min_by_key(|&(_, time)| time).map_or((0, u64::MAX), |(index, time)| (index as u32, time))
    }
}
