//! Tests of host execution: functions and loops.

use crate::kit::catalog::{Group, Need, tests_alone};
use crate::kit::exec_calls::{Event, Executor, Job, Piece};
use crate::kit::outcome::{Outcome, ensure, refused, skip, wrong};
use crate::kit::subject::{Subject, keeps_no_addresses, resident_bytes, thread_count};
use crate::tests::device::in_threads;
use dtl_sys::*;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const NEEDS: &[Need] = &[Need::Compute];

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "exec.execute",
        needs: NEEDS,
        rule: "execute runs fn(user) and returns when it has run; its status is the result.",
        usually: "It returns before the function has ended, runs it twice, or drops its status.",
        tests: tests_alone![
            "exec.executor.run_calls_once": "each of 300 functions is called exactly \
             once" => run_once;
            "exec.executor.run_returns_when_it_has_run": "a slow function has ended when run \
             returns" => run_waits;
            "exec.executor.run_passes_the_status": "the function's status is the \
             result" => run_status;
            "exec.executor.run_from_threads_at_once": "eight threads run 100 functions \
             each" => run_threads;
            "exec.executor.run_nested": "a function may run another one on the same \
             executor" => run_nested;
            "exec.executor.async_runs_once": "functions that were started run once, in their \
             time" => async_once;
            "exec.executor.async_failure_is_synchronizes": "the failure of one is synchronize's, \
             once" => async_failure;
            "exec.executor.async_event_follows": "the event of a start is complete when the \
             function has run" => async_event;
            "exec.executor.async_event_carries_failure": "and has its \
             failure" => async_event_failure;
            "exec.executor.destroy_waits_for_started": "destroy loses nothing that was \
             started" => destroy_waits;
            "exec.executor.destroyed_executors_leave_nothing": "200 executors leave no threads and \
             little memory" => leave_nothing;
        ],
    },
    Group {
        slot: "exec.parallel_for",
        needs: NEEDS,
        rule: "parallel_for runs begin … end-1 in pieces of at most grain and returns when all \
            have run; the \
               first failing status of a piece is the result.",
        usually: "The last piece is cut off or runs over the end, an iteration is done twice, the \
            grain is taken \
                  for the number of pieces, or the call returns with pieces still running.",
        tests: tests_alone![
            "exec.executor.for_each_once": "lengths 1 to 100 000: every iteration exactly \
             once" => for_once;
            "exec.executor.for_every_grain": "grains 1 to 5000, and 0" => for_grains;
            "exec.executor.for_pieces_within_grain": "no piece has more iterations than the \
             grain" => for_piece_size;
            "exec.executor.for_pieces_are_not_empty": "no piece is empty or \
             backwards" => for_piece_order;
            "exec.executor.for_begin_is_kept": "ranges that do not begin at 0" => for_begin;
            "exec.executor.for_huge_indices": "ranges near 2^64" => for_huge;
            "exec.executor.for_grain_larger_than_range": "a grain of 2^63 is one \
             piece" => for_huge_grain;
            "exec.executor.for_empty_range": "an empty range calls nothing and \
             succeeds" => for_empty;
            "exec.executor.for_backwards_refused": "begin > end is \
             DTL_ERROR_INVALID_ARGUMENT" => for_backwards;
            "exec.executor.for_returns_when_all_ran": "all pieces have ended when the call \
             returns" => for_waits;
            "exec.executor.for_passes_the_failure": "a piece's status is the result" => for_failure;
            "exec.executor.for_works_after_a_failure": "the next loop does all its \
             iterations" => for_after_failure;
            "exec.executor.for_nested": "a loop in a loop does all iterations" => for_nested;
            "exec.executor.for_from_threads_at_once": "four threads with loops of their \
             own" => for_threads;
            "exec.executor.for_not_wider_than_said": "not more pieces at once than \
             max_parallelism" => for_width;
            "exec.executor.for_10000_short_loops": "many short loops lose no \
             iteration" => for_short;
        ],
    },
    Group {
        slot: "exec.max_parallelism, suggested_parallelism",
        needs: NEEDS,
        rule: "Most iterations that ever run at the same time, at least 1; into how many pieces a \
            loop is best cut.",
        usually: "The number of cores of the machine is given although the backend has fewer \
            threads, or 0.",
        tests: tests_alone![
            "exec.executor.parallelism_at_least_one": "both numbers are between 1 and 65 \
             536" => info_range;
            "exec.executor.parallelism_same_each_time": "and do not change" => info_stable;
        ],
    },
    Group {
        slot: "exec.parallel_for (reductions)",
        needs: NEEDS,
        rule: "Partial results are combined in the order of iterations: the result does not depend \
            on threads.",
        usually: "A piece is missing, folded twice, or pieces are not those that the grain asks \
            for.",
        tests: tests_alone![
            "exec.executor.reduce_exact": "a reduction that does not commute, against a serial \
             one" => reduce_exact;
            "exec.executor.reduce_same_each_time": "50 runs give the same bits" => reduce_stable;
            "exec.executor.reduce_empty_is_identity": "an empty range gives the \
             identity" => reduce_empty;
        ],
    },
];

