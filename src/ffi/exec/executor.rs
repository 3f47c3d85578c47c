//! Executors: functions and loops on the host.

use crate::abi::devices::exec::*;
use crate::abi::handle::{dtl_backend_t, dtl_event_t, dtl_executor_t};
use crate::abi::runtime::dtl_task_fn_t;
use crate::abi::status::dtl_status_t;
use crate::error::{Result, fail, failure};
use crate::ffi::args::{self, Out};
use crate::ffi::guard::Entry;
use crate::runtime::exec::event::Event;
use crate::runtime::exec::executor::Executor;
use crate::runtime::exec::handles;
use crate::runtime::exec::host::reduce::{self, Reduction};
use crate::sys::{memory::buf::Addr, sync::wait::Deadline};
use std::ffi::c_void;

/// Returns the function pointer, or fails with NULL_POINTER if there is none.
fn given<F>(function: Option<F>, name: &str) -> Result<F> {
    function.ok_or_else(|| failure!(DTL_ERROR_NULL_POINTER, "{name} is NULL; pass a function"))
}

/// Creates an executor, which runs functions and loops on the host.
///
/// Threads are started when there is work for them. They run on the cores that are allowed for the
/// thread whose call starts them. Idle threads of a pool look for work for at most 0.2 ms; then
/// they sleep and use no processor time. A forked child has no executors (dtl_init_after_fork).
///
/// @param desc  Start from DTL_EXECUTOR_DESC_INIT. NULL = all defaults: the host execution of the
///              backend if it has one, otherwise a pool.
/// @param out   The executor. The caller owns it; destroy it with dtl_executor_destroy.
/// @return DTL_ERROR_NOT_SUPPORTED: the kind is DTL_EXECUTOR_BACKEND, and the backend has no host
///         execution.
///         DTL_ERROR_INVALID_ARGUMENT: the kind is unknown, or a pool has more than 4096 threads.
/// dtl:desc opt
/// dtl:out owned(dtl_executor_destroy)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_executor_create(
    backend: dtl_backend_t,
    desc: *const dtl_executor_desc_t,
    out: *mut dtl_executor_t,
) -> dtl_status_t {
    Entry("dtl_executor_create").call(|inside| {
        let out = Out::new(out, "out")?;
        // SAFETY: the caller's contract: null, or a struct as long as its struct_size.
        let desc = unsafe { args::take_or_zero(desc, "desc") }?;
        args::check_reserved(desc.reserved, "desc.reserved")?;
        let owner = handles::backend_of(inside, backend)?;
        let executor = Executor::create(owner, desc.kind, desc.threads)?;
        out.put(handles::insert(executor).map(|id| dtl_executor_t { id }))
    })
}

/// Destroys an executor after the functions that dtl_executor_run_async started have run.
///
/// Blocks until then, unless work of the executor itself makes the call. Destroying
/// DTL_EXECUTOR_NULL succeeds.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_executor_destroy(executor: dtl_executor_t) -> dtl_status_t {
    Entry("dtl_executor_destroy").wait(
        |inside| handles::remove::<Executor>(inside, executor.id),
        |executor| {
            if let Some(executor) = executor {
                executor.close();
            }
            Ok(())
        },
    )
}

