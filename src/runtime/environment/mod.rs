//! Environments: external software that backends and kernel sources depend on. This module
//! registers environments, counts their users, and starts and ends environments in the required
//! order.
//!
//! One lock guards the list of environments. No user callback is called while the lock is held.
//!
//! In reading order:
//! - `version`: comparison of versions
//! - `plan`: start order of an environment and its dependencies
//! - `start`: start and end of environments

mod plan;
mod start;
mod version;

pub use self::start::{EnvironmentRefs, finalize_all, release, require};
pub use version::{Requirement, check as check_version};

use super::{c_text_for_ever, check_name, entry_at};
use crate::abi::backend::environment::*;
use crate::abi::status::{DTL_ERROR_NOT_FOUND, DTL_SUCCESS};
use crate::error::{Error, Result, fail};
use crate::sys::memory::buf::{Addr, AlignedBlock};
use crate::sys::sync::lock::{Condvar, Mutex, MutexGuard};
use plan::StartStep;
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

const MOST: usize = 4096;

/// Callback functions of an environment (external software that backends and kernel sources depend
/// on), implemented by the provider of the environment.
pub trait Calls: Send + Sync {
    /// Fails with the reason if the environment cannot be used on this machine.
    fn probe(&self) -> Result<()>;
    /// Starts the environment. `state` is the address of the environment's state block (memory that
    /// the library allocates for the environment).
    fn init(&self, state: Addr) -> Result<()>;
    /// Ends the environment.
    fn finalize(&self, state: Addr) -> Result<()>;
    /// Returns the addresses of the callback functions and of their user data, to detect a second
    /// registration with the same functions and data.
    fn identity(&self) -> [usize; 4];
}

/// Description of an environment (external software that backends and kernel sources depend on).
pub struct Description {
    /// Name of the environment.
    pub name: String,
    /// Version of the environment; may be empty.
    pub version: String,
    /// Environments that the environment depends on.
    pub depends: Vec<Requirement>,
    /// Packages, include directories and libraries for builds that use the environment.
    pub lists: Lists,
    /// Size in bytes of the state block, which the library allocates when the environment is
    /// started.
    pub state_size: u64,
    /// Alignment of the state block in bytes.
    pub state_align: u64,
    /// Callback functions of the environment.
    pub calls: Box<dyn Calls>,
}

/// Inputs of a build that uses an environment.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Lists {
    /// Package names, for human readers.
    pub packages: Vec<String>,
    /// Include directories.
    pub headers: Vec<String>,
    /// Libraries: paths, or names as in the linker option `-lNAME`.
    pub libraries: Vec<String>,
}

impl Description {
    /// Returns the name of the first field that differs; `None` if all fields are equal.
    fn difference(&self, other: &Description) -> Option<&'static str> {
        let differs = [
            ("version", self.version != other.version),
            ("depends", self.depends != other.depends),
            ("packages", self.lists.packages != other.lists.packages),
            ("headers", self.lists.headers != other.lists.headers),
            ("libraries", self.lists.libraries != other.lists.libraries),
            ("state_size", self.state_size != other.state_size),
            ("state_align", self.state_align != other.state_align),
            ("functions or user", self.calls.identity() != other.calls.identity()),
        ];
        differs.into_iter().find(|(_, differs)| *differs).map(|(what, _)| what)
    }
}

struct EnvironmentRecord {
    description: Arc<Description>,
    phase: Phase,
    /// Number of outstanding references acquired with dtl_environment_require.
    uses: u64,
    /// Number of references that dependent environments, modules, backends and calls in progress
    /// hold.
    holds: u64,
    /// Names of the environments that the init function of this environment has required.
    owned: Vec<String>,
    /// Sequence number of the start: an environment that was started later has a higher number.
    number: u64,
    /// Number of attempts to start this environment.
    attempt: u64,
    /// Error from the last attempt to start this environment, if that attempt failed.
    failure: Option<Error>,
}

enum Phase {
    Idle,
    Starting(ThreadId),
    Started(AlignedBlock),
    Stopping(ThreadId),
}

struct EnvironmentState {
    records: Vec<EnvironmentRecord>,
    /// Number of start attempts of all environments so far, including failed ones.
    last: u64,
    /// Generation number, incremented at finalize and in a forked child. References from an earlier
    /// generation are invalid.
    era: u64,
    /// Threads that execute callback functions of environments, each with the name of the
    /// environment, in the order of the calls.
    inside: Vec<(ThreadId, String)>,
    /// Threads that wait for an environment to start or end, each with the name of that
    /// environment.
    waiting: Vec<(ThreadId, String)>,
}

