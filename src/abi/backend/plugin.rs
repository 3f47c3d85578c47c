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

/// Work of a device for dtl_host_api_t.trace_span. Start from DTL_TRACE_SPAN_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_trace_span_t {
    /// sizeof(dtl_trace_span_t), set by DTL_TRACE_SPAN_INIT.
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Track of the device or stream, from trace_track.
    pub track: u64,
    /// Time at which the work began, in nanoseconds of the clock of trace_now. Not 0.
    pub begin_ns: u64,
    /// Time at which the work ended, not before `begin_ns`.
    pub end_ns: u64,
    /// Number of bytes moved; 0 = none.
    pub bytes: u64,
    /// Category of the work, for example "kernel" or "copy". Copied.
    pub category: *const c_char,
    /// Name of the work, for example that of the kernel. Copied.
    pub name: *const c_char,
    /// Text for values that differ from span to span, cut to 31 bytes; NULL = none. Copied.
    /// dtl: opt
    pub what: *const c_char,
}

/// Functions of the library for a plugin. The struct exists until the process ends, across
/// dtl_finalize. A function works in any thread unless its text restricts it. It has the parameters
/// and statuses of the dtl_ function that its text names.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_host_api_t {
    /// sizeof(dtl_host_api_t) of the library. Read only fields inside it.
    pub struct_size: u32,
    /// DTL_ABI_VERSION of the library.
    pub abi_version: u32,
    /// Lowest DTL_ABI_VERSION that a plugin may have been compiled with.
    pub abi_version_min: u32,
    /// 0.
    pub reserved: u32,
    /// Registers a backend (dtl_backend_register). Only inside dtl_plugin_t.load and in its thread;
    /// elsewhere DTL_ERROR_INVALID_STATE. If `load` fails afterwards, the backend is unregistered
    /// again.
    pub backend_register: Option<
        unsafe extern "C" fn(
            name: *const c_char,
            vtable: *const dtl_backend_vtable_t,
            self_: *mut c_void,
            flags: u64,
            out: *mut dtl_backend_t,
        ) -> dtl_status_t,
    >,
    /// Sets the text for the failing status that a slot, the entry or `load` is about to return
    /// (dtl_backend_set_error). Copied; belongs to the calling thread. Not needed for the status of
    /// one of these functions or of a dtl_ function, whose text is appended (see dtl_last_error).
    pub set_error: Option<unsafe extern "C" fn(text: *const c_char) -> dtl_status_t>,
    /// Writes a line to the library's log, at a level from DTL_LOG_ERROR to DTL_LOG_DEBUG. Copied.
    /// The line is dropped if the level is not logged. Do not call it on a data path.
    pub log: Option<unsafe extern "C" fn(level: i32, text: *const c_char) -> dtl_status_t>,
    /// Creates an enumeration (dtl_enum_create). This function and those after it exist only if
    /// struct_size covers them. It and the functions of enumerations after it may be called in
    /// `load`, in slots and in threads of the plugin. Their additions stay if `load` fails
    /// afterwards, and exist already when `load` runs again: if the name exists, call
    /// enum_from_name.
    pub enum_create: Option<
        unsafe extern "C" fn(name: *const c_char, flags: u64, out: *mut dtl_enum_t) -> dtl_status_t,
    >,
    /// Finds an enumeration by name (dtl_enum_find).
    pub enum_find:
        Option<unsafe extern "C" fn(name: *const c_char, out: *mut dtl_enum_t) -> dtl_status_t>,
    /// Adds a member (dtl_enum_register).
    pub enum_register: Option<
        unsafe extern "C" fn(
            enumeration: dtl_enum_t,
            name: *const c_char,
            out: *mut dtl_enum_word_t,
        ) -> dtl_status_t,
    >,
    /// Adds a member with a given value (dtl_enum_register_value).
    pub enum_register_value: Option<
        unsafe extern "C" fn(
            enumeration: dtl_enum_t,
            name: *const c_char,
            value: u32,
            out: *mut dtl_enum_word_t,
        ) -> dtl_status_t,
    >,
    /// Adds a template (dtl_enum_register_template).
    pub enum_register_template: Option<
        unsafe extern "C" fn(
            enumeration: dtl_enum_t,
            name: *const c_char,
            fields: *const dtl_attr_t,
            n: u64,
            out: *mut dtl_enum_word_t,
        ) -> dtl_status_t,
    >,
    /// Finds a member by name (dtl_enum_from_name).
    pub enum_from_name: Option<
        unsafe extern "C" fn(
            enumeration: dtl_enum_t,
            name: *const c_char,
            out: *mut dtl_enum_word_t,
        ) -> dtl_status_t,
    >,
    /// Returns the word of an instance (dtl_ev_instance).
    pub ev_instance: Option<
        unsafe extern "C" fn(
            tmpl: dtl_enum_word_t,
            attrs: *const dtl_attr_t,
            n: u64,
            out: *mut dtl_enum_word_t,
        ) -> dtl_status_t,
    >,
    /// Returns an attribute of an instance (dtl_ev_get), for example of one that a slot receives.
    pub ev_get: Option<
        unsafe extern "C" fn(
            word: dtl_enum_word_t,
            name: *const c_char,
            out_attr: *mut dtl_attr_t,
        ) -> dtl_status_t,
    >,
    /// Sets the defaults of a schedule (dtl_schedule_set_defaults).
    pub schedule_set_defaults: Option<
        unsafe extern "C" fn(
            schedule: dtl_enum_word_t,
            default_memory_kind: dtl_enum_word_t,
            inner_schedule: dtl_enum_word_t,
        ) -> dtl_status_t,
    >,
    /// Registers an environment (dtl_environment_register). Only inside dtl_plugin_t.load and in
    /// its thread; elsewhere DTL_ERROR_INVALID_STATE. If `load` fails afterwards, a new environment
    /// is unregistered again.
    pub environment_register:
        Option<unsafe extern "C" fn(desc: *const dtl_environment_desc_t) -> dtl_status_t>,
    /// Requires an environment (dtl_environment_require), in slots and other functions. Inside the
    /// `load` of a plugin it returns DTL_ERROR_INVALID_STATE.
    pub environment_require: Option<unsafe extern "C" fn(name: *const c_char) -> dtl_status_t>,
    /// Releases an environment (dtl_environment_release).
    pub environment_release: Option<unsafe extern "C" fn(name: *const c_char) -> dtl_status_t>,
    /// Returns the state block of an environment (dtl_environment_state).
    pub environment_state:
        Option<unsafe extern "C" fn(name: *const c_char, out: *mut *mut c_void) -> dtl_status_t>,
    /// Registers a handler in dtl_dispatcher_default() (dtl_dispatch_register). Only inside
    /// dtl_plugin_t.load and in its thread; elsewhere DTL_ERROR_INVALID_STATE. If `load` fails
    /// afterwards, the handler is unregistered again. It is removed with the backend that
    /// dtl_dispatch_handler_t.backend names, otherwise with the last backend of the plugin
    /// (dtl_backend_unregister, dtl_finalize).
    pub dispatch_register: Option<
        unsafe extern "C" fn(
            keys: *const dtl_dispatch_key_t,
            key_count: u64,
            handler: *const dtl_dispatch_handler_t,
            out: *mut dtl_registration_t,
        ) -> dtl_status_t,
    >,
    /// Removes a handler from dtl_dispatcher_default() before that (dtl_dispatch_unregister), in
    /// any thread.
    pub dispatch_unregister:
        Option<unsafe extern "C" fn(registration: dtl_registration_t) -> dtl_status_t>,
    /// Returns the text of dtl_kernel.h (dtl_kernel_header), for the slot module_compile. Works in
    /// every state.
    pub kernel_header: Option<extern "C" fn() -> *const c_char>,
    /// Returns 1 while a trace file or a tool (dtl_trace_start, dtl_trace_set_callbacks) receives
    /// events, otherwise 0. It costs one load; use it to skip work that only a trace needs.
    ///
    /// The trace functions, from this one on, exist only if struct_size covers them:
    /// DTL_HOST_HAS(host, trace_is_on). Any thread may call them, also the plugin's own threads.
    /// They never block on a device or another rank. While nothing receives events, the recording
    /// functions return DTL_SUCCESS after that load, without a check of their parameters
    /// (trace_begin: except `out_span`). Texts are UTF-8 and copied. After a failure nothing is
    /// recorded.
    pub trace_is_on: Option<extern "C" fn() -> i32>,
    /// Returns the time of the trace in nanoseconds: CLOCK_MONOTONIC of the node. Times of a device
    /// must be converted to this clock: read both clocks together, and add the difference.
    pub trace_now: Option<extern "C" fn() -> u64>,
    /// Begins a span in the calling thread, inside the library's call if there is one: a part of a
    /// slot's work. `*out_span` is 0 if nothing receives events. `category` groups spans, for
    /// example the backend's name. Of `category` and `name` the first 255 bytes are kept until the
    /// process ends, so put values that differ from span to span into `what` (NULL = none), which
    /// is cut to 31 bytes. DTL_ERROR_NULL_POINTER; DTL_ERROR_INVALID_ARGUMENT: not UTF-8, or an
    /// empty name; DTL_ERROR_LIMIT: 14336 different names, or 1024 calls and spans in progress in
    /// this thread.
    pub trace_begin: Option<
        unsafe extern "C" fn(
            category: *const c_char,
            name: *const c_char,
            what: *const c_char,
            out_span: *mut u64,
        ) -> dtl_status_t,
    >,
    /// Ends the span that trace_begin returned; 0 does nothing. It must be the innermost of the
    /// thread, otherwise DTL_ERROR_INVALID_STATE. A span that is still open when the slot returns
    /// ends with the library's call.
    pub trace_end: Option<extern "C" fn(span: u64) -> dtl_status_t>,
    /// Returns the number of the track `name` in `group`. A track is a row of the trace, for
    /// trace_span and trace_counter. The number is not 0, does not depend on whether tracing is on,
    /// and stays the same for the same names until the process ends. Viewers show a group as a
    /// process beside the rank and a track as a thread of it: use one group for each device, one
    /// track for each stream or engine. A new stream may have the name of a destroyed one.
    /// DTL_ERROR_NULL_POINTER; DTL_ERROR_INVALID_ARGUMENT: not UTF-8, or an empty name;
    /// DTL_ERROR_LIMIT: 14336 different names.
    pub trace_track: Option<
        unsafe extern "C" fn(
            group: *const c_char,
            name: *const c_char,
            out_track: *mut u64,
        ) -> dtl_status_t,
    >,
    /// Records work of a device on its track, once the work has ended; from any thread, in any
    /// order. Spans of one track may nest, but must not overlap otherwise: viewers cannot show
    /// that. DTL_ERROR_NULL_POINTER; DTL_ERROR_INVALID_ARGUMENT: an unknown track, `begin_ns` 0 or
    /// after `end_ns`, `reserved` not 0, a text that is not UTF-8 or an empty name;
    /// DTL_ERROR_INCOMPATIBLE_ABI: no version has its `struct_size`; DTL_ERROR_LIMIT: 14336
    /// different names.
    pub trace_span: Option<unsafe extern "C" fn(span: *const dtl_trace_span_t) -> dtl_status_t>,
    /// Records the value of a counter from `time_ns` (0: now) until its next value: memory in use,
    /// queue length, clock rate. Viewers show it in the group of `track`; 0: with the rank.
    /// Statuses of trace_span; also DTL_ERROR_INVALID_ARGUMENT if `value` is not finite.
    pub trace_counter: Option<
        unsafe extern "C" fn(
            track: u64,
            name: *const c_char,
            time_ns: u64,
            value: f64,
        ) -> dtl_status_t,
    >,
}