fn executor(s: &Subject) -> Outcome<Executor> {
    Ok(Executor::new(s.backend)?)
}

fn slow(ms: u64) -> &'static Job {
    Job::new(move || {
        thread::sleep(Duration::from_millis(ms));
        0
    })
}

fn run_once(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    for number in 0..300 {
        let job = Job::new(|| 0);
        executor.run(job)?;
        ensure!(job.runs() == 1, "function {number} was called {} times", job.runs());
    }
    Ok(())
}

fn run_waits(s: &Subject) -> Outcome {
    let (executor, job) = (executor(s)?, slow(20));
    executor.run(job)?;
    ensure!(job.runs() == 1, "run returned before the function had ended");
    Ok(())
}

fn run_status(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    for status in [DTL_ERROR_OUT_OF_BOUNDS, DTL_ERROR_CANCELED, DTL_ERROR_BACKEND] {
        refused(executor.run(Job::new(move || status)), status, "run of a function that fails")?;
        executor.run(Job::new(|| 0))?;
    }
    Ok(())
}

fn run_threads(s: &Subject) -> Outcome {
    let (executor, job) = (executor(s)?, Job::new(|| 0));
    in_threads(8, |_| (0..100).try_for_each(|_| executor.run(job)).map_err(Into::into))?;
    ensure!(job.runs() == 800, "800 calls by eight threads, {} were made", job.runs());
    Ok(())
}

fn run_nested(s: &Subject) -> Outcome {
    let executor = Arc::new(executor(s)?);
    let (inner, within) = (Job::new(|| 0), Arc::clone(&executor));
    let outer = Job::new(move || within.run(inner).map_or_else(|refused| refused.status, |()| 0));
    executor.run(outer)?;
    ensure!(
        (outer.runs(), inner.runs()) == (1, 1),
        "outer {} times, inner {} times",
        outer.runs(),
        inner.runs()
    );
    Ok(())
}

fn async_once(s: &Subject) -> Outcome {
    let (executor, job) = (executor(s)?, Job::new(|| 0));
    (0..200).try_for_each(|_| executor.start(job, None))?;
    executor.synchronize()?;
    ensure!(job.runs() == 200, "200 were started, {} have run", job.runs());
    Ok(())
}

fn async_failure(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    executor.start(Job::new(|| DTL_ERROR_OUT_OF_BOUNDS), None)?;
    refused(executor.synchronize(), DTL_ERROR_OUT_OF_BOUNDS, "synchronize after a failure")?;
    Ok(executor.synchronize()?)
}

/// An event that an executor can complete.
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

fn async_event(s: &Subject) -> Outcome {
    let (executor, event, job) = (executor(s)?, event(s)?, slow(15));
    executor.start(job, Some(&event))?;
    event.sync()?;
    ensure!(job.runs() == 1, "the event is complete, the function has not ended");
    Ok(())
}

fn async_event_failure(s: &Subject) -> Outcome {
    let (executor, event) = (executor(s)?, event(s)?);
    executor.start(Job::new(|| DTL_ERROR_OUT_OF_BOUNDS), Some(&event))?;
    refused(event.sync(), DTL_ERROR_OUT_OF_BOUNDS, "the event of a function that failed")?;
    let _ = executor.synchronize();
    Ok(())
}

fn destroy_waits(s: &Subject) -> Outcome {
    let (executor, job) = (executor(s)?, slow(3));
    (0..5).try_for_each(|_| executor.start(job, None))?;
    executor.destroy()?;
    ensure!(job.runs() == 5, "destroy returned after {} of 5 functions", job.runs());
    Ok(())
}

