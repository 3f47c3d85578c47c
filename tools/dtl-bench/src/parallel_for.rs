//! Subcommand `parallel_for`: measures the time of a parallel loop on several threads, from the
//! call to its return, and compares it with the time in GCC's OpenMP or oneTBB.
//!
//! In a batch, loops follow each other immediately, so that the waiting threads are still spinning
//! when the next loop begins. Before each batch there is a pause in which the threads of the other
//! implementation stop spinning, because spinning threads would slow down the measured loops.
//!
//! Thread *t* of either implementation stays on processor *t*. Otherwise the operating system may
//! wake a worker on the processor of the caller. The library's caller then runs the loop alone, and
//! a batch is too short for the system to move the worker (docs/explanation/executor.md).

use crate::library::{call, open_host};
use crate::local::{self, Batch, Case, time};
use crate::machine;
use crate::options::{LoopPeer, ParallelFor};
use crate::out::{Outcome, complain};
use crate::probe::Helper;
use crate::table::Unit;
use crate::tbb::Tbb;
use dtl::tooling::os::SharedObject;
use dtl_sys::*;
use serde_json::{Value, json};
use std::ffi::{c_int, c_uint, c_void};
use std::hint::black_box;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, ThreadId, sleep, yield_now};
use std::time::{Duration, Instant};

/// Pause before each batch, long enough for idle threads to stop spinning.
const REST: Duration = Duration::from_millis(2);
/// Number of untimed loops at the beginning of a batch, which wake the threads after the pause
/// `REST`.
const WAKE_UP: usize = 10;
/// Number of polls (GOMP_SPINCOUNT) after which an idle OpenMP thread sleeps. The polls take a
/// fraction of the pause `REST`.
const GOMP_SPINS: &str = "20000";

/// Parameters of a loop: y += 0.5 x for `length` elements, or an empty loop if `length` is 0.
struct Saxpy {
    x: *const f32,
    y: *mut f32,
    length: u64,
    thread_of: Option<ThreadNumber>,
    threads: u64,
    /// Work of the empty loop that binds the threads before the measurement.
    binding: Option<Binding>,
}

type ThreadNumber = unsafe extern "C" fn() -> c_int;
type Outlined = unsafe extern "C" fn(*mut c_void);
type GompParallel = unsafe extern "C" fn(Outlined, *mut c_void, c_uint, c_uint);

impl Saxpy {
    /// Returns the end (exclusive) of the iteration range, which begins at 0. If `length` is 0
    /// (empty loop), the range has one iteration, with an empty body, for each thread.
    fn end(&self, threads: u32) -> u64 {
        if self.length == 0 { u64::from(threads) } else { self.length }
    }

    #[inline(never)]
    fn range(&self, begin: u64, end: u64) {
        if self.length == 0 {
            return self.binding.iter().for_each(|binding| binding.piece(self.threads));
        }
        let count = (end - begin) as usize;
        // SAFETY: the vectors have `length` elements, and each range is one thread's alone.
        let x = unsafe { std::slice::from_raw_parts(self.x.wrapping_add(begin as usize), count) };
        // SAFETY: as above.
        let y =
            unsafe { std::slice::from_raw_parts_mut(self.y.wrapping_add(begin as usize), count) };
        y.iter_mut().zip(x).for_each(|(y, x)| *y += 0.5 * x);
    }
}

extern "C" fn body(begin: u64, end: u64, user: *mut c_void) -> dtl_status_t {
    // SAFETY: the loop below passes a `Saxpy` that outlives it.
    unsafe { &*user.cast::<Saxpy>() }.range(begin, end);
    DTL_SUCCESS
}

/// Runs the calling thread's share of the iterations, like the function that a compiler generates
/// for an OpenMP loop with a static schedule.
unsafe extern "C" fn outlined(user: *mut c_void) {
    // SAFETY: the loop below passes a `Saxpy` that outlives it.
    let saxpy = unsafe { &*user.cast::<Saxpy>() };
    let Some(thread_of) = saxpy.thread_of else { return };
    // SAFETY: OpenMP's own function, called in a thread of its team.
    let thread = unsafe { thread_of() } as u64;
    saxpy.range(saxpy.length * thread / saxpy.threads, saxpy.length * (thread + 1) / saxpy.threads);
}

/// GCC's OpenMP runtime (libgomp): the functions that a compiled OpenMP loop calls.
#[derive(Clone, Copy)]
struct Gomp {
    parallel: GompParallel,
    thread_of: ThreadNumber,
}

