//! Environments: the registered ones, their users, and the order in which they start and end.
//!
//! One lock guards the list; it is never held while a program's function is called.
//!
//! In reading order:
//! - `version`: comparison of versions
//! - `plan`: order of starting
//! - `start`: starting and ending

mod plan;
mod start;
mod version;

pub use self::start::{EnvironmentRefs, finalize_all, release, require};
pub use version::{Requirement, check as check_version};

use super::{backend_events, check_name, for_ever};
use crate::abi::backend::environment::*;
use crate::abi::status::{DTL_ERROR_NOT_FOUND, DTL_SUCCESS, dtl_status_t};
use crate::error::{Error, Result, fail};
use crate::sys::memory::buf::{Addr, AlignedBlock};
use crate::sys::sync::lock::{Condvar, Mutex, MutexGuard};
use plan::StartStep;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::thread::ThreadId;

const MOST: usize = 4096;

/// The functions of an environment.
pub trait Calls: Send + Sync {
    /// Fails with the reason if it cannot be used here.
    fn probe(&self) -> Result<()>;
    /// Starts it.
    fn init(&self, state: Addr) -> Result<()>;
    /// Ends it.
    fn finalize(&self, state: Addr) -> Result<()>;
    /// What these functions are, to compare.
    fn identity(&self) -> [usize; 4];
}

/// What an environment is.
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its version; may be empty.
    pub version: String,
    /// Environments that it depends on.
    pub depends: Vec<Requirement>,
    /// Packages, folders of headers, libraries.
    pub lists: Lists,
    /// Size of the state block.
    pub state_size: u64,
    /// Alignment of the state block.
    pub state_align: u64,
    /// Its functions.
    pub calls: Box<dyn Calls>,
}

/// What building with an environment needs.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Lists {
    /// Packages, for readers.
    pub packages: Vec<String>,
    /// Folders.
    pub headers: Vec<String>,
    /// Paths, or names as after -l.
    pub libraries: Vec<String>,
}

impl Description {
    /// Returns the first field that differs from another description; `None`: nothing differs.
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
    /// By dtl_environment_require.
    uses: u64,
    /// By environments that depend on it, modules, backends, and calls that are under way.
    holds: u64,
    /// Environments that its init has required.
    owned: Vec<String>,
    /// Its place in the order of starting.
    number: u64,
    /// How often it was begun to start.
    attempt: u64,
    /// How the last attempt failed.
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
    /// Counts what has started.
    last: u64,
    /// Counts the ends of the library: what is held from before one is nothing.
    era: u64,
    /// Threads in functions of environments, in the order of their calls.
    inside: Vec<(ThreadId, String)>,
    /// Threads that wait for an environment to start or end.
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

    /// The environment in whose function this thread is.
    fn owner(&self) -> Option<String> {
        let me = std::thread::current().id();
        self.inside.iter().rev().find(|(thread, _)| *thread == me).map(|(_, name)| name.clone())
    }
}

fn unknown(records: &[EnvironmentRecord], name: &str) -> Error {
    let known: Vec<&str> = records.iter().map(|record| record.description.name.as_str()).collect();
    plan::unknown(
        &known,
        name,
        if name.contains(">=") { " (pass the name without a version)" } else { "" },
    )
}

/// Adds an environment. True: it was not there; false: the very same was.
pub fn register(description: Description) -> Result<bool> {
    check_name("environment", &description.name)?;
    let mut state = STATE.lock();
    if let Some(known) = state.find(&description.name) {
        let Some(what) = known.description.difference(&description) else { return Ok(false) };
        return fail!(
            DTL_ERROR_ALREADY_EXISTS,
            "environment {} is registered with another description (different: {what}): choose \
             another name, or unregister \
             the other one first",
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

/// Removes an environment that is not required.
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

/// The state block of an environment that is started; null if it has none.
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

/// Checks that an environment could be started: all its dependencies are registered, and each one
/// that is not started reports that it is available. Starts nothing.
pub fn availability(need: &Requirement) -> Result<()> {
    let (order, mut state) = ordered(need)?;
    let mut asked = Vec::new();
    for step in order {
        let record =
            state.find(&step.name).filter(|record| !matches!(record.phase, Phase::Started(_)));
        if let Some(record) = record {
            record.holds += 1; // it must not end while it is queried
            asked.push((step, Arc::clone(&record.description)));
        }
    }
    let _held =
        EnvironmentRefs::of(&state, asked.iter().map(|(step, _)| step.name.clone()).collect());
    drop(state);
    asked.iter().try_for_each(|(step, description)| probe(step, description))
}

/// Returns the environments to start, in order. Looks for plugins first if one is missing, as they
/// may provide it.
fn ordered(need: &Requirement) -> Result<(Vec<StartStep>, MutexGuard<'static, EnvironmentState>)> {
    let mut state = STATE.lock();
    let mut order = plan::order(&state.records, need);
    if order.as_ref().is_err_and(|error| error.status() == DTL_ERROR_NOT_FOUND) {
        drop(state);
        backend_events::search_plugins();
        state = STATE.lock();
        order = plan::order(&state.records, need);
    }
    Ok((order?, state))
}

fn probe(step: &StartStep, description: &Description) -> Result<()> {
    let failed = |error: Error| error.within("it cannot be used here").within(&step.title());
    description.calls.probe().map_err(failed)
}

/// Starts the environments that source is compiled with. Returns their holds and the lists for the
/// compiler, nearest dependencies first.
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

/// How an environment is; the texts live for ever.
pub struct EnvironmentInfo {
    /// DTL_ENVIRONMENT_...
    pub state: i32,
    /// How the last attempt failed.
    pub status: dtl_status_t,
    /// How many require it.
    pub uses: u64,
    /// Name, version, depends, packages, headers, libraries, reason.
    pub texts: [&'static CStr; 7],
}

/// Number of environments.
#[must_use]
pub fn count() -> usize {
    STATE.lock().records.len()
}

/// The one of this index.
#[must_use]
pub fn at(index: usize) -> Option<EnvironmentInfo> {
    STATE.lock().records.get(index).map(describe)
}

/// The one of this name.
pub fn info(name: &str) -> Result<EnvironmentInfo> {
    let state = STATE.lock();
    find(&state.records, name).map(describe).ok_or_else(|| unknown(&state.records, name))
}

fn describe(record: &EnvironmentRecord) -> EnvironmentInfo {
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
    let texts = [
        description.name.clone(),
        description.version.clone(),
        depends.join(", "),
        packages.join(", "),
        headers.join(", "),
        libraries.join(", "),
        failure.as_ref().map_or(String::new(), |error| error.text().to_owned()),
    ];
    EnvironmentInfo {
        state,
        status: failure.as_ref().map_or(DTL_SUCCESS, Error::status),
        uses: record.uses + record.holds,
        texts: texts
            .map(|text| for_ever(&CString::new(text.replace('\0', "?")).unwrap_or_default())),
    }
}

/// In a forked child: what the parent has started is not this process', and nothing of it is
/// called.
pub fn forget_all() {
    let mut state = STATE.lock();
    state.era += 1;
    state.records.clear();
    state.inside.clear();
    state.waiting.clear();
}
