//! Backends: find and describe.

use crate::abi::backend::vtable::*;
use crate::abi::devices::device::dtl_backend_info_t;
use crate::abi::handle::dtl_backend_t;
use crate::abi::status::dtl_status_t;
use crate::backend::vtable_backend::{self, Tables};
use crate::error::{Result, fail};
use crate::ffi::args::{self, Out};
use crate::ffi::guard::{self, Entry};
use crate::from_c::{TEXT_LIMIT, blank};
use crate::runtime::{device, entry_at, plugins, registry, self_test};
use crate::sys::handles::epoch;
use crate::sys::memory::buf::Addr;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// Registers a backend of the program under a name.
///
/// From then on it is found, chosen and used like a built-in backend. The library builds what its
/// tables leave NULL from the slots that they have. One table may serve several names. After a
/// failure nothing is registered, and `destroy` is not called.
///
/// @param name    1 to 63 letters, digits, '_', '-' and '.'; case-sensitive. Copied. Not "auto",
///                and not "cpu", "CPU" and "GPU", which dtl_backend_get accepts as aliases of
///                "host" and "cuda".
/// @param vtable  Its tables. They are copied, the component tables too. Start them from the _INIT
///                macros.
/// @param self    Passed to every slot. It must live until the slot `destroy` is called.
/// @param flags   DTL_REGISTER_REPLACE or 0.
/// @param out     Its handle. Valid until dtl_backend_unregister or dtl_finalize.
/// @return DTL_ERROR_ALREADY_EXISTS: the name is taken.
///         DTL_ERROR_INVALID_ARGUMENT: the name is not allowed, a table lacks a required slot, or a
///         field has an invalid value. The text names the first such slot or field.
///         DTL_ERROR_INCOMPATIBLE_ABI: the tables were compiled for a version that this library
///         does not support. Threads: any.
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

/// Sets the error text for the status that a slot is about to return.
///
/// Slots of registered backends, handlers of dispatchers and functions of environments may call it.
/// The text (for example the vendor's error code and message) also applies to a status written to a
/// dtl_comm_done_t. It becomes part of the dtl_last_error of the caller. It is not needed if the
/// slot returns the status of a dtl_ call that failed: the text of that call is appended
/// automatically (see dtl_last_error).
///
/// @param text  Copied. It applies to the next slot that fails in the calling thread. Bytes that
///              are not UTF-8 are replaced, and a text of more than 4096 bytes is cut off there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_backend_set_error(text: *const c_char) -> dtl_status_t {
    guard::always(guard::Locks::Some, || {
        // SAFETY: the caller's contract: NULL or a NUL-terminated text.
        let bytes = unsafe { args::c_text(text, || "text".into()) }?.to_bytes();
        let kept = bytes.get(..TEXT_LIMIT).unwrap_or(bytes);
        vtable_backend::set_error_text(String::from_utf8_lossy(kept).into_owned());
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

/// Removes a registered backend. Its `destroy` runs after its last use.
///
/// If it had replaced a built-in backend (DTL_REGISTER_REPLACE), the name refers to the built-in
/// one again. Other backends that it had replaced stay without a name. For a backend of a plugin,
/// the handlers that the plugin registered for it are removed as well; with the last backend of the
/// plugin, all of its handlers. A null handle has no effect.
///
/// @return DTL_ERROR_BUSY: allocations, adopted or registered memory, streams, events, executors or
///         communicators of the backend exist. Release or destroy them first.
///         DTL_ERROR_INVALID_ARGUMENT: the backend is a built-in one.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_backend_unregister(backend: dtl_backend_t) -> dtl_status_t {
    Entry("dtl_backend_unregister")
        .call(|inside| if backend.id == 0 { Ok(()) } else { plugins::unregister(inside, backend) })
}

/// Finds a backend by name.
///
/// For "auto" and for unknown names, plugins are searched for first, once (DTL_PLUGIN_PATH,
/// installed folder).
///
/// @param name  A name ("host", "null" and so on; "cpu" and "CPU" mean "host", "GPU" means "cuda").
///              "auto" is the available backend with devices and memory that has the highest
///              priority. NULL is the backend set by dtl_init, DTL_BACKEND or STEPMESH_BACKEND,
///              otherwise "auto", decided at the first use. Only "auto" chooses: another name never
///              falls back to a different backend.
/// @param out   Its handle. There is nothing to free.
/// @return DTL_ERROR_NOT_FOUND: there is no such name. The text lists the known names and, with
///         reasons, the plugins that could not be loaded.
///         DTL_ERROR_UNAVAILABLE: `name` is NULL or "auto", and the backend that it resolves to
///         cannot run here.
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

/// Returns a backend by name, if it can run on this machine.
///
/// dtl_backend_get succeeds also if the backend cannot run; later calls then fail. This function
/// fails at once, with the reason.
///
/// @param name  As for dtl_backend_get.
/// @param out   Its handle. There is nothing to free.
/// @return DTL_ERROR_UNAVAILABLE: the backend cannot run here. The text has its name and the reason
///         that dtl_backend_is_available reports.
///         DTL_ERROR_NOT_FOUND: there is no such name.
/// dtl:name opt
/// dtl:out borrowed
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_backend_require(
    name: *const c_char,
    out: *mut dtl_backend_t,
) -> dtl_status_t {
    // SAFETY: the caller's contract.
    let name = unsafe { args::text_or_null(name, "name") };
    Entry("dtl_backend_require").wait(
        |_| Ok((Out::new(out, "out")?, name?)),
        |(out, name)| {
            let inside = epoch::enter();
            let handle = registry::by_name(&inside, name)?.handle();
            let backend = device::pin_backend(&inside, handle)?;
            drop(inside);
            if let Err(why) = backend.query_available()? {
                return fail!(
                    DTL_ERROR_UNAVAILABLE,
                    "backend {} cannot run here: {why}",
                    backend.name()
                );
            }
            out.set(handle);
            Ok(())
        },
    )
}

/// Returns the number of backends, available or not. Searches for plugins if that was not done yet.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_backend_count(out_count: *mut u64) -> dtl_status_t {
    Entry("dtl_backend_count").wait(
        |_| Out::new(out_count, "out_count"),
        |out| out.put(Ok(registry::all(&epoch::enter()).len() as u64)),
    )
}

