//! Function table that is passed to plugins, and the functions that `runtime` needs from the layers
//! above it. Exports no symbol: plugins call these functions through dtl_host_api_t.

use super::args;
use super::dispatch::handler;
use super::guard::{Entry, Locks, UNTRACED, always};
use super::library::{backend, enums, environment};
use crate::abi::backend::environment::dtl_environment_desc_t;
use crate::abi::backend::plugin::{dtl_host_api_t, dtl_trace_span_t};
use crate::abi::backend::vtable::dtl_backend_vtable_t;
use crate::abi::devices::dispatch::{dtl_dispatch_handler_t, dtl_dispatch_key_t};
use crate::abi::handle::{dtl_backend_t, dtl_registration_t};
use crate::abi::runtime::{DTL_ABI_VERSION, DTL_LOG_DEBUG, DTL_LOG_ERROR};
use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use crate::backend::{plugin, vtable_backend};
use crate::error::fail;
use crate::runtime::component::KERNEL_HEADER;
use crate::runtime::dispatch::{self, DEFAULT};
use crate::runtime::registry::Backend;
use crate::runtime::{log, plugins, trace};
use crate::sys::memory::buf::Addr;
use crate::sys::sync::wait;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// Function table that is passed to plugins.
pub static HOST: dtl_host_api_t = dtl_host_api_t {
    struct_size: size_of::<dtl_host_api_t>() as u32,
    abi_version: DTL_ABI_VERSION,
    abi_version_min: vtable_backend::OLDEST_ABI,
    reserved: 0,
    backend_register: Some(host_register),
    set_error: Some(backend::dtl_backend_set_error),
    log: Some(host_log),
    enum_create: Some(enums::dtl_enum_create),
    enum_find: Some(enums::dtl_enum_find),
    enum_register: Some(enums::dtl_enum_register),
    enum_register_value: Some(enums::dtl_enum_register_value),
    enum_register_template: Some(enums::dtl_enum_register_template),
    enum_from_name: Some(enums::dtl_enum_from_name),
    ev_instance: Some(enums::dtl_ev_instance),
    ev_get: Some(enums::dtl_ev_get),
    schedule_set_defaults: Some(enums::dtl_schedule_set_defaults),
    environment_register: Some(host_environment_register),
    environment_require: Some(host_environment_require),
    environment_release: Some(environment::dtl_environment_release),
    environment_state: Some(environment::dtl_environment_state),
    dispatch_register: Some(host_dispatch_register),
    dispatch_unregister: Some(host_dispatch_unregister),
    kernel_header: Some(host_kernel_header),
    trace_is_on: Some(host_trace_is_on),
    trace_now: Some(host_trace_now),
    trace_begin: Some(host_trace_begin),
    trace_end: Some(host_trace_end),
    trace_track: Some(host_trace_track),
    trace_span: Some(host_trace_span),
    trace_counter: Some(host_trace_counter),
};

/// Returns the built-in backends and registers the function that opens plugin files.
/// `runtime::lifecycle` calls this to open the library.
pub fn builtin() -> Vec<Arc<Backend>> {
    plugins::open_files_with(|path, step| plugin::open(path, &HOST, step));
    crate::backend::builtin()
}

unsafe extern "C" fn host_register(
    name: *const c_char,
    vtable: *const dtl_backend_vtable_t,
    self_: *mut c_void,
    flags: u64,
    out: *mut dtl_backend_t,
) -> dtl_status_t {
    let register = || {
        // SAFETY: `name` is a text or NULL by the caller's contract.
        let name = unsafe { args::text(name, "name") }?;
        let out = args::Out::new(out, "out")?;
        // SAFETY: `vtable` is a valid table or NULL by the caller's contract.
        let mut tables = unsafe { backend::take_tables(vtable) }?;
        let mut owner = None;
        let make = |compiled_for, spoken| {
            // A plugin from a newer header may use this library's ABI version; fields beyond that
            // version were rejected before.
            if tables.main.abi_version == compiled_for {
                tables.main.abi_version = spoken;
            }
            let (backend, made) = vtable_backend::adapt(name, &tables, Addr::new(self_))?;
            owner = Some(made);
            Ok(backend)
        };
        out.set(plugins::register(flags, make)?);
        owner.iter().for_each(|owner| owner.arm());
        Ok(())
    };
    UNTRACED.call(|_| register().inspect_err(plugins::note_failure))
}

unsafe extern "C" fn host_environment_register(
    desc: *const dtl_environment_desc_t,
) -> dtl_status_t {
    UNTRACED.call(|_| {
        // SAFETY: `desc` is a valid descriptor or NULL by the caller's contract.
        plugins::register_environment(unsafe { environment::describe(desc) }?)
    })
}

unsafe extern "C" fn host_environment_require(name: *const c_char) -> dtl_status_t {
    if plugins::is_loading_here() {
        return UNTRACED.call(|_| {
            fail!(
                DTL_ERROR_INVALID_STATE,
                "dtl_host_api_t.environment_require inside a plugin's load: name what backends \
                 need in dtl_plugin_t, or require it in a slot"
            )
        });
    }
    // SAFETY: the caller's contract is that of dtl_environment_require.
    unsafe { environment::dtl_environment_require(name) }
}

