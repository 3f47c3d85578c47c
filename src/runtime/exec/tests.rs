//! Tests of streams, events, executors and kernels through their Rust interfaces. The tests do not
//! use unsafe code: user pointers contain numbers, and callbacks write to static variables of this
//! module.

use super::Limits;
use super::event::Event;
use super::executor::Executor;
use super::host::reduce::{self, Reduction};
use super::host::thread_pool;
use super::host::thread_pool::{LoopBody, ThreadPool};
use super::kernel::{Kernel, check_shape};
use super::mock::{home_of, mock, named, plain};
use super::stream::Stream;
use crate::abi::devices::exec::*;
use crate::abi::status::*;
use crate::error::{Error, Result};
use crate::runtime::component::ExecGroups;
use crate::sys::compute::callback::ArgPack;
use crate::sys::memory::buf::{Addr, Scratch};
use crate::sys::sync::{lock::Mutex, wait::Deadline};
use proptest::prelude::*;
use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const STREAMS: ExecGroups = ExecGroups { streams: true, events: false };
const EVENTS: ExecGroups = ExecGroups { streams: true, events: true };
const HOST: ExecGroups = ExecGroups { streams: false, events: false };

fn number(value: usize) -> Addr {
    Addr::new(without_provenance_mut(value))
}

/// Status that the failing callbacks of the tests return.
const GIVEN: dtl_status_t = DTL_ERROR_NOT_FOUND;

extern "C" fn give(user: *mut c_void) -> dtl_status_t {
    user.addr() as dtl_status_t
}

fn status<T>(result: Result<T>) -> dtl_status_t {
    result.err().map_or(DTL_SUCCESS, |error| error.status())
}

/// Piece of work that keeps a stream busy until the test sets this flag.
struct Gate(Arc<AtomicBool>);

