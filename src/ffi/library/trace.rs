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

/// Writes a file with what the library does from now on in this process, and how long it takes:
/// every call, what is within, operations of communicators from start to end. Open it with Perfetto
/// (ui.perfetto.dev) or chrome://tracing. docs/how-to/trace.md describes its content and its cost.
/// DTL_TRACE=path does the same from the first use on, without a change of the program; a file that
/// cannot be made (or whose path is no UTF-8) is then a warning. If the program finalises the
/// library and initialises it again, each further life has a file of its own: trace.json is
/// trace-2.json, then trace-3.json.
///
/// @param path  a new file; %r stands for the rank that the launcher assigned, %p for the process
///              id, %% for a %. In a job of several ranks without %r or %p, the rank goes before
///              the ending: trace.json is trace.3.json. Copied.
/// @return DTL_ERROR_INVALID_STATE: one is being written, or has ended with an error:
///         dtl_trace_stop first. DTL_ERROR_ALREADY_EXISTS: the file is there; remove it, or take
///         another name. DTL_ERROR_NOT_FOUND: its folder is not there.
///         DTL_ERROR_INVALID_ARGUMENT: `path` has another %, is no UTF-8, or names no file (but a
///         folder or a device). DTL_ERROR_UNAVAILABLE: it cannot be written (the text has the
///         system's reason). DTL_ERROR_LIMIT: no room on the disk, descriptor, or thread left.
///         DTL_ERROR_OUT_OF_MEMORY: none for the file's text.
/// Threads: any. Calls of other threads that have begun before are not in it. If the disk fills up
/// later, the trace ends with a warning, and the program goes on, untraced; dtl_trace_stop then
/// returns the reason. A forked child does not write to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_trace_start(path: *const c_char) -> dtl_status_t {
    UNTRACED.wait(
        // SAFETY: the caller's contract: NULL or a NUL-terminated text.
        |_| Ok(unsafe { args::text(path, "path") }?.to_owned()),
        |path| trace::start(&path).map(|()| lifecycle::retrace()),
    )
}

/// Ends the file of dtl_trace_start or DTL_TRACE and closes it, whole: what other threads are in
/// ends here with "unfinished". dtl_finalize does the same.
///
/// @return DTL_ERROR_INVALID_STATE: none is being written. DTL_ERROR_LIMIT, DTL_ERROR_UNAVAILABLE:
///         it could not be written to its end (disk full, file size limit); what was written before
///         is there. Tracing has ended then, too.
///         DTL_ERROR_OUT_OF_MEMORY: threads that began while there was no memory (384 KiB each) are
///         not in it; the file is whole.
/// Threads: any.
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

/// Tells another tool (a profiler, a tracer) of everything that a trace would have, as it happens,
/// whether a file is written or not. One tool at a time: the last one given. Until dtl_finalize.
///
/// @param callbacks  copied; NULL = no callbacks any more. `user` stays valid until it is replaced,
///                   and one call longer: another thread may be inside. See dtl_trace_fn_t for what
///                   the functions may do.
/// @return DTL_ERROR_INVALID_ARGUMENT: `reserved` is not 0.
/// Threads: any. Equivalent: the begin and end callbacks of Kokkos Tools; MPI's profiling
/// interface.
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