impl Gomp {
    /// Loads libgomp and configures its threads to spin between loops, unless environment variables
    /// that the user has set already configure this.
    fn load() -> Outcome<Gomp> {
        for (name, value) in [("OMP_WAIT_POLICY", "active"), ("GOMP_SPINCOUNT", GOMP_SPINS)] {
            if std::env::var_os(name).is_none() {
                // SAFETY: this process has one thread yet.
                unsafe { std::env::set_var(name, value) };
            }
        }
        // SAFETY: a library that a C program would be linked with; its constructors read the
        // environment.
        let module = unsafe { SharedObject::open(Path::new("libgomp.so.1")) };
        let module = module.map_err(|why| format!("--vs libgomp: {why}; it comes with gcc"))?;
        let symbol = |name: &std::ffi::CStr| {
            module
                .symbol(name)
                .ok_or_else(|| format!("libgomp.so.1 has no {}", name.to_string_lossy()))
        };
        let (parallel, thread_of) = (symbol(c"GOMP_parallel")?, symbol(c"omp_get_thread_num")?);
        Ok(Gomp {
            // SAFETY: the function of this name has this signature in libgomp's interface, which is
            // frozen.
            parallel: unsafe { std::mem::transmute::<*mut c_void, GompParallel>(parallel.ptr()) },
            // SAFETY: the function of this name has this signature in the OpenMP standard.
            thread_of: unsafe { std::mem::transmute::<*mut c_void, ThreadNumber>(thread_of.ptr()) },
        })
    }
}

/// Implementation of parallel loops with which the library is compared.
#[derive(Clone, Copy)]
enum Peer {
    Gomp(Gomp),
    Tbb(Tbb),
}

impl Peer {
    fn load(wanted: LoopPeer) -> Outcome<Peer> {
        match wanted {
            LoopPeer::Libgomp => Gomp::load().map(Peer::Gomp),
            LoopPeer::Tbb => Tbb::load().map(Peer::Tbb),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Peer::Gomp(_) => "libgomp",
            Peer::Tbb(_) => "tbb",
        }
    }

    fn thread_of(self) -> Option<ThreadNumber> {
        match self {
            Peer::Gomp(gomp) => Some(gomp.thread_of),
            Peer::Tbb(_) => None,
        }
    }

    fn facts(self) -> Value {
        match self {
            Peer::Gomp(_) => json!({ "name": "libgomp", "version": "OMP_WAIT_POLICY=active" }),
            Peer::Tbb(_) => json!({ "name": "tbb", "version": "auto_partitioner" }),
        }
    }

    /// Runs one loop.
    #[inline]
    fn run(self, threads: u32, task: &Saxpy) {
        let user = black_box(ptr::from_ref(task).cast_mut().cast());
        match self {
            // SAFETY: the task outlives the call, which returns when all threads are done with it.
            Peer::Gomp(gomp) => unsafe { (gomp.parallel)(outlined, user, threads, 0) },
            Peer::Tbb(tbb) => tbb.run(task.end(threads), threads, tbb_body, user),
        }
    }
}

extern "C" fn tbb_body(begin: u64, end: u64, user: *mut c_void) {
    let _ = body(begin, end, user); // it cannot fail
}

/// Binding of threads to processors by a loop of one piece per thread. Each piece binds its thread,
/// unless it is the caller, and waits for the others, so that each thread runs one.
struct Binding {
    caller: ThreadId,
    bound: AtomicUsize,
    arrived: AtomicU64,
}

/// Longest time that a piece waits for the others, which may not come.
const MEETING: Duration = Duration::from_millis(200);

impl Binding {
    fn new() -> Option<Binding> {
        let (bound, arrived) = (AtomicUsize::new(0), AtomicU64::new(0));
        Some(Binding { caller: thread::current().id(), bound, arrived })
    }

    fn piece(&self, threads: u64) {
        if thread::current().id() != self.caller {
            machine::pin(1 + self.bound.fetch_add(1, Ordering::Relaxed));
        }
        self.arrived.fetch_add(1, Ordering::Relaxed);
        let begin = Instant::now();
        while self.arrived.load(Ordering::Relaxed) < threads && begin.elapsed() < MEETING {
            yield_now();
        }
    }
}

/// Measured loops: name, number of elements, and number of loops in a batch.
const LOOPS: &[(&str, u64, usize)] =
    &[("empty", 0, 100), ("saxpy 1K", 1000, 100), ("saxpy 100K", 100_000, 10)];

