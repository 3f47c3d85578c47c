//! Backends: find and describe.

use crate::abi::backend::vtable::*;
use crate::abi::devices::device::dtl_backend_info_t;
use crate::abi::handle::dtl_backend_t;
use crate::abi::status::dtl_status_t;
use crate::backend::vtable_backend::{self, Tables};
use crate::error::Result;
use crate::ffi::args::{self, Out};
use crate::ffi::guard::{self, Entry};
use crate::from_c::blank;
use crate::runtime::{device, entry_at, plugins, registry, self_test};
use crate::sys::handles::epoch;
use crate::sys::memory::buf::Addr;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// Registers a backend of the program's own under a name. From then on it is found, chosen and
/// used like a built-in one; whatever its tables leave NULL is made from what they have.
///
/// @param name    1 to 63 letters, digits, '_', '-', '.'; case counts. Copied. Not "auto", nor
///                "cpu", "CPU" and "GPU", which dtl_backend_get takes as other names of backends
///                host and cuda.
/// @param vtable  its tables; they are copied, component tables too. Start from the _INIT macros.
/// @param self    passed to every slot; must live until the table's `destroy` is called.
/// @param flags   DTL_REGISTER_REPLACE or 0.
/// @param out     its handle; valid until unregistered or finalized.
/// @return DTL_ERROR_ALREADY_EXISTS: the name is taken. DTL_ERROR_INVALID_ARGUMENT: a table lacks a
///         required slot or has a bad value (the text names the first), or the name is not allowed.
///         DTL_ERROR_INCOMPATIBLE_ABI: compiled for a newer library. After a failure nothing is
///         registered and `destroy` is not called.
/// Threads: any. One table may serve several names.
/// dtl:flags flags(DTL_REGISTER_)
/// dtl:out owned(dtl_backend_unregister)
/// dtl:self opaque until(slot:destroy)
/// dtl: section(abi/backend/vtable)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_backend_register(
    name: *const c_char,
    vtable: *const dtl_backend_vtable_t,
    self_: *mut c_void,
    flags: u64,
    out: *mut dtl_backend_t,
) -> dtl_status_t {
    Entry("dtl_backend_register").call(|_| {
        // SAFETY: the caller's contract.
        let name = unsafe { args::text(name, "name") }?;
        let out = Out::new(out, "out")?;
        // SAFETY: the caller's contract.
        let tables = unsafe { take_tables(vtable) }?;
        let (backend, owner) = vtable_backend::adapt(name, &tables, Addr::new(self_))?;
        out.set(registry::add(Arc::new(backend), flags)?);
        owner.arm();
        Ok(())
    })
}

/// For slots of registered backends, handlers of dispatchers and functions of environments: the
/// text that goes with the status the slot is about to return, or to put into a dtl_comm_done_t
/// (the vendor's code and message, say). It becomes part of the caller's dtl_last_error. Who passes
/// on the status of a dtl_ call that has failed need not say anything: the text of that call goes
/// with it (see dtl_last_error).
///
/// @param text  copied; belongs to the calling thread and to the next slot that fails on it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_backend_set_error(text: *const c_char) -> dtl_status_t {
    guard::always(guard::Locks::Some, || {
        // SAFETY: the caller's contract: NULL or a NUL-terminated text.
        vtable_backend::set_error_text(unsafe { args::text(text, "text") }?.to_owned());
        Ok(())
    })
}

/// Copies the tables of a registration, each converted to this version's size.
///
/// # Safety
/// `vtable` and the tables in it are valid for the sizes that they say.
pub unsafe fn take_tables(vtable: *const dtl_backend_vtable_t) -> Result<Tables> {
    // SAFETY: the caller's contract.
    let main = unsafe { args::take(vtable, "vtable") }?;
    Ok(Tables {
        // SAFETY: the caller's contract, as in the four lines below.
        device: unsafe { args::take_optional(main.device, "vtable->device") }?,
        // SAFETY: as above.
        memory: unsafe { args::take_optional(main.memory, "vtable->memory") }?,
        // SAFETY: as above.
        transfer: unsafe { args::take_optional(main.transfer, "vtable->transfer") }?,
        // SAFETY: as above.
        exec: unsafe { args::take_optional(main.exec, "vtable->exec") }?,
        // SAFETY: as above.
        comm: unsafe { args::take_optional(main.comm, "vtable->comm") }?,
        main,
    })
}

