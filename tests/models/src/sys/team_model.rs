//! Models of fork and join: a job against its end, announcements against sleep, callers against
//! each other, and pieces of loops.

use super::compute::team::Team;
use super::sync::{AtomicBool, Ordering};
use crate::Model;
use crate::sys::compute::team::Shares;
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

pub const ALL: &[Model] = &[
    ("team: a job against its end", job_ends),
    ("team: a place that serves again", place_serves_again),
    ("team: two callers and one place", two_callers),
    ("team: news against sleep", news_against_sleep),
    ("team: all pieces are done when the loop returns", whole_loop),
    ("share: two members get each piece once", pieces_once),
    ("share: a thief's share is stolen from", thief_is_robbed),
];

/// Job on its caller's stack. Its end is a write, so that loom detects a use that has not ended by
/// then.
struct Job {
    number: u64,
    visits: UnsafeCell<u64>,
}

// SAFETY: loom watches over the cell.
unsafe impl Sync for Job {}

impl Job {
    fn new(number: u64) -> Self {
        let job = Job { number: 0, visits: UnsafeCell::new(0) };
        Job { number, ..job }
    }

    /// Performs the work of a single member.
    fn work(&self) {
        // SAFETY: loom fails the model if somebody else is here.
        self.visits.with_mut(|visits| unsafe { *visits += self.number });
    }

    /// Ends the job: its caller continues, and no member may be working on it.
    fn end(&self) -> u64 {
        // SAFETY: as above.
        self.visits.with_mut(|visits| unsafe { std::mem::replace(&mut *visits, u64::MAX) })
    }
}

fn open(team: &Team<Job>, number: u64) -> bool {
    let Some(mut claim) = team.claim() else { return false };
    let job = Job::new(number);
    claim.open(&job, 1, || ());
    let visits = job.end();
    assert!(visits == 0 || visits == number, "{visits} visits of job {number}");
    true
}

fn visit(team: &Team<Job>) {
    team.visit(|_, job| job.work());
}

fn job_ends() {
    let team = Arc::new(Team::new(false));
    let other = Arc::clone(&team);
    let member = thread::spawn(move || visit(&other));
    assert!(open(&team, 1));
    member.join().unwrap();
}

/// Checks that a member that arrives late finds the next job or none.
fn place_serves_again() {
    let team = Arc::new(Team::new(false));
    let other = Arc::clone(&team);
    let member = thread::spawn(move || visit(&other));
    assert!(open(&team, 1) && open(&team, 2));
    member.join().unwrap();
}

/// Checks that the only job slot serves two callers in turn, and that a member works for either of
/// them.
fn two_callers() {
    let team = Arc::new(Team::new(false));
    let (caller, member) = (Arc::clone(&team), Arc::clone(&team));
    let caller = thread::spawn(move || open(&caller, 1));
    let member = thread::spawn(move || visit(&member));
    let here = open(&team, 2);
    assert!(caller.join().unwrap() || here);
    member.join().unwrap();
    assert!(open(&team, 3), "both have given it back");
}

/// Checks that a member that is about to sleep and a thread that announces a job do not miss each
/// other.
fn news_against_sleep() {
    let team: Arc<Team<Job>> = Arc::new(Team::new(false));
    let stop = Arc::new(AtomicBool::new(false));
    let (member, seen_stop) = (Arc::clone(&team), Arc::clone(&stop));
    let member = thread::spawn(move || {
        loop {
            let seen = member.news();
            if seen_stop.load(Ordering::Relaxed) {
                return;
            }
            member.rest(seen, 1);
        }
    });
    team.announce(1);
    stop.store(true, Ordering::Relaxed);
    team.announce(1);
    member.join().unwrap();
}

const PIECES: usize = 3;

/// Loop whose pieces write to cells.
struct Loop {
    cells: [UnsafeCell<u64>; PIECES],
}

// SAFETY: loom watches over the cells.
unsafe impl Sync for Loop {}

impl Loop {
    fn take_part(&self, shares: &Shares, member: usize) {
        while let Some(piece) = shares.take(member) {
            // SAFETY: loom fails the model if somebody else is at this piece.
            self.cells[piece as usize].with_mut(|cell| unsafe { *cell += 1 });
        }
    }
}

/// Runs two loops in succession, with pieces dealt anew, and a member that arrives at any time.
fn whole_loop() {
    let team: Arc<Team<Loop>> = Arc::new(Team::new(false));
    let shares = Arc::new(Shares::new(2));
    let (other, others) = (Arc::clone(&team), Arc::clone(&shares));
    let member = thread::spawn(move || other.visit(|_, work| work.take_part(&others, 1)));
    for _ in 0..2 {
        let work = Loop { cells: std::array::from_fn(|_| UnsafeCell::new(0)) };
        let mut claim = team.claim().unwrap();
        shares.deal(PIECES as u64);
        claim.open(&work, 1, || work.take_part(&shares, 0));
        // SAFETY: loom fails the model if a piece is still being worked on.
        assert!(work.cells.iter().all(|cell| cell.with(|count| unsafe { *count }) == 1));
    }
    member.join().unwrap();
}

fn all(shares: &Shares, member: usize) -> Vec<u64> {
    std::iter::from_fn(|| shares.take(member)).collect()
}

fn pieces_once() {
    let shares = Arc::new(Shares::new(2));
    shares.deal(4);
    let others = Arc::clone(&shares);
    let other = thread::spawn(move || all(&others, 1));
    let mut taken = all(&shares, 0);
    taken.extend(other.join().unwrap());
    taken.sort_unstable();
    assert_eq!(taken, [0, 1, 2, 3]);
}

/// The second member has no pieces of its own; the first member may steal back what the second has
/// stolen.
fn thief_is_robbed() {
    let shares = Arc::new(Shares::new(2));
    shares.deal(8);
    (4..8).for_each(|piece| assert_eq!(shares.take(1), Some(piece)));
    let others = Arc::clone(&shares);
    let other = thread::spawn(move || all(&others, 1));
    let mut taken = all(&shares, 0);
    taken.extend(other.join().unwrap());
    taken.sort_unstable();
    assert_eq!(taken, [0, 1, 2, 3]);
}
