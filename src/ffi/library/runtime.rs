//! Library: initialise, finalise, versions, error texts, log.

use crate::abi::runtime::*;
use crate::abi::status::dtl_status_t;
use crate::error::{fail, status_message as message_of, status_name as name_of};
use crate::ffi::guard::{Entry, Locks, always};
use crate::ffi::{args, host};
use crate::last_error;
use crate::runtime::settings::{Settings, alias};
use crate::runtime::{SHUTDOWN, explain, lifecycle, log};
use crate::sys::memory::buf::Addr;
use std::ffi::{c_char, c_void};

/// Initialises the library. Counted: each call needs a dtl_finalize. Optional before the first
/// finalize (the first use initialises with the settings of the environment), required after it.
/// The first call's configuration holds; later ones are counted only.
///
/// @param config  NULL = everything from the environment. Read during the call only.
/// @return DTL_ERROR_INVALID_ARGUMENT: a setting or environment variable has a value that makes no
///         sense (named in the text). DTL_ERROR_FORKED: call dtl_init_after_fork instead.
///         DTL_ERROR_BUSY: another thread is in the last dtl_finalize; call again when that has
///         returned (but do not wait for it in a callback, which dtl_finalize may be waiting for).
/// Threads: any. Equivalent: MPI_Init (but repeatable).
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

/// Ends what dtl_init began. The last one destroys every live object (so handles become stale),
/// waits for their work, and closes the library: other calls then answer DTL_ERROR_INVALID_STATE
/// until the next dtl_init. Communicators are closed too: call it on every rank. If the library has
/// started an MPI, it ends that too, which waits for all of MPI's ranks, whatever the time limits.
///
/// @return DTL_ERROR_BUSY: another thread is inside the library (in dtl_finalize, say), or this one
///         is further up; let it return, then call again. Or other libraries have tensors of
///         dtl_array_export: let them give those up first.
///         DTL_ERROR_INVALID_STATE: there is nothing to end.
/// Threads: any, but not from a callback: the last dtl_finalize in any function that the library
/// calls is DTL_ERROR_BUSY. Never call it from a static destructor: it is not needed.
/// dtl:call blocks collective(job)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_finalize() -> dtl_status_t {
    always(Locks::None, || lifecycle::finalize(SHUTDOWN))
}

/// Makes the library usable in a child that was forked from a process that used it. The parent's
/// handles are forgotten (they become stale; the parent's objects stay untouched). No other thread
/// of the parent may have been inside a dtl_ call at the fork, and no stream or executor at work.
/// The call counts as the child's first dtl_init: the parent's count is forgotten, and one
/// dtl_finalize ends the library here.
///
/// @return DTL_ERROR_INVALID_STATE: this process is no such child; or a thread was inside, so that
///         what it had locked and half done stays so here: this child cannot use the library (it
///         may exec, or exit). Functions that work in every state (those of enumerations and the
///         log) return the same status in such a child. The call never waits for a lock that was
///         held by a thread which does not exist here.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_init_after_fork() -> dtl_status_t {
    always(Locks::None, || lifecycle::init_after_fork(SHUTDOWN, host::builtin))
}

/// The library's version, "0.2.0". Lives for ever. Works in every state.
/// dtl:return lives(forever)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_version_string() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Major version. Works in every state.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_version_major() -> i32 {
    version(env!("CARGO_PKG_VERSION_MAJOR"))
}

/// Minor version. Works in every state.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_version_minor() -> i32 {
    version(env!("CARGO_PKG_VERSION_MINOR"))
}

/// Patch version. Works in every state.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_version_patch() -> i32 {
    version(env!("CARGO_PKG_VERSION_PATCH"))
}

fn version(text: &str) -> i32 {
    text.parse().unwrap_or(0)
}

/// DTL_ABI_VERSION of the library (the header's may be lower). Works in every state.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_library_abi_version() -> u32 {
    DTL_ABI_VERSION
}

/// The constant's name, e.g. "DTL_ERROR_TIMEOUT"; "DTL_ERROR_UNKNOWN" for a number that is no
/// status. Lives for ever. Works in every state.
/// dtl:return lives(forever)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_status_name(status: dtl_status_t) -> *const c_char {
    name_of(status).as_ptr()
}

/// The general meaning of a status, for people. Lives for ever. Works in every state.
/// Equivalent: MPI_Error_string.
/// dtl:return lives(forever)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_status_message(status: dtl_status_t) -> *const c_char {
    message_of(status).as_ptr()
}

/// Returns the error text of this thread's last failed call, which names the offending value and
/// the remedy. Successful calls leave it unchanged. Empty before the first failure. Never NULL.
/// Works in every state.
///
/// The pointer is valid until the calling thread ends. The text behind it does not change before
/// the thread's second failure after this call (two buffers alternate); copy a text to keep it
/// longer. So `printf("%d %s", dtl_x(), dtl_last_error())` always prints a valid text. If the
/// compiler evaluates dtl_last_error() first, it is the text from before dtl_x().
///
/// If a function of the program's or of a backend fails in it, its text names that function; behind
/// a colon follows what the function has said with dtl_backend_set_error, or, if it has said
/// nothing, the text of the last dtl_ call that failed in it, in its thread, if it returned that
/// call's status.
/// dtl:return lives(thread)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_last_error() -> *const c_char {
    last_error::text()
}

/// Sends log lines of `level` (DTL_LOG_...) and below to `function`; NULL = back to standard error.
/// `user` is passed through; both must stay valid until replaced (and one call longer: another
/// thread may be inside). Works in every state; the level wins over DTL_LOG and dtl_config_t.
/// The function is called by whichever thread has something to log, several at a time too. It may
/// call the library, except dtl_finalize; what it logs itself comes back to it.
///
/// @return DTL_ERROR_INVALID_ARGUMENT: no such level.
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

/// Every automatic choice so far and its reason, a line each, as text.
///
/// @param buf      `cap` bytes for the text and its NUL; NULL with cap 0 asks for the length only.
/// @param out_len  length needed without the NUL; may be NULL.
/// @return DTL_ERROR_BUFFER_TOO_SMALL: nothing written but *out_len; call again with more room.
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
