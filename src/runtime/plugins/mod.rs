//! Plugin files: loading, the state of each file, and the search path.
//!
//! One thread at a time loads plugins. That thread may reenter this module when a plugin registers
//! a backend. Files are identified by device and inode, so two paths to the same file denote one
//! plugin. A loaded file stays loaded until the process ends. The function that opens plugin files
//! is passed in as an [`Opener`]; `sys::os::dl` checks that a file is trusted.
//!
//! In reading order:
//! - `search_path`: folders that are searched
//! - `plugin_probe`: test load of a plugin in a separate process
//! - `handlers`: dispatch handlers that plugins register

mod handlers;
pub mod plugin_probe;
mod search_path;

pub use self::search_path::{advice, files_of, places};
pub use handlers::{end_replaced, register_handler, unregister};

use super::environment::{self, Requirement};
use super::registry::{self, Backend};
use super::trace::{self, Args};
use super::{c_text_for_ever, entry_at, log};
use crate::abi::backend::plugin::*;
use crate::abi::handle::{dtl_backend_t, dtl_registration_t};
use crate::abi::status::{DTL_ERROR_NOT_FOUND, DTL_ERROR_UNAVAILABLE, DTL_SUCCESS};
use crate::error::{Error, Result, fail, failure};
use crate::sys::handles::epoch;
use crate::sys::os::dl::{self, Identity, Refusal, Trusted};
use crate::sys::sync::lock::{Condvar, Mutex};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

/// Callback that receives the name of each step of loading a plugin before the step begins, so that
/// a crash or hang can be attributed to a step.
pub type Step<'a> = &'a dyn Fn(&str);
/// Function that loads a plugin file into the process and queries the plugin's description.
pub type Opener = fn(&Path, Step) -> Result<Arc<dyn Plugin>>;

/// Plugin that is loaded into the process.
pub trait Plugin: Send + Sync {
    /// Returns the plugin's description of itself.
    fn facts(&self) -> &PluginDescription;
    /// Calls the plugin's load function, which registers its backends through [`register`].
    fn load(&self) -> Result<()>;
}

/// Description that a plugin provides of itself.
#[derive(Clone, Debug, Default)]
pub struct PluginDescription {
    /// Name of the plugin.
    pub name: String,
    /// Version of the plugin; may be empty.
    pub version: String,
    /// Human-readable description of the plugin; may be empty.
    pub description: String,
    /// ABI version of the header with which the plugin was compiled.
    pub compiled_for: u32,
    /// ABI version on which the plugin and the library have agreed.
    pub spoken: u32,
    /// Environments (external software) that the plugin's backends require.
    pub environments: Vec<Requirement>,
}

#[derive(Default)]
struct PluginRecord {
    path: PathBuf,
    identity: Option<Identity>,
    /// Origin of the load request, such as "DTL_PLUGIN_PATH".
    origin: &'static str,
    plugin: Option<Arc<dyn Plugin>>,
    /// Backends that the plugin registered when it was last loaded; `names` contains the names of
    /// these backends.
    backends: Vec<dtl_backend_t>,
    names: Vec<String>,
    handlers: Vec<dtl_registration_t>,
    failure: Option<Error>,
    /// Error from a call to `backend_register` that failed although the plugin's load function
    /// returned success.
    dropped: Option<Error>,
}

struct LoaderState {
    opener: Option<Opener>,
    records: Vec<PluginRecord>,
    /// Thread that is loading a plugin; `None` = no thread.
    loader: Option<ThreadId>,
    /// Description and registrations of the plugin that is being loaded; `None` = no plugin.
    current: Option<Current>,
}

impl LoaderState {
    /// Returns the registrations of the plugin that the calling thread is loading.
    fn mine(&mut self) -> Option<&mut Current> {
        let loader = self.loader;
        self.current.as_mut().filter(|_| loader == Some(std::thread::current().id()))
    }
}

