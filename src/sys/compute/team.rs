//! Fork and join: a caller publishes a job to the threads of a team (its members), works on it
//! itself, and returns when no member works on the job any more. It does not wait for members that
//! have not started the job by then.
//!
//! A `TeamBoard` has a few job slots and an announcement counter (`news`). Publishing a job is two
//! writes to one cache line: the slot is opened, and the counter is incremented. Members poll the
//! counter: they spin and yield for a bounded time, then they sleep in the operating system until
//! the counter changes. A member enters an open slot by incrementing the slot's member count, and
//! decrements the count when it finds no more work. The caller closes the slot and waits until the
//! count is zero. A job may be a local variable of the caller: only members that are counted access
//! it.
//!
//! Memory ordering. `job` is stored before `state` opens (release). A member enters by an acquire
//! exchange that reads this store or a count that followed it (a release sequence), so it finds the
//! job and the data that the caller prepared. That exchange succeeds only while the slot is open,
//! regardless of the job that the slot contains. Leaving is a release decrement; closing the slot
//! and reading the count are acquires, so everything that a member did happens before `open`
//! returns. All changes from open to zero are read-modify-writes, so the last value read follows
//! each of them. `owned` is a lock: acquire exchange, release store. The announcement counter and
//! the number of sleepers share one word, so every announcement and every member that is about to
//! sleep are ordered: either the announcer's increment returns a word that counts the sleeper, and
//! the announcer wakes it, or the member detects the announcement, by its own compare or by that of
//! the kernel, and does not sleep. The member that leaves last wakes the caller if `state` has the
//! bit `ASLEEP`; the caller sleeps only on a `state` with this bit. `tests/models` checks all of
//! this.
//!
//! Work stealing: the pieces of a loop (ranges of iterations) are divided evenly among the members,
//! and a member that has finished its own pieces steals others.
//!
//! Each member of a team has a share: a range of pieces in one word, `next << 32 | end`. The member
//! takes pieces from the front of its share. A member whose share is empty takes the upper half of
//! the pieces that are left in another member's share, runs the first of them, and makes the others
//! its own share. A member steals only when its own share is empty. So the member that first wrote
//! a part of an array works on that part in the next loop too.
//!
//! Memory ordering. A piece is removed from a share by a compare-exchange of the whole word, so
//! exactly one member gets it, whatever happened in between: if the word again has the value that
//! was read before, the share again contains exactly these pieces. Only the owner adds pieces to a
//! share, and only when the share is empty, when no other member writes it. So all accesses are
//! relaxed: pieces are only numbers. The data that they refer to is published with the job, and all
//! work on a loop happens before its end. `tests/models` checks this.

use crate::sys::sync::{
    self, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUpdate, Ordering, futex,
    wait::FutexBackoff,
};
use std::ptr;

/// Maximum number of concurrent jobs. Three job slots share the cache line of the announcement
/// counter.
pub const PLACES: usize = sync::size(7, 1);

/// Bit of a job slot's state that is set while members may enter the slot.
const OPEN: u32 = 1 << 31;
/// Bit of a job slot's state that is set while the thread that published the job sleeps until no
/// member is in the slot.
const ASLEEP: u32 = 1 << 30;
/// Amount by which a member that enters a job slot increments the slot's state.
const ONE: u32 = 1;

/// Increment of the announcement counter, which is in the upper 32 bits of `TeamBoard::news`. The
/// lower 32 bits count the sleeping members.
const NEWS: u64 = 1 << 32;

/// Team of threads that work on jobs (fork and join). A caller publishes a job and works on it
/// together with the members of the team.
pub struct Team<J> {
    board: TeamBoard<J>,
    owned: Owned,
    is_oversubscribed: bool,
}

/// Cache lines that members poll: the announcement counter and the job slots. Polling only reads
/// them.
#[repr(align(128))]
struct TeamBoard<J> {
    /// Announcement counter in the upper 32 bits, number of sleeping members in the lower 32 bits.
    news: AtomicU64,
    places: [TeamSlot<J>; PLACES],
}

struct TeamSlot<J> {
    /// The flags OPEN and ASLEEP, and in the lower 30 bits the number of members that are working
    /// on the job.
    state: AtomicU32,
    job: AtomicPtr<J>,
}

/// Locks of the job slots. Only threads that publish jobs access these cache lines.
#[repr(align(128))]
struct Owned([AtomicBool; PLACES]);

