//! Plugin files: loading of the file, the call to its entry function, and checks of versions and
//! strings, also for plugins that are linked into the program. The result is a plugin that can
//! register its backends. `runtime::plugins` records each
//! attempt to load a plugin and its outcome.
//!
//! In reading order:
//! - `elf`: checks of the file
//! - `layout`: comparison of struct layouts

mod elf;
mod layout;

pub use self::elf::check as examine;
use super::vtable_backend;
use crate::abi::backend::plugin::*;
use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use crate::error::{Result, fail, failure};
use crate::from_c;
use crate::runtime::environment::Requirement;
use crate::runtime::plugins::{Plugin, PluginDescription, Step};
use crate::sys::os::dl::SharedObject;
use std::path::Path;
use std::sync::Arc;

/// Size, in 64-bit words, of the buffer that the library passes to a plugin's entry function as
/// parameter `out`. The public header guarantees this size.
const ROOM: usize = from_c::STRUCT_LIMIT / size_of::<u64>();
const MOST_ROWS: u32 = 4096;
const MOST_ENVIRONMENTS: u32 = 256;
type Load = unsafe extern "C" fn(*const dtl_host_api_t) -> dtl_status_t;

/// Loads a plugin file, calls the entry function of the plugin, and checks the description that the
/// function returns. `step` is called with the name of each step before the step begins.
pub fn open(path: &Path, host: &'static dtl_host_api_t, step: Step) -> Result<Arc<dyn Plugin>> {
    examine(path)?;
    step("the dynamic loader");
    // SAFETY: the user who named the file or its folder answers for the code that runs during
    // loading.
    let module = unsafe { SharedObject::open(path) }.map_err(|text| {
        let hint = missing_library_hint(&text);
        failure!(DTL_ERROR_UNAVAILABLE, "the dynamic loader refuses it: {text}{hint}")
    })?;
    let entry = module.symbol(c"dtl_plugin_entry_v1").ok_or_else(|| {
        failure!(
            DTL_ERROR_INVALID_ARGUMENT,
            "it is no plugin: the loader finds no dtl_plugin_entry_v1 in it"
        )
    })?;
    // SAFETY: data and function pointers have one representation on every system with dlsym, null
    // is `None`, and a plugin guarantees that a symbol of this name is such a function.
    let entry =
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, dtl_plugin_entry_fn_t>(entry.ptr()) };
    describe(entry, host, step)
}

/// Returns the remedy if the loader's message says that a library is missing, otherwise "".
fn missing_library_hint(text: &str) -> &'static str {
    // glibc's words, and musl's.
    if text.contains("cannot open shared object file") || text.contains("loading shared library") {
        "; put that library beside the plugin and link the plugin with -Wl,-rpath,'$ORIGIN', or \
         add the library's folder to LD_LIBRARY_PATH before the program starts"
    } else {
        ""
    }
}

/// Calls the entry function of a plugin whose code is in the process, and checks the description
/// that the function returns.
pub fn describe(
    entry: dtl_plugin_entry_fn_t,
    host: &'static dtl_host_api_t,
    step: Step,
) -> Result<Arc<dyn Plugin>> {
    step("its entry");
    let raw = enter(entry, host)?;
    let facts = facts(&raw, host)?;
    check_layouts(&raw)?;
    let load = raw.load.ok_or_else(|| {
        failure!(DTL_ERROR_INVALID_ARGUMENT, "dtl_plugin_t.load is NULL: a plugin needs it")
    })?;
    Ok(Arc::new(Loaded { facts, load, host }))
}

/// Loaded plugin whose description was checked.
struct Loaded {
    facts: PluginDescription,
    load: Load,
    host: &'static dtl_host_api_t,
}

impl Plugin for Loaded {
    fn facts(&self) -> &PluginDescription {
        &self.facts
    }

    fn load(&self) -> Result<()> {
        let before = vtable_backend::begin();
        // SAFETY: the plugin guarantees the header's contract for its load function, and `host` has
        // the lifetime `'static`.
        match unsafe { (self.load)(self.host) } {
            DTL_SUCCESS => {
                // Drop the error message of a failed call that the plugin tolerated.
                drop(vtable_backend::take_error_text());
                Ok(())
            }
            status => Err(vtable_backend::foreign_error("its load", status, before)),
        }
    }
}

/// Calls the entry function of a plugin with a zeroed buffer, and returns the description that the
/// function wrote there.
fn enter(entry: dtl_plugin_entry_fn_t, host: &'static dtl_host_api_t) -> Result<dtl_plugin_t> {
    let mut room = [0_u64; ROOM];
    let Some(entry) = entry else {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "dtl_plugin_entry_v1 is NULL");
    };
    let before = vtable_backend::begin();
    // SAFETY: the header's contract is that `out` has 4096 writable bytes, aligned to 8; `room`
    // has.
    let status = unsafe { entry(host, room.as_mut_ptr().cast()) };
    if status != DTL_SUCCESS {
        return Err(vtable_backend::foreign_error("its entry", status, before));
    }
    let beyond = room.iter().skip(size_of::<dtl_plugin_t>() / 8).position(|&word| word != 0);
    if let Some(at) = beyond {
        return fail!(
            DTL_ERROR_INCOMPATIBLE_ABI,
            "dtl_plugin_t sets a field at offset {} that this library does not know: update libdtl",
            size_of::<dtl_plugin_t>() + 8 * at
        );
    }
    // SAFETY: the buffer has as many bytes as the largest struct_size that is accepted.
    unsafe { from_c::take(room.as_ptr().cast::<dtl_plugin_t>(), "dtl_plugin_t") }
}