fn leave_nothing(s: &Subject) -> Outcome {
    let round = || -> Outcome {
        let executor = executor(s)?;
        executor.run(Job::new(|| 0))?;
        Ok(executor.destroy()?)
    };
    (0..10).try_for_each(|_| round())?;
    let (threads, memory) = (thread_count(), resident_bytes());
    (0..200).try_for_each(|_| round())?;
    let few =
        crate::kit::subject::becomes(Duration::from_secs(5), || thread_count() <= threads + 8);
    ensure!(
        few,
        "{} threads run; there were {threads} before 200 executors were made and destroyed",
        thread_count()
    );
    let grown = resident_bytes().saturating_sub(memory);
    ensure!(grown < 32 << 20, "{} MiB more after 200 executors", grown >> 20);
    keeps_no_addresses("executor", round)
}

/// Runs a loop and counts each iteration.
fn counted(executor: &Executor, begin: u64, length: u64, grain: u64) -> Outcome {
    let counts: Arc<Vec<AtomicU64>> = Arc::new((0..length).map(|_| AtomicU64::new(0)).collect());
    let outside = Arc::new(AtomicU64::new(0));
    let (seen, beyond) = (Arc::clone(&counts), Arc::clone(&outside));
    let piece = Piece::new(move |from, to| {
        for index in from..to {
            match index.checked_sub(begin).and_then(|index| seen.get(index as usize)) {
                Some(count) => count.fetch_add(1, Ordering::Relaxed),
                None => beyond.fetch_add(1, Ordering::Relaxed),
            };
        }
        0
    });
    executor.each(begin, begin + length, grain, piece)?;
    let outside = outside.load(Ordering::Relaxed);
    ensure!(
        outside == 0,
        "{outside} iteration(s) outside of {begin}..{} (grain {grain})",
        begin + length
    );
    let wrong = counts.iter().position(|count| count.load(Ordering::Relaxed) != 1);
    if let Some(at) = wrong {
        let times = counts[at].load(Ordering::Relaxed);
        wrong!("iteration {at} of {length} was done {times} times (grain {grain})");
    }
    Ok(())
}

fn for_once(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    [1, 2, 3, 7, 64, 100, 1000, 4097, 100_000]
        .iter()
        .try_for_each(|length| counted(&executor, 0, *length, 0))
}

fn for_grains(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    [0, 1, 2, 3, 7, 100, 333, 999, 1000, 1001, 5000]
        .iter()
        .try_for_each(|grain| counted(&executor, 0, 1000, *grain))
}

/// The pieces of a loop.
fn pieces(executor: &Executor, begin: u64, end: u64, grain: u64) -> Outcome<Vec<(u64, u64)>> {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&notes);
    let piece = Piece::new(move |from, to| {
        if let Ok(mut seen) = seen.lock() {
            seen.push((from, to));
        }
        0
    });
    executor.each(begin, end, grain, piece)?;
    Ok(notes.lock().map(|notes| notes.clone()).unwrap_or_default())
}

fn for_piece_size(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    for grain in [1, 3, 10, 64, 500] {
        let large =
            pieces(&executor, 0, 1003, grain)?.into_iter().find(|(from, to)| to - from > grain);
        ensure!(large.is_none(), "a piece is {large:?}, the grain {grain}");
    }
    Ok(())
}

fn for_piece_order(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    for grain in [0, 1, 7, 2000] {
        let bad = pieces(&executor, 10, 1013, grain)?.into_iter().find(|(from, to)| from >= to);
        ensure!(bad.is_none(), "a piece is {bad:?} (grain {grain})");
    }
    Ok(())
}

fn for_begin(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    [1, 17, 1000, 1 << 33].iter().try_for_each(|begin| counted(&executor, *begin, 500, 7))
}

fn for_huge(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    counted(&executor, u64::MAX - 1000, 1000, 7)?;
    counted(&executor, u64::MAX - 100, 100, 64)
}

fn for_huge_grain(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    counted(&executor, 5, 1000, 1 << 63)?;
    counted(&executor, u64::MAX - 50, 50, u64::MAX)
}

fn for_empty(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    for at in [0, 5, u64::MAX] {
        let made = pieces(&executor, at, at, 1)?;
        ensure!(made.is_empty(), "an empty range at {at} had the pieces {made:?}");
    }
    Ok(())
}

fn for_backwards(s: &Subject) -> Outcome {
    let result = executor(s)?.each(10, 9, 1, Piece::new(|_, _| 0));
    refused(result, DTL_ERROR_INVALID_ARGUMENT, "a range from 10 to 9")
}

