//! How many tasks each resource has: selecting one and counting the task is one atomic step.
//!
//! A count is on cache lines of its own. Each thread looks first at "its" resource, and a count of
//! 0 ends the search, as nothing is less: threads that keep to different resources never touch a
//! common line.
//!
//! Why one step: the count of the resource that was found least is changed by a compare-and-swap
//! from the value seen. If another thread selected it meanwhile the swap fails and the search
//! begins anew. Other resources can only have got more tasks by other selections, so the one found
//! is still least among what selections made; a task that ended elsewhere meanwhile could just as
//! well have ended a moment later. So as long as no task ends, counts never differ by more than
//! one, whichever threads select (`tests/models` tries it).
//!
//! A count is two numbers, `taken` less `ended`. The thread whose number a resource has is the only
//! one that writes its `ended`, so the end of a task there is a plain store, half of what two
//! atomic steps cost. All other threads take a task back from `taken`. A task is counted in `taken`
//! before it is counted in `ended` or taken back. So a reader that loads `ended` first never finds
//! it greater, and a count can only come out too large, by the tasks that ended in between.
//!
//! Memory ordering: taking a place is an acquire, giving it back a release, in either number, so a
//! task sees all that the one did whose place it got: a capacity of one is mutual exclusion. The
//! search itself reads `taken` relaxed, as the swap checks it.

use crate::sys::sync::{AtomicU64, Ordering};

/// One resource's count.
#[repr(align(128))]
struct Count {
    /// Tasks given to it, less those that others than its own thread have ended.
    taken: AtomicU64,
    /// Tasks that its own thread has ended.
    ended: AtomicU64,
}

/// Values read from a count.
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

    /// One task more, if none was given to it since.
    fn take(&self, seen: u64) -> bool {
        self.taken.compare_exchange(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes a place if there are less than `most` tasks.
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
    /// No tasks on so many resources.
    #[must_use]
    pub(super) fn new(resources: usize) -> Self {
        let none = |_| Count { taken: AtomicU64::new(0), ended: AtomicU64::new(0) };
        Loads((0..resources).map(none).collect())
    }

    /// Counts with their indices, from `first` on and round.
    fn from(&self, first: usize) -> impl Iterator<Item = (usize, &Count)> {
        let counts = || self.0.iter().enumerate();
        counts().skip(first).chain(counts().take(first))
    }

    /// Where a thread looks first.
    fn first_of(&self, thread: usize) -> usize {
        thread % self.0.len().max(1)
    }

    /// Takes a place on the thread's own resource if that is idle: nothing is less.
    #[inline]
    #[must_use]
    pub(super) fn take_own(&self, thread: usize) -> Option<usize> {
        let own = self.0.get(thread)?;
        own.take(own.ended.load(Ordering::Acquire)).then_some(thread)
    }

    /// Takes a place on the resource with the fewest tasks; of equals the first one from the
    /// thread's own on.
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

    /// Takes a place on the first resource from the thread's own on that has less than `most`
    /// tasks.
    #[inline(never)]
    #[must_use]
    pub(super) fn take_free(&self, thread: usize, most: u64) -> Option<usize> {
        self.from(self.first_of(thread))
            .find(|(_, count)| count.take_one_of(most))
            .map(|(index, _)| index)
    }

    /// A task on it has ended, for this thread.
    #[inline]
    pub(super) fn give_back_in(&self, thread: usize, index: usize) {
        if thread != index {
            return self.give_back(index);
        }
        if let Some(Count { ended, .. }) = self.0.get(index) {
            ended.store(ended.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
    }

    /// A task on it has ended.
    #[inline]
    pub(super) fn give_back(&self, index: usize) {
        if let Some(count) = self.0.get(index) {
            count.taken.fetch_sub(1, Ordering::Release);
        }
    }

    /// Tasks on a resource now.
    #[must_use]
    pub(super) fn of(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, |count| count.see().tasks)
    }
}
