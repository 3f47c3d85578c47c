//! Registered objects other than backends: plugins, environments, enumeration members.

use crate::text::{c_string, text_of};
use crate::{Result, Status, call, field, sys};
use std::ffi::{CString, c_char};
use std::ptr;

/// Result of loading a plugin file, or of searching a folder for plugins.
#[derive(Debug, Clone)]
pub struct Plugin {
    /// State of the plugin: DTL_PLUGIN_LOADED, DTL_PLUGIN_FAILED or DTL_PLUGIN_IDLE.
    pub state: i32,
    /// Status that loading the plugin, or searching the folder, returned.
    pub status: Status,
    /// ABI version that the library and the plugin agreed on; 0 if loading failed before that.
    pub abi_version: u32,
    /// Path of the file or folder.
    pub path: String,
    /// Error message of a failure; empty if there was no failure.
    pub reason: String,
    /// Call or setting that specified the plugin file, or the folder that contains it.
    pub origin: String,
    /// Name that the plugin reports.
    pub name: String,
    /// Version that the plugin reports.
    pub version: String,
    /// Description that the plugin reports.
    pub description: String,
    /// Names of the plugin's registered backends.
    pub backends: Vec<String>,
}

/// Returns all plugin files and rejected folders, in the order in which they were first tried.
///
/// # Errors
/// See `dtl_plugin_count`, `dtl_plugin_at`.
pub fn plugins() -> Result<Vec<Plugin>> {
    let mut count = 0;
    // SAFETY: the output is a local.
    unsafe { call!(dtl_plugin_count(&raw mut count)) }?;
    (0..count).map(plugin).collect()
}

fn plugin(index: u64) -> Result<Plugin> {
    let mut info = sys::DTL_PLUGIN_INFO_INIT;
    // SAFETY: the output is a local with its size.
    unsafe { call!(dtl_plugin_at(index, &raw mut info)) }?;
    Ok(Plugin {
        state: info.state,
        status: Status(info.status),
        abi_version: info.abi_version,
        path: forever(info.path),
        reason: forever(info.reason),
        origin: forever(info.origin),
        name: forever(info.name),
        version: forever(info.version),
        description: forever(info.description),
        backends: list(info.backends),
    })
}

/// Environment: a service that a backend requires, registered by a plugin or the program.
#[derive(Debug, Clone)]
pub struct Environment {
    /// State of the environment: one of the constants from DTL_ENVIRONMENT_IDLE to
    /// DTL_ENVIRONMENT_FAILED.
    pub state: i32,
    /// Status of the latest attempt to start the environment.
    pub status: Status,
    /// Number of current users of the environment.
    pub uses: u64,
    /// Name of the environment.
    pub name: String,
    /// Version of the environment; empty if it has none.
    pub version: String,
    /// Environments on which this environment depends.
    pub depends: Vec<String>,
    /// Error message of a failure; empty if there was no failure.
    pub reason: String,
}

/// Returns all environments in the order of their registration.
///
/// # Errors
/// See `dtl_environment_count`, `dtl_environment_at`.
pub fn environments() -> Result<Vec<Environment>> {
    let mut count = 0;
    // SAFETY: the output is a local.
    unsafe { call!(dtl_environment_count(&raw mut count)) }?;
    (0..count).map(environment).collect()
}

fn environment(index: u64) -> Result<Environment> {
    let mut info = sys::DTL_ENVIRONMENT_INFO_INIT;
    // SAFETY: the output is a local with its size.
    unsafe { call!(dtl_environment_at(index, &raw mut info)) }?;
    Ok(Environment {
        state: info.state,
        status: Status(info.status),
        uses: info.uses,
        name: forever(info.name),
        version: forever(info.version),
        depends: list(info.depends),
        reason: forever(info.reason),
    })
}

impl Environment {
    /// Returns the reason why the environment cannot be required now; `None` if it can. Does not
    /// start any environment.
    ///
    /// # Errors
    /// See `dtl_environment_is_available`.
    pub fn unavailable(&self) -> Result<Option<String>> {
        const ROOM: usize = 4096;
        let name: CString = c_string("dtl_environment_is_available", "name", &self.name)?;
        let (mut yes, mut why) = (0, [0 as c_char; ROOM]);
        let (name, out, room) = (name.as_ptr(), why.as_mut_ptr(), ROOM as u64);
        let no_len = std::ptr::null_mut();
        // SAFETY: the name ends with NUL; the outputs are locals, the second of `room` bytes.
        unsafe { call!(dtl_environment_is_available(name, &raw mut yes, out, room, no_len)) }?;
        Ok((yes == 0).then(|| field(&why)))
    }
}

/// Returns the members of an enumeration in the order of their registration.
///
/// # Errors
/// See `dtl_enum_count`, `dtl_enum_at`.
pub fn members(enumeration: sys::dtl_enum_t) -> Result<Vec<sys::dtl_enum_word_t>> {
    let mut count = 0;
    // SAFETY: the output is a local.
    unsafe { call!(dtl_enum_count(enumeration, &raw mut count)) }?;
    let member = |index| {
        let mut word = 0;
        // SAFETY: the output is a local.
        unsafe { call!(dtl_enum_at(enumeration, index, &raw mut word)) }?;
        Ok(word)
    };
    (0..count).map(member).collect()
}

/// Returns the name of an enumeration member.
///
/// # Errors
/// See `dtl_ev_name`.
pub fn member_name(word: sys::dtl_enum_word_t) -> Result<String> {
    let mut name = ptr::null();
    // SAFETY: the output is a local.
    unsafe { call!(dtl_ev_name(word, &raw mut name)) }?;
    Ok(forever(name))
}

/// Converts a C string that lives until the process ends to a `String`.
fn forever(text: *const c_char) -> String {
    // SAFETY: the texts of these functions end with NUL and live until the process ends.
    unsafe { text_of(text) }
}

/// Splits a string at ", ".
fn list(text: *const c_char) -> Vec<String> {
    forever(text).split(", ").filter(|part| !part.is_empty()).map(str::to_owned).collect()
}