/// Removes a registered backend; its `destroy` runs once its last user is gone. If it had replaced
/// a built-in backend (DTL_REGISTER_REPLACE), the name means the built-in one again; other backends
/// that it had replaced stay without a name.
///
/// @return DTL_ERROR_BUSY: allocations, adopted or registered memory, streams, events, executors or
///         communicators of it live: release or destroy them first. DTL_ERROR_INVALID_ARGUMENT: it
///         is a built-in one. Null is success.
/// With a backend of a plugin go the handlers that the plugin has registered for it; with its last
/// backend all of them.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_backend_unregister(backend: dtl_backend_t) -> dtl_status_t {
    Entry("dtl_backend_unregister")
        .call(|inside| if backend.id == 0 { Ok(()) } else { plugins::unregister(inside, backend) })
}

/// Finds a backend.
///
/// @param name  a name ("host", "null", ...; "cpu" and "CPU" mean host, "GPU" cuda); "auto" = the
///              available one with device and memory of the highest priority; NULL = the one set by
///              dtl_init, DTL_BACKEND or STEPMESH_BACKEND, else "auto", decided at the first use.
///              Only "auto" chooses: a name never falls back to another.
/// @param out   its handle. Nothing to free.
/// Plugins are searched for (DTL_PLUGIN_PATH, installed ones) if the name is not known yet, and for
/// "auto"; once.
///
/// @return DTL_ERROR_NOT_FOUND: no such name; the text lists the known ones, and the plugins that
///         could not be loaded with the reason.
///         DTL_ERROR_UNAVAILABLE: NULL or "auto", and what it leads to cannot run here.
/// dtl:name opt
/// dtl:out borrowed
/// dtl:call blocks
/// dtl: section(ffi/library/backend)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_backend_get(
    name: *const c_char,
    out: *mut dtl_backend_t,
) -> dtl_status_t {
    // SAFETY: the caller's contract.
    let name = unsafe { args::text_or_null(name, "name") };
    Entry("dtl_backend_get").wait(
        |_| Ok((Out::new(out, "out")?, name?)),
        |(out, name)| out.put(registry::by_name(&epoch::enter(), name).map(|found| found.handle())),
    )
}

/// Number of backends, available or not.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_backend_count(out_count: *mut u64) -> dtl_status_t {
    Entry("dtl_backend_count").wait(
        |_| Out::new(out_count, "out_count"),
        |out| out.put(Ok(registry::all(&epoch::enter()).len() as u64)),
    )
}

/// The backend of an index, 0 ... count-1, in the order registered.
///
/// @return DTL_ERROR_OUT_OF_BOUNDS: no such index.
/// dtl:out borrowed
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_backend_at(index: u64, out: *mut dtl_backend_t) -> dtl_status_t {
    Entry("dtl_backend_at").wait(
        |_| Out::new(out, "out"),
        |out| {
            let inside = epoch::enter();
            let all = registry::all(&inside);
            out.put(entry_at(&all, index, "backend").map(|backend| backend.handle()))
        },
    )
}

/// The backend's name, valid as long as it is registered; NULL for a bad handle (see
/// dtl_last_error).
/// dtl:return lives(object)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_backend_name(backend: dtl_backend_t) -> *const c_char {
    let mut name = std::ptr::null();
    let _ = Entry("dtl_backend_name").call(|inside| {
        name = device::backend(inside, backend)?.name.as_ptr();
        Ok(())
    });
    name
}

