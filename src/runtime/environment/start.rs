//! Start and end of environments.
//!
//! An environment stays started while it is used (acquired with dtl_environment_require) or
//! referenced: by a dependent environment, a module, a backend, or a call in progress. The thread
//! that drops the last use or reference ends the unused environments, in reverse order of their
//! start. A thread that requires an environment that is being started or ended waits. If that wait
//! would deadlock, because the starting or ending thread waits for the requiring thread, the call
//! fails.

use super::plan::StartStep;
use super::version::Requirement;
use super::{
    CHANGED, Description, EnvironmentRecord, EnvironmentState, Phase, STATE, ordered, probe,
    unknown,
};
use crate::error::{Error, Result, fail};
use crate::runtime::{log, open_state};
use crate::sys::memory::buf::AlignedBlock;
use crate::sys::sync::lock::MutexGuard;
use std::sync::Arc;

/// References that keep environments started until this object is dropped.
#[derive(Default)]
pub struct EnvironmentRefs {
    names: Vec<String>,
    era: u64,
}

impl EnvironmentRefs {
    /// Creates an object that owns references to the environments `names`. The caller must already
    /// have counted these references.
    pub(super) fn of(state: &EnvironmentState, names: Vec<String>) -> Self {
        EnvironmentRefs { names, era: state.era }
    }

    /// Starts an environment and its dependencies, and adds a reference to it.
    pub fn add(&mut self, need: &Requirement) -> Result<()> {
        let (order, state) = ordered(need)?;
        self.era = state.era;
        // Refers to each started environment until the next one refers to it.
        let mut way = EnvironmentRefs::of(&state, Vec::new());
        drop(state);
        for step in order {
            start(&step)?;
            way.names.push(step.name);
        }
        self.names.extend(way.names.pop());
        Ok(())
    }

    /// Keeps the referenced environments started until finalization: does not drop the references.
    pub fn keep(mut self) {
        self.names.clear();
    }
}

impl Drop for EnvironmentRefs {
    fn drop(&mut self) {
        // Finalize ends all environments in order. A forked child ends none.
        if self.names.is_empty() || !open_state::is_open() {
            return;
        }
        let mut state = STATE.lock();
        if state.era == self.era {
            let_go(&mut state, &self.names);
        }
        drop(state);
        if let Err(error) = stop_unused() {
            log::warning!("{}", error.text()); // a drop cannot return an error
        }
    }
}

/// Acquires an environment for the caller, and starts the environment if necessary
/// (`dtl_environment_require`).
pub fn require(need: &Requirement) -> Result<()> {
    let mut held = EnvironmentRefs::default();
    held.add(need)?;
    let mut state = STATE.lock();
    match state.owner().and_then(|owner| state.find(&owner)) {
        // An environment that an environment's function requires belongs to that environment.
        Some(owner) => owner.owned.append(&mut held.names),
        None => state.find(&need.name).into_iter().for_each(|record| record.uses += 1),
    }
    drop(state);
    Ok(())
}

/// Reverts one call to `dtl_environment_require` for an environment, and ends unused environments
/// (`dtl_environment_release`).
pub fn release(name: &str) -> Result<()> {
    let mut state = STATE.lock();
    let owner = state.owner().and_then(|owner| state.find(&owner));
    let owned = owner.and_then(|owner| {
        let at = owner.owned.iter().rposition(|owned| owned == name)?;
        Some(owner.owned.remove(at))
    });
    if owned.is_some() {
        let_go(&mut state, &[name.to_owned()]);
    } else {
        let Some(record) = state.find(name) else { return Err(unknown(&state.records, name)) };
        if record.uses == 0 {
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "environment {name} is not required by dtl_environment_require (held by {} \
                 others): release it once for each time that it was required",
                record.holds
            );
        }
        record.uses -= 1;
    }
    drop(state);
    stop_unused()
}

/// Drops one reference to each of the named environments, from the last name to the first.
fn let_go(state: &mut EnvironmentState, names: &[String]) {
    for name in names.iter().rev() {
        if let Some(record) = state.find(name) {
            record.holds = record.holds.saturating_sub(1);
        }
    }
}

/// Returns the names of the environments that an environment references, and clears its `owned`
/// list. Called when the environment has ended or its start has failed.
fn held_by(record: &mut EnvironmentRecord) -> Vec<String> {
    let mut names: Vec<String> =
        record.description.depends.iter().map(|need| need.name.clone()).collect();
    names.append(&mut record.owned);
    names
}

/// Starts one environment and adds a reference to it. The caller must hold references to the
/// environment's dependencies.
fn start(step: &StartStep) -> Result<()> {
    let name = step.name.as_str();
    let me = std::thread::current().id();
    let Some((mut state, description)) = claim(name)? else { return Ok(()) };
    for need in &description.depends {
        state.find(&need.name).into_iter().for_each(|record| record.holds += 1);
    }
    state.inside.push((me, name.to_owned()));
    drop(state);
    let begun = begin(step, &description);
    let mut state = STATE.lock();
    leave(&mut state);
    state.last += 1;
    let number = state.last;
    let mut unused = Vec::new();
    let outcome = match (begun, state.find(name)) {
        (Ok(block), Some(record)) => {
            (record.phase, record.number) = (Phase::Started(block), number);
            record.holds += 1;
            Ok(())
        }
        (Err(error), Some(record)) => {
            (record.phase, record.failure) = (Phase::Idle, Some(error.clone()));
            unused = held_by(record);
            Err(error)
        }
        (_, None) => Err(unknown(&state.records, name)),
    };
    let_go(&mut state, &unused);
    drop(state);
    CHANGED.notify_all();
    if outcome.is_err() {
        let _logged = stop_unused(); // ends what a failed init had required
    }
    outcome
}