/// Checks the versions and strings in a plugin's description, and converts the description.
fn facts(raw: &dtl_plugin_t, host: &dtl_host_api_t) -> Result<PluginDescription> {
    let spoken =
        agree((raw.abi_version_min, raw.abi_version), (host.abi_version_min, host.abi_version))?;
    // SAFETY: the plugin guarantees a NUL-terminated text or NULL.
    let name = unsafe { from_c::text_at(raw.name) }.unwrap_or_default();
    // SAFETY: the plugin guarantees a NUL-terminated text or NULL.
    let version = unsafe { from_c::text_at(raw.version) }.unwrap_or_default();
    // SAFETY: the plugin guarantees a NUL-terminated text or NULL.
    let description = unsafe { from_c::text_at(raw.description) }.unwrap_or_default();
    if raw.name.is_null() {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "dtl_plugin_t.name is NULL: set the plugin's name"
        );
    }
    crate::runtime::check_name("plugin", &name)?;
    Ok(PluginDescription {
        name,
        version: a_line(&version),
        description: a_line(&description),
        compiled_for: raw.abi_version,
        spoken,
        environments: environments(raw)?,
    })
}

/// Returns the software environments that the plugin's backends require, with their minimum
/// versions.
fn environments(raw: &dtl_plugin_t) -> Result<Vec<Requirement>> {
    let count = raw.environment_count;
    if count > MOST_ENVIRONMENTS || (count > 0 && raw.environments.is_null()) || raw.reserved != 0 {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "dtl_plugin_t.environment_count is {count} (at most {MOST_ENVIRONMENTS}), environments \
             {}NULL, reserved {} (must be 0)",
            if raw.environments.is_null() { "" } else { "not " },
            raw.reserved
        );
    }
    let read = |index| {
        // SAFETY: the plugin guarantees `environment_count` entries, and the index is less than
        // that.
        let at = unsafe { raw.environments.add(index) };
        // SAFETY: the plugin guarantees `environment_count` entries, each a text or NULL.
        let name = unsafe { at.read() };
        // SAFETY: the plugin guarantees that each entry is a NUL-terminated text or NULL.
        Requirement::parse(&unsafe { from_c::text_at(name) }.unwrap_or_default())
            .map_err(|error| error.within(&format!("dtl_plugin_t.environments[{index}]")))
    };
    (0..count as usize).map(read).collect()
}

/// Returns the string as one line, truncated to 1000 characters; replaces control characters with
/// spaces.
fn a_line(text: &str) -> String {
    const MOST: usize = 1000;
    text.chars().take(MOST).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns the highest ABI version that both ranges contain. A range is a pair of lowest and
/// highest version.
fn agree(plugin: (u32, u32), library: (u32, u32)) -> Result<u32> {
    let highest = plugin.1.min(library.1);
    if plugin.0 == 0 || plugin.0 > plugin.1 {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "dtl_plugin_t says ABI versions {} to {}: start from DTL_PLUGIN_INIT",
            plugin.0,
            plugin.1
        );
    }
    if highest < plugin.0.max(library.0) {
        let update = if plugin.0 > library.1 { "update libdtl" } else { "build the plugin anew" };
        return fail!(
            DTL_ERROR_INCOMPATIBLE_ABI,
            "it speaks ABI versions {} to {}, this library {} to {}: {update}",
            plugin.0,
            plugin.1,
            library.0,
            library.1
        );
    }
    Ok(highest)
}

fn check_layouts(raw: &dtl_plugin_t) -> Result<()> {
    if raw.layout_count == 0 {
        return Ok(());
    }
    if raw.layouts.is_null() || raw.layout_count > MOST_ROWS {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "dtl_plugin_t.layout_count is {} and layouts {}: start from DTL_PLUGIN_INIT",
            raw.layout_count,
            if raw.layouts.is_null() { "NULL" } else { "is not that long" }
        );
    }
    for index in 0..raw.layout_count as usize {
        // SAFETY: the plugin guarantees `layout_count` rows, and the index is less than that.
        let at = unsafe { raw.layouts.add(index) };
        // SAFETY: the plugin guarantees `layout_count` rows; rows are plain data.
        let row: dtl_layout_t = unsafe { at.read() };
        // SAFETY: the plugin guarantees a NUL-terminated text or NULL.
        let name = unsafe { from_c::text_at(row.name) }.unwrap_or_default();
        // SAFETY: the plugin guarantees a NUL-terminated text or NULL.
        let field = unsafe { from_c::text_at(row.field) };
        layout::check(&name, field.as_deref(), row.offset as usize, row.size as usize)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
