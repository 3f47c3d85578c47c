//! Kernels: functions that run over a grid of blocks.

use super::stream;
use crate::abi::devices::dispatch::{DTL_DISPATCH_ANY, dtl_dispatch_launch_t};
use crate::abi::devices::exec::{dtl_kernel_fn_t, dtl_launch_record_t, dtl_launch_t};
use crate::abi::handle::{dtl_backend_t, dtl_kernel_t, dtl_stream_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::DTL_OPERATION_LAUNCH;
use crate::error::{Result, fail, failure};
use crate::ffi::args::{self, Out};
use crate::ffi::guard::Entry;
use crate::runtime::exec::handles;
use crate::runtime::exec::kernel::Kernel;
use crate::runtime::exec::launch_history;
use crate::runtime::library_ops;
use crate::sys::compute::callback::ArgPack;
use crate::sys::handles::epoch::Guard;
use crate::sys::memory::buf::{Addr, Region};
use std::ffi::{c_char, c_void};

/// Maximum number of arguments of a launch.
const MOST_ARGS: u64 = 4096;
/// Maximum number of arguments that are gathered without an allocation.
const FEW_ARGS: usize = 16;

/// Creates a kernel from a host function.
///
/// @param fn    Called once for each thread of a launch, see dtl_kernel_fn_t.
/// @param user  Passed to each call of `fn`. It must live until the last launch is complete.
/// @param out   The kernel. The caller owns it; destroy it with dtl_kernel_destroy.
/// Threads: any. Does not block.
/// dtl:out owned(dtl_kernel_destroy)
/// dtl:fn until(last_use)
/// dtl:user opaque until(last_use)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_kernel_from_function(
    backend: dtl_backend_t,
    r#fn: dtl_kernel_fn_t,
    user: *mut c_void,
    out: *mut dtl_kernel_t,
) -> dtl_status_t {
    Entry("dtl_kernel_from_function").call(|inside| {
        let out = Out::new(out, "out")?;
        let Some(function) = r#fn else {
            return fail!(DTL_ERROR_NULL_POINTER, "fn is NULL; pass the kernel's function");
        };
        let owner = handles::backend_of(inside, backend)?;
        let kernel = Kernel::from_function(owner, function, Addr::new(user));
        out.put(handles::insert(kernel).map(|id| dtl_kernel_t { id }))
    })
}

/// Destroys a kernel. Launches that are already queued still run. Destroying DTL_KERNEL_NULL
/// succeeds.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_kernel_destroy(kernel: dtl_kernel_t) -> dtl_status_t {
    Entry("dtl_kernel_destroy")
        .call(|inside| handles::remove::<Kernel>(inside, kernel.id).map(drop))
}

/// Queues the launch of a kernel on a stream: it runs for every thread of every block.
///
/// On the host the blocks may run on several cores, and the threads of a block run one after
/// another. The arguments are copied before the call returns. The first thread that fails stops the
/// launch, and its status is a failure of the stream. Does not block, except for host code on
/// streams of a backend that has neither launches of host functions nor callbacks. There the call
/// waits for the stream and runs the kernel itself.
///
/// @param launch  Start from DTL_LAUNCH_INIT. Read during the call only.
/// @param args    `count` pointers to the arguments. NULL if there are none.
/// @param sizes   `count` sizes of the arguments in bytes. NULL if there are none.
/// @param count   Number of arguments, at most 4096.
/// @return The failure of the handler for launch->schedule, which runs after the checks below.
///         DTL_ERROR_INVALID_ARGUMENT: a dimension is 0 or greater than the device allows, kernel
///         and stream belong to different backends, `schedule` is not a schedule, or a kernel of a
///         module has other arguments (the text names the first difference) or was compiled for
///         another device than that of the stream.
///         DTL_ERROR_LIMIT: there are more than 4096 arguments.
///         DTL_ERROR_NOT_FOUND: launch->schedule is a registered schedule for which the default
///         dispatcher has no handler.
///         DTL_ERROR_NOT_SUPPORTED: the backend runs its kernels only on its own streams, and this
///         stream is one of the library.
///         DTL_ERROR_INVALID_STATE: the call would wait for the stream whose work made it.
/// Equivalent: cuLaunchKernel.
/// dtl:args len(count) opt(count==0)
/// dtl:sizes len(count) opt(count==0)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_kernel_launch(
    stream: dtl_stream_t,
    kernel: dtl_kernel_t,
    launch: *const dtl_launch_t,
    args: *const *const c_void,
    sizes: *const u64,
    count: u64,
) -> dtl_status_t {
    // SAFETY: passed on.
    Entry("dtl_kernel_launch").call(|inside| unsafe {
        launch_by_schedule(inside, stream, kernel, launch, (args, sizes, count))
    })
}

