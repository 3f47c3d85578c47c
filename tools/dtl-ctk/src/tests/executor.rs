//! Tests of executors, which run functions, loops and reductions on the host.

use crate::kit::prelude::*;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Alone "exec.executor.":
        run_calls_once, run_returns_when_it_has_run, run_passes_the_status,
        run_from_threads_at_once, run_nested, async_runs_once, async_failure_is_synchronizes,
        async_event_follows, async_event_carries_failure, destroy_waits_for_started,
        destroyed_executors_leave_nothing,
        for_each_once = |s| {
            let executor = executor(s)?;
            [1, 2, 3, 7, 64, 100, 1000, 4097, 100_000]
                .iter()
                .try_for_each(|length| counted(&executor, 0, *length, 0))
        },
        for_every_grain = |s| {
            let executor = executor(s)?;
            [0, 1, 2, 3, 7, 100, 333, 999, 1000, 1001, 5000]
                .iter()
                .try_for_each(|grain| counted(&executor, 0, 1000, *grain))
        }, for_pieces_within_grain,
        for_pieces_are_not_empty,
        for_begin_is_kept = |s| {
            all_counted(s, &[(1, 500, 7), (17, 500, 7), (1000, 500, 7), (1 << 33, 500, 7)])
        },
        for_huge_indices = |s| {
            all_counted(s, &[(u64::MAX - 1000, 1000, 7), (u64::MAX - 100, 100, 64)])
        },
        for_grain_larger_than_range = |s| {
            all_counted(s, &[(5, 1000, 1 << 63), (u64::MAX - 50, 50, u64::MAX)])
        },
        for_empty_range, for_backwards_refused, for_returns_when_all_ran, for_passes_the_failure,
        for_works_after_a_failure, for_nested, for_from_threads_at_once, for_not_wider_than_said,
        for_10000_short_loops, parallelism_at_least_one, parallelism_same_each_time, reduce_exact,
        reduce_same_each_time, reduce_empty_is_identity;
];

fn executor(s: &Subject) -> Outcome<Executor> {
    Ok(Executor::new(s.backend)?)
}

fn run_calls_once(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    for number in 0..300 {
        let job = Job::new(|| 0);
        executor.run(job)?;
        ensure!(job.runs() == 1, "function {number} was called {} times", job.runs());
    }
    Ok(())
}

fn run_returns_when_it_has_run(s: &Subject) -> Outcome {
    let (executor, job) = (executor(s)?, slow(20));
    executor.run(job)?;
    check!(job.runs() == 1, "run returned before the function had ended")
}

fn run_passes_the_status(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    for status in [DTL_ERROR_OUT_OF_BOUNDS, DTL_ERROR_CANCELED, DTL_ERROR_BACKEND] {
        refused(executor.run(Job::new(move || status)), status, "run of a function that fails")?;
        executor.run(Job::new(|| 0))?;
    }
    Ok(())
}

fn run_from_threads_at_once(s: &Subject) -> Outcome {
    let (executor, job) = (executor(s)?, Job::new(|| 0));
    in_threads(8, |_| (0..100).try_for_each(|_| executor.run(job)).map_err(Into::into))?;
    check!(job.runs() == 800, "800 calls by eight threads, {} were made", job.runs())
}

fn run_nested(s: &Subject) -> Outcome {
    let (executor, inner) = (kept(executor(s)?), Job::new(|| 0));
    let outer =
        Job::new(move || executor.run(inner).map_or_else(|refused| refused.status.0, |()| 0));
    executor.run(outer)?;
    let (outer, inner) = (outer.runs(), inner.runs());
    check!((outer, inner) == (1, 1), "outer {outer} times, inner {inner} times")
}

fn async_runs_once(s: &Subject) -> Outcome {
    let (executor, job) = (executor(s)?, Job::new(|| 0));
    (0..200).try_for_each(|_| executor.start(job, None))?;
    executor.synchronize()?;
    check!(job.runs() == 200, "200 were started, {} have run", job.runs())
}

fn async_failure_is_synchronizes(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    executor.start(Job::new(|| DTL_ERROR_OUT_OF_BOUNDS), None)?;
    refused(executor.synchronize(), DTL_ERROR_OUT_OF_BOUNDS, "synchronize after a failure")?;
    Ok(executor.synchronize()?)
}

/// Creates an event that an executor can complete. Skips the test if the backend's events can
/// complete only on streams.
fn event(s: &Subject) -> Outcome<Event> {
    let event = Event::new(s.backend)?;
    match Executor::new(s.backend)?.start(Job::new(|| 0), Some(&event)) {
        Err(refused) if refused.status == DTL_ERROR_INVALID_ARGUMENT => {
            skip!("the backend's own events follow its streams only")
        }
        other => other?,
    }
    event.sync()?;
    Ok(event)
}