#[derive(Default)]
struct Current {
    facts: PluginDescription,
    /// Error from the plugin's first failed call to `backend_register`.
    failure: Option<Error>,
    /// Names of the environments (external software that backends depend on) that the plugin has
    /// registered.
    environments: Vec<String>,
    /// Backends that the plugin has registered, each with the backend that it replaced, if any.
    backends: Vec<(dtl_backend_t, Option<registry::Replaced>)>,
    /// Handlers that the plugin has registered with the default dispatcher.
    handlers: Vec<dtl_registration_t>,
}

static STATE: Mutex<LoaderState> =
    Mutex::new(LoaderState { opener: None, records: Vec::new(), loader: None, current: None });
static CHANGED: Condvar = Condvar::new();
/// True if the search path has been searched since the library was initialized.
static SEARCHED: AtomicBool = AtomicBool::new(false);

/// Sets the function that opens plugin files, so that this layer does not depend on the layer that
/// implements the function.
pub fn open_files_with(opener: Opener) {
    STATE.lock().opener = Some(opener);
}

/// Guard that gives a thread the exclusive right to load plugins.
struct LoadGuard;

impl LoadGuard {
    /// Waits for the exclusive right to load plugins. Returns `None` if the calling thread already
    /// holds this right, because the call comes from inside a plugin's load function.
    fn take() -> Option<Self> {
        let me = std::thread::current().id();
        let mut state = STATE.lock();
        while let Some(loader) = state.loader {
            if loader == me {
                return None;
            }
            state = CHANGED.wait(state);
        }
        state.loader = Some(me);
        Some(LoadGuard)
    }
}

impl Drop for LoadGuard {
    fn drop(&mut self) {
        let mut state = STATE.lock();
        (state.loader, state.current) = (None, None);
        drop(state);
        CHANGED.notify_all();
    }
}

/// Loads a plugin file, unless its backends are registered already, and returns its first backend.
pub fn load(path: &Path, origin: &'static str, step: Step) -> Result<dtl_backend_t> {
    let _turn = turn(origin)?;
    load_file(path, origin, step)
}

/// Loads all *.so files in a folder in the order of their names. Returns the number of these files
/// that are loaded, including files that were already loaded. Failures are logged, and [`at`]
/// returns them with the load state of each file.
pub fn load_folder(path: &Path, origin: &'static str) -> Result<u64> {
    let _turn = turn(origin)?;
    search_folder(path, origin)
}

fn turn(call: &str) -> Result<LoadGuard> {
    LoadGuard::take().ok_or_else(|| {
        failure!(
            DTL_ERROR_BUSY,
            "{call} inside a plugin's load: it may call the host's functions only"
        )
    })
}

/// Loads the plugin with this entry function, which is linked into the program, unless its backends
/// are registered already, and returns its first backend. `open` calls the entry function.
pub fn load_linked(
    entry: usize,
    open: impl FnOnce() -> Result<Arc<dyn Plugin>>,
) -> Result<dtl_backend_t> {
    let _turn = turn("dtl_plugin_register")?;
    let path = PathBuf::from(format!("linked into the program at {entry:#x}"));
    let trusted = Trusted { path, identity: Identity::of_code(entry) };
    load_trusted(trusted, "dtl_plugin_register", &|_| {}, |_| open())
}

fn load_file(path: &Path, origin: &'static str, step: Step) -> Result<dtl_backend_t> {
    let name = || path.file_name().unwrap_or_default().to_string_lossy();
    let _span = trace::span("backend", "load a plugin", || Args::NONE.what(name()));
    let trusted = dl::check_file(path).map_err(|refusal| refuse(path, origin, refusal))?;
    let Some(open) = STATE.lock().opener else {
        return fail!(DTL_ERROR_INVALID_STATE, "the library is not open");
    };
    load_trusted(trusted, origin, step, |path| {
        // Logged before any code of the file runs: if the process ends there, this names the file.
        log::debug!("loading {}", path.display());
        plugin_probe::pass(path, step)?;
        open(path, step)
    })
}