impl<J: Sync> Team<J> {
    /// Creates a team without jobs. `is_oversubscribed` is true if the team has more threads than
    /// there are processors. Waiting threads then yield the processor early.
    pub fn new(is_oversubscribed: bool) -> Self {
        let place = |_| TeamSlot { state: AtomicU32::new(0), job: AtomicPtr::new(ptr::null_mut()) };
        Team {
            board: TeamBoard { news: AtomicU64::new(0), places: std::array::from_fn(place) },
            owned: Owned(std::array::from_fn(|_| AtomicBool::new(false))),
            is_oversubscribed,
        }
    }

    /// Reserves a free job slot; returns `None` if all slots are in use.
    pub fn claim(&self) -> Option<Claim<'_, J>> {
        for (index, (owned, place)) in self.owned.0.iter().zip(&self.board.places).enumerate() {
            if owned.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Some(Claim { team: self, owned, place, index });
            }
        }
        None
    }

    /// Announces work to all members, and wakes at most `most` of the sleeping members.
    pub fn announce(&self, most: u32) {
        let before = self.board.news.fetch_add(NEWS, Ordering::Release);
        if before as u32 > 0 {
            futex::wake_upper(&self.board.news, most);
        }
    }

    /// Returns true if at least one member is sleeping at this moment.
    pub fn has_sleepers(&self) -> bool {
        self.board.news.load(Ordering::Relaxed) as u32 > 0
    }

    /// Wakes at most `most` sleeping members, without incrementing the announcement counter.
    pub fn wake(&self, most: u32) {
        futex::wake_upper(&self.board.news, most);
    }

    /// Returns the announcement counter. Read it before a search for work, and pass it to
    /// [`Team::rest`] if the search finds none.
    pub fn news(&self) -> u32 {
        (self.board.news.load(Ordering::Acquire) >> 32) as u32
    }

    /// Enters every open job slot in turn and calls `work` with the slot's index and its job.
    pub fn visit(&self, mut work: impl FnMut(usize, &J)) {
        for (index, place) in self.board.places.iter().enumerate() {
            if let Some(_visit) = place.enter() {
                let job = place.job.load(Ordering::Relaxed);
                // SAFETY: entered while open, so `Claim::open` has not returned and does not return
                // before this visit has ended; until then it borrows the job.
                work(index, unsafe { &*job });
            }
        }
    }

    /// Waits until the announcement counter differs from `seen`, but may return earlier. Pauses
    /// `pauses` times between two reads of the counter.
    pub fn rest(&self, seen: u32, pauses: u32) {
        let mut patience = FutexBackoff::new(self.is_oversubscribed);
        while self.news() == seen {
            if !(0..pauses).all(|_| patience.pause()) {
                return self.sleep(seen);
            }
        }
    }

    #[cold]
    fn sleep(&self, seen: u32) {
        let before = self.board.news.fetch_add(1, Ordering::Relaxed);
        if (before >> 32) as u32 == seen {
            futex::wait_upper(&self.board.news, seen);
        }
        self.board.news.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Job slot that is reserved for one caller until this object is dropped.
pub struct Claim<'a, J: Sync> {
    team: &'a Team<J>,
    owned: &'a AtomicBool,
    place: &'a TeamSlot<J>,
    index: usize,
}

impl<J: Sync> Claim<'_, J> {
    /// Returns the index of the job slot. [`Team::visit`] passes the same index to members.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Publishes a job, wakes at most `helpers` sleeping members, and calls `inside`, the caller's
    /// part of the work. Then closes the job slot and waits for the members that have entered it.
    /// Returns the result of `inside`.
    pub fn open<R>(&mut self, job: &J, helpers: u32, inside: impl FnOnce() -> R) -> R {
        self.place.job.store(ptr::from_ref(job).cast_mut(), Ordering::Relaxed);
        self.place.state.store(OPEN, Ordering::Release);
        let _closing =
            Closing { state: &self.place.state, is_oversubscribed: self.team.is_oversubscribed };
        self.team.announce(helpers);
        inside()
    }
}

impl<J: Sync> Drop for Claim<'_, J> {
    fn drop(&mut self) {
        self.owned.store(false, Ordering::Release);
    }
}

/// Guard that closes a job slot and waits until all members have left it, even if the caller's part
/// of the work panics.
struct Closing<'a> {
    state: &'a AtomicU32,
    is_oversubscribed: bool,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if self.state.fetch_and(!OPEN, Ordering::Acquire) != OPEN {
            self.join();
        }
    }
}