/// Returns the backend with an index, in the order of registration.
///
/// @param index  0 to the count - 1.
/// @param out    Its handle. There is nothing to free.
/// @return DTL_ERROR_OUT_OF_BOUNDS: there is no such index.
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

/// Returns the name of a backend, valid as long as the backend is registered. For an invalid handle
/// it returns NULL; dtl_last_error has the reason.
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
/// @param out_info  Start from DTL_BACKEND_INFO_INIT.
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

/// Checks whether a backend can run on this machine. Each call checks again.
///
/// @param out_yes  1 or 0.
/// @param why      Receives the reason if the result is 0, cut to fit, with its NUL; otherwise an
///                 empty text. May be NULL.
/// @param cap      Size of `why` in bytes.
/// @param out_len  Length of the whole reason in bytes, without the NUL; may be NULL.
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

/// Checks whether a backend has a feature. The result does not depend on whether the backend can
/// run here.
///
/// @param feature  Components of its own: "device", "memory", "transfer", "exec", "modules"
///                 (kernels from source), "comm". With the help of the library: "streams", "async"
///                 (asynchronous copies and launches), "shared_memory" (shared by the threads of a
///                 block). Any other name is passed to the backend; the result for an unknown one
///                 is 0.
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

/// Runs the quick conformance tests of a backend in this process.
///
/// They check the basic functions of each component: they allocate and free, copy, create streams
/// and run work on them, all on the current device of the calling thread. A broken backend may
/// crash or hang. The program dtl-ctk has the complete tests, including those of communicators, and
/// runs them in separate processes.
///
/// @param buf      `cap` bytes for the report and its NUL: one line per check, which begins with
///                 "ok", "skipped" or "failed". NULL with cap 0 if only the status matters.
/// @param cap      Size of `buf` in bytes; 4096 are enough for a backend without failures.
/// @param out_len  Length of the report without the NUL; may be NULL.
/// @return The status of the first check that failed; the text names the check, and the report is
///         written. DTL_ERROR_BACKEND: the calls of that check succeeded with a wrong result.
///         DTL_ERROR_UNAVAILABLE: the backend cannot run here.
///         DTL_ERROR_BUFFER_TOO_SMALL: `cap` is too small. Only *out_len was written.
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
