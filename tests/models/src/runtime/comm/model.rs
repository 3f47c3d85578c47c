//! Models of the flight recorder and of the life cycle of a request.

use super::flight_recorder::Recorder;
use super::op_desc::{Kind, OpDesc};
use super::p2p::request::state::{PollState, RequestPhase};
use crate::Model;
use crate::sys::sync::lock::Mutex;
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

pub const ALL: &[Model] = &[
    ("recorder: a reader sees whole entries", reader_against_writer),
    ("recorder: two writers", two_writers),
    ("request: two that wait", two_waiters),
    ("request: wait against destroy", wait_against_destroy),
    ("request: its end against destroy", end_against_destroy),
    ("request: two that destroy", two_destroyers),
    ("request: persistent, wait against free and start", persistent),
    ("request: persistent, two that wait and one starts again", persistent_again),
    ("request: persistent, start against free", start_against_free),
    ("request: an operation that fails", failing),
];

/// Returns an operation whose words all contain the same number.
fn call(number: i32) -> OpDesc {
    OpDesc { peer: number, tag: number, ..OpDesc::new(Kind::Bcast).with(number as u64, number) }
}

/// Records two entries, of which the recorder keeps one here, against a concurrent reader.
fn reader_against_writer() {
    // A thread that was in a call has a mark, and as the first a list of its own.
    drop(crate::sys::handles::epoch::enter());
    let recorder = Arc::new(Recorder::new());
    let reader = Arc::clone(&recorder);
    let reading = thread::spawn(move || {
        for (seen, over) in reader.latest() {
            assert_eq!(seen, call(seen.tag), "parts of two entries");
            assert!(!over || seen.tag == 1, "one that is not over: {seen}");
        }
    });
    for number in 1..=2 {
        let ticket = recorder.begin(call(number).words());
        if number == 1 {
            recorder.end(ticket);
        }
    }
    reading.join().unwrap();
    let kept: Vec<_> = recorder.latest().map(|(call, _)| call.tag).collect();
    assert_eq!(kept, [2]);
}

fn two_writers() {
    let recorder = Arc::new(Recorder::new());
    let other = Arc::clone(&recorder);
    let writing = thread::spawn(move || {
        let ticket = other.begin(call(1).words());
        other.end(ticket);
    });
    drop(crate::sys::handles::epoch::enter());
    let _runs = recorder.begin(call(2).words());
    writing.join().unwrap();
    let mut kept: Vec<_> = recorder.latest().map(|(call, over)| (call.tag, over)).collect();
    kept.sort_unstable();
    assert_eq!(kept, [(1, true), (2, false)]);
}

/// Transport's view of an operation: there must be no two concurrent calls on it, and no call after
/// its end.
struct Transport {
    over: UnsafeCell<bool>,
    /// Accessed in the middle of each call, so that loom switches to other threads there.
    steps: loom::sync::atomic::AtomicUsize,
    heard: AtomicUsize,
    withdrawn: AtomicUsize,
}

// SAFETY: loom watches over the cell.
unsafe impl Sync for Transport {}
// SAFETY: as above.
unsafe impl Send for Transport {}

/// Operation that completes at its nth poll; fails if n is 0.
struct Operation {
    polls_left: usize,
}

type Shared = Arc<(Mutex<RequestPhase<Operation, u32>>, Transport)>;

fn shared(life: RequestPhase<Operation, u32>) -> Shared {
    let transport = Transport {
        over: UnsafeCell::new(false),
        steps: loom::sync::atomic::AtomicUsize::new(0),
        heard: AtomicUsize::new(0),
        withdrawn: AtomicUsize::new(0),
    };
    Arc::new((Mutex::new(life), transport))
}

impl Transport {
    fn touch(&self, ends: bool) {
        self.over.with_mut(|over| {
            // SAFETY: loom fails the model if another thread is here.
            let over = unsafe { &mut *over };
            assert!(!*over, "used after its end");
            self.steps.fetch_add(1, Ordering::Relaxed);
            *over = ends;
        });
    }

    fn begin(&self) -> Result<Operation, ()> {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.over.with_mut(|over| {
            // SAFETY: loom fails the model if another thread is here.
            unsafe { *over = false }
        });
        Ok(Operation { polls_left: 1 })
    }

    fn poll(&self, operation: &mut Operation) -> Result<Option<u32>, ()> {
        let Some(left) = operation.polls_left.checked_sub(1) else { return Err(()) };
        operation.polls_left = left;
        self.touch(left == 0);
        Ok((left == 0).then_some(7))
    }

