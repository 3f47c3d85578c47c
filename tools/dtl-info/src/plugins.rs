//! Plugin files: the results for those that the library tried to load, and the files in the
//! searched folders, which this module examines without loading them. `probe` loads a plugin file
//! in a child process.

use crate::manifest::{self, Manifest};
use dtl::tooling::plugins::{Refusal, check_file, check_folder, examine, files_of, places};
use dtl_binding::sys::{DTL_PLUGIN_FAILED, DTL_PLUGIN_LOADED};
use dtl_binding::{Library, Plugin, Result};
use std::path::{Path, PathBuf};

/// Plugin file that the library has tried to load, or folder in which it has tried to find plugins.
pub(crate) struct Tried {
    pub(crate) path: String,
    pub(crate) origin: String,
    /// Result of the attempt: "loaded", "failed" or "idle".
    pub(crate) state: &'static str,
    /// Status name and reason for a failure.
    pub(crate) failure: Option<(String, String)>,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) description: String,
    pub(crate) abi_version: Option<u32>,
    pub(crate) backends: Vec<String>,
}

/// Returns the plugin files that the library has tried to load so far, and the folders in which it
/// has tried to find plugins.
pub(crate) fn tried() -> Vec<Tried> {
    dtl_binding::plugins().unwrap_or_default().into_iter().map(describe).collect()
}

fn describe(info: Plugin) -> Tried {
    Tried {
        path: info.path,
        origin: info.origin,
        state: match info.state {
            DTL_PLUGIN_LOADED => "loaded",
            DTL_PLUGIN_FAILED => "failed",
            _ => "idle",
        },
        failure: (!info.reason.is_empty()).then(|| (info.status.name(), info.reason)),
        name: info.name,
        version: info.version,
        description: info.description,
        abi_version: Some(info.abi_version).filter(|&version| version != 0),
        backends: info.backends,
    }
}

/// Plugin file in a searched folder, examined without being loaded.
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) origin: &'static str,
    pub(crate) manifest: Option<std::result::Result<Manifest, String>>,
    /// Reason why the library would reject the file, as far as this can be determined without
    /// loading it.
    pub(crate) fault: Option<String>,
}

/// Searched folders, and the plugin files in them. An entry of `places` is a folder: its path, its
/// origin, and the reason why the library would reject it, if any.
pub(crate) struct Listing {
    pub(crate) places: Vec<(PathBuf, &'static str, Option<String>)>,
    pub(crate) files: Vec<Found>,
}

/// Lists the files of the searched folders without loading them.
pub(crate) fn list() -> Result<Listing> {
    // Its variables name folders.
    std::mem::forget(Library::init()?);
    let mut listing = Listing { places: Vec::new(), files: Vec::new() };
    for (place, origin) in places() {
        if !place.is_dir() {
            listing.files.push(look_at(&place, origin));
            continue;
        }
        let checked = std::fs::canonicalize(&place).map_err(Refusal::from);
        let files = checked.and_then(|folder| {
            check_folder(&folder)?;
            Ok(files_of(&folder)?)
        });
        match files {
            Ok(files) => {
                listing.files.extend(files.iter().map(|file| look_at(file, origin)));
                listing.places.push((place, origin, None));
            }
            Err(refusal) => listing.places.push((place, origin, Some(words(refusal)))),
        }
    }
    Ok(listing)
}

fn look_at(path: &Path, origin: &'static str) -> Found {
    let fault = match check_file(path) {
        Err(refusal) => Some(words(refusal)),
        Ok(trusted) => examine(&trusted.path).err().map(|error| error.text().to_owned()),
    };
    let manifest = manifest::of(path);
    let readable = manifest.as_ref().and_then(|manifest| manifest.as_ref().ok());
    let fault = fault.or_else(|| readable?.fault(path));
    Found { path: path.to_owned(), origin, manifest, fault }
}

fn words(refusal: Refusal) -> String {
    match refusal {
        Refusal::System(error) => error.to_string(),
        Refusal::Untrusted(text) => format!("refused: {text}"),
    }
}
