//! Plugin files: which were tried, how each ended, where they are searched for.
//!
//! One thread at a time loads; it may find itself here again, when a plugin registers. A file is
//! known by what it is (device and inode), so a second name of it is not a second plugin; it stays
//! loaded as long as the process. Not here: the foreign call (handed in as an [`Opener`]) and the
//! check of trusted files (`sys::os::secure_path`).
//!
//! In reading order:
//! - `search_path`: folders that are searched
//! - `plugin_probe`: a trial in a process of its own
//! - `handlers`: handlers of dispatchers that plugins bring

mod handlers;
pub mod plugin_probe;
mod search_path;

pub use self::search_path::{advice, files_of, places};
pub use handlers::{end_replaced, register_handler, unregister};

use super::environment::{self, Requirement};
use super::registry::{self, Backend};
use super::trace::{self, Args};
use super::{for_ever, log};
use crate::abi::backend::plugin::{DTL_PLUGIN_FAILED, DTL_PLUGIN_IDLE, DTL_PLUGIN_LOADED};
use crate::abi::handle::{dtl_backend_t, dtl_registration_t};
use crate::abi::status::{DTL_ERROR_NOT_FOUND, DTL_ERROR_UNAVAILABLE, DTL_SUCCESS, dtl_status_t};
use crate::error::{Error, Result, fail};
use crate::sys::handles::epoch;
use crate::sys::os::secure_path::{self, Identity, Refusal, Trusted};
use crate::sys::sync::lock::{Condvar, Mutex, MutexGuard};
use std::ffi::{CStr, CString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

/// Called with the name of the next step, so that a crash or hang of a plugin can be located.
pub type Step<'a> = &'a dyn Fn(&str);
/// Loads a file and queries its facts.
pub type Opener = fn(&Path, Step) -> Result<Arc<dyn Plugin>>;

/// A plugin that is in memory.
pub trait Plugin: Send + Sync {
    /// Returns what the plugin reports about itself.
    fn facts(&self) -> &PluginDescription;
    /// Registers its backends, by way of [`register`].
    fn load(&self) -> Result<()>;
}

/// What a plugin reports about itself.
#[derive(Clone, Debug, Default)]
pub struct PluginDescription {
    /// Its name.
    pub name: String,
    /// Its version; may be empty.
    pub version: String,
    /// What it is; may be empty.
    pub description: String,
    /// ABI version of the header it was compiled with.
    pub compiled_for: u32,
    /// ABI version that it and the library agreed on.
    pub spoken: u32,
    /// Environments that its backends need.
    pub environments: Vec<Requirement>,
}

/// What became of one file or folder; the texts live for ever.
pub struct PluginInfo {
    /// DTL_PLUGIN_LOADED, _FAILED or _IDLE.
    pub state: i32,
    /// How the last attempt ended.
    pub status: dtl_status_t,
    /// The agreed ABI version; 0 = none.
    pub abi_version: u32,
    /// Path, reason, origin, name, version, description, backends.
    pub texts: [&'static CStr; 7],
}

struct PluginRecord {
    path: PathBuf,
    identity: Option<Identity>,
    /// Origin of the request to load it.
    origin: &'static str,
    plugin: Option<Arc<dyn Plugin>>,
    /// What it registered when it was loaded last, and under which names.
    backends: Vec<dtl_backend_t>,
    names: Vec<String>,
    handlers: Vec<dtl_registration_t>,
    failure: Option<Error>,
    /// For a loaded plugin: a failed registration whose status its load function has dropped.
    dropped: Option<Error>,
}

struct LoaderState {
    opener: Option<Opener>,
    records: Vec<PluginRecord>,
    /// The thread that loads.
    loader: Option<ThreadId>,
    /// What the plugin that is being loaded has registered, and its versions.
    current: Option<Current>,
}

struct Current {
    facts: PluginDescription,
    /// The error of the first registration that failed.
    failure: Option<Error>,
    /// The names of what was not registered before.
    environments: Vec<String>,
    /// Each with the one whose name it took.
    backends: Vec<(dtl_backend_t, Option<registry::Replaced>)>,
    /// Registrations with the default dispatcher.
    handlers: Vec<dtl_registration_t>,
}

static STATE: Mutex<LoaderState> =
    Mutex::new(LoaderState { opener: None, records: Vec::new(), loader: None, current: None });
static CHANGED: Condvar = Condvar::new();
/// Whether the folders have been searched since the library was opened.
static SEARCHED: AtomicBool = AtomicBool::new(false);

/// Hands in what opens files, so that this layer names nothing below it.
pub fn open_files_with(opener: Opener) {
    STATE.lock().opener = Some(opener);
}

/// The right to load, held by one thread at a time.
struct LoadGuard;

impl LoadGuard {
    /// Waits for it. `None`: this thread has it, and is inside a plugin.
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

/// Loads a plugin file; the first of its backends. A file whose backends are registered is left as
/// it is.
pub fn load(path: &Path, origin: &'static str, step: Step) -> Result<dtl_backend_t> {
    let _turn = turn(origin)?;
    load_file(path, origin, step)
}

/// Loads every file *.so of a folder, by name; how many of them are loaded now. What fails is kept
/// for [`at`] and logged.
pub fn load_folder(path: &Path, origin: &'static str) -> Result<u64> {
    let _turn = turn(origin)?;
    search_folder(path, origin)
}

fn turn(call: &str) -> Result<LoadGuard> {
    match LoadGuard::take() {
        Some(turn) => Ok(turn),
        None => fail!(
            DTL_ERROR_BUSY,
            "{call} inside a plugin's load: it may call the host's functions only"
        ),
    }
}

fn load_file(path: &Path, origin: &'static str, step: Step) -> Result<dtl_backend_t> {
    let name = || path.file_name().unwrap_or_default().to_string_lossy();
    let _span = trace::span("backend", "load a plugin", || Args::NONE.what(name()));
    let trusted = match secure_path::check_file(path) {
        Ok(trusted) => trusted,
        Err(refusal) => return Err(refuse(path, origin, refusal)),
    };
    let state = STATE.lock();
    let known = state.records.iter().find(|known| known.identity == Some(trusted.identity));
    let plugin = known.and_then(|known| known.plugin.clone());
    let handles = known.map(|known| known.backends.clone()).unwrap_or_default();
    let opener = state.opener;
    drop(state);
    if let Some((first, _)) = registered(&handles).first() {
        return Ok(*first);
    }
    let opened = match (plugin, opener) {
        (Some(plugin), _) => Ok(plugin),
        (None, Some(open)) => {
            // Before anything of the file runs: if it ends the process, this line names it.
            log::debug!("loading {}", trusted.path.display());
            plugin_probe::pass(&trusted.path, step).and_then(|()| open(&trusted.path, step))
        }
        (None, None) => fail!(DTL_ERROR_INVALID_STATE, "the library is not open"),
    };
    let (plugin, outcome) = match opened {
        Ok(plugin) => (Some(Arc::clone(&plugin)), register_all(plugin.as_ref(), step)),
        Err(error) => (None, Err(error)),
    };
    remember(trusted, origin, plugin, outcome)
}

/// A plugin's backends and handlers, and a failed registration whose status its load has dropped.
type Registered = (Vec<dtl_backend_t>, Vec<dtl_registration_t>, Option<Error>);

/// Calls the plugin's load; takes back what it registered if it fails.
fn register_all(plugin: &dyn Plugin, step: Step) -> Result<Registered> {
    let facts = plugin.facts().clone();
    STATE.lock().current = Some(Current {
        facts,
        failure: None,
        environments: Vec::new(),
        backends: Vec::new(),
        handlers: Vec::new(),
    });
    step("its load");
    let outcome = plugin.load();
    let current = STATE.lock().current.take();
    let failure = current.as_ref().and_then(|current| current.failure.clone());
    let (backends, environments, handlers) = current
        .map(|current| (current.backends, current.environments, current.handlers))
        .unwrap_or_default();
    let outcome = match (outcome, &failure) {
        (Ok(()), Some(error)) if backends.is_empty() => Err(error.clone().within(
            "its load returned success but registered no backend, because backend_register failed",
        )),
        (Ok(()), None) if backends.is_empty() => {
            fail!(DTL_ERROR_INVALID_ARGUMENT, "its load registered no backend")
        }
        (other, _) => other,
    };
    match outcome {
        Ok(()) => {
            Ok((backends.into_iter().map(|(backend, _)| backend).collect(), handlers, failure))
        }
        Err(error) => {
            handlers::end(&epoch::enter(), &handlers);
            // Only a thread that found one at this moment can have required it; then it stays.
            environments.iter().for_each(|name| drop(environment::unregister(name)));
            let inside = epoch::enter();
            for (backend, replaced) in backends.into_iter().rev() {
                // Only a thread that found it in this moment can be using it; then it stays.
                if let Err(error) = registry::remove(&inside, backend, 0) {
                    log::warning!(
                        "a plugin's load failed, and a backend of it stays: {}",
                        error.text()
                    );
                }
                replaced.into_iter().for_each(|replaced| registry::put_back(&inside, replaced));
            }
            Err(error)
        }
    }
}

/// For the host's backend_register: adds a backend of the plugin that this thread is loading.
/// `make` gets the ABI version that the plugin was compiled for and the agreed one.
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

/// For the host's backend_register: keeps the first failure, in case the plugin's load does not
/// return its status.
pub fn note_failure(error: &Error) {
    let me = std::thread::current().id();
    let mut state = STATE.lock();
    let mine = state.loader == Some(me);
    if let Some(current) = state.current.as_mut().filter(|_| mine) {
        current.failure.get_or_insert_with(|| error.clone());
    }
}

/// For the host's environment_register: adds an environment of the plugin that this thread is
/// loading.
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

/// Returns true if this thread is inside a plugin's load.
#[must_use]
pub fn is_loading_here() -> bool {
    let state = STATE.lock();
    state.current.is_some() && state.loader == Some(std::thread::current().id())
}

/// Returns the facts of the plugin that this thread is loading.
fn loading(call: &str) -> Result<PluginDescription> {
    let state = STATE.lock();
    let mine = state.loader == Some(std::thread::current().id());
    match state.current.as_ref().filter(|_| mine) {
        Some(current) => Ok(current.facts.clone()),
        None => fail!(
            DTL_ERROR_INVALID_STATE,
            "dtl_host_api_t.{call} outside of a plugin's load (or in another thread): register \
             there"
        ),
    }
}

/// Adds the plugin that has registered the name already, so that the user can remove one of the two
/// files.
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
    let path = secure_path::resolve(path).unwrap_or_else(|_| path.to_owned());
    let (backends, handlers, _) = Registered::default();
    let names = Vec::new();
    keep(PluginRecord {
        path,
        identity: None,
        origin,
        plugin: None,
        backends,
        names,
        handlers,
        failure: Some(error),
        dropped: None,
    });
    shown
}

/// Keeps how an attempt ended, and makes its result of it.
fn remember(
    trusted: Trusted,
    origin: &'static str,
    plugin: Option<Arc<dyn Plugin>>,
    outcome: Result<Registered>,
) -> Result<dtl_backend_t> {
    let Trusted { path, identity } = trusted;
    let ((backends, handlers, dropped), failure) = match outcome {
        Ok(registered) => (registered, None),
        Err(error) => (Registered::default(), Some(error)),
    };
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

/// Puts a record in the place of the one of the same file, or at the end.
fn keep(record: PluginRecord) {
    let mut state = STATE.lock();
    let same = |known: &&mut PluginRecord| match (known.identity, record.identity) {
        (Some(known), Some(new)) => known == new,
        _ => known.path == record.path,
    };
    match state.records.iter_mut().find(same) {
        // What has been loaded stays so, even if the file is refused by now.
        Some(known) if known.plugin.is_some() && record.plugin.is_none() => {
            known.failure = record.failure
        }
        Some(known) => *known = record,
        None => state.records.push(record),
    }
}

/// Searches DTL_PLUGIN_PATH and the installed folder, once after each opening of the library. What
/// fails is logged and kept. Costs one load once that is done.
pub fn search() {
    if SEARCHED.load(Ordering::Acquire) {
        return;
    }
    // Inside a plugin's load there is nothing to wait for: it goes on without.
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

/// The settings have changed: the next look searches anew.
pub fn search_again() {
    SEARCHED.store(false, Ordering::Release);
}

fn search_folder(path: &Path, origin: &'static str) -> Result<u64> {
    let checked = secure_path::resolve(path)
        .and_then(|folder| secure_path::check_folder(&folder).map(|()| folder));
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

/// Those of the handles that are in the registry, with their names.
fn registered(handles: &[dtl_backend_t]) -> Vec<(dtl_backend_t, String)> {
    let inside = epoch::enter();
    let name = |handle: &dtl_backend_t| {
        Some((*handle, registry::find(&inside, *handle).ok()?.name().to_owned()))
    };
    handles.iter().filter_map(name).collect()
}

/// Number of files and folders that are remembered.
#[must_use]
pub fn count() -> usize {
    STATE.lock().records.len()
}

/// What became of the one of this index.
#[must_use]
pub fn at(index: usize) -> Option<PluginInfo> {
    let state: MutexGuard<LoaderState> = STATE.lock();
    state.records.get(index).map(describe)
}

fn describe(record: &PluginRecord) -> PluginInfo {
    let backends: Vec<String> =
        registered(&record.backends).into_iter().map(|(_, name)| name).collect();
    let state = match &record.failure {
        _ if !backends.is_empty() => DTL_PLUGIN_LOADED,
        Some(_) => DTL_PLUGIN_FAILED,
        None => DTL_PLUGIN_IDLE,
    };
    let facts = record.plugin.as_ref().map(|plugin| plugin.facts().clone()).unwrap_or_default();
    let reason = record.failure.as_ref().or(record.dropped.as_ref()).map_or("", Error::text);
    let path = record.path.to_string_lossy();
    let texts = [
        &path,
        reason,
        record.origin,
        &facts.name,
        &facts.version,
        &facts.description,
        &backends.join(", "),
    ];
    PluginInfo {
        state,
        status: record.failure.as_ref().map_or(DTL_SUCCESS, Error::status),
        abi_version: facts.spoken,
        texts: texts
            .map(|text| for_ever(&CString::new(text.replace('\0', "?")).unwrap_or_default())),
    }
}

/// The library ends, or this is a forked child: what is in memory stays, its backends are gone, and
/// the next opening searches and tries anew.
pub fn settle() {
    let mut state = STATE.lock();
    state.records.retain(|record| record.plugin.is_some());
    for record in &mut state.records {
        record.backends.clear();
        record.names.clear();
        record.handlers.clear();
        (record.failure, record.dropped) = (None, None);
    }
    drop(state);
    search_again();
}
