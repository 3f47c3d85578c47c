//! Library: initialise, finalise, versions, error texts, log.

use crate::abi::runtime::*;
use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use crate::error::{Error, fail, is_status, status_message as message_of, status_name as name_of};
use crate::ffi::guard::{Entry, Locks, always};
use crate::ffi::{args, host};
use crate::last_error;
use crate::runtime::settings::{Settings, alias};
use crate::runtime::{SHUTDOWN, explain, lifecycle, log};
use crate::sys::memory::buf::Addr;
use std::ffi::{c_char, c_void};

/// Initialises the library.
///
/// Calls are counted: one dtl_finalize reverts each successful one. Before the first dtl_finalize
/// the call is optional, because the first use of the library initialises it with the settings of
/// the environment. After the last dtl_finalize it is required. The configuration of the first call
/// applies, even if the library is already in use. Later calls only increase the count.
///
/// @param config  NULL takes every setting from the environment. Read during the call only.
/// @return DTL_ERROR_INVALID_ARGUMENT: a setting or an environment variable has an invalid value.
///         The text names it.
///         DTL_ERROR_FORKED: this process is a forked child; call dtl_init_after_fork instead.
///         DTL_ERROR_INCOMPATIBLE_ABI: another minor version of the library, without symbol
///         versions, is in this process, so code that is linked with it calls this one.
///         DTL_ERROR_BUSY: another thread is in the last dtl_finalize. Call again when it has
///         returned. Do not wait for it in a callback, because dtl_finalize may be waiting for that
///         callback. Threads: any. Equivalent: MPI_Init (but repeatable).
/// dtl:config opt
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_init(config: *const dtl_config_t) -> dtl_status_t {
    always(Locks::None, || {
        // SAFETY: the caller's contract: null, or a struct as long as its struct_size.
        let config = unsafe { args::take_or_zero(config, "config") }?;
        // SAFETY: the caller's contract: NULL or a NUL-terminated text.
        let backend = unsafe { args::text_or_null(config.backend, "config.backend") }?;
        // SAFETY: as above.
        let comm = unsafe { args::text_or_null(config.comm, "config.comm") }?;
        lifecycle::init(|settings| apply(settings, &config, backend, comm), host::builtin)
    })
}

fn apply(
    settings: &mut Settings,
    config: &dtl_config_t,
    backend: Option<&str>,
    comm: Option<&str>,
) -> crate::error::Result<()> {
    match config.log_level {
        0 => {}
        DTL_LOG_OFF..=DTL_LOG_DEBUG => settings.log_level = Some(config.log_level),
        level => {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "config.log_level {level}: use a DTL_LOG_ constant or 0"
            );
        }
    }
    match config.strict {
        0 => {}
        1 | -1 => settings.strict = config.strict == 1,
        strict => {
            return fail!(DTL_ERROR_INVALID_ARGUMENT, "config.strict {strict}: use 1, -1 or 0");
        }
    }
    let reserved = config.reserved;
    if reserved != 0 {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "config.reserved is {reserved}: it must be 0");
    }
    if let Some(name) = backend {
        settings.backend = Some(alias(name).to_owned());
    }
    if let Some(kind) = comm {
        settings.comm = Some(kind.to_owned());
    }
    Ok(())
}

/// Reverts one dtl_init; the last call closes the library.
///
/// The last call waits for the work of all live objects and destroys them (their handles become
/// stale). Until the next dtl_init, calls then return DTL_ERROR_INVALID_STATE. It closes
/// communicators too, so call it on every rank. If the library has started an MPI, it finalizes
/// that MPI as well, which waits for all MPI ranks regardless of time limits. Otherwise a program
/// may exit without this call. Never call it from a static destructor.
///
/// @return DTL_ERROR_BUSY: another thread is inside the library, for example in dtl_finalize, or
///         this thread is inside a call further up its stack. Call again when that call has
///         returned. Also: tensors from dtl_array_export exist; their consumers have to delete them
///         first.
///         DTL_ERROR_INVALID_STATE: the library is not initialised.
/// Threads: any, but not from a callback: in a function that the library calls, the last
/// dtl_finalize returns DTL_ERROR_BUSY.
/// dtl:call blocks collective(job)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_finalize() -> dtl_status_t {
    always(Locks::None, || lifecycle::finalize(SHUTDOWN))
}

/// Makes the library usable in a child that was forked from a process that used it.
///
/// The handles of the parent become stale; its objects are not touched. At the time of the fork no
/// other thread of the parent may have been inside a dtl_ call, and no stream or executor may have
/// been running work. The call counts as the first dtl_init of the child: the count of the parent
/// is discarded, and one dtl_finalize closes the library here. The call never waits for a lock that
/// a thread of the parent held.
///
/// @return DTL_ERROR_INVALID_STATE: this process is not such a child, or another thread was inside
///         the library at the fork. In the second case locks and half-finished changes of that
///         thread remain, so this child cannot use the library; it may call exec or exit. The
///         functions of enumerations and of the log, which work in every state, return the same
///         status in such a child.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_init_after_fork() -> dtl_status_t {
    always(Locks::None, || lifecycle::init_after_fork(SHUTDOWN, host::builtin))
}

/// Returns the version of the library, for example "0.2.0". Valid until the process ends. Works in
/// every state.
/// dtl:return lives(forever)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_version_string() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Returns the major version. Works in every state.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_version_major() -> i32 {
    version(env!("CARGO_PKG_VERSION_MAJOR"))
}

