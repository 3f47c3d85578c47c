//! Plugin files: the entry that the library calls, and the registration of backends in it.

use super::slot::guarded;
use super::{Driver, Table, host};
use crate::{Error, Result, Status, sys};
use std::ffi::{CStr, CString};

/// Registers backends while a plugin is loaded.
#[derive(Debug)]
pub struct Loader {
    host: &'static sys::dtl_host_api_t,
}

impl Loader {
    /// Registers a backend of the plugin, see `dtl_host_api_t.backend_register`. The driver is
    /// dropped after the last use. If the plugin's function fails afterwards, the backend is
    /// unregistered again.
    ///
    /// # Errors
    /// See `dtl_backend_register`. The driver is dropped then.
    pub fn register<D: Driver>(&mut self, name: &str, table: Table<D>) -> Result {
        let Some(register) = self.host.backend_register else {
            let text = "the library has no backend_register";
            return Err(Error::new(sys::DTL_ERROR_INCOMPATIBLE_ABI, text));
        };
        let name = CString::new(name).map_err(|_| {
            let text = "name: the text has a NUL inside";
            Error::new(sys::DTL_ERROR_INVALID_ARGUMENT, text)
        })?;
        table.pass(name.as_ptr(), |name, table, this, out| {
            // SAFETY: the tables and the name live through the call, and the driver until `destroy`.
            let status = unsafe { register(name, table, this, 0, out) };
            if status == sys::DTL_SUCCESS {
                return Ok(());
            }
            // The library appends its own text to that of the load.
            let (call, text) = ("backend_register", String::new());
            Err(Error { call, status: Status(status), text })
        })?;
        Ok(())
    }
}

/// Writes the description of a plugin: what its entry does. For the macro
/// [`plugin!`](crate::plugin).
///
/// # Safety
/// The arguments must be those of `dtl_plugin_entry_v1`, and `load_plugin` the function of the same
/// plugin.
#[doc(hidden)]
pub unsafe fn enter(
    host: *const sys::dtl_host_api_t,
    out: *mut sys::dtl_plugin_t,
    [name, version, description]: [&'static CStr; 3],
    load_plugin: unsafe extern "C" fn(*const sys::dtl_host_api_t) -> sys::dtl_status_t,
) -> sys::dtl_status_t {
    // SAFETY: the struct exists until the process ends.
    host::set_passed(unsafe { &*host });
    // No layouts: those of the declarations are compared with the library's by a test.
    let plugin = sys::dtl_plugin_t {
        struct_size: size_of::<sys::dtl_plugin_t>() as u32,
        abi_version: sys::DTL_ABI_VERSION,
        abi_version_min: 2,
        layout_count: 0,
        name: name.as_ptr(),
        version: version.as_ptr(),
        description: description.as_ptr(),
        layouts: std::ptr::null(),
        load: Some(load_plugin),
        environments: std::ptr::null(),
        environment_count: 0,
        reserved: 0,
    };
    // SAFETY: `out` has 4096 writable bytes.
    unsafe { out.write(plugin) };
    sys::DTL_SUCCESS
}

/// Calls the function of a plugin that registers its backends. For the macro
/// [`plugin!`](crate::plugin).
///
/// # Safety
/// `host` must be the argument of `dtl_plugin_t.load`.
#[doc(hidden)]
pub unsafe fn load(
    host: *const sys::dtl_host_api_t,
    function: fn(&mut Loader) -> Result,
) -> sys::dtl_status_t {
    // SAFETY: the struct exists until the process ends.
    let mut loader = Loader { host: unsafe { &*host } };
    guarded("load", || function(&mut loader))
}

/// Makes the crate a plugin file: exports the entry for which `dtl_backend_load` and
/// `DTL_PLUGIN_PATH` look. Version and description are those of the package. The function gets a
/// [`Loader`](crate::driver::Loader), and registers at least one backend. It must be quick and must
/// not access hardware.
///
/// The package has `crate-type = ["cdylib"]`, and this crate without its default features, because a
/// plugin must not link libdtl.so:
///
/// ```toml
/// dtl-binding = { path = "libdtl/bindings/rust/dtl", default-features = false }
/// ```
///
/// ```
/// use dtl_binding::Result;
/// use dtl_binding::driver::{Devices, Driver, Loader, Table};
///
/// struct Card;
/// impl Driver for Card {}
/// impl Devices for Card {
///     fn count(&self) -> Result<i32> {
///         Ok(1)
///     }
///     fn set_current(&self, _device: i32) -> Result {
///         Ok(())
///     }
///     fn current(&self) -> Result<i32> {
///         Ok(0)
///     }
/// }
///
/// fn load(loader: &mut Loader) -> Result {
///     loader.register("card", Table::new(Card).devices())
/// }
///
/// dtl_binding::plugin!("card", load);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! plugin {
    ($name:literal, $load:path) => {
        /// Entry of the plugin.
        ///
        /// # Safety
        /// For the library only, see `dtl_plugin_entry_fn_t`.
        // SAFETY: the name is that of the plugin's entry, whose signature this is.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn dtl_plugin_entry_v1(
            host: *const $crate::sys::dtl_host_api_t,
            out: *mut $crate::sys::dtl_plugin_t,
        ) -> $crate::sys::dtl_status_t {
            unsafe extern "C" fn load_plugin(
                host: *const $crate::sys::dtl_host_api_t,
            ) -> $crate::sys::dtl_status_t {
                // SAFETY: the argument of `load`.
                unsafe { $crate::driver::load(host, $load) }
            }
            const TEXTS: [&::std::ffi::CStr; 3] = [
                $crate::driver::c_text(::std::concat!($name, "\0")),
                $crate::driver::c_text(::std::concat!(::std::env!("CARGO_PKG_VERSION"), "\0")),
                $crate::driver::c_text(::std::concat!(::std::env!("CARGO_PKG_DESCRIPTION"), "\0")),
            ];
            // SAFETY: the arguments of the entry, and the function of this plugin.
            unsafe { $crate::driver::enter(host, out, TEXTS, load_plugin) }
        }
    };
}

/// Converts a text with a NUL at its end; empty if there is another NUL. For the macro
/// [`plugin!`](crate::plugin).
#[doc(hidden)]
#[must_use]
pub const fn c_text(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    }
}