impl Gate {
    fn on(stream: &Stream) -> Self {
        let open = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&open);
        let wait = move || {
            while !seen.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_micros(50));
            }
            Ok(())
        };
        stream.run(wait).unwrap();
        Gate(open)
    }
    fn open(&self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_stream_keeps_its_order() {
    let stream = Stream::create(plain(), 0, 0).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    for i in 0..1000 {
        let seen = Arc::clone(&seen);
        stream
            .run(move || {
                seen.lock().push(i);
                Ok(())
            })
            .unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(*seen.lock(), (0..1000).collect::<Vec<_>>());
    assert!(stream.query().unwrap());
}

#[test]
fn a_failure_sticks_until_it_is_reported_once() {
    let backend = plain();
    let stream = Stream::create(Arc::clone(&backend), 0, 0).unwrap();
    let before = Event::create(Arc::clone(&backend), 0).unwrap();
    let after = Event::create(Arc::clone(&backend), 0).unwrap();
    let gate = Gate::on(&stream);
    stream.record(&before).unwrap();
    stream.host_callback(Some(give), number(DTL_ERROR_MEMORY as usize)).unwrap();
    stream.host_callback(Some(give), number(DTL_ERROR_BUSY as usize)).unwrap();
    stream.record(&after).unwrap();
    assert!(!stream.query().unwrap() && !after.query().unwrap());
    gate.open();
    assert_eq!(status(after.sync()), DTL_ERROR_MEMORY, "the first failure");
    assert_eq!(status(before.sync()), DTL_SUCCESS);
    assert_eq!(status(stream.query()), DTL_ERROR_MEMORY, "asking does not clear it");
    let idle = Event::create(backend, 0).unwrap();
    stream.record(&idle).unwrap();
    assert_eq!(status(idle.query()), DTL_ERROR_MEMORY, "recorded on the idle stream");
    let error = stream.synchronize().unwrap_err();
    assert!(error.text().contains("DTL_ERROR_MEMORY"), "{error}");
    assert_eq!(status(stream.synchronize()), DTL_SUCCESS);
    assert_eq!(status(after.sync()), DTL_ERROR_MEMORY, "the event keeps what it saw");
    stream.record(&after).unwrap();
    assert_eq!(status(after.sync()), DTL_SUCCESS, "until it is recorded again");
}

#[test]
fn a_failure_crosses_streams_through_an_event() {
    let backend = plain();
    let (a, b) = (
        Stream::create(plain(), 0, 0).unwrap(),
        Stream::create(Arc::clone(&backend), 0, 0).unwrap(),
    );
    let event = Arc::new(Event::create(backend, 0).unwrap());
    let gate = Gate::on(&a);
    a.host_callback(Some(give), number(DTL_ERROR_MEMORY as usize)).unwrap();
    a.record(&event).unwrap();
    b.wait_event(&event).unwrap();
    a.record(&event).unwrap(); // the wait uses the record that was the latest at its call
    gate.open();
    assert_eq!(status(b.synchronize()), DTL_ERROR_MEMORY);
    assert_eq!(status(a.synchronize()), DTL_ERROR_MEMORY);
}

#[test]
fn ping_pong_with_one_event_does_not_lock_up() {
    let backend = plain();
    let (a, b) = (
        Stream::create(Arc::clone(&backend), 0, 0).unwrap(),
        Stream::create(Arc::clone(&backend), 0, 0).unwrap(),
    );
    let event = Arc::new(Event::create(backend, 0).unwrap());
    let count = Arc::new(AtomicU32::new(0));
    for _ in 0..500 {
        for (from, to) in [(&a, &b), (&b, &a)] {
            let count = Arc::clone(&count);
            from.run(move || {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
            from.record(&event).unwrap();
            to.wait_event(&event).unwrap();
        }
    }
    a.synchronize().unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 1000);
}

#[test]
fn destroying_an_event_frees_those_who_wait() {
    let backend = plain();
    let stream = Stream::create(Arc::clone(&backend), 0, 0).unwrap();
    let event = Arc::new(Event::create(backend, 0).unwrap());
    let gate = Gate::on(&stream);
    stream.record(&event).unwrap();
    assert_eq!(status(event.wait(1_000_000)), DTL_ERROR_TIMEOUT);
    let other = Arc::clone(&event);
    let waiter = std::thread::spawn(move || status(other.sync()));
    std::thread::sleep(Duration::from_millis(20));
    event.cancel_waiters();
    assert_eq!(waiter.join().unwrap(), DTL_ERROR_CANCELED);
    gate.open();
    stream.synchronize().unwrap();
}

#[test]
fn closing_a_stream_finishes_its_work() {
    let stream = Arc::new(Stream::create(plain(), 0, 0).unwrap());
    let count = Arc::new(AtomicU32::new(0));
    for _ in 0..100 {
        let count = Arc::clone(&count);
        stream
            .run(move || {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
    }
    stream.close();
    assert_eq!(count.load(Ordering::Relaxed), 100);
    assert_eq!(status(stream.run(|| Ok(()))), DTL_ERROR_CANCELED);
    assert_eq!(
        Arc::strong_count(stream.backend()),
        stream.home_shares(),
        "no share is left behind"
    );

    let own = Arc::new(Stream::create(plain(), 0, 0).unwrap());
    let itself = Arc::clone(&own);
    let (done, finished) = std::sync::mpsc::channel();
    own.run(move || {
        let waited = status(itself.synchronize());
        itself.close();
        done.send(waited).map_err(|_| Error::new(DTL_ERROR_INTERNAL, "test is gone"))
    })
    .unwrap();
    assert_eq!(finished.recv_timeout(Duration::from_secs(10)).unwrap(), DTL_ERROR_INVALID_STATE);
}

#[test]
fn elapsed_time_needs_two_finished_records() {
    let backend = plain();
    let stream = Stream::create(Arc::clone(&backend), 0, 0).unwrap();
    let make = |flags| Event::create(Arc::clone(&backend), flags).unwrap();
    let (start, stop, untimed) = (make(0), make(0), make(DTL_EVENT_NO_TIMING));
    assert_eq!(status(start.sync()), DTL_SUCCESS, "never recorded = done");
    assert_eq!(status(start.elapsed_ns(&stop)), DTL_ERROR_INVALID_STATE);
    assert_eq!(status(start.elapsed_ns(&untimed)), DTL_ERROR_INVALID_ARGUMENT);
    stream.record(&start).unwrap();
    let gate = Gate::on(&stream);
    stream.record(&stop).unwrap();
    assert_eq!(status(start.elapsed_ns(&stop)), DTL_ERROR_INVALID_STATE, "pending");
    std::thread::sleep(Duration::from_millis(2));
    gate.open();
    stop.sync().unwrap();
    assert!(start.elapsed_ns(&stop).unwrap() >= 2_000_000);
    assert_eq!(status(stop.elapsed_ns(&start)), DTL_ERROR_INVALID_ARGUMENT);
    assert_eq!(status(Event::create(backend, 8)), DTL_ERROR_INVALID_ARGUMENT);
}

#[test]
fn missing_slots_are_filled_in() {
    let mock = mock(EVENTS, false);
    let backend = home_of(&mock);
    let stream = Stream::create(Arc::clone(&backend), 0, 0).unwrap();
    let event = Arc::new(Event::create(Arc::clone(&backend), 0).unwrap());
    *mock.stalled.lock() = true;
    assert!(!stream.query().unwrap() && !stream.query().unwrap());
    assert_eq!(mock.count("event_record"), 1, "one probe serves until it is reached");
    assert_eq!(status(event.wait(2_000_000)), DTL_ERROR_TIMEOUT);
    *mock.stalled.lock() = false;
    assert!(stream.query().unwrap());
    stream.record(&event).unwrap();
    stream.wait_event(&event).unwrap();
    event.sync().unwrap();
    assert_eq!(status(event.elapsed_ns(&event)), DTL_ERROR_NOT_SUPPORTED);
    stream.host_callback(Some(give), number(DTL_ERROR_MEMORY as usize)).unwrap();
    assert_eq!(mock.count("stream_synchronize"), 1);
    assert_eq!(status(stream.query()), DTL_ERROR_MEMORY);
    assert_eq!(status(stream.synchronize()), DTL_ERROR_MEMORY);
    assert_eq!(status(stream.synchronize()), DTL_SUCCESS);
    let kernel = Kernel::from_function(backend, coordinates, number(0));
    stream.launch(&kernel, &shape([1; 3], [1; 3]), ArgPack::EMPTY).unwrap();
    drop(stream);
    drop(event);
    assert_eq!((mock.count("stream_destroy"), mock.count("event_destroy")), (1, 2));
}

#[test]
fn a_backends_slots_are_used() {
    let mock = mock(EVENTS, true);
    let backend = home_of(&mock);
    let stream = Stream::create(Arc::clone(&backend), 0, 0).unwrap();
    let event = Arc::new(Event::create(Arc::clone(&backend), 0).unwrap());
    assert_eq!(stream.native().unwrap().get(), 16);
    assert!(stream.query().unwrap());
    stream.record(&event).unwrap();
    stream.wait_event(&event).unwrap();
    assert_eq!(event.elapsed_ns(&event).unwrap(), 5);
    stream.host_callback(Some(give), number(DTL_ERROR_MEMORY as usize)).unwrap();
    assert_eq!(status(stream.synchronize()), DTL_ERROR_MEMORY);
    let kernel = Kernel::from_function(Arc::clone(&backend), coordinates, number(0));
    stream.launch(&kernel, &shape([1; 3], [1; 3]), ArgPack::EMPTY).unwrap();
    for slot in
        ["stream_query", "stream_wait_event", "event_elapsed", "stream_host_callback", "launch"]
    {
        assert_eq!(mock.count(slot), 1, "{slot}");
    }
    let wrapped = Stream::wrap(backend, 0, number(48)).unwrap();
    drop(wrapped);
    assert_eq!(mock.count("stream_destroy"), 0, "the caller's own");
    drop(stream);
    assert_eq!(mock.count("stream_destroy"), 1);
}

#[test]
fn backends_mix_as_far_as_they_can() {
    let mock = mock(STREAMS, true);
    let backend = home_of(&mock);
    let foreign = Stream::create(Arc::clone(&backend), 0, 0).unwrap();
    let own = Stream::create(plain(), 0, 0).unwrap();
    let of_mock = Arc::new(Event::create(backend, 0).unwrap());
    let of_plain = Arc::new(Event::create(plain(), 0).unwrap());
    foreign.record(&of_mock).unwrap();
    assert_eq!(mock.count("stream_synchronize"), 1, "no events: the record waits");
    own.record(&of_mock).unwrap();
    own.record(&of_plain).unwrap();
    foreign.wait_event(&of_plain).unwrap();
    own.wait_event(&of_mock).unwrap();
    let refused = foreign.record(&of_plain).unwrap_err();
    assert_eq!(refused.status(), DTL_ERROR_INVALID_ARGUMENT);
    assert!(refused.text().contains("'plain'") && refused.text().contains("'mock'"), "{refused}");
    assert_eq!(status(own.native()), DTL_ERROR_NOT_SUPPORTED);
    assert_eq!(status(Stream::wrap(plain(), 0, number(1))), DTL_ERROR_NOT_SUPPORTED);
    own.synchronize().unwrap();
}

/// Number of kernel threads that ran: every thread of the grid adds 1.
static LAUNCHED: AtomicU64 = AtomicU64::new(0);

extern "C" fn coordinates(
    context: *const dtl_kernel_context_t,
    _: *const *const c_void,
) -> dtl_status_t {
    assert!(!context.is_null());
    LAUNCHED.fetch_add(1, Ordering::Relaxed);
    std::thread::sleep(Duration::from_micros(20)); // slow enough to be shared among threads
    DTL_SUCCESS
}

extern "C" fn fails(_: *const dtl_kernel_context_t, _: *const *const c_void) -> dtl_status_t {
    DTL_ERROR_OUT_OF_BOUNDS
}

fn shape(grid: [u32; 3], block: [u32; 3]) -> dtl_launch_t {
    dtl_launch_t {
        struct_size: size_of::<dtl_launch_t>() as u32,
        shared_bytes: 16,
        grid,
        block,
        schedule: 0,
    }
}

#[test]
fn a_launch_runs_the_whole_grid() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    extern "C" fn slow(_: *const dtl_kernel_context_t, _: *const *const c_void) -> dtl_status_t {
        CALLS.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(20));
        DTL_SUCCESS
    }
    let backend = plain();
    let stream = Stream::create(Arc::clone(&backend), 0, 0).unwrap();
    let kernel = Kernel::from_function(Arc::clone(&backend), slow, Addr::NULL);
    stream.launch(&kernel, &shape([4, 1, 1], [8, 1, 1]), ArgPack::EMPTY).unwrap();
    stream.launch(&kernel, &shape([2, 3, 2], [1, 2, 3]), ArgPack::EMPTY).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(CALLS.load(Ordering::Relaxed), 32 + 72);
    let failing = Kernel::from_function(backend, fails, Addr::NULL);
    stream.launch(&failing, &shape([9, 9, 9], [1; 3]), ArgPack::EMPTY).unwrap();
    let error = stream.synchronize().unwrap_err();
    assert!(
        error.status() == DTL_ERROR_OUT_OF_BOUNDS && error.text().contains("block [0, 0, 0]"),
        "{error}"
    );
    let other = Kernel::from_function(named(c"other"), fails, Addr::NULL);
    assert_eq!(
        status(stream.launch(&other, &shape([1; 3], [1; 3]), ArgPack::EMPTY)),
        DTL_ERROR_INVALID_ARGUMENT
    );
}

#[test]
fn senseless_shapes_are_refused() {
    let limits = super::limits(&plain(), 0);
    let unlimited = Limits::default();
    let max = u32::MAX;
    assert!(check_shape(&shape([max, 1, 1], [1024, 1, 1]), &limits).is_ok());
    for (grid, block, limits) in [
        ([0, 1, 1], [1; 3], &limits),
        ([1; 3], [1, 0, 1], &limits),
        ([1; 3], [1025, 1, 1], &limits),
        ([1; 3], [1, 1, 65], &limits),
        ([1; 3], [32, 33, 1], &limits),
        ([1; 3], [max; 3], &unlimited),
        ([1; 3], [1 << 16, 1 << 16, 1], &unlimited),
        ([max; 3], [1; 3], &unlimited),
        ([max, max, 1], [2, 2, 1], &unlimited),
    ] {
        let error = check_shape(&shape(grid, block), limits).unwrap_err();
        assert_eq!(error.status(), DTL_ERROR_INVALID_ARGUMENT, "{grid:?} {block:?}");
    }
}

fn executors() -> Vec<Executor> {
    let host = home_of(&mock(HOST, false));
    let mut all: Vec<_> = [1, 2, 3]
        .map(|threads| Executor::create(plain(), DTL_EXECUTOR_POOL, threads).unwrap())
        .into_iter()
        .chain(
            [DTL_EXECUTOR_INLINE, DTL_EXECUTOR_SEQUENTIAL]
                .map(|k| Executor::create(plain(), k, 0).unwrap()),
        )
        .collect();
    all.push(Executor::create(host, 0, 0).unwrap());
    all
}

/// Runs a loop through an executor and counts how often each iteration ran.
fn counts(executor: &Executor, begin: u64, end: u64, grain: u64) -> Vec<u32> {
    let counts: Arc<Vec<AtomicU32>> = Arc::new((begin..end).map(|_| AtomicU32::new(0)).collect());
    let seen = Arc::clone(&counts);
    let body = LoopBody::Shared(Arc::new(move |from, to| {
        assert!(from < to && (grain == 0 || to - from <= grain));
        for i in from..to {
            seen[(i - begin) as usize].fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }));
    executor.run_loop(begin, end, grain, body).unwrap();
    counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_iteration_runs_once(begin in 0_u64..1 << 40, length in 0_u64..500,
        grain in 0_u64..40) {
        for executor in executors() {
            let counts = counts(&executor, begin, begin + length, grain);
            prop_assert!(counts.iter().all(|count| *count == 1), "{counts:?}");
        }
    }
}

#[test]
fn the_ends_of_the_number_range_work() {
    for executor in executors() {
        assert_eq!(counts(&executor, u64::MAX - 10, u64::MAX, 3), vec![1; 10]);
        assert_eq!(counts(&executor, u64::MAX - 10, u64::MAX, u64::MAX / 2), vec![1; 10]);
    }
}

#[test]
fn loops_nest_and_share_a_pool() {
    let pool = Arc::new(ThreadPool::new(3));
    let total = Arc::new(AtomicU64::new(0));
    let users: Vec<_> = (0..2)
        .map(|_| {
            let (pool, total) = (Arc::clone(&pool), Arc::clone(&total));
            std::thread::spawn(move || {
                for _ in 0..50 {
                    let (inner, total) = (Arc::clone(&pool), Arc::clone(&total));
                    let body = LoopBody::Shared(Arc::new(move |from, to| {
                        let total = Arc::clone(&total);
                        let leaf = LoopBody::Shared(Arc::new(move |a, b| {
                            total.fetch_add(b - a, Ordering::Relaxed);
                            Ok(())
                        }));
                        inner.run(0, (to - from) * 10, 3, leaf)
                    }));
                    pool.run(0, 20, 1, body).unwrap();
                }
            })
        })
        .collect();
    users.into_iter().for_each(|user| user.join().unwrap());
    assert_eq!(total.load(Ordering::Relaxed), 2 * 50 * 20 * 10);
}

#[test]
fn pieces_really_run_at_once() {
    let pool = ThreadPool::new(2);
    let inside = Arc::new(AtomicU32::new(0));
    let meet = LoopBody::Shared(Arc::new(move |_, _| {
        inside.fetch_add(1, Ordering::AcqRel);
        while inside.load(Ordering::Acquire) < 2 {
            std::thread::yield_now();
        }
        Ok(())
    }));
    pool.run(0, 2, 1, meet).unwrap();
}

#[test]
fn a_failing_piece_stops_the_loop() {
    extern "C" fn fail_at_five(begin: u64, _end: u64, user: *mut c_void) -> dtl_status_t {
        if begin == 5 { user.addr() as dtl_status_t } else { DTL_SUCCESS }
    }
    for executor in executors() {
        let error = executor
            .parallel_for((0, 1 << 40), 1, fail_at_five, number(GIVEN as usize))
            .unwrap_err();
        assert_eq!(error.status(), GIVEN);
        assert_eq!(
            status(executor.parallel_for((3, 3), 0, fail_at_five, number(GIVEN as usize))),
            DTL_SUCCESS
        );
        let backwards = executor.parallel_for((4, 3), 0, fail_at_five, number(GIVEN as usize));
        assert_eq!(status(backwards), DTL_ERROR_INVALID_ARGUMENT);
        assert_eq!(status(executor.run(give, number(GIVEN as usize))), GIVEN);
        assert_eq!(status(executor.wait(Deadline::NEVER)), DTL_SUCCESS, "run reports by itself");
    }
}

#[test]
fn asynchronous_tasks_report_through_event_and_synchronize() {
    for executor in executors() {
        let event = Event::create(plain(), 0).unwrap();
        executor.run_async(give, number(0), Some(&event)).unwrap();
        event.sync().unwrap();
        executor.run_async(give, number(GIVEN as usize), Some(&event)).unwrap();
        assert_eq!(status(event.sync()), GIVEN);
        executor.run_async(give, number(0), None).unwrap();
        assert_eq!(status(executor.wait(Deadline::NEVER)), GIVEN);
        assert_eq!(status(executor.wait(Deadline::NEVER)), DTL_SUCCESS);
        let foreign = Event::create(home_of(&mock(EVENTS, true)), 0).unwrap();
        assert_eq!(
            status(executor.run_async(give, number(0), Some(&foreign))),
            DTL_ERROR_INVALID_ARGUMENT
        );
        executor.close();
    }
}

#[test]
fn executors_tell_what_they_are() {
    let unknown = Executor::create(plain(), 9, 0).map(drop).unwrap_err();
    assert!(
        unknown.text().contains("kind 9") && unknown.text().contains("DTL_EXECUTOR_POOL (3)"),
        "{unknown}"
    );
    let info = |kind, threads| Executor::create(plain(), kind, threads).unwrap().info().unwrap();
    assert_eq!(info(DTL_EXECUTOR_POOL, 5).max_parallelism, 5);
    assert_eq!(info(0, 0).kind, DTL_EXECUTOR_POOL);
    assert_eq!(info(0, 0).max_parallelism, thread_pool::default_size());
    assert_eq!(info(DTL_EXECUTOR_SEQUENTIAL, 5).max_parallelism, 1);
    let of_backend = Executor::create(home_of(&mock(HOST, false)), 0, 0).unwrap().info().unwrap();
    assert_eq!((of_backend.kind, of_backend.suggested_parallelism), (DTL_EXECUTOR_BACKEND, 3));
    assert_eq!(status(Executor::create(plain(), DTL_EXECUTOR_BACKEND, 0)), DTL_ERROR_NOT_SUPPORTED);
    assert_eq!(status(Executor::create(plain(), 9, 0)), DTL_ERROR_INVALID_ARGUMENT);
    assert_eq!(
        status(Executor::create(plain(), DTL_EXECUTOR_POOL, 1 << 20)),
        DTL_ERROR_INVALID_ARGUMENT
    );
}

#[test]
fn a_reduction_does_not_depend_on_the_threads() {
    /// Ranges that were passed to `fold`, in the order of the calls. A static, because `fold` would
    /// need unsafe code to access memory through its user pointer.
    static ORDER: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());
    static COMBINED: AtomicU32 = AtomicU32::new(0);
    extern "C" fn fold(begin: u64, end: u64, _: *mut c_void, user: *mut c_void) -> dtl_status_t {
        ORDER.lock().push((begin, end));
        if user.addr() as u64 == begin && begin > 0 { GIVEN } else { DTL_SUCCESS }
    }
    extern "C" fn combine(_: *mut c_void, _: *const c_void, _: *mut c_void) {
        COMBINED.fetch_add(1, Ordering::Relaxed);
    }
    let identity = Scratch::new(8).unwrap();
    identity.region().fill(3);
    let out = Scratch::new(8).unwrap();
    for executor in executors() {
        for (range, grain, pieces) in
            [((10, 20), 3, 4), ((0, 5000), 1, 5000), ((0, 640), 0, 64), ((7, 7), 0, 0)]
        {
            ORDER.lock().clear();
            COMBINED.store(0, Ordering::Relaxed);
            let reduction = Reduction {
                range,
                grain,
                identity: identity.region(),
                fold,
                combine,
                user: Addr::NULL,
            };
            reduce::run(&executor, reduction, out.region()).unwrap();
            let mut seen = ORDER.lock().clone();
            seen.sort_unstable();
            assert_eq!(seen.len(), pieces);
            assert_eq!(COMBINED.load(Ordering::Relaxed) as usize, pieces.saturating_sub(1));
            assert!(seen.windows(2).all(|pair| pair[0].1 == pair[1].0));
        }
        let failing = Reduction {
            range: (0, 100),
            grain: 10,
            identity: identity.region(),
            fold,
            combine,
            user: number(50),
        };
        assert_eq!(status(reduce::run(&executor, failing, out.region())), GIVEN);
    }
}