/// Layout of a struct of this header, or of one of its fields, as a compiler produced it. Plugins
/// carry these rows (DTL_LAYOUTS) so that the library can compare them with its own. The struct
/// never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_layout_t {
    /// Name of the struct, for example "dtl_comm_vtable_t".
    /// dtl: until(forever)
    pub name: *const c_char,
    /// Name of the field; NULL = the struct as a whole.
    /// dtl: opt until(forever)
    pub field: *const c_char,
    /// Offset of the field in bytes; 0 for a struct as a whole.
    pub offset: u32,
    /// Size of the field or the struct in bytes.
    pub size: u32,
    /// Must be 0.
    pub reserved: u64,
}

/// Description of a plugin, filled in by its entry from DTL_PLUGIN_INIT (in C, an initial value of
/// local variables only). Everything that it points to must not change until the process ends,
/// because plugins are never unloaded.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_plugin_t {
    /// sizeof(dtl_plugin_t), set by DTL_PLUGIN_INIT.
    pub struct_size: u32,
    /// DTL_ABI_VERSION of the header it was compiled with.
    pub abi_version: u32,
    /// Lowest DTL_ABI_VERSION of a library that the plugin works with. Raise it only if the plugin
    /// needs a later addition. The highest version in both ranges is used; if there is none, the
    /// plugin is refused with a text that has both ranges.
    /// cbindgen:init=2u
    pub abi_version_min: u32,
    /// Number of rows in `layouts`, at most 4096. 0 = not compared (a plugin that was not built
    /// with this header).
    /// cbindgen:init=DTL_LAYOUT_COUNT
    pub layout_count: u32,
    /// Name of the plugin, 1 to 63 letters, digits, '_', '-' and '.'.
    /// dtl: until(forever)
    pub name: *const c_char,
    /// Version of the plugin, as text; NULL = none.
    /// dtl: opt until(forever)
    pub version: *const c_char,
    /// Description of the plugin in one line; NULL = none.
    /// dtl: opt until(forever)
    pub description: *const c_char,
    /// Layout of this header's structs in the plugin: DTL_LAYOUTS.
    /// cbindgen:init=dtl_layouts()
    /// dtl: len(layout_count) opt(layout_count==0) until(forever)
    pub layouts: *const dtl_layout_t,
    /// (required) Registers the backends of the plugin with host->backend_register; at least one.
    ///
    /// It is called once when the plugin is loaded, and again when the plugin is loaded after its
    /// backends are gone: after dtl_finalize and dtl_init, after dtl_backend_unregister, or in a
    /// forked child. If it returns a status other than DTL_SUCCESS, all its registrations are
    /// undone. It runs in the thread whose call needs plugins. Other calls that need them wait, so
    /// it must be quick and must not access hardware (is_available of a table is called later). No
    /// lock of the program is held. It must not call dtl_ functions other than those of the host,
    /// must not wait for threads that do, and must not throw.
    pub load: Option<unsafe extern "C" fn(host: *const dtl_host_api_t) -> dtl_status_t>,
    /// Environments that the backends of the plugin need: "name" or "name>=version", its own or
    /// others. If they cannot be required, the backends are not available, with that reason. They
    /// are required before the first use of a backend of the plugin, and stay until dtl_finalize.
    /// NULL = none.
    /// cbindgen:appended
    /// dtl: len(environment_count) opt(environment_count==0) until(forever)
    pub environments: *const *const c_char,
    /// Entries of `environments`, at most 256.
    pub environment_count: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// Entry of a plugin file: its only symbol, exported under the name dtl_plugin_entry_v1:
///
///   DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host,
///                                                      dtl_plugin_t *out) {
///       dtl_plugin_t plugin = DTL_PLUGIN_INIT;
///       plugin.name = "mine";
///       plugin.load = load;
///       *out = plugin;
///       return DTL_SUCCESS;
///   }
///
/// It must only fill in `out` (no threads, no driver, no files). It is called once for each
/// process; again only if it failed. It runs in the thread whose call needs plugins, with no lock
/// of the program held. It must not call dtl_ functions other than those of the host, must not wait
/// for threads that do, and must not throw.
///
/// @param out  4096 writable bytes, whatever sizeof(dtl_plugin_t) is in this header.
/// @return DTL_SUCCESS. Any other status refuses the load; the entry passes the reason to
///         host->set_error.
/// dtl:host until(forever)
pub type dtl_plugin_entry_fn_t = Option<
    unsafe extern "C" fn(host: *const dtl_host_api_t, out: *mut dtl_plugin_t) -> dtl_status_t,
>;

/// State of a plugin: loaded, and its backends are registered.
/// dtl: section(ffi/library/plugin)
pub const DTL_PLUGIN_LOADED: i32 = 1;
/// State of a plugin: not loaded, or this file or folder was refused; see `reason`.
pub const DTL_PLUGIN_FAILED: i32 = 2;
/// State of a plugin: loaded, but its backends have been unregistered, or removed by dtl_finalize.
pub const DTL_PLUGIN_IDLE: i32 = 3;