fn for_waits(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    for _ in 0..5 {
        let ended = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&ended);
        let piece = Piece::new(move |from, to| {
            thread::sleep(Duration::from_millis(3));
            seen.fetch_add((to - from) as usize, Ordering::SeqCst);
            0
        });
        executor.each(0, 8, 1, piece)?;
        let ended = ended.load(Ordering::SeqCst);
        ensure!(ended == 8, "the loop returned when {ended} of 8 iterations had ended");
    }
    Ok(())
}

fn for_failure(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    for at in [0, 50, 99] {
        let piece = Piece::new(
            move |from, to| if (from..to).contains(&at) { DTL_ERROR_OUT_OF_BOUNDS } else { 0 },
        );
        refused(
            executor.each(0, 100, 1, piece),
            DTL_ERROR_OUT_OF_BOUNDS,
            &format!("a loop that fails at {at}"),
        )?;
    }
    Ok(())
}

fn for_after_failure(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    let failing = Piece::new(|_, _| DTL_ERROR_CANCELED);
    ensure!(executor.each(0, 100, 1, failing).is_err(), "a loop whose pieces all fail succeeds");
    counted(&executor, 0, 1000, 7)
}

fn for_nested(s: &Subject) -> Outcome {
    let executor = Arc::new(executor(s)?);
    let (count, within) = (Arc::new(AtomicU64::new(0)), Arc::clone(&executor));
    let seen = Arc::clone(&count);
    let inner = Piece::new(move |from, to| {
        seen.fetch_add(to - from, Ordering::Relaxed);
        0
    });
    let outer = Piece::new(move |from, to| {
        (from..to)
            .find_map(|_| within.each(0, 100, 10, inner).err())
            .map_or(0, |refused| refused.status)
    });
    executor.each(0, 20, 1, outer)?;
    let count = count.load(Ordering::Relaxed);
    ensure!(count == 2000, "20 times 100 iterations are {count}");
    Ok(())
}

fn for_threads(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    in_threads(4, |_| (0..20).try_for_each(|_| counted(&executor, 0, 2000, 13)))
}

fn for_width(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    let most = executor.info()?.max_parallelism as usize;
    let (inside, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (within, seen) = (Arc::clone(&inside), Arc::clone(&peak));
    let piece = Piece::new(move |_, _| {
        seen.fetch_max(within.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        thread::sleep(Duration::from_micros(300));
        within.fetch_sub(1, Ordering::SeqCst);
        0
    });
    executor.each(0, 200, 1, piece)?;
    let peak = peak.load(Ordering::SeqCst);
    ensure!(peak <= most, "{peak} pieces ran at the same time, max_parallelism is {most}");
    Ok(())
}

fn for_short(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    let count = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&count);
    let piece = Piece::new(move |from, to| {
        seen.fetch_add(to - from, Ordering::Relaxed);
        0
    });
    let begin = Instant::now();
    let mut loops = 0;
    while loops < 10_000 && begin.elapsed() < Duration::from_secs(3) {
        executor.each(0, 5, 2, piece)?;
        loops += 1;
    }
    let count = count.load(Ordering::Relaxed);
    ensure!(count == loops * 5, "{loops} loops of 5 iterations made {count}");
    Ok(())
}

fn info_range(s: &Subject) -> Outcome {
    let info = executor(s)?.info()?;
    let (most, best) = (info.max_parallelism, info.suggested_parallelism);
    ensure!(
        (1..=65_536).contains(&most) && (1..=65_536).contains(&best),
        "max {most}, suggested {best}"
    );
    Ok(())
}

fn info_stable(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    let first = executor.info()?;
    for _ in 0..100 {
        let again = executor.info()?;
        ensure!(
            again.max_parallelism == first.max_parallelism,
            "it was {} and is {}",
            first.max_parallelism,
            again.max_parallelism
        );
    }
    Ok(())
}

fn fold(acc: u64, index: u64) -> u64 {
    acc.wrapping_mul(31).wrapping_add(index ^ 0x5bd1)
}

/// The same reduction, one piece after another.
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

fn reduce_stable(s: &Subject) -> Outcome {
    let executor = executor(s)?;
    let first = executor.reduce(0, 10_000, 0, fold)?;
    for _ in 0..50 {
        let again = executor.reduce(0, 10_000, 0, fold)?;
        ensure!(again == first, "one run gives {first:#x}, another {again:#x}");
    }
    Ok(())
}

fn reduce_empty(s: &Subject) -> Outcome {
    let is = executor(s)?.reduce(7, 7, 1, fold)?;
    ensure!(is == 0, "an empty range gives {is}, the identity is 0");
    Ok(())
}