/// Describes a backend.
///
/// @param out_info  start from DTL_BACKEND_INFO_INIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_backend_info(
    backend: dtl_backend_t,
    out_info: *mut dtl_backend_info_t,
) -> dtl_status_t {
    Entry("dtl_backend_info").call(|inside| {
        let backend = device::backend(inside, backend)?;
        let info = dtl_backend_info_t {
            components: backend.components(),
            auto_priority: backend.auto_priority,
            is_builtin: i32::from(backend.builtin),
            flags: backend.flags,
            name: backend.name.as_ptr(),
            ..blank()
        };
        // SAFETY: the caller's contract.
        unsafe { args::fill(out_info, "out_info", || Ok(info)) }
    })
}

/// Whether a backend can run here. Asks it afresh.
///
/// @param out_yes  1 or 0.
/// @param why      the reason if 0, cut to fit, with its NUL; empty if 1. May be NULL.
/// @param cap      bytes of room in `why`.
/// @param out_len  bytes of the whole reason, without its NUL; may be NULL.
/// dtl:out_yes bool
/// dtl:why out len(cap) opt
/// dtl:out_len opt
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_backend_is_available(
    backend: dtl_backend_t,
    out_yes: *mut i32,
    why: *mut c_char,
    cap: u64,
    out_len: *mut u64,
) -> dtl_status_t {
    Entry("dtl_backend_is_available").wait(
        |inside| Ok((device::pin_backend(inside, backend)?, Out::new(out_yes, "out_yes")?)),
        |(backend, out)| {
            let answer = backend.query_available()?;
            let is_available = answer.is_ok();
            // SAFETY: the caller's contract: null, or `cap` bytes of room.
            unsafe { args::put_reason(&answer.err().unwrap_or_default(), why, cap, out_len) }?;
            out.set(i32::from(is_available));
            Ok(())
        },
    )
}

/// Whether a backend has a feature: its own "device", "memory", "transfer", "exec", "modules"
/// (kernels from source), "comm"; with the library's help "streams", "async" (copies and launches
/// that the caller does not wait for), "shared_memory" (of the threads of a launch's block); or a
/// name that the backend itself knows (an unknown one is answered 0). The answer is the same where
/// the backend cannot run.
///
/// @param out_yes  1 or 0.
/// dtl:out_yes bool
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_backend_supports(
    backend: dtl_backend_t,
    feature: *const c_char,
    out_yes: *mut i32,
) -> dtl_status_t {
    // SAFETY: the caller's contract.
    let feature = unsafe { args::text(feature, "feature") };
    Entry("dtl_backend_supports").wait(
        |inside| {
            Ok((device::pin_backend(inside, backend)?, Out::new(out_yes, "out_yes")?, feature?))
        },
        |(backend, out, feature)| out.put(backend.supports(feature).map(i32::from)),
    )
}

/// The quick part of the conformance tests, in this process: for each component the plainest
/// things. It allocates and frees, copies, makes streams and runs work on them, all on the calling
/// thread's current device; a backend that is broken may crash or hang. The program dtl-ctk has the
/// rest, the tests of communicators included, and runs them in processes of their own.
///
/// @param buf      `cap` bytes for the report and its NUL: a line for each check, beginning with
///                 "ok", "skipped" or "failed"; NULL with cap 0 if only the status matters.
/// @param out_len  length of the report without the NUL; may be NULL.
/// @return the status of the first check that failed, DTL_ERROR_BACKEND if its calls succeeded with
///         a wrong outcome; the text names the check. The report is written in that case, too.
///         DTL_ERROR_UNAVAILABLE: it cannot run here. DTL_ERROR_BUFFER_TOO_SMALL: nothing written
///         but *out_len (4 KiB are enough for a backend without failures).
/// dtl:buf out len(cap) opt(cap==0)
/// dtl:out_len opt
/// dtl:call blocks
/// dtl: section(abi/backend/vtable)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_backend_self_test(
    backend: dtl_backend_t,
    buf: *mut c_char,
    cap: u64,
    out_len: *mut u64,
) -> dtl_status_t {
    Entry("dtl_backend_self_test").wait(
        |inside| device::pin_backend(inside, backend),
        |backend| {
            let (report, outcome) = self_test::run(&backend);
            // SAFETY: the caller's contract.
            unsafe { args::put_text(&report, buf, cap, out_len) }?;
            outcome
        },
    )
}