static STATE: Mutex<EnvironmentState> = Mutex::new(EnvironmentState {
    records: Vec::new(),
    last: 0,
    era: 0,
    inside: Vec::new(),
    waiting: Vec::new(),
});
static CHANGED: Condvar = Condvar::new();

fn find<'a>(records: &'a [EnvironmentRecord], name: &str) -> Option<&'a EnvironmentRecord> {
    records.iter().find(|record| record.description.name == name)
}

impl EnvironmentState {
    fn find(&mut self, name: &str) -> Option<&mut EnvironmentRecord> {
        self.records.iter_mut().find(|record| record.description.name == name)
    }

    /// Returns the name of the environment whose callback function the calling thread is executing.
    fn owner(&self) -> Option<String> {
        let me = std::thread::current().id();
        self.inside.iter().rev().find(|(thread, _)| *thread == me).map(|(_, name)| name.clone())
    }
}

fn unknown(records: &[EnvironmentRecord], name: &str) -> Error {
    let advice = if name.contains(">=") { " (pass the name without a version)" } else { "" };
    plan::unknown(records, name, advice)
}

/// Registers an environment; returns false if an equal environment was already registered.
pub fn register(description: Description) -> Result<bool> {
    check_name("environment", &description.name)?;
    let mut state = STATE.lock();
    if let Some(known) = state.find(&description.name) {
        let Some(what) = known.description.difference(&description) else { return Ok(false) };
        return fail!(
            DTL_ERROR_ALREADY_EXISTS,
            "environment {} is registered with another description (different: {what}): choose \
             another name, or unregister the other one first",
            description.name
        );
    }
    if state.records.len() == MOST {
        return fail!(DTL_ERROR_LIMIT, "there are {MOST} environments already");
    }
    let record = EnvironmentRecord {
        description: Arc::new(description),
        phase: Phase::Idle,
        uses: 0,
        holds: 0,
        owned: Vec::new(),
        number: 0,
        attempt: 0,
        failure: None,
    };
    state.records.push(record);
    Ok(true)
}

/// Unregisters an environment that is not in use.
pub fn unregister(name: &str) -> Result<()> {
    let mut state = STATE.lock();
    let Some(at) = state.records.iter().position(|record| record.description.name == name) else {
        return Err(unknown(&state.records, name));
    };
    let in_use =
        |record: &&EnvironmentRecord| !matches!(record.phase, Phase::Idle) || record.holds > 0;
    if let Some(record) = state.records.get(at).filter(in_use) {
        let count = record.uses + record.holds;
        return fail!(
            DTL_ERROR_BUSY,
            "environment {name} is in use ({count} require it): release it first"
        );
    }
    let removed = state.records.remove(at);
    drop(state);
    drop(removed);
    Ok(())
}

/// Returns the state block of a started environment; null if the environment has none.
pub fn state(name: &str) -> Result<Addr> {
    let mut state = STATE.lock();
    match state.find(name).map(|record| &record.phase) {
        Some(Phase::Started(block)) => Ok(block.addr()),
        Some(_) => {
            fail!(
                DTL_ERROR_INVALID_STATE,
                "environment {name} is not started: dtl_environment_require it first"
            )
        }
        None => Err(unknown(&state.records, name)),
    }
}

/// Checks that an environment could be started: the environment and all its dependencies are
/// registered, and the probe function of each one that is not started succeeds. This function does
/// not start any environment.
pub fn availability(need: &Requirement) -> Result<()> {
    let (order, mut state) = ordered(need)?;
    let mut required = Vec::new();
    for step in order {
        let record =
            state.find(&step.name).filter(|record| !matches!(record.phase, Phase::Started(_)));
        if let Some(record) = record {
            record.holds += 1; // the environment must not end during its probe
            required.push((step, Arc::clone(&record.description)));
        }
    }
    let _held =
        EnvironmentRefs::of(&state, required.iter().map(|(step, _)| step.name.clone()).collect());
    drop(state);
    required.iter().try_for_each(|(step, description)| probe(step, description))
}

