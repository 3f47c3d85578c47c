//! Tests of kernel launches: every thread of the grid runs, with the right arguments and indices.

use crate::kit::prelude::*;
use crate::tests::limits::{clamped, threads_of};

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Alone "exec.kernel.":
        every_thread_once, one_thread = |s| counted(s, [1; 3], [1; 3]),
        many_blocks = |s| counted(s, [70_000, 1, 1], [1, 1, 1]), context_tells_the_launch,
        indices_stay_inside, gets_its_own_user_pointer, shared_memory_starts_as_zero,
        shared_memory_is_the_blocks, no_shared_memory_is_null, arguments_arrive,
        arguments_are_copied, large_argument, forty_arguments, launches_keep_their_arguments,
        launches_in_order, after_earlier_work, before_later_work, event_waits_for_the_launch,
        failure_is_the_streams, query_tells_the_failure, destroyed_kernel_still_runs,
        zero_grid_refused, bad_launches_refused, largest_block_runs, from_threads_at_once;
];

/// Launch of one thread.
const ONE: dtl_launch_t = shape([1; 3], [1; 3], 0);

/// Launches a kernel and checks that each of its threads runs exactly once. The launch is clamped
/// to the limits of the device.
fn counted(s: &Subject, grid: [u32; 3], block: [u32; 3]) -> Outcome {
    let launch = clamped(s, shape(grid, block, 0));
    let (grid, block, threads) = (launch.grid, launch.block, threads_of(&launch));
    let counts = counters(threads);
    let _launched = launched(s, &launch, &[], |thread| {
        let Some(count) = counts.get(thread.number_of_all() as usize) else {
            return DTL_ERROR_OUT_OF_BOUNDS;
        };
        count.fetch_add(1, Ordering::Relaxed);
        0
    })?;
    match not_once(counts) {
        Some((at, times)) => {
            wrong!("grid {grid:?} of {block:?}: thread {at} of {threads} ran {times} times")
        }
        None => Ok(()),
    }
}

fn every_thread_once(s: &Subject) -> Outcome {
    counted(s, [7, 1, 1], [5, 1, 1])?;
    counted(s, [3, 4, 1], [2, 6, 1])?;
    counted(s, [2, 3, 5], [4, 2, 3])?;
    counted(s, [1, 1, 6], [1, 1, 8])
}

