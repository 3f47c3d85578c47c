//! Tests of launches: every thread of the grid, its arguments, its place.

use crate::kit::catalog::{Group, Need, tests_alone};
use crate::kit::exec_calls::{Event, Job, Kernel, Stream, shape};
use crate::kit::outcome::{Outcome, ensure, refused, wrong};
use crate::kit::subject::{Subject, becomes};
use crate::tests::device::in_threads;
use dtl_sys::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const NEEDS: &[Need] = &[Need::Compute];

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "exec.launch (grid)",
        needs: NEEDS,
        rule: "A launch calls the kernel for every thread of every block, with its place in the \
            context.",
        usually: "A block or thread is left out or done twice, x and z are swapped, or a dimension \
            is cut to 16 bits.",
        tests: tests_alone![
            "exec.kernel.every_thread_once": "grids of one to three dimensions: each thread \
             exactly once" => every_thread;
            "exec.kernel.one_thread": "the smallest launch" => one_thread;
            "exec.kernel.many_blocks": "70 000 blocks in x" => many_blocks;
            "exec.kernel.context_tells_the_launch": "grid, block and shared bytes are those of the \
             launch" => context;
            "exec.kernel.indices_stay_inside": "block and thread indices are below their \
             sizes" => indices;
            "exec.kernel.gets_its_own_user_pointer": "two kernels at once keep their \
             pointers" => user_pointer;
        ],
    },
    Group {
        slot: "exec.launch (shared memory)",
        needs: NEEDS,
        rule: "shared points to memory of the block, zeroed before its first thread; NULL if none \
            was asked for.",
        usually: "Blocks that run at the same time share their memory, or a block finds what the \
            last one left.",
        tests: tests_alone![
            "exec.kernel.shared_memory_starts_as_zero": "every block finds zeros" => shared_zero;
            "exec.kernel.shared_memory_is_the_blocks": "threads of a block see each other's \
             writes, and no other block's" => shared_block;
            "exec.kernel.no_shared_memory_is_null": "a launch without any has none" => shared_none;
        ],
    },
    Group {
        slot: "exec.launch (arguments)",
        needs: NEEDS,
        rule: "args[i] points to a copy of the i-th argument, made at the launch.",
        usually: "The caller's memory is read when the kernel runs, or sizes are mixed up.",
        tests: tests_alone![
            "exec.kernel.arguments_arrive": "ten numbers arrive in order" => arguments;
            "exec.kernel.arguments_are_copied": "changes after the launch are not \
             seen" => arguments_copied;
            "exec.kernel.large_argument": "an argument of 4000 bytes arrives \
             whole" => large_argument;
            "exec.kernel.forty_arguments": "more arguments than fit in any small \
             array" => many_arguments;
            "exec.kernel.launches_keep_their_arguments": "100 launches of one kernel, each with \
             its own" => arguments_of_launches;
        ],
    },
    Group {
        slot: "exec.launch (order and failure)",
        needs: NEEDS,
        rule: "A launch is work of its stream: in order, waited for, and its failure is the \
            stream's. Zero sizes \
               and too large blocks are DTL_ERROR_INVALID_ARGUMENT.",
        usually: "The launch returns before it is queued in order, or a failing thread is not \
            noticed.",
        tests: tests_alone![
            "exec.kernel.launches_in_order": "200 launches of one stream run one after \
             another" => order;
            "exec.kernel.after_earlier_work": "a launch begins when the slow work before it has \
             ended" => after_work;
            "exec.kernel.before_later_work": "work behind a launch sees all its threads \
             done" => before_work;
            "exec.kernel.event_waits_for_the_launch": "an event behind a launch is complete after \
             its last thread" => event_after;
            "exec.kernel.failure_is_the_streams": "a failing thread's status" => failure;
            "exec.kernel.query_tells_the_failure": "and a query of the stream answers it, \
             too" => query_failure;
            "exec.kernel.destroyed_kernel_still_runs": "what was queued runs though the kernel's \
             handle is gone" => destroyed;
            "exec.kernel.zero_grid_refused": "a grid or block of size 0 is refused" => zero_grid;
            "exec.kernel.from_threads_at_once": "eight threads launch on streams of their \
             own" => threads;
        ],
    },
];

fn stream(s: &Subject) -> Outcome<Stream> {
    Ok(Stream::new(s.backend, 0)?)
}