/// Starts a new, empty history of the last `capacity` kernel launches of this process, or ends the
/// history.
///
/// The history is off at first, and ends at dtl_finalize and in a forked child. While it is off, a
/// launch costs one more branch. While it is on, a launch reads the clock twice and writes one
/// record; it allocates nothing and waits for no other thread.
///
/// A launch that the backend or the library refuses because of its grid, block or shared memory is
/// recorded with its status. A launch with an invalid handle, a NULL argument, or another invalid
/// field is not recorded. Neither is a launch that a handler of the program executes without
/// calling dtl_kernel_launch. The history has the times of the calls. For the times at which a
/// device runs the kernels, see dtl_trace_start.
///
/// @param capacity  Number of launches to keep, at most 1048576; each takes 176 bytes. 0 ends the
///                  history. An earlier history is discarded in both cases.
/// @return DTL_ERROR_LIMIT: `capacity` is greater than 1048576. The history has not changed.
///         DTL_ERROR_OUT_OF_MEMORY: there is no memory for it. The history has not changed.
/// Threads: any; launches of other threads that are in progress may be missing.
/// Equivalent: execution history of PyDotCompute; activity records of CUPTI.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_launch_history_set_capacity(capacity: u64) -> dtl_status_t {
    Entry("dtl_launch_history_set_capacity").call(|_| launch_history::set_capacity(capacity))
}

/// Returns the last kernel launches of this process, the oldest first. They stay in the history.
///
/// A launch that another thread records during the call may be missing, now and later.
///
/// @param kernel   Name of a kernel: only its launches are returned. At most 63 bytes are compared
///                 (dtl_launch_record_t::name). NULL for the launches of all kernels.
/// @param out      Array of `cap` records. NULL with cap 0 to query only the number. If more
///                 launches match, the last `cap` of them are returned.
/// @param cap      Number of elements of `out`.
/// @param out_len  Number of launches in the history that match `kernel`. It can be greater than
///                 `cap`: min(`cap`, *out_len) records have been written.
/// @return DTL_ERROR_INVALID_STATE: no history is kept, see dtl_launch_history_set_capacity.
///         DTL_ERROR_NULL_POINTER: `out` is NULL and `cap` is not 0, or `out_len` is NULL.
/// Threads: any. Does not block.
/// Equivalent: ComputeOrchestrator.get_execution_history of PyDotCompute.
/// dtl:kernel opt
/// dtl:out len(cap) opt(cap==0)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_launch_history_read(
    kernel: *const c_char,
    out: *mut dtl_launch_record_t,
    cap: u64,
    out_len: *mut u64,
) -> dtl_status_t {
    Entry("dtl_launch_history_read").call(|inside| {
        // SAFETY: the caller's contract: NULL or a NUL-terminated text.
        let kernel = unsafe { args::text_or_null(kernel, "kernel") }?;
        let count = Out::new(out_len, "out_len")?;
        if cap > 0 {
            Out::new(out, "out")?;
        }
        let Some(history) = launch_history::current(inside) else {
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "no launch history is kept: call dtl_launch_history_set_capacity with a capacity \
                 first"
            );
        };
        let records = history.read(kernel);
        let skipped = records.len().saturating_sub(usize::try_from(cap).unwrap_or(usize::MAX));
        args::put_all(out, records.get(skipped..).unwrap_or_default(), "out")?;
        count.set(records.len() as u64);
        Ok(())
    })
}

/// Arguments of a launch: pointers, sizes, and their number.
type Args = (*const *const c_void, *const u64, u64);

