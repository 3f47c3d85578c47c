//! Reads the manifest beside a plugin file (libfoo.so: libfoo.dtl.toml) without loading the plugin.
//!
//! The library does not read manifests: it uses the descriptor of the loaded plugin.

use dtl::tooling::plugins::OLDEST_ABI;
use dtl_sys::DTL_ABI_VERSION;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Contents of a manifest. Missing keys are empty.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) description: String,
    pub(crate) file: String,
    pub(crate) entry: String,
    /// Lowest and highest ABI version that the plugin supports.
    pub(crate) abi: Option<(u32, u32)>,
    pub(crate) components: Vec<String>,
    pub(crate) environments: Vec<String>,
}

/// Returns the path of the manifest of a plugin.
pub(crate) fn path_of(plugin: &Path) -> PathBuf {
    plugin.with_extension("dtl.toml")
}

/// Reads the manifest of a plugin file; `None` if the plugin has no manifest.
pub(crate) fn of(plugin: &Path) -> Option<Result<Manifest, String>> {
    let path = path_of(plugin);
    match std::fs::read_to_string(&path) {
        Ok(text) => Some(parse(&text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(error.to_string())),
    }
}

fn parse(text: &str) -> Result<Manifest, String> {
    let table: Table =
        text.parse().map_err(|error: toml::de::Error| error.to_string().trim().to_owned())?;
    let manifest = Manifest {
        name: word(&table, "name")?,
        version: word(&table, "version")?,
        description: word(&table, "description")?,
        file: word(&table, "file")?,
        entry: word(&table, "entry")?,
        abi: range(&table)?,
        components: words(&table, "components")?,
        environments: words(&table, "environments")?,
    };
    if manifest.name.is_empty() {
        return Err("it has no name".to_owned());
    }
    Ok(manifest)
}

fn word(table: &Table, key: &str) -> Result<String, String> {
    match table.get(key) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(format!("{key} is a {}, not a string", other.type_str())),
    }
}

fn words(table: &Table, key: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("{key} is no array of strings");
    let Some(value) = table.get(key) else { return Ok(Vec::new()) };
    let all = value.as_array().ok_or_else(wrong)?;
    all.iter().map(|one| one.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
}

fn range(table: &Table) -> Result<Option<(u32, u32)>, String> {
    let Some(value) = table.get("abi") else { return Ok(None) };
    let numbers: Option<Vec<u32>> = value
        .as_array()
        .and_then(|all| all.iter().map(|one| u32::try_from(one.as_integer()?).ok()).collect());
    match numbers.as_deref() {
        Some(&[low, high]) if low <= high => Ok(Some((low, high))),
        _ => Err("abi is not [lowest, highest]".to_owned()),
    }
}

impl Manifest {
    /// Returns an error message if the manifest conflicts with the ABI versions of this library or
    /// with the name of the plugin file.
    pub(crate) fn fault(&self, plugin: &Path) -> Option<String> {
        let name = plugin.file_name().unwrap_or_default().to_string_lossy();
        if !self.file.is_empty() && self.file != name {
            return Some(format!("the manifest is that of {}", self.file));
        }
        match self.abi {
            Some((low, high)) if high < OLDEST_ABI || low > DTL_ABI_VERSION => Some(format!(
                "the manifest says ABI versions {low} to {high}, this library speaks {OLDEST_ABI} \
                 to {DTL_ABI_VERSION}"
            )),
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "tests/manifest.rs"]
mod tests;