/// Launches a kernel that counts each of its threads, and compares.
fn counted(s: &Subject, grid: [u32; 3], block: [u32; 3]) -> Outcome {
    let threads: u64 = grid.iter().chain(&block).map(|size| u64::from(*size)).product();
    let counts: Arc<Vec<AtomicU64>> = Arc::new((0..threads).map(|_| AtomicU64::new(0)).collect());
    let seen = Arc::clone(&counts);
    let kernel =
        Kernel::new(s.backend, move |thread| match seen.get(thread.number_of_all() as usize) {
            Some(count) => {
                count.fetch_add(1, Ordering::Relaxed);
                0
            }
            None => DTL_ERROR_OUT_OF_BOUNDS,
        })?;
    let stream = stream(s)?;
    stream.launch(&kernel, &shape(grid, block, 0), &[])?;
    stream.synchronize()?;
    match counts.iter().position(|count| count.load(Ordering::Relaxed) != 1) {
        Some(at) => {
            let times = counts[at].load(Ordering::Relaxed);
            wrong!("grid {grid:?} of {block:?}: thread {at} of {threads} ran {times} times")
        }
        None => Ok(()),
    }
}

fn every_thread(s: &Subject) -> Outcome {
    counted(s, [7, 1, 1], [5, 1, 1])?;
    counted(s, [3, 4, 1], [2, 6, 1])?;
    counted(s, [2, 3, 5], [4, 2, 3])?;
    counted(s, [1, 1, 6], [1, 1, 8])
}

fn one_thread(s: &Subject) -> Outcome {
    counted(s, [1; 3], [1; 3])
}

fn many_blocks(s: &Subject) -> Outcome {
    counted(s, [70_000, 1, 1], [1, 1, 1])
}

/// Launches a check of each thread.
fn checked(
    s: &Subject,
    launch: dtl_sys::dtl_launch_t,
    check: impl Fn(&crate::kit::exec_calls::Thread<'_>) -> bool + Send + Sync + 'static,
    what: &str,
) -> Outcome {
    let wrong = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&wrong);
    let kernel = Kernel::new(s.backend, move |thread| {
        if !check(thread) {
            if let Ok(mut seen) = seen.lock() {
                seen.get_or_insert((thread.context.block_index, thread.context.thread_index));
            }
        }
        0
    })?;
    let stream = stream(s)?;
    stream.launch(&kernel, &launch, &[])?;
    stream.synchronize()?;
    let first = wrong.lock().map(|wrong| *wrong).unwrap_or_default();
    ensure!(first.is_none(), "{what}: block and thread {first:?}");
    Ok(())
}

fn context(s: &Subject) -> Outcome {
    let launch = shape([3, 4, 2], [2, 3, 1], 256);
    checked(
        s,
        launch,
        move |thread| {
            let context = thread.context;
            (context.grid, context.block, context.shared_bytes) == (launch.grid, launch.block, 256)
        },
        "the context does not tell the launch",
    )
}

fn indices(s: &Subject) -> Outcome {
    let below =
        |index: [u32; 3], size: [u32; 3]| index.iter().zip(size).all(|(index, size)| *index < size);
    checked(
        s,
        shape([3, 4, 2], [2, 3, 5], 0),
        move |thread| {
            let context = thread.context;
            below(context.block_index, context.grid) && below(context.thread_index, context.block)
        },
        "an index is outside of its size",
    )
}

fn user_pointer(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    let counts: Vec<Arc<AtomicU64>> = (0..8).map(|_| Arc::default()).collect();
    let mut kernels = Vec::new();
    for (count, times) in counts.iter().zip(1..) {
        let count = Arc::clone(count);
        let kernel = Kernel::new(s.backend, move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            0
        })?;
        stream.launch(&kernel, &shape([times, 1, 1], [1; 3], 0), &[])?;
        kernels.push(kernel);
    }
    stream.synchronize()?;
    let is: Vec<u64> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    ensure!(is == [1, 2, 3, 4, 5, 6, 7, 8], "eight kernels with 1 to 8 threads ran {is:?} times");
    Ok(())
}

fn shared_zero(s: &Subject) -> Outcome {
    checked(
        s,
        shape([200, 1, 1], [2, 1, 1], 128),
        |thread| {
            let fresh =
                thread.context.thread_index[0] > 0 || thread.shared().iter().all(|byte| *byte == 0);
            thread.shared().fill(0xFF);
            fresh
        },
        "a block's first thread found what another had left",
    )
}

fn shared_block(s: &Subject) -> Outcome {
    checked(
        s,
        shape([100, 1, 1], [4, 1, 1], 8),
        |thread| {
            let (index, mark) = (thread.context.thread_index[0], thread.block() as u8 | 1);
            let shared = thread.shared();
            let good = shared[..index as usize].iter().all(|byte| *byte == mark);
            shared[index as usize] = mark;
            good && shared.len() == 8
        },
        "the threads of a block do not see each other's writes",
    )
}

fn shared_none(s: &Subject) -> Outcome {
    checked(
        s,
        shape([4, 1, 1], [2, 1, 1], 0),
        |thread| thread.context.shared.is_null(),
        "shared is not NULL",
    )
}

