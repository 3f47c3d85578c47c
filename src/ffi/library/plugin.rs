//! Plugins: load files, register linked ones, list them with their results.

use crate::abi::backend::plugin::{dtl_plugin_entry_fn_t, dtl_plugin_info_t};
use crate::abi::handle::dtl_backend_t;
use crate::abi::status::dtl_status_t;
use crate::backend::plugin;
use crate::error::fail;
use crate::ffi::args::{self, Out};
use crate::ffi::guard::Entry;
use crate::ffi::host;
use crate::runtime::plugins;
use std::ffi::c_char;
use std::path::Path;

/// Loads a plugin file and registers its backends. The file is never unloaded.
///
/// The call is not needed for plugins in the folders of DTL_PLUGIN_PATH or in the installed folder
/// (dtl/backends beside libdtl.so). Those are loaded when an unknown backend is requested, by
/// "auto", or when backends are listed.
///
/// Loading a file runs its code, so a plugin that crashes takes the program down. `dtl-info --probe
/// FILE` tries one safely. With DTL_PLUGIN_PROBE=1 in the environment, every plugin file is probed
/// in a child process before it is opened, whatever its origin. A file that crashes or hangs in the
/// probe is not loaded, and that is the reason reported. The value may be a time limit instead
/// (30s; 1 means 10s). The program then has a child process for that long (posix_spawn, no fork
/// handlers). The program may ignore SIGCHLD or wait for any child.
///
/// If the file is loaded already, under any path, the call succeeds. If its backends are gone
/// (unregistered, or after dtl_finalize), it registers them again.
///
/// @param path  A shared object with any name. The file, its folder and symbolic links in the path
///              must belong to the user or root, and must not be writable by anyone else.
/// @param out   Its first backend; the others are found by name. May be NULL.
/// @return DTL_ERROR_NOT_FOUND: there is no such file.
///         DTL_ERROR_UNAVAILABLE: the file is not trusted, the dynamic loader refused it (for
///         example because a library that it needs is missing), or it failed the probe of
///         DTL_PLUGIN_PROBE or could not be probed.
///         DTL_ERROR_INVALID_ARGUMENT: the file is not a plugin, is truncated, or has an invalid
///         description.
///         DTL_ERROR_INCOMPATIBLE_ABI: it is for another machine, has no ABI version in common with
///         the library (the text has both ranges), or lays out a struct differently (the text has
///         its name, the field and both offsets).
///         DTL_ERROR_ALREADY_EXISTS: the name of a backend is taken.
///         DTL_ERROR_BUSY: the call was made inside the `load` of a plugin.
///         Otherwise the status of the plugin's entry or `load`. The reason is kept for
///         dtl_plugin_at, and is part of the text of DTL_ERROR_NOT_FOUND from dtl_backend_get.
/// Threads: any. One thread loads at a time; the others wait.
/// dtl:out opt borrowed
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_backend_load(
    path: *const c_char,
    out: *mut dtl_backend_t,
) -> dtl_status_t {
    // SAFETY: the caller's contract.
    let path = unsafe { args::text(path, "path") };
    Entry("dtl_backend_load").wait(
        |_| Ok((Out::optional(out, "out")?, path?)),
        |(out, path)| {
            let first = plugins::load(Path::new(path), "dtl_backend_load", &|_| {})?;
            if let Some(out) = out {
                out.set(first);
            }
            Ok(())
        },
    )
}