/// Runs fn(user) and returns when it has run.
///
/// INLINE and POOL run it in the calling thread, SEQUENTIAL in the thread of the executor, BACKEND
/// wherever the backend does.
///
/// @param fn    Locks held: none. It may block and call dtl_ functions. It must not throw.
/// @param user  Passed to `fn`.
/// @return The status of `fn`.
/// dtl:user opaque
/// dtl:fn until(return)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_executor_run(
    executor: dtl_executor_t,
    r#fn: dtl_task_fn_t,
    user: *mut c_void,
) -> dtl_status_t {
    Entry("dtl_executor_run").wait(
        |inside| Ok((given(r#fn, "fn")?, handles::pin::<Executor>(inside, executor.id)?)),
        |(function, executor)| executor.run(function, Addr::new(user)),
    )
}

/// Starts fn(user) and returns. On INLINE the call returns when `fn` has run. SEQUENTIAL and
/// BACKEND run such functions one after another, POOL several at once.
///
/// @param fn     Thread: one of the executor. Locks held: none. It may block and call dtl_
///               functions, except to wait for this executor. It must not throw.
/// @param user   Passed to `fn`.
/// @param event  Event to record: it is complete when `fn` has run, and reports its failure. An
///               earlier record is replaced. Create it for a backend without events, such as
///               "host". DTL_EVENT_NULL = none.
/// @return The event and the next dtl_executor_wait report a failure of `fn`; this call does not.
///         DTL_ERROR_INVALID_ARGUMENT: the event belongs to a backend that implements events.
/// dtl:fn until(call_of:dtl_executor_wait|dtl_executor_destroy)
/// dtl:user opaque until(call_of:dtl_executor_wait|dtl_executor_destroy)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_executor_run_async(
    executor: dtl_executor_t,
    r#fn: dtl_task_fn_t,
    user: *mut c_void,
    event: dtl_event_t,
) -> dtl_status_t {
    Entry("dtl_executor_run_async").wait(
        |inside| {
            let event =
                if event.id == 0 { None } else { Some(handles::pin::<Event>(inside, event.id)?) };
            Ok((given(r#fn, "fn")?, handles::pin::<Executor>(inside, executor.id)?, event))
        },
        |(function, executor, event)| {
            executor.run_async(function, Addr::new(user), event.as_deref())
        },
    )
}

/// Runs the iterations begin to end - 1 in chunks and returns when all have run.
///
/// The calling thread takes part. On POOL each thread has the same share of the chunks in every
/// loop of the same size, so data stays where it was touched first. A thread that has finished its
/// share takes chunks of others. A range of at most `grain` iterations is one chunk and runs in the
/// calling thread alone. With seven loops in progress on the executor, a further one runs in the
/// calling thread alone. A loop never waits for a thread that has not started one of its chunks.
/// Loops may be nested, and several threads may use one executor at once.
///
/// @param begin  First iteration.
/// @param end    One after the last iteration. An empty range is a success.
/// @param grain  Iterations per chunk: chunk k begins at begin + k * grain, and the last one may be
///               smaller. 0 = four chunks per thread, or one per iteration if that gives fewer.
/// @param fn     The body. It may run in several threads at once, including the calling one.
/// @param user   Passed to `fn`.
/// @return The status of the first chunk that failed. Chunks that had not started are skipped.
///         DTL_ERROR_INVALID_ARGUMENT: `begin` is greater than `end`.
/// Equivalent: #pragma omp parallel for schedule(dynamic, grain).
/// dtl:user opaque
/// dtl:fn until(return)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_executor_parallel_for(
    executor: dtl_executor_t,
    begin: u64,
    end: u64,
    grain: u64,
    r#fn: dtl_range_fn_t,
    user: *mut c_void,
) -> dtl_status_t {
    Entry("dtl_executor_parallel_for").hold(handles::hold::<Executor>, executor.id, |executor| {
        executor.parallel_for((begin, end), grain, given(r#fn, "fn")?, Addr::new(user))
    })
}

/// Reduces the iterations begin to end - 1 to one result, deterministically.
///
/// The range is cut into chunks by `grain` alone. Each chunk is folded into a copy of the identity,
/// and the partial results are combined in order. So the result is the same, bit for bit, for every
/// number of threads.
///
/// @param begin           First iteration.
/// @param end             One after the last iteration. For an empty range the result is the
///                        identity.
/// @param grain           Iterations per chunk. 0 = a 64th of the range, rounded up.
/// @param acc_size_bytes  Size of a partial result in bytes, at least 1. Partial results are plain
///                        bytes, aligned to 64.
/// @param identity        `acc_size_bytes` bytes from which each partial result starts.
/// @param fold            Folds a chunk into a partial result. It may run in several threads at
///                        once.
/// @param combine         Combines two partial results. Called in the calling thread.
/// @param user            Passed to `fold` and `combine`.
/// @param out_result      `acc_size_bytes` bytes for the result, written on success only. May be
///                        `identity`.
/// @return The status of the first fold that failed.
///         DTL_ERROR_INVALID_ARGUMENT: `begin` is greater than `end`, or `acc_size_bytes` is 0.
///         DTL_ERROR_OUT_OF_MEMORY: there is no memory for the partial results.
/// Equivalent: #pragma omp parallel for reduction, which is not deterministic.
/// dtl:identity len(acc_size_bytes)
/// dtl:user opaque
/// dtl:out_result len(acc_size_bytes)
/// dtl:fold until(return)
/// dtl:combine until(return)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_executor_parallel_reduce(
    executor: dtl_executor_t,
    begin: u64,
    end: u64,
    grain: u64,
    acc_size_bytes: u64,
    identity: *const c_void,
    fold: dtl_fold_fn_t,
    combine: dtl_combine_fn_t,
    user: *mut c_void,
    out_result: *mut c_void,
) -> dtl_status_t {
    Entry("dtl_executor_parallel_reduce").hold(handles::hold::<Executor>, executor.id, |executor| {
        if acc_size_bytes == 0 {
            return fail!(DTL_ERROR_INVALID_ARGUMENT, "acc_size_bytes is 0; pass a result's size");
        }
        // SAFETY: the caller's contract: acc_size_bytes are there until the call returns.
        let identity = unsafe { args::region(identity, acc_size_bytes, "identity") }?;
        // SAFETY: as above.
        let out = unsafe { args::region(out_result, acc_size_bytes, "out_result") }?;
        let reduction = Reduction {
            range: (begin, end),
            grain,
            identity,
            fold: given(fold, "fold")?,
            combine: given(combine, "combine")?,
            user: Addr::new(user),
        };
        reduce::run(executor, reduction, out)
    })
}

/// Blocks until everything that dtl_executor_run_async started has run. On INLINE there is nothing
/// to wait for.
///
/// @param timeout_ns  In nanoseconds; 0 polls once, DTL_TIMEOUT_INFINITE sets no limit.
/// @return The first failure since the last call. It is reported once.
///         DTL_ERROR_TIMEOUT: the work is not complete in time. It continues.
///         DTL_ERROR_INVALID_STATE: the call would wait for the work that made it: a function from
///         dtl_executor_run_async, or on SEQUENTIAL one from dtl_executor_run or a loop body. On
///         POOL a loop body may make the call; while functions from dtl_executor_run_async run,
///         only in the thread that started the loop.
/// dtl:call blocks(timeout_ns)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_executor_wait(executor: dtl_executor_t, timeout_ns: u64) -> dtl_status_t {
    Entry("dtl_executor_wait").wait(
        |inside| handles::pin::<Executor>(inside, executor.id),
        |executor| executor.wait(Deadline::after(timeout_ns)),
    )
}

/// Returns the kind and the parallelism of an executor.
///
/// @param out_info  Start from DTL_EXECUTOR_INFO_INIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_executor_info(
    executor: dtl_executor_t,
    out_info: *mut dtl_executor_info_t,
) -> dtl_status_t {
    Entry("dtl_executor_info").call(|inside| {
        let executor = handles::find::<Executor>(inside, executor.id)?;
        // SAFETY: the caller's contract: a writable struct as long as its struct_size.
        unsafe { args::fill(out_info, "out_info", || executor.info()) }
    })
}