fn async_event_follows(s: &Subject) -> Outcome {
    let (executor, event, job) = (executor(s)?, event(s)?, slow(15));
    executor.start(job, Some(&event))?;
    event.sync()?;
    check!(job.runs() == 1, "the event is complete, the function has not ended")
}

fn async_event_carries_failure(s: &Subject) -> Outcome {
    let (executor, event) = (executor(s)?, event(s)?);
    executor.start(Job::new(|| DTL_ERROR_OUT_OF_BOUNDS), Some(&event))?;
    refused(event.sync(), DTL_ERROR_OUT_OF_BOUNDS, "the event of a function that failed")?;
    let _ = executor.synchronize();
    Ok(())
}

fn destroy_waits_for_started(s: &Subject) -> Outcome {
    let (executor, job) = (executor(s)?, slow(3));
    (0..5).try_for_each(|_| executor.start(job, None))?;
    executor.destroy()?;
    check!(job.runs() == 5, "destroy returned after {} of 5 functions", job.runs())
}

fn destroyed_executors_leave_nothing(s: &Subject) -> Outcome {
    let round = || -> Outcome {
        let executor = executor(s)?;
        executor.run(Job::new(|| 0))?;
        Ok(executor.destroy()?)
    };
    let most = Growth { bytes: 32 << 20, threads: Some(8), files: None };
    leaves_little((10, 200), &most, "200 executors were made and destroyed", round)?;
    keeps_no_addresses("executor", round)
}

/// Runs a loop and checks that each iteration runs exactly once.
fn counted(executor: &Executor, begin: u64, length: u64, grain: u64) -> Outcome {
    let (counts, outside, end) = (counters(length), counter(), begin + length);
    executor.each(begin, end, grain, move |from, to| {
        for index in from..to {
            let at = index.checked_sub(begin).and_then(|index| counts.get(index as usize));
            at.unwrap_or(outside).fetch_add(1, Ordering::SeqCst);
        }
        0
    })?;
    let outside = outside.load(Ordering::SeqCst);
    ensure!(outside == 0, "{outside} iteration(s) outside of {begin}..{end} (grain {grain})");
    match not_once(counts) {
        Some((at, times)) => {
            wrong!("iteration {at} of {length} was done {times} times (grain {grain})")
        }
        None => Ok(()),
    }
}

/// The pieces of a loop.
fn pieces(executor: &Executor, begin: u64, end: u64, grain: u64) -> Outcome<Vec<(u64, u64)>> {
    let notes = Notes::new();
    executor.each(begin, end, grain, |from, to| {
        notes.add((from, to));
        0
    })?;
    Ok(notes.list())
}

fn for_pieces_within_grain(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    for grain in [1, 3, 10, 64, 500] {
        let large =
            pieces(&executor, 0, 1003, grain)?.into_iter().find(|(from, to)| to - from > grain);
        ensure!(large.is_none(), "a piece is {large:?}, the grain {grain}");
    }
    Ok(())
}

fn for_pieces_are_not_empty(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    for grain in [0, 1, 7, 2000] {
        let bad = pieces(&executor, 10, 1013, grain)?.into_iter().find(|(from, to)| from >= to);
        ensure!(bad.is_none(), "a piece is {bad:?} (grain {grain})");
    }
    Ok(())
}

fn for_empty_range(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    for at in [0, 5, u64::MAX] {
        let made = pieces(&executor, at, at, 1)?;
        ensure!(made.is_empty(), "an empty range at {at} had the pieces {made:?}");
    }
    Ok(())
}

fn for_backwards_refused(s: &Subject) -> Outcome {
    let result = executor(s)?.each(10, 9, 1, |_, _| 0);
    refused(result, DTL_ERROR_INVALID_ARGUMENT, "a range from 10 to 9")
}

fn for_returns_when_all_ran(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    for _ in 0..5 {
        let ended = counter();
        executor.each(0, 8, 1, adding(ended, 3))?;
        let ended = ended.load(Ordering::SeqCst);
        ensure!(ended == 8, "the loop returned when {ended} of 8 iterations had ended");
    }
    Ok(())
}

fn for_passes_the_failure(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    for at in [0, 50, 99] {
        let fails =
            move |from, to| if (from..to).contains(&at) { DTL_ERROR_OUT_OF_BOUNDS } else { 0 };
        let (result, what) =
            (executor.each(0, 100, 1, fails), format!("a loop that fails at {at}"));
        refused(result, DTL_ERROR_OUT_OF_BOUNDS, &what)?;
    }
    Ok(())
}