/// State of a plugin file, or of a folder that was searched for plugins. Start from
/// DTL_PLUGIN_INFO_INIT. All texts are valid until the process ends, and never NULL.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_plugin_info_t {
    /// sizeof(dtl_plugin_info_t), set by DTL_PLUGIN_INFO_INIT.
    pub struct_size: u32,
    /// DTL_PLUGIN_LOADED, DTL_PLUGIN_FAILED or DTL_PLUGIN_IDLE.
    /// dtl: values(DTL_PLUGIN_)
    pub state: i32,
    /// Status with which the attempt ended.
    pub status: dtl_status_t,
    /// ABI version on which library and plugin agreed; 0 = the attempt ended earlier.
    /// cbindgen:init=0
    pub abi_version: u32,
    /// File or folder, without symbolic links if it exists.
    /// dtl: lives(forever)
    pub path: *const c_char,
    /// Reason of the failure; empty if there was none. For a loaded plugin, a backend_register that
    /// failed although `load` returned DTL_SUCCESS; it is also logged as a warning.
    /// dtl: lives(forever)
    pub reason: *const c_char,
    /// Origin of the request to load it: "dtl_backend_load", "dtl_backend_load_dir",
    /// "DTL_PLUGIN_PATH" or "installed".
    /// dtl: lives(forever)
    pub origin: *const c_char,
    /// Name of the plugin; empty if the attempt ended earlier, like the next three fields.
    /// dtl: lives(forever)
    pub name: *const c_char,
    /// Version of the plugin.
    /// dtl: lives(forever)
    pub version: *const c_char,
    /// Description of the plugin.
    /// dtl: lives(forever)
    pub description: *const c_char,
    /// Names of its registered backends, separated by ", ".
    /// dtl: lives(forever)
    pub backends: *const c_char,
}
