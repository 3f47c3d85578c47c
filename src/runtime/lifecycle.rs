//! Init, finalize and fork: functions that change the state of the library, which determines
//! whether calls are admitted.

use super::memory::{drivers, host_alloc};
use super::open_state::{self, GATE, forked_inside, lets_pass};
pub use super::open_state::{aside, is_open_for, is_open_for_quick, is_traced};
use super::settings::{self, Settings};
use super::{Shutdown, array, dispatch, environment, exec, explain, log, plugins, registry, trace};
use crate::error::{Error, Result, fail};
use crate::sys::handles::epoch;
use crate::sys::os::dl;
use crate::sys::sync::lock::{Mutex, OpenState};
use std::sync::Arc;

/// Function that creates the built-in backends. It is passed as an argument, so that the module
/// `runtime` does not depend on the module `backend`.
pub type Builtins = fn() -> Vec<Arc<registry::Backend>>;

/// Init count. Its lock is never held while code from outside the library runs, such as a log
/// callback or work that finalize waits for.
static COUNT: Mutex<Count> = Mutex::new(Count { inits: 0, is_closing: false });

struct Count {
    inits: u32,
    /// True while a call to `dtl_finalize` destroys objects after it has closed the library. That
    /// call may be waiting for the very thread that reads the flag.
    is_closing: bool,
}

impl Count {
    fn check_settled(&self, call: &str) -> Result<()> {
        if self.is_closing {
            return fail!(
                DTL_ERROR_BUSY,
                "{call} while another thread is in dtl_finalize: call it again when that has \
                 returned \
                 (never wait for it in a callback: finalize may be waiting for the callback)"
            );
        }
        Ok(())
    }
}

/// Switches the library's state between OPEN and TRACED, after tracing was turned on or off.
pub fn retrace() {
    let _settled = COUNT.lock();
    if lets_pass() {
        // The page of the state exists already, so the call does not fail.
        let _ = set_gate(OpenState::OPEN);
    }
}

/// Admits a call; the first call initializes the library.
pub fn admit(builtins: Builtins) -> Result<()> {
    match GATE.state() {
        OpenState::OPEN | OpenState::TRACED => Ok(()),
        OpenState::FORKED => forked(),
        OpenState::UNOPENED => first_use(builtins),
        _ => closed(),
    }
}

/// Waits until a dtl_finalize call in progress has ended. Fails, unless that call found a thread
/// inside the library and therefore reopened the library.
fn closed() -> Result<()> {
    let _decided = COUNT.lock();
    if lets_pass() {
        return Ok(());
    }
    fail!(DTL_ERROR_INVALID_STATE, "the library is finalized: call dtl_init before any other call")
}

fn first_use(builtins: Builtins) -> Result<()> {
    let count = COUNT.lock();
    if GATE.state() != OpenState::UNOPENED {
        return Ok(());
    }
    let (settings, mut complaints) = read_environment()?;
    open(&settings, builtins, &mut complaints)?;
    drop(count);
    warn(&complaints);
    registry::detect_driver_use();
    Ok(())
}

fn forked() -> Result<()> {
    fail!(
        DTL_ERROR_FORKED,
        "this process is a fork of one that used the library: call dtl_init_after_fork first"
    )
}

/// Counts a call to `dtl_init`, and opens the library if it is closed. `overrides` changes the
/// settings that were read from environment variables.
pub fn init(overrides: impl FnOnce(&mut Settings) -> Result<()>, builtins: Builtins) -> Result<()> {
    if GATE.state() == OpenState::FORKED {
        return forked();
    }
    check_version()?;
    let mut complaints = Vec::new();
    let mut count = COUNT.lock();
    count.check_settled("dtl_init")?;
    if count.inits == 0 || !lets_pass() {
        let mut settings;
        (settings, complaints) = read_environment()?;
        overrides(&mut settings)?;
        if lets_pass() {
            let other_plugins = settings.plugin_path != settings::current().plugin_path;
            // The first use preceded the first init: only settings change.
            put_in_force(settings);
            registry::choose_again();
            if other_plugins {
                plugins::search_again();
            }
        } else {
            open(&settings, builtins, &mut complaints)?;
        }
    }
    count.inits += 1;
    drop(count);
    warn(&complaints);
    registry::detect_driver_use();
    Ok(())
}

