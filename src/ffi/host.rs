//! The functions that plugins are handed, and what the layers below are handed in turn. Exports no
//! symbol: plugins reach these through dtl_host_api_t.

use super::{args, backend, dispatch, enums, environment, guard};
use crate::abi::dispatch::{dtl_dispatch_handler_t, dtl_dispatch_key_t};
use crate::abi::enums::{dtl_attr_t, dtl_enum_t};
use crate::abi::environment::dtl_environment_desc_t;
use crate::abi::handle::{dtl_backend_t, dtl_registration_t};
use crate::abi::plugin::dtl_host_api_t;
use crate::abi::runtime::{DTL_ABI_VERSION, DTL_LOG_DEBUG, DTL_LOG_ERROR};
use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use crate::abi::vtable::dtl_backend_vtable_t;
use crate::abi::word::dtl_enum_word_t as Word;
use crate::backend::native;
use crate::error::{Result, fail};
use crate::runtime::dispatch::DEFAULT;
use crate::runtime::registry::Backend;
use crate::runtime::{log, plugins};
use crate::sys::buf::Addr;
use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::Arc;

static HOST: dtl_host_api_t = dtl_host_api_t {
    struct_size: size_of::<dtl_host_api_t>() as u32,
    abi_version: DTL_ABI_VERSION,
    abi_version_min: native::OLDEST_ABI,
    reserved: 0,
    backend_register: Some(host_register),
    set_error: Some(backend::dtl_backend_set_error),
    log: Some(host_log),
    enum_create: Some(host_enum_create),
    enum_find: Some(host_enum_find),
    enum_register: Some(host_enum_register),
    enum_register_value: Some(host_enum_register_value),
    enum_register_template: Some(host_enum_register_template),
    enum_from_name: Some(host_enum_from_name),
    ev_instance: Some(host_ev_instance),
    ev_get: Some(host_ev_get),
    schedule_set_defaults: Some(host_schedule_set_defaults),
    environment_register: Some(host_environment_register),
    environment_require: Some(host_environment_require),
    environment_release: Some(host_environment_release),
    environment_state: Some(host_environment_state),
    dispatch_register: Some(host_dispatch_register),
    dispatch_unregister: Some(host_dispatch_unregister),
};

/// What `runtime::lifecycle` opens the library with: the built-in backends, and the way to open plugin
/// files.
#[must_use]
pub fn builtin() -> Vec<Arc<Backend>> {
    plugins::open_files_with(open);
    crate::backend::builtin()
}

fn open(path: &Path, step: plugins::Step) -> Result<Arc<dyn plugins::Plugin>> {
    crate::backend::plugin::open(path, &HOST, step)
}

unsafe extern "C" fn host_register(
    name: *const c_char,
    vtable: *const dtl_backend_vtable_t,
    self_: *mut c_void,
    flags: u64,
    out: *mut dtl_backend_t,
) -> dtl_status_t {
    let status = guard::call(|_| {
        // SAFETY: the caller's contract.
        let name = unsafe { args::text(name, "name") }?;
        let out = args::Out::new(out, "out")?;
        // SAFETY: the caller's contract.
        let mut tables = unsafe { backend::take_tables(vtable) }?;
        let mut owner = None;
        let make = |compiled_for, spoken| {
            // A plugin from a newer header that speaks our version: what it sets beyond was refused.
            if tables.main.abi_version == compiled_for {
                tables.main.abi_version = spoken;
            }
            let (backend, made) = native::adapt(name, &tables, Addr::new(self_))?;
            owner = Some(made);
            Ok(backend)
        };
        out.set(plugins::register(flags, make)?);
        owner.iter().for_each(|owner| owner.arm());
        Ok(())
    });
    passed_on(status)
}

/// If load or a slot passes the status on, the text goes with it.
fn passed_on(status: dtl_status_t) -> dtl_status_t {
    if status != DTL_SUCCESS {
        // SAFETY: the thread's last error is a text that nothing replaces in between.
        let _ = unsafe { args::text(guard::last_error(), "the last error") }.and_then(native::set_error_text);
    }
    status
}