fn load_trusted(
    trusted: Trusted,
    origin: &'static str,
    step: Step,
    open: impl FnOnce(&Path) -> Result<Arc<dyn Plugin>>,
) -> Result<dtl_backend_t> {
    let state = STATE.lock();
    let known = state.records.iter().find(|known| known.identity == Some(trusted.identity));
    let plugin = known.and_then(|known| known.plugin.clone());
    let handles = known.map(|known| known.backends.clone()).unwrap_or_default();
    drop(state);
    if let Some((first, _)) = registered(&handles).first() {
        return Ok(*first);
    }
    let opened = plugin.map_or_else(|| open(&trusted.path), Ok);
    let (plugin, outcome) = match opened {
        Ok(plugin) => (Some(Arc::clone(&plugin)), register_all(plugin.as_ref(), step)),
        Err(error) => (None, Err(error)),
    };
    remember(trusted, origin, plugin, outcome)
}

/// Calls the plugin's load function and returns the objects that it has registered. If the load
/// fails, reverts these registrations.
fn register_all(plugin: &dyn Plugin, step: Step) -> Result<Current> {
    let facts = plugin.facts().clone();
    STATE.lock().current = Some(Current { facts, ..Current::default() });
    step("its load");
    let outcome = plugin.load();
    let current = STATE.lock().current.take().unwrap_or_default();
    let outcome = match (outcome, &current.failure) {
        (Ok(()), Some(error)) if current.backends.is_empty() => Err(error.clone().within(
            "its load returned success but registered no backend, because backend_register failed",
        )),
        (Ok(()), None) if current.backends.is_empty() => {
            fail!(DTL_ERROR_INVALID_ARGUMENT, "its load registered no backend")
        }
        (other, _) => other,
    };
    let Err(error) = outcome else { return Ok(current) };
    handlers::end(&epoch::enter(), &current.handlers);
    // Only a thread that found an environment just now can have required it; the environment then
    // stays registered.
    current.environments.iter().for_each(|name| drop(environment::unregister(name)));
    let inside = epoch::enter();
    for (backend, replaced) in current.backends.into_iter().rev() {
        // Only a thread that found the backend just now can use it; the backend then stays.
        if let Err(error) = registry::remove(&inside, backend, 0) {
            log::warning!("a plugin's load failed, and a backend of it stays: {}", error.text());
        }
        replaced.into_iter().for_each(|replaced| registry::put_back(&inside, replaced));
    }
    Err(error)
}

/// Registers a backend of the plugin that this thread is loading. Implements `backend_register` in
/// the function table that the library passes to plugins. `make` creates the backend; its arguments
/// are the ABI version for which the plugin was compiled and the ABI version on which the plugin
/// and the library have agreed.
pub fn register(
    flags: u64,
    make: impl FnOnce(u32, u32) -> Result<Backend>,
) -> Result<dtl_backend_t> {
    let facts = loading("backend_register")?;
    let mut backend = make(facts.compiled_for, facts.spoken)?;
    backend.needs = facts.environments;
    let backend = Arc::new(backend);
    let (handle, replaced) = registry::add_in_place(Arc::clone(&backend), flags)
        .map_err(|error| error_with_owner(error, backend.name()))?;
    if let Some(current) = &mut STATE.lock().current {
        current.backends.push((handle, replaced));
    }
    Ok(handle)
}

/// Records the first failed call to `backend_register` by the plugin that this thread is loading,
/// in case the plugin's load function does not return the status of that failure.
pub fn note_failure(error: &Error) {
    if let Some(current) = STATE.lock().mine() {
        current.failure.get_or_insert_with(|| error.clone());
    }
}

/// Registers an environment (external software that backends depend on) for the plugin that this
/// thread is loading. Implements `environment_register` in the function table that the library
/// passes to plugins.
pub fn register_environment(description: environment::Description) -> Result<()> {
    loading("environment_register")?;
    let name = description.name.clone();
    if environment::register(description)? {
        if let Some(current) = &mut STATE.lock().current {
            current.environments.push(name);
        }
    }
    Ok(())
}

/// Returns true if this thread is inside a plugin's load function.
pub fn is_loading_here() -> bool {
    STATE.lock().mine().is_some()
}

/// Returns the description of the plugin that this thread is loading.
fn loading(call: &str) -> Result<PluginDescription> {
    STATE.lock().mine().map(|current| current.facts.clone()).ok_or_else(|| {
        failure!(
            DTL_ERROR_INVALID_STATE,
            "dtl_host_api_t.{call} outside of a plugin's load (or in another thread): register \
             there"
        )
    })
}