/// Returns an error if code in this process that is linked with another version calls this one.
fn check_version() -> Result<()> {
    let Some(other) = dl::shadowed_version() else { return Ok(()) };
    fail!(
        DTL_ERROR_INCOMPATIBLE_ABI,
        "{} is in this process, too, and has the same functions: code that is linked with it calls \
         version {} ({}); link the program and all its libraries with one version",
        other.display(),
        env!("CARGO_PKG_VERSION"),
        dl::own_file().unwrap_or_default().display()
    )
}

/// Logs complaints about environment variables. Runs after initialization, because log callbacks
/// may call the library.
fn warn(complaints: &[String]) {
    let _aside = epoch::aside(); // the log callback counts as inside a call
    for complaint in complaints {
        log::warning!("{complaint}");
    }
}

/// Returns the settings from environment variables, and warnings about the variables.
fn read_environment() -> Result<(Settings, Vec<String>)> {
    let (mut variables, mut unusual) = (std::collections::BTreeMap::new(), Vec::new());
    for (name, value) in std::env::vars_os() {
        let Ok(name) = name.into_string() else { continue };
        match value.into_string() {
            Ok(value) => drop(variables.insert(name, value)),
            // Only a warning, like all other reasons that prevent a trace.
            Err(value) if name == "DTL_TRACE" => {
                unusual.push(format!(
                    "DTL_TRACE={value:?} is no text (UTF-8): name another file; nothing is traced"
                ));
            }
            Err(value) if name.starts_with("DTL_") => {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "{name}={value:?} is no text (UTF-8): correct or unset it"
                );
            }
            Err(_) => {}
        }
    }
    let mut complaints = settings::complaints(&variables);
    complaints.append(&mut unusual);
    complaints.extend(settings::withhold(&mut variables, dl::is_privileged()));
    let settings = settings::from_environment(&variables)?;
    log::set_level(settings.log_level.unwrap_or(crate::abi::runtime::DTL_LOG_WARN));
    Ok((settings, complaints))
}

/// Applies settings to the host allocator, then publishes them.
fn put_in_force(settings: Settings) {
    host_alloc::configure(&settings);
    settings::install(settings);
}

/// Callbacks that `registry` calls in modules that depend on it, for example when a backend is
/// registered or removed.
static BACKEND_EVENTS: registry::Events = registry::Events {
    adding: |backend| {
        if backend.plain_memory {
            host_alloc::settle(backend.handle());
        }
    },
    replaced: |old| epoch::until_done(Box::new(move || plugins::end_replaced(old))),
    available: drivers::add,
    default_shares: |inside, backend| exec::handles::default_shares(inside, backend),
    removed: |inside, backend| {
        drivers::remove(backend.handle());
        exec::handles::drop_defaults(inside, backend);
    },
    all_removed: drivers::forget_all,
    handler_of: dispatch::explain::handler_of,
    advice: plugins::advice,
};

fn open(settings: &Settings, builtins: Builtins, complaints: &mut Vec<String>) -> Result<()> {
    put_in_force(settings.clone());
    epoch::prepare();
    environment::search_plugins_by(plugins::search);
    registry::notify(&BACKEND_EVENTS);
    for backend in builtins() {
        registry::add(backend, 0)?;
    }
    dispatch::open()?;
    // A trace file that cannot be written must not make the program fail.
    if let Some(Err(error)) = settings.trace.as_deref().map(trace::start_life) {
        complaints.push(format!("DTL_TRACE: {}; nothing is traced", error.text()));
    }
    set_gate(OpenState::OPEN)
}

