//! Function table that is passed to plugins, and the functions that `runtime` needs from the layers
//! above it. Exports no symbol: plugins call these functions through dtl_host_api_t.

use super::args;
use super::dispatch::handler;
use super::guard::{Entry, Locks, UNTRACED, always};
use super::library::{backend, enums, environment};
use crate::abi::backend::environment::dtl_environment_desc_t;
use crate::abi::backend::plugin::dtl_host_api_t;
use crate::abi::backend::vtable::dtl_backend_vtable_t;
use crate::abi::devices::dispatch::{dtl_dispatch_handler_t, dtl_dispatch_key_t};
use crate::abi::handle::{dtl_backend_t, dtl_registration_t};
use crate::abi::runtime::{DTL_ABI_VERSION, DTL_LOG_DEBUG, DTL_LOG_ERROR};
use crate::abi::status::dtl_status_t;
use crate::backend::{plugin, vtable_backend};
use crate::error::fail;
use crate::runtime::dispatch::{self, DEFAULT};
use crate::runtime::registry::Backend;
use crate::runtime::{log, plugins};
use crate::sys::memory::buf::Addr;
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
