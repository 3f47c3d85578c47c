//! Search path of plugin files, and the advice in the error message for an unknown backend name.

use super::{STATE, registered};
use crate::error::Error;
use crate::runtime::settings;
use crate::sys::os::dl;
use std::path::{Path, PathBuf};

/// Returns the folders and files that are searched for plugins, in order, each with its origin
/// (such as "DTL_PLUGIN_PATH"). Installed folders that do not exist are omitted.
pub fn places() -> Vec<(PathBuf, &'static str)> {
    let path = settings::current().plugin_path.unwrap_or_default();
    let named = path.split(':').filter(|place| !place.is_empty());
    let mut places: Vec<_> = named.map(|place| (PathBuf::from(place), "DTL_PLUGIN_PATH")).collect();
    let installed = installed_folders().into_iter().filter(|folder| folder.is_dir());
    places.extend(installed.map(|folder| (folder, "installed")));
    places
}

/// Returns the *.so files in a folder, sorted by name.
pub fn files_of(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "so") {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Returns the folders of installed plugins. If the library is libdtl.so, this is dtl/backends in
/// the folder that contains libdtl.so. If the library is linked statically into a program, these
/// are the folders dtl/backends in all lib folders under the program's installation prefix.
fn installed_folders() -> Vec<PathBuf> {
    const IN_LIB: &str = "dtl/backends";
    let Some(own) = dl::own_file() else { return Vec::new() };
    let Some(folder) = own.parent() else { return Vec::new() };
    if !dl::is_in_program(&own) {
        return vec![folder.join(IN_LIB)];
    }
    let Some(prefix) = folder.parent() else { return Vec::new() };
    let multiarch = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
    ["lib", "lib64", &multiarch].map(|lib| prefix.join(lib).join(IN_LIB)).into()
}

/// Returns the advice to append to the message of a NOT_FOUND error: possible sources of a backend
/// with the name `name`. If a plugin registered the backend earlier, the advice names that plugin.
/// Otherwise it lists the places that are searched, the plugins that are loaded, and the plugins
/// that could not be loaded, with the reasons.
pub fn advice(name: &str) -> String {
    let state = STATE.lock();
    let had = |record: &&super::PluginRecord| record.names.iter().any(|known| known == name);
    if let Some(path) =
        state.records.iter().find(had).map(|record| record.path.display().to_string())
    {
        return format!(
            "; plugin {path} had registered it, and it has been unregistered: dtl_backend_load of \
             that file registers it again"
        );
    }
    let loaded = state.records.iter().filter_map(|record| {
        let names: Vec<_> =
            registered(&record.backends).into_iter().map(|(_, name)| name).collect();
        (!names.is_empty()).then(|| format!("{} ({})", record.path.display(), names.join(", ")))
    });
    let failed = state.records.iter().filter_map(|record| {
        Some(format!("{}: {}", record.path.display(), record.failure.as_ref().map(Error::text)?))
    });
    searched()
        + &list("plugins that are loaded", loaded)
        + &list("plugins that could not be loaded", failed)
}

/// Returns a string that lists the folders and files that are searched for plugins, including those
/// that do not exist.
fn searched() -> String {
    let named = match settings::current().plugin_path.filter(|path| !path.is_empty()) {
        Some(path) => format!("DTL_PLUGIN_PATH ({path})"),
        None => "DTL_PLUGIN_PATH (not set)".to_owned(),
    };
    let installed = installed_folders().into_iter().map(|folder| {
        let absent = if folder.is_dir() { "" } else { " (no such folder)" };
        format!(" and {}{absent}", folder.display())
    });
    format!("; plugins are searched for in {named}{}", installed.collect::<String>())
}

fn list(what: &str, entries: impl Iterator<Item = String>) -> String {
    const SHOWN: usize = 4;
    let entries: Vec<_> = entries.collect();
    if entries.is_empty() {
        return String::new();
    }
    let more = match entries.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("; and {more} more (dtl-info shows them)"),
        _ => String::new(),
    };
    format!("; {what}: {}{more}", entries.into_iter().take(SHOWN).collect::<Vec<_>>().join("; "))
}