fn for_works_after_a_failure(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    let failed = executor.each(0, 100, 1, |_, _| DTL_ERROR_CANCELED).is_err();
    ensure!(failed, "a loop whose pieces all fail succeeds");
    counted(&executor, 0, 1000, 7)
}

fn for_nested(s: &Subject) -> Outcome {
    let (executor, count) = (kept(executor(s)?), counter());
    executor.each(0, 20, 1, move |from, to| {
        let failed = (from..to).find_map(|_| executor.each(0, 100, 10, adding(count, 0)).err());
        failed.map_or(0, |refused| refused.status.0)
    })?;
    let count = count.load(Ordering::SeqCst);
    check!(count == 2000, "20 times 100 iterations are {count}")
}

fn for_from_threads_at_once(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    in_threads(4, |_| (0..20).try_for_each(|_| counted(&executor, 0, 2000, 13)))
}

fn for_not_wider_than_said(s: &Subject) -> Outcome {
    let (executor, inside, peak) = (executor(s)?, counter(), counter());
    let most = u64::from(executor.info()?.max_parallelism);
    executor.each(0, 200, 1, |_, _| {
        peak.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        thread::sleep(Duration::from_micros(300));
        inside.fetch_sub(1, Ordering::SeqCst);
        0
    })?;
    let peak = peak.load(Ordering::SeqCst);
    check!(peak <= most, "{peak} pieces ran at the same time, max_parallelism is {most}")
}

fn for_10000_short_loops(s: &Subject) -> Outcome {
    let (executor, count, begin) = (executor(s)?, counter(), Instant::now());
    let mut loops = 0;
    while loops < 10_000 && begin.elapsed() < Duration::from_secs(3) {
        executor.each(0, 5, 2, adding(count, 0))?;
        loops += 1;
    }
    let count = count.load(Ordering::SeqCst);
    check!(count == loops * 5, "{loops} loops of 5 iterations made {count}")
}

fn parallelism_at_least_one(s: &Subject) -> Outcome {
    let info = executor(s)?.info()?;
    let (most, best) = (info.max_parallelism, info.suggested_parallelism);
    let good = [most, best].iter().all(|number| (1..=65_536).contains(number));
    check!(good, "max {most}, suggested {best}")
}

fn parallelism_same_each_time(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    let first = executor.info()?.max_parallelism;
    for _ in 0..100 {
        let again = executor.info()?.max_parallelism;
        ensure!(again == first, "it was {first} and is {again}");
    }
    Ok(())
}

fn fold(acc: u64, index: u64) -> u64 {
    acc.wrapping_mul(31).wrapping_add(index ^ 0x5bd1)
}

/// Computes the expected result of a reduction serially.
fn serial(length: u64, grain: u64) -> u64 {
    let starts = (0..length).step_by(grain as usize);
    let parts = starts.map(|from| (from..length.min(from + grain)).fold(0, fold));
    parts.reduce(|into, from| into.wrapping_mul(1_000_003).wrapping_add(from)).unwrap_or(0)
}

fn reduce_exact(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    for (length, grain) in [(1, 1), (10, 3), (1000, 7), (1000, 1000), (5000, 64), (100, 500)] {
        let (is, should) = (executor.reduce(0, length, grain, fold)?, serial(length, grain));
        ensure!(is == should, "{length} iterations, grain {grain}: {is:#x}, expected {should:#x}");
    }
    Ok(())
}

fn reduce_same_each_time(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    let first = executor.reduce(0, 10_000, 0, fold)?;
    for _ in 0..50 {
        let again = executor.reduce(0, 10_000, 0, fold)?;
        ensure!(again == first, "one run gives {first:#x}, another {again:#x}");
    }
    Ok(())
}

fn reduce_empty_is_identity(s: &Subject) -> Outcome {
    let is = executor(s)?.reduce(7, 7, 1, fold)?;
    check!(is == 0, "an empty range gives {is}, the identity is 0")
}

/// Runs loops, given as first index, number of iterations and grain size, and checks that each
/// iteration runs once.
fn all_counted(s: &Subject, loops: &[(u64, u64, u64)]) -> Outcome {
    let executor = executor(s)?;
    loops.iter().try_for_each(|(begin, length, grain)| counted(&executor, *begin, *length, *grain))
}

/// Returns a loop body that, in each call, sleeps for `ms` milliseconds and then adds the number of
/// iterations in the call to `count`.
fn adding(count: &'static AtomicU64, ms: u64) -> impl Fn(u64, u64) -> i32 + Copy {
    move |from, to| {
        if ms > 0 {
            thread::sleep(Duration::from_millis(ms));
        }
        count.fetch_add(to - from, Ordering::SeqCst);
        0
    }
}
