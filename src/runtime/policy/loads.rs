//! How many tasks each resource has: selecting one and counting the task is one atomic step.
//!
//! A count is on cache lines of its own. Each thread looks first at "its" resource, and a count of 0 ends the search, as
//! nothing is less: threads that keep to different resources never touch a common line.
//!
//! Why one step: the count of the resource that was found least is changed by a compare-and-swap from the value seen.
//! If another thread selected it meanwhile the swap fails and the search begins anew. Other resources can only have got
//! more tasks by other selections, so the one found is still least among what selections made; a task that ended
//! elsewhere meanwhile could just as well have ended a moment later. So as long as no task ends, counts never differ by
//! more than one, whoever selects (`tests/models` tries it).
//!
//! Memory ordering: taking a place is an acquire, giving it back a release, so a task sees all that the one did whose
//! place it got: a capacity of one is mutual exclusion. The search itself reads relaxed, as the swap checks it.

use crate::sys::sync::{AtomicU64, Ordering};

/// One resource's count.
#[repr(align(128))]
struct Count(AtomicU64);

/// See the module's text.
pub(super) struct Loads(Box<[Count]>);

impl Loads {
    /// No tasks on so many resources.
    #[must_use]
    pub(super) fn new(resources: usize) -> Self {
        Loads((0..resources).map(|_| Count(AtomicU64::new(0))).collect())
    }

    /// Indices with their counts, from `first` on and round.
    #[inline(always)]
    fn from(&self, first: usize) -> impl Iterator<Item = (usize, &AtomicU64)> {
        let later = self.0.iter().enumerate().skip(first);
        later.chain(self.0.iter().enumerate().take(first)).map(|(index, count)| (index, &count.0))
    }

    /// Where a thread looks first.
    #[inline(always)]
    #[must_use]
    pub(super) fn first_of(&self, thread: usize) -> usize {
        if thread < self.0.len() { thread } else { thread % self.0.len().max(1) }
    }

    /// Takes a place on the resource with the fewest tasks; of equals the first one from `first` on.
    #[inline(always)]
    #[must_use]
    pub(super) fn take_least(&self, first: usize) -> usize {
        // The usual case first: nothing is less than an idle resource.
        if let Some(count) = self.0.get(first) {
            if count.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return first;
            }
        }
        self.search_least(first)
    }

    #[inline(never)]
    fn search_least(&self, first: usize) -> usize {
        loop {
            let mut least = (u64::MAX, 0, None);
            for (index, count) in self.from(first) {
                let tasks = count.load(Ordering::Relaxed);
                if tasks < least.0 {
                    least = (tasks, index, Some(count));
                }
                if tasks == 0 {
                    break;
                }
            }
            let (tasks, index, Some(count)) = least else { return first };
            if count.compare_exchange(tasks, tasks + 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return index;
            }
        }
    }

    /// Takes a place on the first resource from `first` on that has less than `most` tasks.
    #[inline(always)]
    #[must_use]
    pub(super) fn take_free(&self, first: usize, most: u64) -> Option<usize> {
        if self.0.get(first).is_some_and(|count| take(&count.0, most)) {
            return Some(first);
        }
        self.search_free(first, most)
    }

    #[inline(never)]
    fn search_free(&self, first: usize, most: u64) -> Option<usize> {
        self.from(first).find(|(_, count)| take(count, most)).map(|(index, _)| index)
    }

    /// A task on it has ended.
    #[inline(always)]
    pub(super) fn give_back(&self, index: usize) {
        if let Some(count) = self.0.get(index) {
            count.0.fetch_sub(1, Ordering::Release);
        }
    }

    /// Tasks on a resource now.
    #[must_use]
    pub(super) fn of(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, |count| count.0.load(Ordering::Relaxed))
    }
}

/// Takes a place if there are less than `most` tasks.
#[inline(always)]
fn take(count: &AtomicU64, most: u64) -> bool {
    let mut tasks = count.load(Ordering::Relaxed);
    while tasks < most {
        match count.compare_exchange(tasks, tasks + 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => tasks = now,
        }
    }
    false
}