impl Closing<'_> {
    fn join(&self) {
        let mut patience = FutexBackoff::new(self.is_oversubscribed);
        while self.state.load(Ordering::Acquire) != 0 {
            if !patience.pause() {
                return self.sleep();
            }
        }
    }

    #[cold]
    fn sleep(&self) {
        let mut state = self.state.fetch_or(ASLEEP, Ordering::Acquire) | ASLEEP;
        while state != ASLEEP {
            futex::wait(self.state, state);
            state = self.state.load(Ordering::Acquire);
        }
    }
}

/// Guard that counts a member as being in a job slot until the guard is dropped.
struct Visit<'a>(&'a AtomicU32);

impl<J> TeamSlot<J> {
    fn enter(&self) -> Option<Visit<'_>> {
        let enter = |state| (state & OPEN != 0).then(|| state + ONE);
        self.state.checked_update(Ordering::Acquire, Ordering::Relaxed, enter).ok()?;
        Some(Visit(&self.state))
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if self.0.fetch_sub(ONE, Ordering::Release) == ASLEEP | ONE {
            futex::wake(self.0, 1);
        }
    }
}

/// Share of one team member in a loop: the pieces (ranges of iterations) that the member has not
/// yet run. The alignment prevents two shares from being in one cache line, or in one pair of lines
/// that are prefetched together.
#[repr(align(128))]
struct Share(AtomicU64);

/// Shares of all members of a team in a loop: for each member, the pieces (ranges of iterations)
/// that the member has not yet run.
pub struct Shares(Box<[Share]>);

/// Maximum number of pieces (ranges of iterations) into which a loop can be divided.
pub const MOST: u64 = 1 << 31;

fn pack(next: u64, end: u64) -> u64 {
    next << 32 | end
}

fn unpack(word: u64) -> (u64, u64) {
    (word >> 32, word & u64::from(u32::MAX))
}

/// Returns the first number in the upper half of the non-empty range `next..end`.
fn middle(next: u64, end: u64) -> u64 {
    next + (end - next) / 2
}

impl Shares {
    /// Creates empty shares for `members` members.
    pub fn new(members: usize) -> Self {
        Shares((0..members).map(|_| Share(AtomicU64::new(0))).collect())
    }

    /// Distributes the pieces (ranges of iterations) 0 to `pieces` - 1 of a loop evenly among the
    /// members. `pieces` is at most [`MOST`]. No member may take pieces during this call.
    pub fn deal(&self, pieces: u64) {
        let members = self.0.len() as u64;
        let (each, more) = (pieces / members, pieces % members);
        let mut next = 0;
        for (member, share) in (0..).zip(&self.0) {
            let end = next + each + u64::from(member < more);
            share.0.store(pack(next, end), Ordering::Relaxed);
            next = end;
        }
    }

    /// Takes a piece of the loop (a range of iterations) for the member with the index `member` and
    /// returns the number of the piece; `None` if all shares are empty.
    pub fn take(&self, member: usize) -> Option<u64> {
        let own = self.0.get(member)?;
        let take = |word| {
            let (next, end) = unpack(word);
            (next < end).then(|| pack(next + 1, end))
        };
        match own.0.checked_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(word) => Some(unpack(word).0),
            Err(_) => self.steal(member, own),
        }
    }

    /// Steals the upper half of the pieces (ranges of iterations) in the first non-empty share.
    /// Returns the number of the first stolen piece and makes the others the member's own share.
    /// The search begins at the member's own index and wraps around.
    fn steal(&self, member: usize, own: &Share) -> Option<u64> {
        let (before, after) = self.0.split_at_checked(member)?;
        for victim in after.iter().chain(before) {
            let halve = |word| {
                let (next, end) = unpack(word);
                (next < end).then(|| pack(next, middle(next, end)))
            };
            let taken = victim.0.checked_update(Ordering::Relaxed, Ordering::Relaxed, halve);
            if let Ok((next, end)) = taken.map(unpack) {
                let first = middle(next, end);
                if first + 1 < end {
                    own.0.store(pack(first + 1, end), Ordering::Relaxed);
                }
                return Some(first);
            }
        }
        None
    }

    /// Returns true if any share currently contains pieces (ranges of iterations of the loop).
    pub fn is_any_left(&self) -> bool {
        self.0.iter().any(|share| {
            let (next, end) = unpack(share.0.load(Ordering::Relaxed));
            next < end
        })
    }
}

#[cfg(test)]
#[path = "tests/team.rs"]
mod tests;
#[cfg(test)]
#[path = "tests/work_stealing.rs"]
mod work_stealing_tests;
