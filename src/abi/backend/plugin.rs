//! Plugins: functions of the host, layouts, the entry of a plugin.
//! A plugin is a shared object that provides backends. It does not link with libdtl.
//! dtl: header(dtl_backend.h)

use super::environment::dtl_environment_desc_t;
use super::vtable::dtl_backend_vtable_t;
use crate::abi::devices::dispatch::{dtl_dispatch_handler_t, dtl_dispatch_key_t};
use crate::abi::enums::{dtl_attr_t, dtl_enum_t};
use crate::abi::handle::{dtl_backend_t, dtl_registration_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::dtl_enum_word_t;
use std::ffi::{c_char, c_void};

/// What the library gives a plugin. Lives as long as the process, also across dtl_finalize.
/// All functions: any thread, unless they say less.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_host_api_t {
    /// sizeof(dtl_host_api_t) of the library; read only fields inside it.
    pub struct_size: u32,
    /// DTL_ABI_VERSION of the library.
    pub abi_version: u32,
    /// The lowest DTL_ABI_VERSION that a plugin may have been compiled with.
    pub abi_version_min: u32,
    /// 0.
    pub reserved: u32,
    /// As dtl_backend_register (same parameters, same errors), for use inside dtl_plugin_t.load and
    /// in its thread only; elsewhere DTL_ERROR_INVALID_STATE. Backends are taken back if load fails
    /// after.
    pub backend_register: Option<
        unsafe extern "C" fn(
            name: *const c_char,
            vtable: *const dtl_backend_vtable_t,
            self_: *mut c_void,
            flags: u64,
            out: *mut dtl_backend_t,
        ) -> dtl_status_t,
    >,
    /// As dtl_backend_set_error: the text that goes with the failing status that the slot, the
    /// entry or load is about to return. Copied; belongs to the calling thread. Not needed for the
    /// status of one of these functions or of a dtl_ function: its text goes with it (see
    /// dtl_last_error).
    pub set_error: Option<unsafe extern "C" fn(text: *const c_char) -> dtl_status_t>,
    /// A line to the library's log: DTL_LOG_ERROR ... DTL_LOG_DEBUG. Copied; dropped if the level
    /// is not logged. Not on a data path.
    pub log: Option<unsafe extern "C" fn(level: i32, text: *const c_char) -> dtl_status_t>,
    /// As the function dtl_enum_create, and so on for all that follow: same parameters, same
    /// errors. In load, in slots and in threads of the plugin's own. What they add stays if load
    /// fails after, and is there already when load runs again: ask enum_from_name when the name
    /// exists. This function and those after it exist only if struct_size covers them.
    pub enum_create: Option<
        unsafe extern "C" fn(name: *const c_char, flags: u64, out: *mut dtl_enum_t) -> dtl_status_t,
    >,
    /// As dtl_enum_find.
    pub enum_find:
        Option<unsafe extern "C" fn(name: *const c_char, out: *mut dtl_enum_t) -> dtl_status_t>,
    /// As dtl_enum_register.
    pub enum_register: Option<
        unsafe extern "C" fn(
            enumeration: dtl_enum_t,
            name: *const c_char,
            out: *mut dtl_enum_word_t,
        ) -> dtl_status_t,
    >,
    /// As dtl_enum_register_value.
    pub enum_register_value: Option<
        unsafe extern "C" fn(
            enumeration: dtl_enum_t,
            name: *const c_char,
            value: u32,
            out: *mut dtl_enum_word_t,
        ) -> dtl_status_t,
    >,
    /// As dtl_enum_register_template.
    pub enum_register_template: Option<
        unsafe extern "C" fn(
            enumeration: dtl_enum_t,
            name: *const c_char,
            fields: *const dtl_attr_t,
            n: u64,
            out: *mut dtl_enum_word_t,
        ) -> dtl_status_t,
    >,
    /// As dtl_enum_from_name.
    pub enum_from_name: Option<
        unsafe extern "C" fn(
            enumeration: dtl_enum_t,
            name: *const c_char,
            out: *mut dtl_enum_word_t,
        ) -> dtl_status_t,
    >,
    /// As dtl_ev_instance.
    pub ev_instance: Option<
        unsafe extern "C" fn(
            tmpl: dtl_enum_word_t,
            attrs: *const dtl_attr_t,
            n: u64,
            out: *mut dtl_enum_word_t,
        ) -> dtl_status_t,
    >,
    /// As dtl_ev_get: what a slot asks of an instance that it is handed.
    pub ev_get: Option<
        unsafe extern "C" fn(
            word: dtl_enum_word_t,
            name: *const c_char,
            out_attr: *mut dtl_attr_t,
        ) -> dtl_status_t,
    >,
    /// As dtl_schedule_set_defaults.
    pub schedule_set_defaults: Option<
        unsafe extern "C" fn(
            schedule: dtl_enum_word_t,
            default_memory_kind: dtl_enum_word_t,
            inner_schedule: dtl_enum_word_t,
        ) -> dtl_status_t,
    >,
    /// As dtl_environment_register, for use inside dtl_plugin_t.load and in its thread only;
    /// elsewhere DTL_ERROR_INVALID_STATE. What was not there before is taken back if load fails
    /// after.
    pub environment_register:
        Option<unsafe extern "C" fn(desc: *const dtl_environment_desc_t) -> dtl_status_t>,
    /// As dtl_environment_require, for use in slots and other functions; inside a plugin's load
    /// DTL_ERROR_INVALID_STATE.
    pub environment_require: Option<unsafe extern "C" fn(name: *const c_char) -> dtl_status_t>,
    /// As dtl_environment_release.
    pub environment_release: Option<unsafe extern "C" fn(name: *const c_char) -> dtl_status_t>,
    /// As dtl_environment_state.
    pub environment_state:
        Option<unsafe extern "C" fn(name: *const c_char, out: *mut *mut c_void) -> dtl_status_t>,
    /// As dtl_dispatch_register with dtl_dispatcher_default(), for use inside dtl_plugin_t.load and
    /// in its thread only; elsewhere DTL_ERROR_INVALID_STATE. The handler is taken back if load
    /// fails after. It goes with the backend that dtl_dispatch_handler_t.backend names, else with
    /// the plugin's last backend (dtl_backend_unregister, dtl_finalize).
    pub dispatch_register: Option<
        unsafe extern "C" fn(
            keys: *const dtl_dispatch_key_t,
            key_count: u64,
            handler: *const dtl_dispatch_handler_t,
            out: *mut dtl_registration_t,
        ) -> dtl_status_t,
    >,
    /// As dtl_dispatch_unregister with dtl_dispatcher_default(): earlier than that, and in any
    /// thread.
    pub dispatch_unregister:
        Option<unsafe extern "C" fn(registration: dtl_registration_t) -> dtl_status_t>,
}