/// Launches once with these numbers; what the kernel saw of them.
fn numbers_seen(s: &Subject, numbers: &[u64]) -> Outcome<Vec<u64>> {
    let (seen, count) = (Arc::new(Mutex::new(Vec::new())), numbers.len());
    let notes = Arc::clone(&seen);
    let kernel = Kernel::new(s.backend, move |thread| {
        if let Ok(mut notes) = notes.lock() {
            notes.extend((0..count).map(|index| thread.number(index)));
        }
        0
    })?;
    let stream = stream(s)?;
    let bytes: Vec<[u8; 8]> = numbers.iter().map(|number| number.to_le_bytes()).collect();
    let args: Vec<&[u8]> = bytes.iter().map(<[u8; 8]>::as_slice).collect();
    stream.launch(&kernel, &shape([1; 3], [1; 3], 0), &args)?;
    stream.synchronize()?;
    Ok(seen.lock().map(|seen| seen.clone()).unwrap_or_default())
}

fn arguments(s: &Subject) -> Outcome {
    let numbers: Vec<u64> =
        (0..10).map(|index| 0x0123_4567_89ab_cdef_u64.rotate_left(index * 5)).collect();
    let seen = numbers_seen(s, &numbers)?;
    ensure!(seen == numbers, "the kernel saw {seen:x?} for {numbers:x?}");
    Ok(())
}

fn many_arguments(s: &Subject) -> Outcome {
    let numbers: Vec<u64> = (0..40).map(|index| index * index + 7).collect();
    let seen = numbers_seen(s, &numbers)?;
    ensure!(seen == numbers, "the kernel saw {seen:?} for {numbers:?}");
    Ok(())
}

fn arguments_copied(s: &Subject) -> Outcome {
    let (stream, seen) = (stream(s)?, Arc::new(AtomicU64::new(0)));
    let note = Arc::clone(&seen);
    let kernel = Kernel::new(s.backend, move |thread| {
        note.store(thread.number(0), Ordering::SeqCst);
        0
    })?;
    stream.callback(Job::new(|| {
        thread::sleep(Duration::from_millis(15));
        0
    }))?;
    let mut number = 42u64.to_le_bytes();
    stream.launch(&kernel, &shape([1; 3], [1; 3], 0), &[&number])?;
    number.fill(0xFF);
    std::hint::black_box(&number);
    // The library hands the backend a copy of its own, which ends with the call: the next launch
    // writes in its place.
    let other = Kernel::new(s.backend, |_| 0)?;
    stream.launch(&other, &shape([1; 3], [1; 3], 0), &[&number])?;
    stream.synchronize()?;
    let seen = seen.load(Ordering::SeqCst);
    ensure!(seen == 42, "the argument was 42 at the launch, the kernel saw {seen}");
    Ok(())
}

fn large_argument(s: &Subject) -> Outcome {
    let (stream, same) = (stream(s)?, Arc::new(AtomicBool::new(false)));
    let bytes = crate::kit::subject::pattern(3, 4000);
    let (note, should) = (Arc::clone(&same), bytes.clone());
    let kernel = Kernel::new(s.backend, move |thread| {
        note.store(thread.bytes(0, 4000) == should && thread.number(1) == 4000, Ordering::SeqCst);
        0
    })?;
    stream.launch(&kernel, &shape([1; 3], [1; 3], 0), &[&bytes, &4000u64.to_le_bytes()])?;
    stream.synchronize()?;
    ensure!(same.load(Ordering::SeqCst), "an argument of 4000 bytes or the one behind it is wrong");
    Ok(())
}

fn arguments_of_launches(s: &Subject) -> Outcome {
    let (stream, notes) = (stream(s)?, Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&notes);
    let kernel = Kernel::new(s.backend, move |thread| {
        if let Ok(mut seen) = seen.lock() {
            seen.push(thread.number(0));
        }
        0
    })?;
    for number in 0..100u64 {
        stream.launch(&kernel, &shape([1; 3], [1; 3], 0), &[&number.to_le_bytes()])?;
    }
    stream.synchronize()?;
    let is = notes.lock().map(|notes| notes.clone()).unwrap_or_default();
    ensure!(is == (0..100).collect::<Vec<u64>>(), "100 launches saw {is:?}");
    Ok(())
}

fn order(s: &Subject) -> Outcome {
    let (stream, inside) = (stream(s)?, Arc::new(AtomicU64::new(0)));
    for round in 0..200u64 {
        let inside = Arc::clone(&inside);
        let kernel = Kernel::new(s.backend, move |_| {
            let before = inside.fetch_add(1, Ordering::SeqCst);
            if before / 3 == round { 0 } else { DTL_ERROR_INVALID_STATE }
        })?;
        stream.launch(&kernel, &shape([3, 1, 1], [1; 3], 0), &[])?;
    }
    match stream.synchronize() {
        Err(refused) if refused.status == DTL_ERROR_INVALID_STATE => {
            wrong!("a launch ran before the one in front of it was done")
        }
        ended => Ok(ended?),
    }
}

