//! Init, finalize and fork: the state that admits or rejects calls.

use super::hot_globals::HOT;
use super::memory::host_alloc;
use super::settings::{self, Settings};
use super::{Shutdown, array, dispatch, environment, explain, log, plugins, registry, trace};
use crate::abi::handle::dtl_backend_t;
use crate::error::{Error, Result, fail};
use crate::sys::{handles::epoch, memory::host_pages, os::dl, sync::lock::Mutex};
use std::cell::Cell;
use std::sync::Arc;

/// Creates the built-in backends; passed in so that this layer does not name the upper layer.
pub type Builtins = fn() -> Vec<Arc<registry::Backend>>;

static GATE: &host_pages::OpenState = &HOT.gate;
/// Init count. No foreign code runs under its lock: no log callback, no work that finalize awaits.
static COUNT: Mutex<Count> = Mutex::new(Count { inits: 0, is_closing: false });

thread_local! {
    /// True in threads that the library has started and that run functions of the program.
    static IS_OWN_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as a thread of the library until the thread ends. It runs the functions
/// of streams and executors, and finalize waits for it.
pub fn enter_own_thread() {
    IS_OWN_THREAD.set(true);
}

struct Count {
    inits: u32,
    /// True while a finalize that has closed the library destroys objects. That finalize may be
    /// waiting for the very thread that reads this flag.
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

/// Returns true if calls are admitted and not traced. Fast path of [`admit`].
pub fn is_open() -> bool {
    GATE.state() == host_pages::OPEN
}

/// Returns true if calls are admitted.
fn lets_pass() -> bool {
    matches!(GATE.state(), host_pages::OPEN | host_pages::TRACED)
}

/// Returns true if calls are admitted and traced.
pub fn is_traced() -> bool {
    GATE.state() == host_pages::TRACED
}

/// Switches the library's state between OPEN and TRACED, after tracing was turned on or off.
pub fn retrace() {
    let _settled = COUNT.lock();
    if lets_pass() {
        // The page of the state exists already, so the call does not fail.
        let _ = set_gate(host_pages::OPEN);
    }
}

/// Returns true if the library is open and its allocator serves the plain memory of this backend:
/// the only check in the shortest calls.
pub fn is_open_for(backend: dtl_backend_t) -> bool {
    backend.id != 0 && GATE.pass() == backend.id
}

/// Returns true if the library is open for calls of a few nanoseconds.
pub fn is_open_for_quick() -> bool {
    GATE.pass() != 0
}

/// Returns true if this process is a fork that has not yet reinitialised the library.
pub fn is_fork() -> bool {
    GATE.state() == host_pages::FORKED
}

/// Admits a call; the first call initialises the library.
pub fn admit(builtins: Builtins) -> Result<()> {
    match GATE.state() {
        host_pages::OPEN | host_pages::TRACED => Ok(()),
        host_pages::FORKED => forked(),
        host_pages::UNOPENED => first_use(builtins),
        _ => closed(),
    }
}

/// Waits for a finalize in progress. Fails unless that finalize has found a thread inside the
/// library and has therefore reopened the library.
fn closed() -> Result<()> {
    let _decided = COUNT.lock();
    if lets_pass() {
        return Ok(());
    }
    fail!(DTL_ERROR_INVALID_STATE, "the library is finalized: call dtl_init before any other call")
}

fn first_use(builtins: Builtins) -> Result<()> {
    let count = COUNT.lock();
    if GATE.state() != host_pages::UNOPENED {
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

fn forked_inside() -> Result<()> {
    fail!(
        DTL_ERROR_INVALID_STATE,
        "at the fork another thread was inside a dtl_ call (or a stream or executor was at work): \
         what it had locked and \
         half done stays so in this process, which cannot use the library; fork while nobody uses \
         it"
    )
}

/// Counts an init (`dtl_init`), and opens the library if it is closed. `overrides` edits the
/// settings from environment variables.
pub fn init(overrides: impl FnOnce(&mut Settings) -> Result<()>, builtins: Builtins) -> Result<()> {
    if GATE.state() == host_pages::FORKED {
        return forked();
    }
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

/// Logs complaints about variables. Runs after initialisation: log callbacks may call the library.
fn warn(complaints: &[String]) {
    let _aside = epoch::aside(); // the log callback counts as inside a call
    for complaint in complaints {
        log::warning!("{complaint}");
    }
}

/// Returns the settings from environment variables, and complaints about the variables.
fn read_environment() -> Result<(Settings, Vec<String>)> {
    let (mut variables, mut odd) = (std::collections::BTreeMap::new(), Vec::new());
    for (name, value) in std::env::vars_os() {
        let Ok(name) = name.into_string() else { continue };
        match value.into_string() {
            Ok(value) => drop(variables.insert(name, value)),
            // Only a warning, like all other reasons that prevent a trace.
            Err(value) if name == "DTL_TRACE" => {
                odd.push(format!(
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
    complaints.append(&mut odd);
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

fn open(settings: &Settings, builtins: Builtins, complaints: &mut Vec<String>) -> Result<()> {
    put_in_force(settings.clone());
    epoch::prepare();
    for backend in builtins() {
        registry::add(backend, 0)?;
    }
    dispatch::open()?;
    // A trace file that cannot be written must not make the program fail.
    if let Some(Err(error)) = settings.trace.as_deref().map(trace::start_life) {
        complaints.push(format!("DTL_TRACE: {}; nothing is traced", error.text()));
    }
    set_gate(host_pages::OPEN)
}

/// Sets the state of the library; OPEN becomes TRACED while tracing is on.
fn set_gate(state: u32) -> Result<()> {
    let state =
        if state == host_pages::OPEN && trace::is_on() { host_pages::TRACED } else { state };
    // Only the shortest calls read the pass. They need a fence-free epoch entry and no tracing.
    let has_pass = state == host_pages::OPEN && epoch::is_cheap();
    if GATE.set_with_pass(state, if has_pass { host_alloc::home().id } else { 0 }) {
        return Ok(());
    }
    Err(Error::new(crate::abi::status::DTL_ERROR_OUT_OF_MEMORY, "no page for the library's state"))
}

/// Counts a finalize (`dtl_finalize`). The last finalize destroys every live object by the
/// functions of `shutdown`, in order.
pub fn finalize(shutdown: &[Shutdown]) -> Result<()> {
    if GATE.state() == host_pages::FORKED {
        return forked();
    }
    if IS_OWN_THREAD.get() {
        return fail!(
            DTL_ERROR_BUSY,
            "dtl_finalize in a stream's or an executor's function, on a thread of the library that \
             it would have to wait \
             for: let the function return and call it elsewhere"
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
             backend's thread): let it \
             return first"
        );
    }
    // Close before the check: a thread that was admitted before is inside and the check finds it.
    set_gate(host_pages::CLOSED)?;
    if epoch::anyone_inside() {
        set_gate(host_pages::OPEN)?;
        return fail!(
            DTL_ERROR_BUSY,
            "dtl_finalize while another thread (or a call further up this one) is inside the \
             library: let it return first"
        );
    }
    if let Some(error) = array::refusal() {
        set_gate(host_pages::OPEN)?;
        return Err(error);
    }
    *count = Count { inits: 0, is_closing: true };
    drop(count);
    let _settle = Settle;
    for step in shutdown {
        (step.destroy_all)();
    }
    registry::clear();
    environment::finalize_all();
    explain::clear();
    epoch::collect();
    Ok(())
}

/// Guard that marks the end of a finalize, also on failure.
struct Settle;

impl Drop for Settle {
    fn drop(&mut self) {
        COUNT.lock().is_closing = false;
    }
}

/// Guards code that runs in every state and takes a lock: while the returned guard exists, a forked
/// child detects this thread. Fails in a forked child in which a lock may still be locked.
pub fn aside() -> Result<epoch::ForkGuard> {
    if is_fork() && epoch::another_was_inside() {
        forked_inside()?;
    }
    Ok(epoch::aside())
}

/// Drops the parent's objects, whose threads, peers and devices do not belong to this process, and
/// initialises the library again (`dtl_init_after_fork`).
pub fn init_after_fork(shutdown: &[Shutdown], builtins: Builtins) -> Result<()> {
    if GATE.state() != host_pages::FORKED {
        return fail!(
            DTL_ERROR_INVALID_STATE,
            "dtl_init_after_fork in a process that is no fork of a user of the library"
        );
    }
    // Init and finalize are in no epoch: they hold the lock of COUNT, or have set `is_closing`.
    let count = COUNT.try_lock().filter(|count| !count.is_closing && !epoch::another_was_inside());
    let Some(mut count) = count else { return forked_inside() };
    epoch::forget_other_threads();
    for step in shutdown {
        (step.forget_all)();
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