/// How a compiler laid out a field of a struct of this header, or the struct as a whole. Plugins
/// carry these rows (DTL_LAYOUTS) so that the library can compare them with its own. Never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_layout_t {
    /// The struct's name, "dtl_comm_vtable_t".
    /// dtl: until(forever)
    pub name: *const c_char,
    /// The field's name; NULL = the struct as a whole.
    /// dtl: opt until(forever)
    pub field: *const c_char,
    /// Where the field begins, in bytes; 0 for a struct as a whole.
    pub offset: u32,
    /// sizeof the field or the struct.
    pub size: u32,
    /// Must be 0.
    pub reserved: u64,
}

/// Description of a plugin; filled in by its entry, from DTL_PLUGIN_INIT (in C an initial value of
/// local variables only). Everything that it points to must stay as it is while the process lives
/// (plugins are never unloaded).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_plugin_t {
    /// sizeof(dtl_plugin_t), set by DTL_PLUGIN_INIT.
    pub struct_size: u32,
    /// DTL_ABI_VERSION of the header it was compiled with.
    pub abi_version: u32,
    /// The lowest DTL_ABI_VERSION of a library that it can work with. Raise it only if the plugin
    /// cannot do without something that came later. The highest version in both ranges is spoken;
    /// if there is none, the plugin is refused and the text names both ranges.
    /// cbindgen:init=2u
    pub abi_version_min: u32,
    /// Number of rows in `layouts`; at most 4096. 0 = not compared (a plugin that is not made from
    /// this header).
    /// cbindgen:init=DTL_LAYOUT_COUNT
    pub layout_count: u32,
    /// The plugin's name, 1 to 63 letters, digits, '_', '-', '.'.
    /// dtl: until(forever)
    pub name: *const c_char,
    /// Its version, as text; NULL = none.
    /// dtl: opt until(forever)
    pub version: *const c_char,
    /// What it is, a line; NULL = nothing.
    /// dtl: opt until(forever)
    pub description: *const c_char,
    /// How its compiler laid out this header's structs: DTL_LAYOUTS.
    /// cbindgen:init=dtl_layouts()
    /// dtl: len(layout_count) opt(layout_count==0) until(forever)
    pub layouts: *const dtl_layout_t,
    /// (required) Registers the plugin's backends with host->backend_register; at least one. Called
    /// once when the plugin is loaded, and again when it is loaded after its backends are gone:
    /// after dtl_finalize and dtl_init, after dtl_backend_unregister, or in a forked child. A
    /// status other than DTL_SUCCESS means that nothing was registered: what was is taken back.
    /// Thread: the one whose call needs plugins; other calls that need them wait, so be quick and
    /// leave hardware alone (a table's is_available is called later). Locks held: none of the
    /// program's. It must not call dtl_ functions other than the host's, must not wait for threads
    /// that do, must not throw.
    pub load: Option<unsafe extern "C" fn(host: *const dtl_host_api_t) -> dtl_status_t>,
    /// Environments that its backends need: "name", or "name>=version"; its own or others'. A
    /// backend of the plugin cannot be used (its is_available is "no", with the reason) unless they
    /// can be; they are required before the first use of it, and stay until dtl_finalize. NULL =
    /// none.
    /// cbindgen:appended
    /// dtl: len(environment_count) opt(environment_count==0) until(forever)
    pub environments: *const *const c_char,
    /// Entries of `environments`; at most 256.
    pub environment_count: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// The one symbol of a plugin file, exported under the name dtl_plugin_entry_v1:
///
///   DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host, dtl_plugin_t
///   *out) {
///       dtl_plugin_t plugin = DTL_PLUGIN_INIT;
///       plugin.name = "mine";
///       plugin.load = load;
///       *out = plugin;
///       return DTL_SUCCESS;
///   }
///
/// It is pure: it fills in `out` and does nothing else (no threads, no driver, no files). Behind
/// `out` there are 4096 writable bytes whatever this header's sizeof(dtl_plugin_t) is. A status
/// other than DTL_SUCCESS refuses the load; the entry gives the reason to host->set_error. Thread,
/// locks: as dtl_plugin_t.load. Called once for each process; again only if it failed.
/// dtl:host until(forever)
pub type dtl_plugin_entry_fn_t = Option<
    unsafe extern "C" fn(host: *const dtl_host_api_t, out: *mut dtl_plugin_t) -> dtl_status_t,
>;

/// The plugin is loaded: its backends are registered.
/// dtl: section(ffi/library/plugin)
pub const DTL_PLUGIN_LOADED: i32 = 1;
/// The plugin could not be loaded, or this file or folder was refused: see `reason`.
pub const DTL_PLUGIN_FAILED: i32 = 2;
/// The plugin was loaded, but its backends have been unregistered since, or dtl_finalize took them.
pub const DTL_PLUGIN_IDLE: i32 = 3;

/// What became of a plugin file, or of a folder that was searched for plugins. Start from
/// DTL_PLUGIN_INFO_INIT. All texts live for ever and are never NULL.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_plugin_info_t {
    /// sizeof(dtl_plugin_info_t), set by DTL_PLUGIN_INFO_INIT.
    pub struct_size: u32,
    /// DTL_PLUGIN_LOADED, _FAILED or _IDLE.
    /// dtl: values(DTL_PLUGIN_)
    pub state: i32,
    /// The status that the attempt ended with.
    pub status: dtl_status_t,
    /// The ABI version that library and plugin agreed on; 0 = it did not come to that.
    /// cbindgen:init=0
    pub abi_version: u32,
    /// The file or folder, without symbolic links where it exists.
    /// dtl: lives(forever)
    pub path: *const c_char,
    /// Why it failed; empty if it did not. Of a plugin that is loaded: a backend_register that
    /// failed although `load` returned DTL_SUCCESS, which is also a warning in the log.
    /// dtl: lives(forever)
    pub reason: *const c_char,
    /// Origin of the request to load it: "dtl_backend_load", "dtl_backend_load_dir",
    /// "DTL_PLUGIN_PATH" or "installed".
    /// dtl: lives(forever)
    pub origin: *const c_char,
    /// The plugin's own name; empty if it did not come to that, as the next three.
    /// dtl: lives(forever)
    pub name: *const c_char,
    /// Its version.
    /// dtl: lives(forever)
    pub version: *const c_char,
    /// The plugin's own description.
    /// dtl: lives(forever)
    pub description: *const c_char,
    /// The names of its backends that are registered, separated by ", ".
    /// dtl: lives(forever)
    pub backends: *const c_char,
}
