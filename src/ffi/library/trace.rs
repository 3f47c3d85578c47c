//! Tracing: a trace file, and callbacks for tools.
//! dtl: section(ffi/clock)

use crate::abi::status::dtl_status_t;
use crate::abi::trace::dtl_trace_callbacks_t;
use crate::error::fail;
use crate::ffi::args;
use crate::ffi::guard::UNTRACED;
use crate::runtime::{lifecycle, trace};
use crate::sys::memory::buf::Addr;
use std::ffi::c_char;

/// Starts a trace file that records the calls of this process and their durations.
///
/// The trace contains every dtl_ call, its parts, and operations of communicators from start to
/// end. Open it with Perfetto (ui.perfetto.dev) or chrome://tracing. docs/how-to/trace.md describes
/// its content and its cost. DTL_TRACE=path starts a trace at the first use, without a change to
/// the program; then a file that cannot be created, or a path that is not UTF-8, only causes a
/// warning. Each time the library is initialised again after dtl_finalize, a new file starts:
/// trace.json is followed by trace-2.json, then trace-3.json.
///
/// Calls of other threads that began earlier are not recorded. If the disk fills up later, the
/// trace ends with a warning and the program continues untraced; dtl_trace_stop then returns the
/// reason. A forked child does not write to the file.
///
/// @param path  A new file. %r is replaced by the rank that the launcher assigned, %p by the
///              process id, %% by %. In a job of several ranks whose path has neither %r nor %p,
///              the rank is inserted before the extension: trace.json becomes trace.3.json. Copied.
/// @return DTL_ERROR_INVALID_STATE: a trace is being written, or has ended with an error. Call
///         dtl_trace_stop first.
///         DTL_ERROR_ALREADY_EXISTS: the file exists. Remove it, or choose another name.
///         DTL_ERROR_NOT_FOUND: the folder of the file does not exist.
///         DTL_ERROR_INVALID_ARGUMENT: `path` contains another %, is not UTF-8, or names a folder
///         or a device.
///         DTL_ERROR_UNAVAILABLE: the file cannot be written. The text has the reason of the
///         operating system. DTL_ERROR_LIMIT: no disk space, file descriptor or thread is left.
///         DTL_ERROR_OUT_OF_MEMORY: there is no memory for the buffers of the trace. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_trace_start(path: *const c_char) -> dtl_status_t {
    UNTRACED.wait(
        // SAFETY: the caller's contract: NULL or a NUL-terminated text.
        |_| Ok(unsafe { args::text(path, "path") }?.to_owned()),
        |path| trace::start(&path).map(|()| lifecycle::retrace()),
    )
}

/// Completes and closes the trace file of this process.
///
/// Calls in progress in other threads end in the file here, marked "unfinished". dtl_finalize does
/// the same.
///
/// @return DTL_ERROR_INVALID_STATE: no trace is being written.
///         DTL_ERROR_LIMIT: the file could not be completed (disk full, file size limit). It
///         contains what was written before, and tracing has ended.
///         DTL_ERROR_UNAVAILABLE: the file could not be completed for another reason, with the same
///         consequences.
///         DTL_ERROR_OUT_OF_MEMORY: threads that began while there was no memory (384 KiB each) are
///         missing in the trace. The file is complete otherwise. Threads: any.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_trace_stop() -> dtl_status_t {
    UNTRACED.wait(
        |_| Ok(()),
        |()| {
            let ended = trace::stop();
            lifecycle::retrace();
            ended
        },
    )
}

/// Installs functions that receive trace events as they happen, for a profiler or a tracer.
///
/// They receive everything that a trace file would contain, whether a file is written or not. Only
/// one set of callbacks is active: the last one installed. It stays active until dtl_finalize.
///
/// @param callbacks  NULL removes the callbacks. Copied. `user` and the functions must stay valid
///                   until they are replaced and for one call longer, because another thread may be
///                   inside. dtl_trace_fn_t describes the functions.
/// @return DTL_ERROR_INVALID_ARGUMENT: `reserved` is not 0. Threads: any.
/// Equivalent: the begin and end callbacks of Kokkos Tools; MPI's profiling interface.
/// dtl:callbacks opt
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_trace_set_callbacks(
    callbacks: *const dtl_trace_callbacks_t,
) -> dtl_status_t {
    UNTRACED.wait(
        |_| {
            // SAFETY: the caller's contract: null, or a struct as long as its struct_size.
            let Some(table) = unsafe { args::take_optional(callbacks, "callbacks") }? else {
                return Ok(None);
            };
            if table.reserved != 0 {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "callbacks.reserved is {}: it must be 0",
                    table.reserved
                );
            }
            Ok(Some((table.begin, table.end, Addr::new(table.user))))
        },
        |functions| {
            trace::set_tool(functions);
            lifecycle::retrace();
            Ok(())
        },
    )
}