/// Launches a kernel that applies `check` to each of its threads. Fails if a check returns false.
/// The launch is clamped to the limits of the device.
fn checked(
    s: &Subject,
    launch: dtl_launch_t,
    what: &str,
    check: impl Fn(&Thread<'_>) -> bool + Send + Sync + 'static,
) -> Outcome {
    let wrong = Notes::new();
    let _launched = launched(s, &clamped(s, launch), &[], move |thread| {
        if !check(thread) {
            wrong.add((thread.context.block_index, thread.context.thread_index));
        }
        0
    })?;
    let first = wrong.list().first().copied();
    check!(first.is_none(), "{what}: block and thread {first:?}")
}

fn context_tells_the_launch(s: &Subject) -> Outcome {
    let launch = clamped(s, shape([3, 4, 2], [2, 3, 1], 256));
    checked(s, launch, "the context does not tell the launch", move |thread| {
        let context = thread.context;
        (context.grid, context.block, context.shared_bytes) == (launch.grid, launch.block, 256)
    })
}

fn indices_stay_inside(s: &Subject) -> Outcome {
    let below =
        |index: [u32; 3], size: [u32; 3]| index.iter().zip(size).all(|(index, size)| *index < size);
    let launch = clamped(s, shape([3, 4, 2], [2, 3, 5], 0));
    checked(s, launch, "an index is outside of its size", move |thread| {
        let context = thread.context;
        below(context.block_index, context.grid) && below(context.thread_index, context.block)
    })
}

fn gets_its_own_user_pointer(s: &Subject) -> Outcome {
    let (stream, counts) = (stream(s)?, counters(8));
    let mut kernels = Vec::new();
    for (count, times) in counts.iter().zip(1..) {
        let kernel = Kernel::new(s.backend, |_| {
            count.fetch_add(1, Ordering::Relaxed);
            0
        })?;
        stream.launch(&kernel, &shape([times, 1, 1], [1; 3], 0), &[])?;
        kernels.push(kernel);
    }
    stream.synchronize()?;
    let is: Vec<u64> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    check!(is == [1, 2, 3, 4, 5, 6, 7, 8], "eight kernels with 1 to 8 threads ran {is:?} times")
}

fn shared_memory_starts_as_zero(s: &Subject) -> Outcome {
    let (launch, what) =
        (shape([200, 1, 1], [2, 1, 1], 128), "a block's first thread found what another had left");
    checked(s, launch, what, |thread| {
        let first = thread.context.thread_index[0] == 0;
        let fresh = !first || thread.shared().iter().all(|byte| *byte == 0);
        thread.shared().fill(0xFF);
        fresh
    })
}

fn shared_memory_is_the_blocks(s: &Subject) -> Outcome {
    let (launch, what) =
        (shape([100, 1, 1], [4, 1, 1], 8), "the threads of a block do not see each other's writes");
    checked(s, launch, what, |thread| {
        let (index, mark) = (thread.context.thread_index[0] as usize, thread.block() as u8 | 1);
        let shared = thread.shared();
        let good = shared[..index].iter().all(|byte| *byte == mark);
        shared[index] = mark;
        good && shared.len() == 8
    })
}

fn no_shared_memory_is_null(s: &Subject) -> Outcome {
    let launch = shape([4, 1, 1], [2, 1, 1], 0);
    checked(s, launch, "shared is not NULL", |thread| thread.context.shared.is_null())
}

/// Launches a kernel once with these arguments. Returns the values that the kernel received.
fn numbers_seen(s: &Subject, numbers: &[u64]) -> Outcome<Vec<u64>> {
    let (seen, count) = (Notes::new(), numbers.len());
    let bytes: Vec<[u8; 8]> = numbers.iter().map(|number| number.to_le_bytes()).collect();
    let args: Vec<&[u8]> = bytes.iter().map(<[u8; 8]>::as_slice).collect();
    let _launched = launched(s, &ONE, &args, move |thread| {
        (0..count).for_each(|index| seen.add(thread.number(index)));
        0
    })?;
    Ok(seen.list())
}

fn arguments_arrive(s: &Subject) -> Outcome {
    let numbers: Vec<u64> =
        (0..10).map(|index| 0x0123_4567_89ab_cdef_u64.rotate_left(index * 5)).collect();
    let seen = numbers_seen(s, &numbers)?;
    check!(seen == numbers, "the kernel saw {seen:x?} for {numbers:x?}")
}

fn forty_arguments(s: &Subject) -> Outcome {
    let numbers: Vec<u64> = (0..40).map(|index| index * index + 7).collect();
    let seen = numbers_seen(s, &numbers)?;
    check!(seen == numbers, "the kernel saw {seen:?} for {numbers:?}")
}

fn arguments_are_copied(s: &Subject) -> Outcome {
    let (stream, seen) = (stream(s)?, counter());
    let kernel = Kernel::new(s.backend, |thread| {
        seen.store(thread.number(0), Ordering::SeqCst);
        0
    })?;
    stream.callback(slow(15))?;
    let mut number = 42u64.to_le_bytes();
    stream.launch(&kernel, &ONE, &[&number])?;
    number.fill(0xFF);
    std::hint::black_box(&number);
    // The library hands the backend a copy of its own, which ends with the call: the next launch
    // writes in its place.
    let other = Kernel::new(s.backend, |_| 0)?;
    stream.launch(&other, &ONE, &[&number])?;
    stream.synchronize()?;
    let seen = seen.load(Ordering::SeqCst);
    check!(seen == 42, "the argument was 42 at the launch, the kernel saw {seen}")
}

fn large_argument(s: &Subject) -> Outcome {
    let (same, bytes) = (counter(), kept(pattern(3, 4000)));
    let _launched = launched(s, &ONE, &[bytes, &4000u64.to_le_bytes()], move |thread| {
        let good = thread.bytes(0, 4000) == bytes && thread.number(1) == 4000;
        same.store(u64::from(good), Ordering::SeqCst);
        0
    })?;
    let good = same.load(Ordering::SeqCst) == 1;
    check!(good, "an argument of 4000 bytes or the one behind it is wrong")
}

fn launches_keep_their_arguments(s: &Subject) -> Outcome {
    let (stream, notes) = (stream(s)?, Notes::new());
    let kernel = Kernel::new(s.backend, |thread| {
        notes.add(thread.number(0));
        0
    })?;
    (0..100u64).try_for_each(|number| stream.launch(&kernel, &ONE, &[&number.to_le_bytes()]))?;
    stream.synchronize()?;
    let is = notes.list();
    check!(is == (0..100).collect::<Vec<u64>>(), "100 launches saw {is:?}")
}

fn launches_in_order(s: &Subject) -> Outcome {
    let (stream, inside) = (stream(s)?, counter());
    for round in 0..200u64 {
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

fn after_earlier_work(s: &Subject) -> Outcome {
    let (stream, job, early) = (stream(s)?, slow(15), counter());
    let kernel = Kernel::new(s.backend, move |_| {
        early.fetch_or(u64::from(job.runs() == 0), Ordering::SeqCst);
        0
    })?;
    stream.callback(job)?;
    stream.launch(&kernel, &shape([4, 1, 1], [1; 3], 0), &[])?;
    stream.synchronize()?;
    let early = early.load(Ordering::SeqCst) == 1;
    check!(!early, "the launch began before the work in front of it had ended")
}

fn before_later_work(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    let (_kernel, runs) = slow_launch(s, &stream, 6)?;
    stream.callback(Job::new(|| i32::from(runs.load(Ordering::SeqCst) != 6)))?;
    let good = stream.synchronize().is_ok();
    check!(good, "work behind the launch ran before all its threads were done")
}

fn event_waits_for_the_launch(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    let (_kernel, runs) = slow_launch(s, &stream, 6)?;
    Event::on(s.backend, &stream)?.sync()?;
    let runs = runs.load(Ordering::SeqCst);
    check!(runs == 6, "the event is complete after {runs} of 6 threads")
}

fn failure_is_the_streams(s: &Subject) -> Outcome {
    for at in [0, 3, 9] {
        let stream = stream(s)?;
        let kernel = Kernel::new(s.backend, move |thread| {
            if thread.number_of_all() == at { DTL_ERROR_OUT_OF_BOUNDS } else { 0 }
        })?;
        stream.launch(&kernel, &shape([10, 1, 1], [1; 3], 0), &[])?;
        let what = "synchronize after a thread that failed";
        refused(stream.synchronize(), DTL_ERROR_OUT_OF_BOUNDS, what)?;
    }
    Ok(())
}

fn query_tells_the_failure(s: &Subject) -> Outcome {
    let (stream, kernel) = (stream(s)?, Kernel::new(s.backend, |_| DTL_ERROR_OUT_OF_BOUNDS)?);
    stream.launch(&kernel, &ONE, &[])?;
    let told = becomes(LONG, || !matches!(stream.query(), Ok(false)));
    ensure!(told, "the stream never becomes done");
    refused(stream.query(), DTL_ERROR_OUT_OF_BOUNDS, "query of a stream whose launch failed")
}

fn destroyed_kernel_still_runs(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    stream.callback(slow(10))?;
    let (kernel, runs) = slow_launch(s, &stream, 3)?;
    drop(kernel);
    stream.synchronize()?;
    let runs = runs.load(Ordering::SeqCst);
    check!(runs == 3, "{runs} of 3 threads ran after the kernel's handle was destroyed")
}

fn zero_grid_refused(s: &Subject) -> Outcome {
    let (stream, kernel) = (stream(s)?, Kernel::new(s.backend, |_| 0)?);
    for (grid, block) in [([0, 1, 1], [1; 3]), ([1; 3], [1, 0, 1]), ([1, 1, 0], [1; 3])] {
        let result = stream.launch(&kernel, &shape(grid, block, 0), &[]);
        refused(result, DTL_ERROR_INVALID_ARGUMENT, &format!("grid {grid:?} of {block:?}"))?;
    }
    Ok(())
}

/// Returns the largest block of the device in x.
pub(crate) fn largest_block(s: &Subject) -> Outcome<[u32; 3]> {
    const MOST: u32 = 1 << 16;
    let Some(info) = optional(s.backend.device_info(0))? else {
        skip!("the backend has no device table, which reports the limit of a block");
    };
    let known = [info.max_block_threads, info.max_block[0]].into_iter().filter(|most| *most > 0);
    match known.min() {
        Some(most) if most <= MOST => Ok([most, 1, 1]),
        Some(most) => skip!("a block has up to {most} threads: the test launches up to {MOST}"),
        None => skip!("the device reports no limit of a block"),
    }
}

/// Checks that launches with bad shapes and NULL lists are refused, and that nothing of them runs.
pub(crate) fn refuses_shapes(
    s: &Subject,
    stream: &Stream,
    kernel: &Kernel,
    args: &[&[u8]],
) -> Outcome {
    let mut shapes = vec![([1; 3], [u32::MAX; 3]), ([u32::MAX; 3], [2, 1, 1])];
    if let Ok(info) = s.backend.device_info(0) {
        let beyond = |most: u32| most.checked_add(1).filter(|_| most > 0);
        let of_block = beyond(info.max_block_threads).map(|size| [size, 1, 1]);
        let of_axis = beyond(info.max_block[2]).map(|size| [1, 1, size]);
        shapes.extend([of_block, of_axis].into_iter().flatten().map(|block| ([1; 3], block)));
        shapes.extend(beyond(info.max_grid[1]).map(|size| ([1, size, 1], [1; 3])));
    }
    for (grid, block) in shapes {
        let result = stream.launch(kernel, &shape(grid, block, 0), args);
        refused(result, DTL_ERROR_INVALID_ARGUMENT, &format!("grid {grid:?} of {block:?}"))?;
    }
    let pointers: Vec<*const std::ffi::c_void> =
        args.iter().map(|arg| arg.as_ptr().cast()).collect();
    let sizes: Vec<u64> = args.iter().map(|arg| arg.len() as u64).collect();
    let (count, one, null) = (args.len() as u64, ptr::from_ref(&ONE), ptr::null());
    let (all, list, kernel) = (pointers.as_ptr(), sizes.as_ptr(), kernel.handle);
    let stream = stream.handle;
    let no_args = call!(dtl_kernel_launch(stream, kernel, one, ptr::null(), list, count));
    refused(no_args, DTL_ERROR_NULL_POINTER, "args is NULL")?;
    let no_sizes = call!(dtl_kernel_launch(stream, kernel, one, all, ptr::null(), count));
    refused(no_sizes, DTL_ERROR_NULL_POINTER, "sizes is NULL")?;
    let no_shape = call!(dtl_kernel_launch(stream, kernel, null, all, list, count));
    refused(no_shape, DTL_ERROR_NULL_POINTER, "launch is NULL")?;
    let (many, sizes) = (vec![all.cast(); 4097], vec![1; 4097]);
    let (all, list) = (many.as_ptr(), sizes.as_ptr());
    let too_many = call!(dtl_kernel_launch(stream, kernel, one, all, list, 4097));
    refused(too_many, DTL_ERROR_LIMIT, "4097 arguments")
}

fn bad_launches_refused(s: &Subject) -> Outcome {
    let (stream, runs) = (stream(s)?, counter());
    let kernel = Kernel::new(s.backend, |_| {
        runs.fetch_add(1, Ordering::SeqCst);
        0
    })?;
    let number = 5_u64.to_ne_bytes();
    refuses_shapes(s, &stream, &kernel, &[&number])?;
    stream.synchronize()?;
    let is = runs.load(Ordering::SeqCst);
    ensure!(is == 0, "{is} threads of refused launches ran");
    let good = clamped(s, shape([3, 2, 1], [2, 1, 1], 0));
    stream.launch(&kernel, &good, &[&number])?;
    stream.synchronize()?;
    let (is, all) = (runs.load(Ordering::SeqCst), threads_of(&good));
    check!(is == all, "after refused launches, {is} of {all} threads of a good one ran")
}

fn largest_block_runs(s: &Subject) -> Outcome {
    counted(s, [2, 1, 1], largest_block(s)?)
}

fn from_threads_at_once(s: &Subject) -> Outcome {
    in_threads(8, |_| (0..5).try_for_each(|_| counted(s, [20, 1, 1], [3, 2, 1])))
}

/// Launches a kernel of `blocks` blocks, each of which sleeps and then increments the returned
/// counter.
fn slow_launch(s: &Subject, stream: &Stream, blocks: u32) -> Outcome<(Kernel, &'static AtomicU64)> {
    let runs = counter();
    let kernel = Kernel::new(s.backend, |_| {
        thread::sleep(Duration::from_millis(2));
        runs.fetch_add(1, Ordering::SeqCst);
        0
    })?;
    stream.launch(&kernel, &shape([blocks, 1, 1], [1; 3], 0), &[])?;
    Ok((kernel, runs))
}