/// Sets the state of the library; OPEN becomes TRACED while tracing is on.
fn set_gate(state: u32) -> Result<()> {
    let state = if state == OpenState::OPEN && trace::is_on() { OpenState::TRACED } else { state };
    // Only the shortest calls read the pass. They need a fence-free epoch entry and no tracing.
    let has_pass = state == OpenState::OPEN && epoch::is_cheap();
    if GATE.set_with_pass(state, if has_pass { host_alloc::backend().id } else { 0 }) {
        return Ok(());
    }
    Err(Error::new(crate::abi::status::DTL_ERROR_OUT_OF_MEMORY, "no page for the library's state"))
}

/// Counts a call to `dtl_finalize`. The last call destroys every live object by calling the
/// functions in `shutdown`, in order.
pub fn finalize(shutdown: &[Shutdown]) -> Result<()> {
    if GATE.state() == OpenState::FORKED {
        return forked();
    }
    if open_state::is_own_thread() {
        return fail!(
            DTL_ERROR_BUSY,
            "dtl_finalize in a stream's or an executor's function, on a thread of the library that \
             it would have to wait for: let the function return and call it elsewhere"
        );
    }
    let mut count = COUNT.lock();
    count.check_settled("dtl_finalize")?;
    if !lets_pass() {
        return fail!(DTL_ERROR_INVALID_STATE, "dtl_finalize without a dtl_init before it");
    }
    if count.inits > 1 {
        count.inits -= 1;
        return Ok(());
    }
    if epoch::is_aside() {
        return fail!(
            DTL_ERROR_BUSY,
            "dtl_finalize in a callback of the library (a log, trace or destroy function, or a \
             backend's thread): let it return first"
        );
    }
    // Close before the check: a thread that was admitted before is inside and the check finds it.
    set_gate(OpenState::CLOSED)?;
    if epoch::anyone_inside() {
        set_gate(OpenState::OPEN)?;
        return fail!(
            DTL_ERROR_BUSY,
            "dtl_finalize while another thread (or a call further up this one) is inside the \
             library: let it return first"
        );
    }
    if let Some(error) = array::refusal() {
        set_gate(OpenState::OPEN)?;
        return Err(error);
    }
    *count = Count { inits: 0, is_closing: true };
    drop(count);
    let _settle = Settle;
    for (destroy_all, _) in shutdown {
        destroy_all();
    }
    registry::clear();
    environment::finalize_all();
    explain::clear();
    epoch::collect();
    log::deliver(0);
    Ok(())
}

/// Guard that marks finalization as ended when it is dropped, even if finalization failed.
struct Settle;

impl Drop for Settle {
    fn drop(&mut self) {
        COUNT.lock().is_closing = false;
    }
}

/// Initializes the library again in a forked child (`dtl_init_after_fork`). First drops the objects
/// inherited from the parent, because their threads, peers and devices do not belong to this
/// process.
pub fn init_after_fork(shutdown: &[Shutdown], builtins: Builtins) -> Result<()> {
    if GATE.state() != OpenState::FORKED {
        return fail!(
            DTL_ERROR_INVALID_STATE,
            "dtl_init_after_fork in a process that is no fork of a user of the library"
        );
    }
    // Init and finalize are in no epoch: they hold the lock of COUNT, or have set `is_closing`.
    let count = COUNT.try_lock().filter(|count| !count.is_closing && !epoch::another_was_inside());
    let Some(mut count) = count else { return forked_inside() };
    epoch::forget_other_threads();
    for (_, forget_all) in shutdown {
        forget_all();
    }
    registry::forget_all();
    environment::forget_all();
    explain::clear();
    let (settings, mut complaints) = read_environment()?;
    open(&settings, builtins, &mut complaints)?;
    *count = Count { inits: 1, is_closing: false };
    drop(count);
    warn(&complaints);
    Ok(())
}
