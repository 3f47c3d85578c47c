//! Plugin files: load backends, list the files and their results.

use crate::abi::backend::plugin::dtl_plugin_info_t;
use crate::abi::handle::dtl_backend_t;
use crate::abi::status::dtl_status_t;
use crate::ffi::args::{self, Out};
use crate::ffi::guard::Entry;
use crate::runtime::plugins;
use std::ffi::c_char;
use std::path::Path;

/// Loads a plugin file and registers its backends. It is never unloaded. Who loads a file runs its
/// code: a plugin that crashes takes the program along (`dtl-info --probe FILE` tries one safely).
/// With DTL_PLUGIN_PROBE=1 in the environment that is done before any plugin file is opened,
/// whoever named it: one that crashes or hangs in the probe is not loaded, and that is its reason.
/// The value may be a time limit instead (30s; 1 means 10s). The program then has a child for that
/// long (posix_spawn, no fork handlers); it may ignore SIGCHLD or wait for any child.
///
/// Not needed for plugins in the folders of DTL_PLUGIN_PATH or in the installed folder
/// (dtl/backends beside libdtl.so): those are loaded when an unknown backend is requested, by
/// "auto", or when backends are listed.
///
/// @param path  a shared object; how it is named does not matter. File, folder and symbolic links
///              in the path must belong to the user or root, and nobody else may be able to write
///              to them.
/// @param out   its first backend; the others are found by name. May be NULL.
/// @return A file that is loaded already (under whatever name): success, its first backend. If its
///         backends are gone (unregistered, or dtl_finalize), it registers them again.
///         DTL_ERROR_NOT_FOUND: no such file. DTL_ERROR_UNAVAILABLE: the file may not be trusted,
///         the dynamic loader refuses it (a library that it needs is missing, say), or it failed
///         the probe that DTL_PLUGIN_PROBE requests, or could not be probed.
///         DTL_ERROR_INVALID_ARGUMENT: it is no plugin, is cut off, or describes itself wrongly.
///         DTL_ERROR_INCOMPATIBLE_ABI: another machine, no ABI version in common (both ranges are
///         in the text), or a struct is laid out differently (its name, the field, both offsets).
///         DTL_ERROR_ALREADY_EXISTS: a name is taken. DTL_ERROR_BUSY: inside a plugin's load.
///         Else the status of the plugin's entry or load. The reason is kept for dtl_plugin_at and
///         is part of the text of DTL_ERROR_NOT_FOUND from dtl_backend_get.
/// Threads: any; one at a time loads, the others wait.
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

/// Loads every plugin file of a folder: those named *.so, in the order of their names. One that
/// fails does not keep the others from being loaded: why it did is logged, and kept for
/// dtl_plugin_at.
///
/// @param path        the folder. It and symbolic links in its path must belong to the user or
///                    root, and nobody else may be able to write to it (a folder with the sticky
///                    bit is good enough).
/// @param out_loaded  how many of its files are loaded now; may be NULL.
/// @return DTL_ERROR_NOT_FOUND: no such folder. DTL_ERROR_UNAVAILABLE: it may not be trusted or
///         read.
///         DTL_ERROR_BUSY: inside a plugin's load.
/// Threads: any; one at a time loads, the others wait.
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

/// Number of plugin files (and refused folders) that were tried since the library was opened,
/// whatever became of them. Searches DTL_PLUGIN_PATH and the installed folder if that was not done
/// yet.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_plugin_count(out_count: *mut u64) -> dtl_status_t {
    Entry("dtl_plugin_count")
        .wait(|_| Out::new(out_count, "out_count"), |out| out.put(Ok(plugins::count() as u64)))
}

/// What became of the plugin file of an index, 0 ... count-1, in the order first tried.
///
/// @param out_info  start from DTL_PLUGIN_INFO_INIT.
/// @return DTL_ERROR_OUT_OF_BOUNDS: no such index.
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