unsafe extern "C" fn host_environment_register(desc: *const dtl_environment_desc_t) -> dtl_status_t {
    passed_on(guard::call(|_| {
        // SAFETY: the caller's contract.
        plugins::register_environment(unsafe { environment::describe(desc) }?)
    }))
}

unsafe extern "C" fn host_environment_require(name: *const c_char) -> dtl_status_t {
    if plugins::is_loading_here() {
        return passed_on(guard::call(|_| {
            fail!(
                DTL_ERROR_INVALID_STATE,
                "dtl_host_api_t.environment_require inside a plugin's load: name what backends need in dtl_plugin_t, or \
                 require it in a slot"
            )
        }));
    }
    // SAFETY: passed on.
    passed_on(unsafe { environment::dtl_environment_require(name) })
}

unsafe extern "C" fn host_dispatch_register(
    keys: *const dtl_dispatch_key_t,
    key_count: u64,
    handler: *const dtl_dispatch_handler_t,
    out: *mut dtl_registration_t,
) -> dtl_status_t {
    passed_on(guard::call(|inside| {
        let out = args::Out::new(out, "out")?;
        out.set(plugins::register_handler(|| {
            // SAFETY: the caller's contract is dtl_dispatch_register's.
            unsafe { dispatch::register(inside, DEFAULT, (keys, key_count), handler) }
        })?);
        Ok(())
    }))
}

unsafe extern "C" fn host_dispatch_unregister(registration: dtl_registration_t) -> dtl_status_t {
    passed_on(dispatch::dtl_dispatch_unregister(DEFAULT, registration))
}

/// Functions of the header as they are, for plugins.
macro_rules! passing_on {
    ($($name:ident: $entry:path, ($($arg:ident: $ty:ty),+);)+) => {$(
        unsafe extern "C" fn $name($($arg: $ty),+) -> dtl_status_t {
            // SAFETY: the caller's contract is the entry's.
            passed_on(unsafe { $entry($($arg),+) })
        }
    )+};
}
passing_on! {
    host_environment_release: environment::dtl_environment_release, (name: *const c_char);
    host_environment_state: environment::dtl_environment_state, (name: *const c_char, out: *mut *mut c_void);
    host_enum_create: enums::dtl_enum_create, (name: *const c_char, flags: u32, out: *mut dtl_enum_t);
    host_enum_find: enums::dtl_enum_find, (name: *const c_char, out: *mut dtl_enum_t);
    host_enum_register: enums::dtl_enum_register, (of: dtl_enum_t, name: *const c_char, out: *mut Word);
    host_enum_register_value: enums::dtl_enum_register_value,
        (of: dtl_enum_t, name: *const c_char, value: u32, out: *mut Word);
    host_enum_register_template: enums::dtl_enum_register_template,
        (of: dtl_enum_t, name: *const c_char, fields: *const dtl_attr_t, n: u64, out: *mut Word);
    host_enum_from_name: enums::dtl_enum_from_name, (of: dtl_enum_t, name: *const c_char, out: *mut Word);
    host_ev_instance: enums::dtl_ev_instance, (tmpl: Word, attrs: *const dtl_attr_t, n: u64, out: *mut Word);
    host_ev_get: enums::dtl_ev_get, (word: Word, name: *const c_char, out: *mut dtl_attr_t);
}

unsafe extern "C" fn host_schedule_set_defaults(schedule: Word, kind: Word, inner: Word) -> dtl_status_t {
    passed_on(enums::dtl_schedule_set_defaults(schedule, kind, inner))
}

unsafe extern "C" fn host_log(level: i32, text: *const c_char) -> dtl_status_t {
    guard::always(|| {
        if !(DTL_LOG_ERROR..=DTL_LOG_DEBUG).contains(&level) {
            return fail!(DTL_ERROR_INVALID_ARGUMENT, "level {level}: use DTL_LOG_ERROR to DTL_LOG_DEBUG");
        }
        // SAFETY: the caller's contract.
        log::log(level, unsafe { args::text(text, "text") }?);
        Ok(())
    })
}