/// Returns the minor version. Works in every state.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_version_minor() -> i32 {
    version(env!("CARGO_PKG_VERSION_MINOR"))
}

/// Returns the patch version. Works in every state.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_version_patch() -> i32 {
    version(env!("CARGO_PKG_VERSION_PATCH"))
}

fn version(text: &str) -> i32 {
    text.parse().unwrap_or(0)
}

/// Returns the DTL_ABI_VERSION of the library; that of the header may be lower. Works in every
/// state.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_library_abi_version() -> u32 {
    DTL_ABI_VERSION
}

/// Returns the name of a status, for example "DTL_ERROR_TIMEOUT". For a number that is not a status
/// it returns "DTL_ERROR_UNKNOWN". Valid until the process ends. Works in every state.
/// dtl:return lives(forever)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_status_name(status: dtl_status_t) -> *const c_char {
    name_of(status).as_ptr()
}

/// Returns the general meaning of a status as a sentence. Valid until the process ends. Works in
/// every state.
/// Equivalent: MPI_Error_string.
/// dtl:return lives(forever)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_status_message(status: dtl_status_t) -> *const c_char {
    message_of(status).as_ptr()
}

/// Returns the error text of the last failed call in this thread.
///
/// The text names the offending value and the remedy. Successful calls leave it unchanged. It is
/// empty before the first failure, and never NULL. Works in every state.
///
/// The pointer is valid until the calling thread ends. The text behind it does not change before
/// the second failure in this thread after the call (two buffers alternate); copy a text to keep it
/// longer. So `printf("%d %s", dtl_x(), dtl_last_error())` always prints a valid text. If the
/// compiler evaluates dtl_last_error() first, it is the text from before dtl_x().
///
/// If a call fails because a callback or a slot failed, the text names that function. A colon and a
/// second text follow: the one that the function passed to dtl_backend_set_error or, if it passed
/// none and returned the status of the last dtl_ call that failed inside it, the text of that call.
/// dtl:return lives(thread)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_last_error() -> *const c_char {
    last_error::text()
}

/// Fails with a status and an error text of the caller's, for bindings and for libraries over this
/// one: `return dtl_error_set(DTL_ERROR_INVALID_ARGUMENT, "width is 0; ...");`
///
/// The text becomes the dtl_last_error of the calling thread. Works in every state.
///
/// @param status  A DTL_ERROR_ code.
/// @param text    What was wrong and what to do, in UTF-8. Copied.
/// @return `status`. DTL_ERROR_INVALID_ARGUMENT, with another text: `status` is no error, or `text`
///         is not UTF-8. Threads: any. Equivalent: MPI_Add_error_string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_error_set(status: dtl_status_t, text: *const c_char) -> dtl_status_t {
    always(Locks::None, || {
        // SAFETY: the caller's contract: NULL or a NUL-terminated text.
        let text = unsafe { args::text(text, "text") }?;
        if status == DTL_SUCCESS || !is_status(status) {
            return fail!(DTL_ERROR_INVALID_ARGUMENT, "status {status}: use a DTL_ERROR_ constant");
        }
        Err(Error::new(status, text))
    })
}

/// Sends log lines of `level` and below to a function. Works in every state.
///
/// The level overrides DTL_LOG and dtl_config_t. The function runs in any thread, possibly in
/// several at once. It gets a line that is logged inside a call when the call returns, or while the
/// call waits. The function may call the library except dtl_finalize; if such a call logs, it is
/// called recursively.
///
/// @param function  NULL sends log lines to standard error again. Must stay valid until it is
///                  replaced and for one call longer, because another thread may be inside it.
/// @param user      Passed to `function`. The lifetime is that of `function`.
/// @param level     One of the DTL_LOG_ constants.
/// @return DTL_ERROR_INVALID_ARGUMENT: there is no such level.
/// dtl:level values(DTL_LOG_)
/// dtl:function opt until(last_use)
/// dtl:user opaque until(last_use)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_log_set_callback(
    function: dtl_log_fn_t,
    user: *mut c_void,
    level: i32,
) -> dtl_status_t {
    always(Locks::Some, || {
        if !(DTL_LOG_OFF..=DTL_LOG_DEBUG).contains(&level) || level == 0 {
            return fail!(DTL_ERROR_INVALID_ARGUMENT, "level {level}: use a DTL_LOG_ constant");
        }
        log::set_callback(function, Addr::new(user), level);
        Ok(())
    })
}

/// Writes every automatic choice so far and its reason as text, one per line.
///
/// @param buf      `cap` bytes for the text and its NUL. NULL with cap 0 queries the length only.
/// @param cap      Size of `buf` in bytes.
/// @param out_len  Length of the text without the NUL; may be NULL.
/// @return DTL_ERROR_BUFFER_TOO_SMALL: `cap` is too small. Only *out_len was written.
/// dtl:buf out len(cap) opt(cap==0)
/// dtl:out_len opt
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_explain(
    buf: *mut c_char,
    cap: u64,
    out_len: *mut u64,
) -> dtl_status_t {
    // SAFETY: the caller's contract.
    Entry("dtl_explain").call(|_| unsafe { args::put_text(&explain::text(), buf, cap, out_len) })
}
