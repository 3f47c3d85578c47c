//! Tests of `team`.

use super::*;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// Runs a team member until `stop` is set. The member works on every job that it finds.
fn member(team: &Team<AtomicUsize>, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        let seen = team.news();
        team.visit(|_, job| {
            job.fetch_add(1, Ordering::Relaxed);
        });
        if !stop.load(Ordering::Acquire) {
            team.rest(seen, 1);
        }
    }
}

/// Guard that stops the team member, even if the test panics.
struct Stop<'a>(&'a Team<AtomicUsize>, &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Release);
        self.0.announce(1);
    }
}

fn with_member(body: impl FnOnce(&Team<AtomicUsize>)) {
    let (team, stop) = (Team::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| member(&team, &stop));
        let _stopping = Stop(&team, &stop);
        body(&team);
    });
}

#[test]
fn a_member_comes_awake_or_asleep() {
    with_member(|team| {
        for pause_us in [0, 0, 3000, 0, 3000] {
            std::thread::sleep(Duration::from_micros(pause_us));
            let job = AtomicUsize::new(0);
            team.claim().unwrap().open(&job, 1, || {
                while job.load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                }
            });
        }
    });
}

#[test]
fn a_job_ends_with_its_call() {
    with_member(|team| {
        for _ in 0..if cfg!(miri) { 50 } else { 20_000 } {
            let job = AtomicUsize::new(0);
            team.claim().unwrap().open(&job, 1, || ());
            // The member may enter repeatedly, as it cannot see whether work is left.
            let visits = job.swap(usize::MAX, Ordering::Relaxed);
            assert!(visits < usize::MAX / 2, "somebody was at it after its end");
        }
    });
}

#[test]
fn a_caller_sleeps_until_the_last_member_has_left() {
    let team: Team<AtomicUsize> = Team::new(true);
    let (entered, job) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let slow = || {
            while !entered.load(Ordering::Acquire) {
                team.visit(|_, job| {
                    entered.store(true, Ordering::Release);
                    std::thread::sleep(Duration::from_millis(30));
                    job.store(7, Ordering::Relaxed);
                });
            }
        };
        scope.spawn(slow);
        team.claim().unwrap().open(&job, 0, || {
            while !entered.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        });
        assert_eq!(job.load(Ordering::Relaxed), 7);
    });
}

#[test]
fn a_place_is_closed_when_the_work_unwinds() {
    let team: Team<AtomicUsize> = Team::new(false);
    let job = AtomicUsize::new(0);
    let work =
        std::panic::AssertUnwindSafe(|| team.claim().unwrap().open(&job, 0, || panic!("work")));
    assert!(std::panic::catch_unwind(work).is_err());
    team.visit(|_, _| panic!("the place is open"));
    let claims: Vec<_> = std::iter::from_fn(|| team.claim()).collect();
    assert_eq!(
        claims.iter().map(Claim::index).collect::<Vec<_>>(),
        (0..PLACES).collect::<Vec<_>>()
    );
}