/// Runs the measurements of `parallel_for` that the command line selects.
pub(crate) fn run(wanted: &ParallelFor) -> Outcome {
    let peer = wanted.vs.map(Peer::load).transpose()?;
    let backend = open_host()?;
    let processors = machine::shared_processors();
    let threads = wanted.threads.unwrap_or(processors as u32);
    if threads as usize > processors {
        complain!(
            "dtl-bench: {threads} threads on {processors} processor(s): they wait for each other's \
             turn"
        );
    }
    let desc = dtl_executor_desc_t { kind: DTL_EXECUTOR_POOL, threads, ..DTL_EXECUTOR_DESC_INIT };
    let mut executor = DTL_EXECUTOR_NULL;
    call!(dtl_executor_create(backend, &raw const desc, &raw mut executor))?;
    let most = LOOPS.iter().map(|one| one.1).max().unwrap_or(0) as usize;
    let (x, mut y) = (vec![1.0_f32; most], vec![0.0_f32; most]);
    let y_begin = y.as_mut_ptr();
    let task = |length| Saxpy {
        x: x.as_ptr(),
        y: y_begin,
        length,
        thread_of: peer.and_then(Peer::thread_of),
        threads: u64::from(threads),
        binding: None,
    };
    let tasks: Vec<Saxpy> = LOOPS.iter().map(|one| one.1).map(task).collect();
    verify(executor, peer, threads, &tasks)?;
    let helper = Helper::new(processors);
    if !wanted.place.no_pin {
        ours(executor, threads, &Saxpy { binding: Binding::new(), ..task(0) })?;
        if let Some(peer) = peer {
            peer.run(threads, &Saxpy { binding: Binding::new(), ..task(0) });
        }
        machine::pin(0); // last: threads inherit the processors of their creator
    }
    let pairs = LOOPS.iter().zip(&tasks);
    let cases = pairs.map(|(&(test, _, repeats), task)| Case {
        test,
        bytes: None,
        unit: Unit::Microseconds,
        sides: sides(executor, peer, threads, (task, repeats)),
    });
    let lines = local::measure(cases.collect(), &wanted.common, helper)?;
    let pinned = !wanted.place.no_pin;
    let more = json!({ "threads": threads, "pinned": pinned, "peer": peer.map(Peer::facts) });
    local::show("parallel_for", lines, processors, &wanted.common, more);
    call!(dtl_executor_destroy(executor))?;
    call!(dtl_finalize())
}

fn sides<'a>(
    executor: dtl_executor_t,
    peer: Option<Peer>,
    threads: u32,
    (task, repeats): (&'a Saxpy, usize),
) -> Vec<(&'static str, Batch<'a>)> {
    let own = move || batch(repeats, || ours(executor, threads, task));
    let mut sides: Vec<(_, Batch)> = vec![("dtl", Box::new(own))];
    if let Some(peer) = peer {
        let theirs = move || {
            batch(repeats, || {
                peer.run(threads, task);
                Ok(())
            })
        };
        sides.push((peer.name(), Box::new(theirs)));
    }
    sides
}

fn batch(repeats: usize, mut once: impl FnMut() -> Outcome) -> Outcome<f64> {
    sleep(REST);
    time(WAKE_UP, &mut once)?;
    time(repeats, &mut once)
}

/// Runs one loop with the library.
fn ours(executor: dtl_executor_t, threads: u32, task: &Saxpy) -> Outcome {
    let grain = u64::from(task.length == 0);
    let user = black_box(ptr::from_ref(task).cast_mut().cast());
    call!(dtl_executor_parallel_for(executor, 0, task.end(threads), grain, Some(body), user))
}

/// Checks that each implementation processes each element of a loop exactly once.
fn verify(executor: dtl_executor_t, peer: Option<Peer>, threads: u32, tasks: &[Saxpy]) -> Outcome {
    for task in tasks.iter().filter(|task| task.length > 0) {
        ours(executor, threads, task)?;
        let mut times = 1;
        if let Some(peer) = peer {
            peer.run(threads, task);
            times += 1;
        }
        // SAFETY: the vector has that many elements, and no loop runs.
        let y = unsafe { std::slice::from_raw_parts_mut(task.y, task.length as usize) };
        let wanted = 0.5 * f64::from(times);
        if let Some(at) = y.iter().position(|&value| f64::from(value) != wanted) {
            return Err(format!(
                "a loop of {} elements: element {at} is {}, expected {wanted}",
                task.length, y[at]
            ));
        }
        y.fill(0.0);
    }
    Ok(())
}