/// Returns the environments to start, in the order in which they must be started. If an environment
/// is not registered, loads the plugins and repeats the search, because a plugin may register it.
fn ordered(need: &Requirement) -> Result<(Vec<StartStep>, MutexGuard<'static, EnvironmentState>)> {
    let mut state = STATE.lock();
    let mut order = plan::order(&state.records, need);
    if order.as_ref().is_err_and(|error| error.status() == DTL_ERROR_NOT_FOUND) {
        drop(state);
        search_plugins();
        state = STATE.lock();
        order = plan::order(&state.records, need);
    }
    Ok((order?, state))
}

static SEARCH_PLUGINS: OnceLock<fn()> = OnceLock::new();

/// Sets the function that loads the plugins, for the life of the process. Once the plugins are
/// loaded, further calls to the function must have no effect.
pub fn search_plugins_by(search: fn()) {
    SEARCH_PLUGINS.get_or_init(|| search);
}

/// Loads the plugins, which may register environments and backends.
pub fn search_plugins() {
    if let Some(search) = SEARCH_PLUGINS.get() {
        search();
    }
}

fn probe(step: &StartStep, description: &Description) -> Result<()> {
    let failed = |error: Error| error.within("it cannot be used here").within(&step.title());
    description.calls.probe().map_err(failed)
}

/// Starts the environments that the compilation of a source requires. Returns references to these
/// environments, and their include directories and libraries for the compiler, with direct
/// dependencies before indirect ones.
pub fn for_source(needs: &[Requirement]) -> Result<(EnvironmentRefs, Lists)> {
    let mut held = EnvironmentRefs::default();
    let mut lists = Lists::default();
    for need in needs {
        held.add(need)?;
        let state = STATE.lock();
        for step in plan::order(&state.records, need)?.iter().rev() {
            let Some(record) = find(&state.records, &step.name) else { continue };
            let one = &record.description.lists;
            add_new(&mut lists.headers, &one.headers);
            add_new(&mut lists.libraries, &one.libraries);
        }
    }
    Ok((held, lists))
}

fn add_new(all: &mut Vec<String>, more: &[String]) {
    for one in more {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
}

/// Loads the plugins and returns the number of registered environments.
pub fn count() -> usize {
    search_plugins();
    STATE.lock().records.len()
}

/// Returns the description and state of the environment at an index. The strings are never freed.
pub fn at(index: u64) -> Result<dtl_environment_info_t> {
    entry_at(&STATE.lock().records, index, "environment").map(describe)
}

/// Returns the description and state of the environment with the name `name`. The strings are never
/// freed.
pub fn info(name: &str) -> Result<dtl_environment_info_t> {
    let state = STATE.lock();
    find(&state.records, name).map(describe).ok_or_else(|| unknown(&state.records, name))
}

fn describe(record: &EnvironmentRecord) -> dtl_environment_info_t {
    let EnvironmentRecord { description, failure, .. } = record;
    let state = match (&record.phase, failure) {
        (Phase::Idle, Some(_)) => DTL_ENVIRONMENT_FAILED,
        (Phase::Idle, None) => DTL_ENVIRONMENT_IDLE,
        (Phase::Starting(_), _) => DTL_ENVIRONMENT_STARTING,
        (Phase::Started(_), _) => DTL_ENVIRONMENT_STARTED,
        (Phase::Stopping(_), _) => DTL_ENVIRONMENT_STOPPING,
    };
    let depends: Vec<String> = description.depends.iter().map(Requirement::to_string).collect();
    let Lists { packages, headers, libraries } = &description.lists;
    dtl_environment_info_t {
        struct_size: size_of::<dtl_environment_info_t>() as u32,
        state,
        status: failure.as_ref().map_or(DTL_SUCCESS, Error::status),
        reserved: 0,
        uses: record.uses + record.holds,
        name: c_text_for_ever(&description.name),
        version: c_text_for_ever(&description.version),
        depends: c_text_for_ever(&depends.join(", ")),
        packages: c_text_for_ever(&packages.join(", ")),
        headers: c_text_for_ever(&headers.join(", ")),
        libraries: c_text_for_ever(&libraries.join(", ")),
        reason: c_text_for_ever(failure.as_ref().map_or("", Error::text)),
    }
}

/// Drops all environments in a forked child without calling their callback functions: environments
/// that the parent has started do not belong to this process.
pub fn forget_all() {
    let mut state = STATE.lock();
    state.era += 1;
    state.records.clear();
    state.inside.clear();
    state.waiting.clear();
}