type Claimed = (MutexGuard<'static, EnvironmentState>, Arc<Description>);

/// Marks an environment as being started by the calling thread. If the environment is already
/// started, adds a reference to it and returns `None`. Waits while another thread starts or ends
/// the environment.
fn claim(name: &str) -> Result<Option<Claimed>> {
    let me = std::thread::current().id();
    let mut state = STATE.lock();
    let mut awaited = None;
    loop {
        let Some(record) = state.find(name) else { return Err(unknown(&state.records, name)) };
        match (&record.phase, &record.failure) {
            (Phase::Started(_), _) => {
                record.holds += 1;
                return Ok(None);
            }
            // The result of an attempt applies to all threads that waited for it.
            (Phase::Idle, Some(error)) if awaited == Some(record.attempt) => {
                return Err(error.clone());
            }
            (Phase::Idle, _) => {
                (record.phase, record.failure) = (Phase::Starting(me), None);
                record.attempt += 1;
                let description = Arc::clone(&record.description);
                return Ok(Some((state, description)));
            }
            (Phase::Starting(_) | Phase::Stopping(_), _) => awaited = Some(record.attempt),
        }
        refuse_circle(&state, name)?;
        state.waiting.push((me, name.to_owned()));
        state = CHANGED.wait(state);
        state.waiting.retain(|(thread, _)| *thread != me);
    }
}

/// Fails if waiting would deadlock: if the thread that starts or ends this environment is the
/// calling thread, or waits for the calling thread directly or through other threads.
fn refuse_circle(state: &EnvironmentState, name: &str) -> Result<()> {
    let me = std::thread::current().id();
    let mut way = Vec::new();
    let mut at = name;
    loop {
        // Other threads may form a cycle of their own, until one of them detects it here.
        if way.contains(&at) {
            return Ok(());
        }
        way.push(at);
        let worker = super::find(&state.records, at).and_then(|record| match record.phase {
            Phase::Starting(thread) | Phase::Stopping(thread) => Some(thread),
            _ => None,
        });
        if worker == Some(me) {
            break;
        }
        match state.waiting.iter().find(|(thread, _)| Some(*thread) == worker) {
            Some((_, next)) => at = next,
            None => return Ok(()),
        }
    }
    let from = state.owner().unwrap_or_default();
    fail!(
        DTL_ERROR_INVALID_STATE,
        "environment {name} is required inside its own start or end: the function of {from} \
         requires {}, which waits for it; name what is needed in depends",
        way.join(", which requires ")
    )
}

/// Calls the environment's probe function, allocates its state block and calls its init function.
fn begin(step: &StartStep, description: &Description) -> Result<AlignedBlock> {
    probe(step, description)?;
    let Some(block) = AlignedBlock::zeroed(description.state_size, description.state_align) else {
        return fail!(
            DTL_ERROR_OUT_OF_MEMORY,
            "{}: no memory for its state of {} bytes",
            step.title(),
            description.state_size
        );
    };
    description.calls.init(block.addr()).map_err(|error| error.within(&step.title()))?;
    Ok(block)
}

/// Records that the innermost environment callback on the calling thread has returned.
fn leave(state: &mut EnvironmentState) {
    let me = std::thread::current().id();
    if let Some(at) = state.inside.iter().rposition(|(thread, _)| *thread == me) {
        state.inside.remove(at);
    }
}

/// Ends the environments that have neither uses nor references, in reverse order of their start.
/// Returns the first failure of a finalize function; logs each failure.
fn stop_unused() -> Result<()> {
    stop_while(|record| record.uses == 0 && record.holds == 0)
}

/// Ends all environments at finalize, after the destruction of all objects that could require an
/// environment.
pub fn finalize_all() {
    let _logged = stop_while(|_| true);
    super::forget_all();
}

fn stop_while(wanted: impl Fn(&EnvironmentRecord) -> bool) -> Result<()> {
    let mut outcome = Ok(());
    while let Some(ended) = stop_last(&wanted) {
        if let Err(error) = &ended {
            log::warning!("{}", error.text());
        }
        outcome = outcome.and(ended);
    }
    outcome
}

/// Ends one environment: of the started environments for which `wanted` returns true, the one that
/// was started last. Returns `None` if there is no such environment.
fn stop_last(wanted: &impl Fn(&EnvironmentRecord) -> bool) -> Option<Result<()>> {
    let me = std::thread::current().id();
    let mut state = STATE.lock();
    let started = |record: &&mut EnvironmentRecord| {
        matches!(record.phase, Phase::Started(_)) && wanted(record)
    };
    let record = state.records.iter_mut().filter(started).max_by_key(|record| record.number)?;
    let Phase::Started(block) = std::mem::replace(&mut record.phase, Phase::Stopping(me)) else {
        return None;
    };
    let description = Arc::clone(&record.description);
    state.inside.push((me, description.name.clone()));
    drop(state);
    let failed = |error: Error| error.within(&format!("environment {}", description.name));
    let outcome = description.calls.finalize(block.addr()).map_err(failed);
    drop(block);
    let mut state = STATE.lock();
    leave(&mut state);
    let held = state.find(&description.name).map(|record| {
        record.phase = Phase::Idle;
        held_by(record)
    });
    let_go(&mut state, &held.unwrap_or_default());
    drop(state);
    CHANGED.notify_all();
    Some(outcome)
}