fn slow_threads(s: &Subject, runs: &Arc<AtomicU64>) -> Outcome<Kernel> {
    let runs = Arc::clone(runs);
    Ok(Kernel::new(s.backend, move |_| {
        thread::sleep(Duration::from_millis(2));
        runs.fetch_add(1, Ordering::SeqCst);
        0
    })?)
}

fn after_work(s: &Subject) -> Outcome {
    let (stream, early) = (stream(s)?, Arc::new(AtomicBool::new(false)));
    let job = Job::new(|| {
        thread::sleep(Duration::from_millis(15));
        0
    });
    let note = Arc::clone(&early);
    let kernel = Kernel::new(s.backend, move |_| {
        note.fetch_or(job.runs() == 0, Ordering::SeqCst);
        0
    })?;
    stream.callback(job)?;
    stream.launch(&kernel, &shape([4, 1, 1], [1; 3], 0), &[])?;
    stream.synchronize()?;
    ensure!(
        !early.load(Ordering::SeqCst),
        "the launch began before the work in front of it had ended"
    );
    Ok(())
}

fn before_work(s: &Subject) -> Outcome {
    let (stream, runs) = (stream(s)?, Arc::new(AtomicU64::new(0)));
    let kernel = slow_threads(s, &runs)?;
    stream.launch(&kernel, &shape([6, 1, 1], [1; 3], 0), &[])?;
    stream.callback(Job::new(move || i32::from(runs.load(Ordering::SeqCst) != 6)))?;
    ensure!(
        stream.synchronize().is_ok(),
        "work behind the launch ran before all its threads were done"
    );
    Ok(())
}

fn event_after(s: &Subject) -> Outcome {
    let (stream, runs) = (stream(s)?, Arc::new(AtomicU64::new(0)));
    let kernel = slow_threads(s, &runs)?;
    stream.launch(&kernel, &shape([6, 1, 1], [1; 3], 0), &[])?;
    Event::on(s.backend, &stream)?.sync()?;
    let runs = runs.load(Ordering::SeqCst);
    ensure!(runs == 6, "the event is complete after {runs} of 6 threads");
    Ok(())
}

fn failure(s: &Subject) -> Outcome {
    for at in [0, 3, 9] {
        let stream = stream(s)?;
        let fails = move |thread: &crate::kit::exec_calls::Thread<'_>| {
            if thread.number_of_all() == at { DTL_ERROR_OUT_OF_BOUNDS } else { 0 }
        };
        let kernel = Kernel::new(s.backend, fails)?;
        stream.launch(&kernel, &shape([10, 1, 1], [1; 3], 0), &[])?;
        refused(
            stream.synchronize(),
            DTL_ERROR_OUT_OF_BOUNDS,
            "synchronize after a thread that failed",
        )?;
    }
    Ok(())
}

fn query_failure(s: &Subject) -> Outcome {
    let (stream, kernel) = (stream(s)?, Kernel::new(s.backend, |_| DTL_ERROR_OUT_OF_BOUNDS)?);
    stream.launch(&kernel, &shape([1; 3], [1; 3], 0), &[])?;
    let told = becomes(Duration::from_secs(10), || !matches!(stream.query(), Ok(false)));
    ensure!(told, "the stream never becomes done");
    refused(stream.query(), DTL_ERROR_OUT_OF_BOUNDS, "query of a stream whose launch failed")
}

fn destroyed(s: &Subject) -> Outcome {
    let (stream, runs) = (stream(s)?, Arc::new(AtomicU64::new(0)));
    stream.callback(Job::new(|| {
        thread::sleep(Duration::from_millis(10));
        0
    }))?;
    let kernel = slow_threads(s, &runs)?;
    stream.launch(&kernel, &shape([3, 1, 1], [1; 3], 0), &[])?;
    drop(kernel);
    stream.synchronize()?;
    let runs = runs.load(Ordering::SeqCst);
    ensure!(runs == 3, "{runs} of 3 threads ran after the kernel's handle was destroyed");
    Ok(())
}

fn zero_grid(s: &Subject) -> Outcome {
    let (stream, kernel) = (stream(s)?, Kernel::new(s.backend, |_| 0)?);
    for (grid, block) in [([0, 1, 1], [1; 3]), ([1; 3], [1, 0, 1]), ([1, 1, 0], [1; 3])] {
        let result = stream.launch(&kernel, &shape(grid, block, 0), &[]);
        refused(result, DTL_ERROR_INVALID_ARGUMENT, &format!("grid {grid:?} of {block:?}"))?;
    }
    Ok(())
}

fn threads(s: &Subject) -> Outcome {
    in_threads(8, |_| (0..5).try_for_each(|_| counted(s, [20, 1, 1], [3, 2, 1])))
}
