//! Number of tasks on each resource. Selecting a resource and counting the task is one atomic step.
//!
//! Each resource's count has its own pair of cache lines. A thread first reads the count of its own
//! resource, whose index is the thread number (modulo the number of resources). A count of 0 ends
//! the search, because no count is smaller. So threads that use different resources do not access
//! the same cache lines.
//!
//! The atomic step keeps the resources equally loaded. A compare-and-swap increments the count of
//! the least loaded resource, starting from the value that the search read. If another thread
//! selected that resource meanwhile, the swap fails and the search restarts. Selections can only
//! have added tasks to other resources, so the resource found is still the least loaded one, apart
//! from tasks that ended meanwhile. Such a task could just as well have ended a moment later. So
//! while no task ends, counts never differ by more than one, whichever threads select
//! (`tests/models` checks this).
//!
//! A count is the difference of two numbers, `taken` minus `ended`. Only the thread whose number
//! equals the index of the resource writes `ended` of that resource. So the end of a task in that
//! thread is a plain store, and start and end together cost one atomic read-modify-write instead of
//! two. All other threads decrement `taken` instead. A task is counted in `taken` before it is
//! counted in `ended` or subtracted from `taken`. So a reader that loads `ended` first never finds
//! `ended` greater than `taken`. The difference can only be too large, by the tasks that ended
//! between the two loads.
//!
//! Memory ordering: incrementing a count is an acquire operation. Decrementing it, through either
//! number, is a release operation. So a task sees all writes of the ended task that it replaces on
//! the resource. With a capacity of one, this is mutual exclusion. The search itself loads `taken`
//! relaxed, because the compare-and-swap checks the value.

use crate::sys::sync::{AtomicU64, Ordering};

/// Task count of one resource.
#[repr(align(128))]
struct Count {
    /// Number of tasks assigned to the resource, minus the number of tasks whose end was counted by
    /// a thread other than the resource's own thread (the thread whose number is the index of the
    /// resource).
    taken: AtomicU64,
    /// Number of tasks whose end was counted by the resource's own thread, the thread whose number
    /// is the index of the resource.
    ended: AtomicU64,
}

/// Snapshot of a [`Count`]: `taken`, and the number of tasks computed from it.
#[derive(Clone, Copy)]
struct Seen {
    taken: u64,
    tasks: u64,
}

impl Count {
    #[inline]
    fn see(&self) -> Seen {
        let ended = self.ended.load(Ordering::Acquire);
        let taken = self.taken.load(Ordering::Relaxed);
        Seen { taken, tasks: taken.saturating_sub(ended) }
    }

    /// Adds one task to the count if `taken` equals `seen`. Returns true on success.
    fn take(&self, seen: u64) -> bool {
        self.taken.compare_exchange(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Adds one task to the count if the resource has fewer than `most` tasks. Returns true on
    /// success.
    fn take_one_of(&self, most: u64) -> bool {
        loop {
            let seen = self.see();
            if seen.tasks >= most {
                return false;
            }
            if self.take(seen.taken) {
                return true;
            }
        }
    }
}

/// Number of tasks on each resource.
pub(super) struct Loads(Box<[Count]>);

impl Loads {
    /// Creates a count of 0 for each of `resources` resources.
    pub(super) fn new(resources: usize) -> Self {
        let none = |_| Count { taken: AtomicU64::new(0), ended: AtomicU64::new(0) };
        Loads((0..resources).map(none).collect())
    }

    /// Iterates over all counts with their indices, starting at `first` and wrapping around.
    fn from(&self, first: usize) -> impl Iterator<Item = (usize, &Count)> {
        let counts = || self.0.iter().enumerate();
        counts().skip(first).chain(counts().take(first))
    }

    /// Returns the index of the resource at which a thread starts its search.
    fn first_of(&self, thread: usize) -> usize {
        thread % self.0.len().max(1)
    }

    /// Adds a task to the thread's own resource (whose index is the thread number) if that resource
    /// is idle. No search is needed then, because no count is smaller than 0. Returns the index of
    /// the resource, or `None` if it is not idle or the thread has no resource of its own.
    #[inline]
    #[must_use]
    pub(super) fn take_own(&self, thread: usize) -> Option<usize> {
        let own = self.0.get(thread)?;
        own.take(own.ended.load(Ordering::Acquire)).then_some(thread)
    }

    /// Adds a task to the resource with the fewest tasks and returns the index of the resource. If
    /// several resources have the fewest tasks, selects the first of them in a search that starts
    /// at the index `thread` (modulo the number of resources) and wraps around.
    #[inline(never)]
    #[must_use]
    pub(super) fn take_least(&self, thread: usize) -> usize {
        let first = self.first_of(thread);
        loop {
            let mut least = (Seen { taken: 0, tasks: u64::MAX }, first, None);
            for (index, count) in self.from(first) {
                let seen = count.see();
                if seen.tasks < least.0.tasks {
                    least = (seen, index, Some(count));
                }
                if seen.tasks == 0 {
                    break;
                }
            }
            let (seen, index, Some(count)) = least else { return first };
            if count.take(seen.taken) {
                return index;
            }
        }
    }

    /// Adds a task to the first resource that has fewer than `most` tasks. The search starts at the
    /// index `thread` (modulo the number of resources) and wraps around. Returns the index of the
    /// resource; `None` if every resource has at least `most` tasks.
    #[inline(never)]
    #[must_use]
    pub(super) fn take_free(&self, thread: usize, most: u64) -> Option<usize> {
        self.from(self.first_of(thread))
            .find(|(_, count)| count.take_one_of(most))
            .map(|(index, _)| index)
    }

    /// Subtracts a task from the task count of resource `index`; `thread` is the number of the
    /// calling thread.
    #[inline]
    pub(super) fn give_back_in(&self, thread: usize, index: usize) {
        if thread != index {
            return self.give_back(index);
        }
        if let Some(Count { ended, .. }) = self.0.get(index) {
            ended.store(ended.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
    }

    /// Subtracts a task from the task count of resource `index`. Any thread may call this function.
    #[inline]
    pub(super) fn give_back(&self, index: usize) {
        if let Some(count) = self.0.get(index) {
            count.taken.fetch_sub(1, Ordering::Release);
        }
    }

    /// Returns the current number of tasks on the resource `index`.
    pub(super) fn of(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, |count| count.see().tasks)
    }
}