unsafe extern "C" fn host_dispatch_register(
    keys: *const dtl_dispatch_key_t,
    key_count: u64,
    handler: *const dtl_dispatch_handler_t,
    out: *mut dtl_registration_t,
) -> dtl_status_t {
    UNTRACED.call(|inside| {
        let out = args::Out::new(out, "out")?;
        out.put(plugins::register_handler(|| {
            // SAFETY: the caller's contract is that of dtl_dispatch_register.
            unsafe { handler::register(inside, DEFAULT, (keys, key_count), handler) }
        }))
    })
}

unsafe extern "C" fn host_dispatch_unregister(registration: dtl_registration_t) -> dtl_status_t {
    Entry("dtl_dispatch_unregister")
        .call(|inside| dispatch::find(inside, DEFAULT)?.unregister(inside, DEFAULT, registration))
}

extern "C" fn host_kernel_header() -> *const c_char {
    KERNEL_HEADER.as_ptr()
}

unsafe extern "C" fn host_log(level: i32, text: *const c_char) -> dtl_status_t {
    always(Locks::Some, || {
        if !(DTL_LOG_ERROR..=DTL_LOG_DEBUG).contains(&level) {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "level {level}: use DTL_LOG_ERROR to DTL_LOG_DEBUG"
            );
        }
        // SAFETY: `text` is a text or NULL by the caller's contract.
        log::log(level, unsafe { args::text(text, "text") }?);
        Ok(())
    })
}

/// Returns the arguments of a plugin's event; 0 bytes are none.
fn about(what: Option<&str>, bytes: u64) -> trace::Args {
    let args = what.map_or(trace::Args::NONE, |what| trace::Args::NONE.what(what));
    if bytes == 0 { args } else { args.bytes(bytes) }
}

extern "C" fn host_trace_is_on() -> i32 {
    i32::from(trace::is_on())
}

extern "C" fn host_trace_now() -> u64 {
    wait::node_ns()
}

unsafe extern "C" fn host_trace_begin(
    category: *const c_char,
    name: *const c_char,
    what: *const c_char,
    out_span: *mut u64,
) -> dtl_status_t {
    if !trace::is_on() {
        if let Some(out) = args::Out::usual(out_span) {
            out.set(0);
            return DTL_SUCCESS;
        }
    }
    always(Locks::Some, || {
        let out = args::Out::new(out_span, "out_span")?;
        // SAFETY: `category` is a text or NULL by the caller's contract.
        let category = unsafe { args::text(category, "category") }?;
        // SAFETY: `name` is a text or NULL by the caller's contract.
        let name = unsafe { args::text(name, "name") }?;
        // SAFETY: `what` is a text or NULL by the caller's contract.
        let what = unsafe { args::text_or_null(what, "what") }?;
        out.put(trace::plugin_begin(category, name, about(what, 0)))
    })
}

extern "C" fn host_trace_end(span: u64) -> dtl_status_t {
    if span == 0 {
        return DTL_SUCCESS;
    }
    always(Locks::Some, || trace::plugin_end(span))
}

unsafe extern "C" fn host_trace_track(
    group: *const c_char,
    name: *const c_char,
    out_track: *mut u64,
) -> dtl_status_t {
    always(Locks::Some, || {
        let out = args::Out::new(out_track, "out_track")?;
        // SAFETY: `group` is a text or NULL by the caller's contract.
        let group = unsafe { args::text(group, "group") }?;
        // SAFETY: `name` is a text or NULL by the caller's contract.
        out.put(trace::track(group, unsafe { args::text(name, "name") }?))
    })
}

unsafe extern "C" fn host_trace_span(span: *const dtl_trace_span_t) -> dtl_status_t {
    if !trace::is_on() {
        return DTL_SUCCESS;
    }
    always(Locks::Some, || {
        // SAFETY: `span` is NULL or as long as its struct_size by the caller's contract.
        let span = unsafe { args::take(span, "span") }?;
        args::check_reserved(span.reserved, "span.reserved")?;
        // SAFETY: the field is a text or NULL by the caller's contract.
        let category = unsafe { args::text(span.category, "span.category") }?;
        // SAFETY: the field is a text or NULL by the caller's contract.
        let name = unsafe { args::text(span.name, "span.name") }?;
        // SAFETY: the field is a text or NULL by the caller's contract.
        let what = unsafe { args::text_or_null(span.what, "span.what") }?;
        let (times, args) = ((span.begin_ns, span.end_ns), about(what, span.bytes));
        trace::device_span(span.track, (category, name), times, args)
    })
}

unsafe extern "C" fn host_trace_counter(
    track: u64,
    name: *const c_char,
    time_ns: u64,
    value: f64,
) -> dtl_status_t {
    if !trace::is_on() {
        return DTL_SUCCESS;
    }
    always(Locks::Some, || {
        // SAFETY: `name` is a text or NULL by the caller's contract.
        trace::counter(track, unsafe { args::text(name, "name") }?, time_ns, value)
    })
}