    fn deliver(&self, outcome: u32) {
        assert_eq!(outcome, 7);
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    fn ends(&self) -> (usize, usize) {
        (self.heard.load(Ordering::Relaxed), self.withdrawn.load(Ordering::Relaxed))
    }
}

/// Waits as `wait::wait` does, until a thread has obtained the outcome. A request that another
/// thread is polling is polled again.
fn wait((life, transport): &(Mutex<RequestPhase<Operation, u32>>, Transport)) {
    loop {
        let Some(mut life) = life.try_lock() else {
            thread::yield_now();
            continue;
        };
        match life.settle(|operation| transport.poll(operation)) {
            Ok(PollState::Active) => {}
            Ok(PollState::Over) => {
                return life.take_outcome().map_or((), |it| transport.deliver(it));
            }
            Ok(PollState::AtRest) | Err(()) => return,
        }
        drop(life);
        thread::yield_now();
    }
}

/// Destroys the request as `request::destroy` does.
fn destroy((life, transport): &(Mutex<RequestPhase<Operation, u32>>, Transport)) {
    let taken: Result<_, ()> = life.lock().cancel(0, |_operation| {
        transport.touch(true);
        transport.withdrawn.fetch_add(1, Ordering::Relaxed);
        Ok(Poll::Ready(None))
    });
    let Poll::Ready(taken) = taken.unwrap() else { unreachable!() };
    // 0: it was at rest.
    if let Some(outcome) = taken.filter(|&outcome| outcome != 0) {
        transport.deliver(outcome);
    }
}

/// Runs two of these functions concurrently.
fn both(life: RequestPhase<Operation, u32>, here: fn(&Shared), there: fn(&Shared)) -> Shared {
    let shared = shared(life);
    let other = Arc::clone(&shared);
    let thread = thread::spawn(move || there(&other));
    here(&shared);
    thread.join().unwrap();
    shared
}

fn running(polls: usize) -> RequestPhase<Operation, u32> {
    RequestPhase::Active(Operation { polls_left: polls })
}

fn two_waiters() {
    let shared = both(running(2), |shared| wait(shared), |shared| wait(shared));
    assert_eq!(shared.1.ends(), (1, 0));
}

fn wait_against_destroy() {
    wait_against_destroy_after(2);
}

/// The waiting thread polls only once, so it can be at any point of the completion when destroy is
/// called.
fn end_against_destroy() {
    wait_against_destroy_after(1);
}

fn wait_against_destroy_after(polls: usize) {
    let shared = both(running(polls), |shared| destroy(shared), |shared| wait(shared));
    assert!(matches!(shared.1.ends(), (1, 0) | (0, 1)), "{:?}", shared.1.ends());
}

fn two_destroyers() {
    let shared = both(running(1), |shared| destroy(shared), |shared| destroy(shared));
    assert_eq!(shared.1.ends(), (0, 1));
}

fn persistent() {
    let begin_and_wait = |shared: &Shared| {
        let begun = shared.0.lock().start(|| Ok::<_, ()>(Operation { polls_left: 1 }));
        assert_eq!(begun, Some(Ok(())));
        wait(shared);
    };
    let shared = both(RequestPhase::AtRest, begin_and_wait, |shared| destroy(shared));
    assert!(matches!(shared.1.ends(), (1, 0) | (0, 1)), "{:?}", shared.1.ends());
    assert!(shared.0.lock().start(|| Err(())).is_some_and(|begun| begun.is_err()), "rests again");
}

/// Checks that a thread that waits for the first start neither obtains nor loses the outcome of the
/// second.
fn persistent_again() {
    let two_rounds = |shared: &Shared| {
        for _ in 0..2 {
            let (life, transport) = &**shared;
            while life.lock().start(|| transport.begin()).is_none() {
                wait(shared);
            }
            wait(shared);
        }
    };
    let shared = both(RequestPhase::AtRest, two_rounds, |shared| wait(shared));
    assert_eq!(shared.1.ends(), (2, 0));
}

/// Checks that a new start begins only after the old operation was released.
fn start_against_free() {
    let mut life = RequestPhase::AtRest;
    assert_eq!(life.start(|| Ok::<_, ()>(Operation { polls_left: 1 })), Some(Ok(())));
    let start = |shared: &Shared| {
        let (life, transport) = &**shared;
        if life.lock().start(|| transport.begin()).is_some() {
            wait(shared);
        }
    };
    let shared = both(life, start, |shared| destroy(shared));
    assert!(matches!(shared.1.ends(), (0 | 1, 1)), "{:?}", shared.1.ends());
}

/// Checks that a request whose poll fails remains, and that destroy cancels its operation.
fn failing() {
    let shared = both(running(0), |shared| destroy(shared), |shared| wait(shared));
    assert_eq!(shared.1.ends(), (0, 1));
}