/// Loads every file of a folder whose name ends in .so, in the order of the names.
///
/// A file that fails does not prevent the others from being loaded. Its reason is logged, and kept
/// for dtl_plugin_at.
///
/// @param path        The folder. It and symbolic links in its path must belong to the user or
///                    root, and must not be writable by anyone else (a folder with the sticky bit
///                    may be).
/// @param out_loaded  Number of its files that are loaded now; may be NULL.
/// @return DTL_ERROR_NOT_FOUND: there is no such folder.
///         DTL_ERROR_UNAVAILABLE: the folder is not trusted or cannot be read.
///         DTL_ERROR_BUSY: the call was made inside the `load` of a plugin.
/// Threads: any. One thread loads at a time; the others wait.
/// dtl:out_loaded opt
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_backend_load_dir(
    path: *const c_char,
    out_loaded: *mut u64,
) -> dtl_status_t {
    // SAFETY: the caller's contract.
    let path = unsafe { args::text(path, "path") };
    Entry("dtl_backend_load_dir").wait(
        |_| Ok((Out::optional(out_loaded, "out_loaded")?, path?)),
        |(out, path)| {
            let loaded = plugins::load_folder(Path::new(path), "dtl_backend_load_dir")?;
            if let Some(out) = out {
                out.set(loaded);
            }
            Ok(())
        },
    )
}

/// Returns the number of plugin files (and refused folders) that were tried since the library was
/// initialised, with any outcome. Searches DTL_PLUGIN_PATH and the installed folder if that was not
/// done yet.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_plugin_count(out_count: *mut u64) -> dtl_status_t {
    Entry("dtl_plugin_count")
        .wait(|_| Out::new(out_count, "out_count"), |out| out.put(Ok(plugins::count() as u64)))
}

/// Describes the plugin file with an index, in the order of the first attempts.
///
/// @param index     0 to the count - 1.
/// @param out_info  Start from DTL_PLUGIN_INFO_INIT.
/// @return DTL_ERROR_OUT_OF_BOUNDS: there is no such index.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_plugin_at(
    index: u64,
    out_info: *mut dtl_plugin_info_t,
) -> dtl_status_t {
    // SAFETY: the caller's contract.
    let describe = |()| unsafe { args::fill(out_info, "out_info", || plugins::at(index)) };
    Entry("dtl_plugin_at").wait(|_| Ok(()), describe)
}

/// Registers the backends of a plugin that is linked into the program.
///
/// For plugins that are compiled into a static library (dtl_add_backend with STATIC), where each
/// entry needs a distinct name. The library treats the plugin like a plugin file: it calls the
/// entry and `load`, passes the same dtl_host_api_t, undoes all registrations if `load` fails, and
/// lists the plugin in dtl_plugin_at (the path is "linked into the program" with the address of the
/// entry).
///
/// If its backends are registered already, the call succeeds. If they are gone (unregistered, or
/// after dtl_finalize), it registers them again.
///
/// @param entry The entry of the plugin.
/// @param out   Its first backend; the others are found by name. May be NULL.
/// @return DTL_ERROR_NULL_POINTER: `entry` is NULL.
///         DTL_ERROR_INVALID_ARGUMENT: the plugin has an invalid description.
///         DTL_ERROR_INCOMPATIBLE_ABI: it has no ABI version in common with the library, or lays
///         out a struct differently.
///         DTL_ERROR_ALREADY_EXISTS: the name of a backend is taken.
///         DTL_ERROR_BUSY: the call was made inside the `load` of a plugin.
///         Otherwise the status of the plugin's entry or `load`.
/// Threads: any. One thread loads at a time; the others wait.
/// dtl: section(abi/backend/plugin)
/// dtl:entry until(forever)
/// dtl:out opt borrowed
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_plugin_register(
    entry: dtl_plugin_entry_fn_t,
    out: *mut dtl_backend_t,
) -> dtl_status_t {
    Entry("dtl_plugin_register").wait(
        |_| {
            let out = Out::optional(out, "out")?;
            let Some(code) = entry else {
                return fail!(DTL_ERROR_NULL_POINTER, "entry is NULL: pass the plugin's entry");
            };
            Ok((out, code as usize))
        },
        |(out, address)| {
            let open = || plugin::describe(entry, &host::HOST, &|_| {});
            let first = plugins::load_linked(address, open)?;
            if let Some(out) = out {
                out.set(first);
            }
            Ok(())
        },
    )
}