/// Launches through the program's handler of the schedule if there is one, otherwise through the
/// backend of the stream. The handler receives the launch that the library would perform.
///
/// # Safety
/// `shape` is null or points to a struct as long as its struct_size. `args` are as many pointers
/// and sizes as their count, and each pointer leads to that many readable bytes.
unsafe fn launch_by_schedule(
    inside: &Guard,
    stream: dtl_stream_t,
    kernel: dtl_kernel_t,
    shape: *const dtl_launch_t,
    args: Args,
) -> Result<()> {
    if !library_ops::is_taken(DTL_OPERATION_LAUNCH) {
        // SAFETY: passed on.
        return unsafe { self::launch(inside, stream, kernel, shape, args) };
    }
    // SAFETY: passed on.
    let taken = unsafe { args::take(shape, "launch") }?;
    library_ops::check_schedule_word(taken.schedule)?;
    // SAFETY: passed on.
    let packed = unsafe { pack(args.0, args.1, args.2) }?;
    let found = (stream::find(inside, stream)?, handles::find::<Kernel>(inside, kernel.id)?);
    found.0.check_launch(found.1, &taken, packed.sizes())?;
    let mut wanted = dtl_dispatch_launch_t {
        struct_size: size_of::<dtl_dispatch_launch_t>() as u32,
        reserved: 0,
        stream,
        kernel,
        launch: shape,
        args: args.0,
        sizes: args.1,
        count: args.2,
    };
    let slots = [DTL_DISPATCH_ANY, DTL_DISPATCH_ANY, taken.schedule];
    let query = library_ops::query(DTL_OPERATION_LAUNCH, slots, (&raw mut wanted).cast());
    if library_ops::perform(inside, &query)? {
        return Ok(());
    }
    // SAFETY: passed on.
    unsafe { self::launch(inside, stream, kernel, shape, args) }
}

/// Launches through the backend of the stream.
///
/// # Safety
/// `launch` is null or points to a struct as long as its struct_size. `args` and `sizes` have
/// `count` elements, and each pointer leads to that many readable bytes.
pub(crate) unsafe fn launch(
    inside: &Guard,
    stream: dtl_stream_t,
    kernel: dtl_kernel_t,
    launch: *const dtl_launch_t,
    (args, sizes, count): Args,
) -> Result<()> {
    // SAFETY: the caller's contract: a struct as long as its struct_size.
    let shape = unsafe { args::take(launch, "launch") }?;
    library_ops::check_schedule(shape.schedule)?;
    let found = handles::find::<Kernel>(inside, kernel.id)?;
    let on = stream::find(inside, stream)?;
    // SAFETY: the caller's contract: `count` pointers and sizes.
    let args = unsafe { pack(args, sizes, count) }?;
    let run = || on.launch(found, &shape, args);
    let Some(history) = launch_history::current(inside) else { return run() };
    let stream = dtl_stream_t { id: handles::stream_id(stream)? };
    history.record((stream, on), (kernel, found), &shape, run)
}

/// Copies the arguments.
///
/// # Safety
/// `args` and `sizes` have `count` elements (or are null), and each argument its size in bytes.
unsafe fn pack(args: *const *const c_void, sizes: *const u64, count: u64) -> Result<ArgPack> {
    if count == 0 {
        return Ok(ArgPack::EMPTY);
    }
    if args.is_null() || sizes.is_null() {
        let name = if args.is_null() { "args" } else { "sizes" };
        return fail!(DTL_ERROR_NULL_POINTER, "{name} is NULL for {count} arguments");
    }
    if count > MOST_ARGS {
        return fail!(DTL_ERROR_LIMIT, "{count} arguments; a launch takes at most {MOST_ARGS}");
    }
    // SAFETY: not null, misaligned or `count` elements by the contract.
    let args = unsafe { args::slice(args, count as usize, "args") }?;
    // SAFETY: not null, misaligned or `count` elements by the contract.
    let sizes = unsafe { args::slice(sizes, count as usize, "sizes") }?;
    let mut few = [Region::EMPTY; FEW_ARGS];
    let mut many = Vec::new();
    let regions = few.get_mut(..args.len()).unwrap_or_else(|| {
        many.resize(args.len(), Region::EMPTY);
        &mut many
    });
    for (index, ((arg, size), region)) in args.iter().zip(sizes).zip(&mut *regions).enumerate() {
        // SAFETY: each argument has its size in bytes by the contract.
        *region = unsafe { args::region(*arg, *size, "it") }
            .map_err(|error| error.within(&format!("argument {index}")))?;
    }
    ArgPack::copy_of(regions).ok_or_else(|| {
        failure!(
            DTL_ERROR_OUT_OF_MEMORY,
            "no memory for copies of {count} arguments; see their sizes"
        )
    })
}