/// Adds to the message of `error` the path of the plugin that has registered the backend `name`, so
/// that the user can remove one of the two plugin files that register this name.
fn error_with_owner(error: Error, name: &str) -> Error {
    let state = STATE.lock();
    let has = |record: &&PluginRecord| {
        registered(&record.backends).iter().any(|(_, known)| known == name)
    };
    match state.records.iter().find(has) {
        Some(owner) => error.within(&format!(
            "plugin {} has registered {name}: remove one of the two files, or the folder of one \
             from DTL_PLUGIN_PATH",
            owner.path.display()
        )),
        None => error,
    }
}

fn refuse(path: &Path, origin: &'static str, refusal: Refusal) -> Error {
    let error = match refusal {
        Refusal::System(_) if path.as_os_str().is_empty() => {
            return Error::new(
                DTL_ERROR_NOT_FOUND,
                "the path of a plugin is empty: name a file or folder",
            );
        }
        Refusal::System(error) if error.kind() == ErrorKind::NotFound => {
            Error::new(DTL_ERROR_NOT_FOUND, "there is no such file or folder")
        }
        Refusal::System(error) => Error::new(DTL_ERROR_UNAVAILABLE, error.to_string()),
        Refusal::Untrusted(text) => Error::new(DTL_ERROR_UNAVAILABLE, format!("refused: {text}")),
    };
    let shown = error.clone().within(&format!("plugin {}", path.display()));
    let path = dl::resolve(path).unwrap_or_else(|_| path.to_owned());
    keep(PluginRecord { path, origin, failure: Some(error), ..PluginRecord::default() });
    shown
}

/// Records the outcome of an attempt to load a plugin file, and returns the plugin's first backend,
/// or the error if the attempt failed.
fn remember(
    trusted: Trusted,
    origin: &'static str,
    plugin: Option<Arc<dyn Plugin>>,
    outcome: Result<Current>,
) -> Result<dtl_backend_t> {
    let Trusted { path, identity } = trusted;
    let (Current { failure: dropped, backends, handlers, .. }, failure) = match outcome {
        Ok(current) => (current, None),
        Err(error) => (Current::default(), Some(error)),
    };
    let backends: Vec<_> = backends.into_iter().map(|(backend, _)| backend).collect();
    let shown = failure.clone().map(|error| error.within(&format!("plugin {}", path.display())));
    let first = backends.first().copied();
    let dropped = dropped
        .map(|error| error.within("its load returned success after a failed backend_register"));
    if let Some(error) = &dropped {
        log::warning!("plugin {} is loaded, by {origin}, but {}", path.display(), error.text());
    } else if shown.is_none() {
        log::info!("plugin {} is loaded, by {origin}", path.display());
    }
    let names = registered(&backends).into_iter().map(|(_, name)| name).collect();
    keep(PluginRecord {
        path,
        identity: Some(identity),
        origin,
        plugin,
        backends,
        names,
        handlers,
        failure,
        dropped,
    });
    match (first, shown) {
        (Some(first), None) => Ok(first),
        (_, Some(error)) => Err(error),
        (None, None) => {
            fail!(DTL_ERROR_INTERNAL, "a plugin without a backend was taken for loaded")
        }
    }
}

/// Stores the record (description of the outcome) of an attempt to load a plugin file: replaces the
/// record of the same file, or appends the new record. If an earlier attempt has loaded the plugin
/// and the new record has no plugin, only updates the failure.
fn keep(record: PluginRecord) {
    let mut state = STATE.lock();
    let same = |known: &&mut PluginRecord| match (known.identity, record.identity) {
        (Some(known), Some(new)) => known == new,
        _ => known.path == record.path,
    };
    match state.records.iter_mut().find(same) {
        // A plugin that is in memory stays loaded, even if its file is rejected by now.
        Some(known) if known.plugin.is_some() && record.plugin.is_none() => {
            known.failure = record.failure
        }
        Some(known) => *known = record,
        None => state.records.push(record),
    }
}

