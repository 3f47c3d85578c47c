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

/// Insists on a function pointer.
fn given<F>(function: Option<F>, name: &str) -> Result<F> {
    function.ok_or_else(|| failure!(DTL_ERROR_NULL_POINTER, "{name} is NULL; pass a function"))
}

/// Creates an executor. Threads are made when there is work for them; they run where the thread may
/// run whose call made them. Without work a pool's threads look for more for at most 0.2 ms, then
/// they sleep and use no processor time. In a forked child executors are gone
/// (dtl_init_after_fork).
///
/// @param desc  NULL = all defaults: the backend's own execution if it has one, else a pool.
/// @param out   the executor; destroy it with dtl_executor_destroy.
/// @return DTL_ERROR_NOT_SUPPORTED: DTL_EXECUTOR_BACKEND of a backend that has none.
///         DTL_ERROR_INVALID_ARGUMENT: an unknown kind, or more threads than are allowed.
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

/// Destroys an executor after what dtl_executor_run_async started has run (it waits for that;
/// called by the executor's own work it does not wait). The null executor: nothing happens.
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

/// Runs fn(user) and returns when it has run: in the calling thread (INLINE, POOL), on the
/// executor's thread (SEQUENTIAL), or where the backend likes.
///
/// @param fn  Locks held: none. It may block and call dtl_ functions; it must not throw.
/// @return the function's status.
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

/// Starts fn(user) and returns (INLINE: when it has run). SEQUENTIAL and BACKEND run one after
/// another, POOL several at once.
///
/// @param fn     Thread: the executor's. Locks held: none. It may block and call dtl_ functions,
///               except to wait for this executor; it must not throw.
/// @param event  completed when the function has run, with its failure; it replaces a record. Made
///               for a backend without events of its own, such as "host". Null = none.
/// @return DTL_ERROR_INVALID_ARGUMENT: the event is a backend's own.
///         The function's failure is the event's and the next dtl_executor_wait's.
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

/// Runs the iterations begin ... end-1 in pieces and returns when all have run. Loops may be nested
/// and several threads may use one executor at once. POOL: each thread has the same share of the
/// pieces in every loop of the same size, so data stays where it was touched first; who is through
/// takes pieces of others. The caller takes part. One piece (a range of at most `grain` iterations)
/// runs in the calling thread alone. So does a loop when seven others are in progress on the
/// executor. A loop waits for no thread that has not begun a piece of it.
///
/// @param grain  iterations of a piece: piece k begins at begin + k * grain, the last may be
///               smaller. 0 = choose: four pieces for each thread, or one for each iteration if
///               those are fewer.
/// @param fn     the body; may run on several threads at once, the caller among them.
/// @return the status of the first piece that failed; pieces not yet begun are then left out.
///         DTL_ERROR_INVALID_ARGUMENT: begin > end. An empty range is a success.
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

/// Reduces the iterations begin ... end-1. The range is cut into pieces by `grain` alone; each is
/// folded into a copy of the identity, and the partial results are combined in order: the result
/// is the same, bit for bit, for every number of threads.
///
/// @param grain           iterations of a piece; 0 = the range over 64.
/// @param acc_size_bytes  size of a partial result, at least 1; plain bytes, 64-byte aligned.
/// @param identity        acc_size_bytes.
/// @param combine         called in the calling thread.
/// @param out_result      acc_size_bytes; written on success only. May be `identity`.
/// @return the status of the first fold that failed. DTL_ERROR_INVALID_ARGUMENT: begin > end, or
///         acc_size_bytes is 0. DTL_ERROR_OUT_OF_MEMORY. An empty range gives the identity.
/// Equivalent: #pragma omp parallel for reduction (but deterministic).
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

/// Waits for everything that dtl_executor_run_async started.
///
/// @param timeout_ns  nanoseconds; 0 = return at once, DTL_TIMEOUT_INFINITE = no limit.
/// @return the first failure since the last call; it is reported once. DTL_ERROR_TIMEOUT: not done
///         in time; the work goes on. DTL_ERROR_INVALID_STATE: called by the executor's own work,
///         which it would wait for: a function of dtl_executor_run_async, and on SEQUENTIAL a
///         loop's body too. On INLINE nothing is left to wait for, and on POOL a loop's body is not
///         waited for: there the call succeeds (on POOL, while such functions run, only in the
///         thread that started the loop).
/// dtl:call blocks(timeout_ns)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_executor_wait(executor: dtl_executor_t, timeout_ns: u64) -> dtl_status_t {
    Entry("dtl_executor_wait").wait(
        |inside| handles::pin::<Executor>(inside, executor.id),
        |executor| executor.wait(Deadline::after(timeout_ns)),
    )
}

/// Tells what an executor is and how parallel.
///
/// @param out_info  start from DTL_EXECUTOR_INFO_INIT.
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
