//! Init, finalize, fork: whether calls may pass.

use super::settings::{self, Settings};
use super::{Shutdown, explain, log, registry};
use crate::error::{Error, Result, fail};
use crate::sys::lock::Mutex;
use crate::sys::{epoch, gate};
use std::sync::Arc;

/// Makes the built-in backends. Handed in from above, so that this layer names none of them.
pub type Builtins = fn() -> Vec<Arc<registry::Backend>>;

static GATE: gate::Gate = gate::Gate::new();
static COUNT: Mutex<Count> = Mutex::new(Count { inits: 0 });

struct Count {
    inits: u32,
}

/// Whether calls may pass; the fast part of [`admit`].
#[inline]
#[must_use]
pub fn is_open() -> bool {
    GATE.state() == gate::OPEN
}

/// Lets a call pass, initialising at the first one.
#[cold]
pub fn admit(builtins: Builtins) -> Result<()> {
    match GATE.state() {
        gate::OPEN => Ok(()),
        gate::FORKED => forked(),
        gate::UNOPENED => {
            let _count = COUNT.lock();
            if GATE.state() == gate::UNOPENED { open(&read_environment()?, builtins) } else { Ok(()) }
        }
        _ => fail!(DTL_ERROR_INVALID_STATE, "the library is finalized: call dtl_init before any other call"),
    }
}

#[cold]
fn forked() -> Result<()> {
    fail!(
        DTL_ERROR_FORKED,
        "this process is a fork of one that used the library: call dtl_init_after_fork first"
    )
}

/// `dtl_init`: counts, and opens if nothing is open. `overrides` edits what the environment says.
pub fn init(overrides: impl FnOnce(&mut Settings) -> Result<()>, builtins: Builtins) -> Result<()> {
    if GATE.state() == gate::FORKED {
        return forked();
    }
    let mut count = COUNT.lock();
    if count.inits == 0 || GATE.state() != gate::OPEN {
        let mut settings = read_environment()?;
        overrides(&mut settings)?;
        if GATE.state() == gate::OPEN {
            settings::install(settings); // first use came before the first init: only settings change
            registry::choose_again();
        } else {
            open(&settings, builtins)?;
        }
    }
    count.inits += 1;
    Ok(())
}

fn read_environment() -> Result<Settings> {
    let mut variables = std::collections::BTreeMap::new();
    for (name, value) in std::env::vars_os() {
        let Ok(name) = name.into_string() else { continue };
        match value.into_string() {
            Ok(value) => drop(variables.insert(name, value)),
            Err(value) if name.starts_with("DTL_") => {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "{name}={value:?} is no text (UTF-8): correct or unset it"
                );
            }
            Err(_) => {}
        }
    }
    let settings = settings::from_environment(&variables)?;
    log::set_level(settings.log_level.unwrap_or(crate::abi::runtime::DTL_LOG_WARN));
    for complaint in settings::complaints(&variables) {
        log::warning!("{complaint}");
    }
    Ok(settings)
}

fn open(settings: &Settings, builtins: Builtins) -> Result<()> {
    settings::install(settings.clone());
    epoch::prepare();
    for backend in builtins() {
        registry::add(backend, 0)?;
    }
    set_gate(gate::OPEN)
}

fn set_gate(state: u32) -> Result<()> {
    if GATE.set(state) {
        return Ok(());
    }
    Err(Error::new(crate::abi::status::DTL_ERROR_OUT_OF_MEMORY, "no page for the library's state"))
}

/// `dtl_finalize`: the last one destroys every live object. `shutdown` lists, in order, what the
/// nouns have to do.
pub fn finalize(shutdown: &[Shutdown]) -> Result<()> {
    if GATE.state() == gate::FORKED {
        return forked();
    }
    let mut count = COUNT.lock();
    if GATE.state() != gate::OPEN {
        return fail!(DTL_ERROR_INVALID_STATE, "dtl_finalize without a dtl_init before it");
    }
    if count.inits > 1 {
        count.inits -= 1;
        return Ok(());
    }
    // Close first, look second: whoever passed the gate before is seen inside by the look.
    set_gate(gate::CLOSED)?;
    if epoch::others_inside() {
        set_gate(gate::OPEN)?;
        return fail!(
            DTL_ERROR_BUSY,
            "dtl_finalize while another thread (or a call further up this one) is inside the library: let it return first"
        );
    }
    count.inits = 0;
    for step in shutdown {
        (step.destroy_all)();
    }
    registry::clear();
    explain::clear();
    epoch::collect();
    Ok(())
}

/// `dtl_init_after_fork`: forgets the parent's objects (their threads, peers and devices are not
/// this process') and opens afresh.
pub fn init_after_fork(shutdown: &[Shutdown], builtins: Builtins) -> Result<()> {
    if GATE.state() != gate::FORKED {
        return fail!(
            DTL_ERROR_INVALID_STATE,
            "dtl_init_after_fork in a process that is no fork of a user of the library"
        );
    }
    epoch::forget_other_threads();
    let mut count = COUNT.lock();
    for step in shutdown {
        (step.forget_all)();
    }
    registry::forget_all();
    explain::clear();
    open(&read_environment()?, builtins)?;
    count.inits = 1;
    Ok(())
}