/// Loads the plugins in DTL_PLUGIN_PATH and in the folders of installed plugins, once after each
/// initialization of the library. Failures are logged and recorded. Once the search is done, a call
/// costs one atomic load.
pub fn search() {
    if SEARCHED.load(Ordering::Acquire) {
        return;
    }
    // Inside a plugin's load function waiting would deadlock: the call continues without a search.
    let Some(_turn) = LoadGuard::take() else { return };
    if SEARCHED.load(Ordering::Acquire) {
        return;
    }
    for (place, origin) in places() {
        let outcome = if place.is_dir() {
            search_folder(&place, origin).map(drop)
        } else {
            load_file(&place, origin, &|_| {}).map(drop)
        };
        if let Err(error) = outcome {
            log::warning!("{}", error.text());
        }
    }
    SEARCHED.store(true, Ordering::Release);
}

/// Requests a new search for plugins at the next backend lookup, because the settings have changed.
pub fn search_again() {
    SEARCHED.store(false, Ordering::Release);
}

fn search_folder(path: &Path, origin: &'static str) -> Result<u64> {
    let checked = dl::resolve(path).and_then(|folder| dl::check_folder(&folder).map(|()| folder));
    let listed = checked.and_then(|folder| files_of(&folder).map_err(Refusal::from));
    let files = listed.map_err(|refusal| refuse(path, origin, refusal))?;
    let mut loaded = 0;
    for file in files {
        match load_file(&file, origin, &|_| {}) {
            Ok(_) => loaded += 1,
            Err(error) => log::warning!("{}", error.text()),
        }
    }
    Ok(loaded)
}

/// Returns those of `handles` that are in the registry of backends, each with the name of its
/// backend.
fn registered(handles: &[dtl_backend_t]) -> Vec<(dtl_backend_t, String)> {
    let inside = epoch::enter();
    let name = |handle: &dtl_backend_t| {
        Some((*handle, registry::find(&inside, *handle).ok()?.name().to_owned()))
    };
    handles.iter().filter_map(name).collect()
}

/// Searches for plugins and returns the number of files and folders whose load attempts are
/// recorded.
pub fn count() -> usize {
    search();
    STATE.lock().records.len()
}

/// Searches for plugins and returns the load state of the file or folder at an index; the strings
/// are never freed.
pub fn at(index: u64) -> Result<dtl_plugin_info_t> {
    search();
    entry_at(&STATE.lock().records, index, "plugin").map(describe)
}

fn describe(record: &PluginRecord) -> dtl_plugin_info_t {
    let backends: Vec<String> =
        registered(&record.backends).into_iter().map(|(_, name)| name).collect();
    let state = match &record.failure {
        _ if !backends.is_empty() => DTL_PLUGIN_LOADED,
        Some(_) => DTL_PLUGIN_FAILED,
        None => DTL_PLUGIN_IDLE,
    };
    let facts = record.plugin.as_ref().map(|plugin| plugin.facts().clone()).unwrap_or_default();
    let reason = record.failure.as_ref().or(record.dropped.as_ref()).map_or("", Error::text);
    dtl_plugin_info_t {
        struct_size: size_of::<dtl_plugin_info_t>() as u32,
        state,
        status: record.failure.as_ref().map_or(DTL_SUCCESS, Error::status),
        abi_version: facts.spoken,
        path: c_text_for_ever(&record.path.to_string_lossy()),
        reason: c_text_for_ever(reason),
        origin: c_text_for_ever(record.origin),
        name: c_text_for_ever(&facts.name),
        version: c_text_for_ever(&facts.version),
        description: c_text_for_ever(&facts.description),
        backends: c_text_for_ever(&backends.join(", ")),
    }
}

/// Drops the registrations of all plugins at finalize or in a forked child. Loaded files stay in
/// memory. After the next initialization of the library, the search path is searched and the
/// plugins are loaded again.
pub fn settle() {
    let mut state = STATE.lock();
    state.records.retain(|record| record.plugin.is_some());
    for record in &mut state.records {
        let PluginRecord { path, identity, origin, plugin, .. } = std::mem::take(record);
        *record = PluginRecord { path, identity, origin, plugin, ..PluginRecord::default() };
    }
    drop(state);
    search_again();
}
