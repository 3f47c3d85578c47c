//! The wrapper of every entry: gate, epoch, panics, and what a failure leaves behind
//! (`last_error`).

use crate::abi::handle::dtl_backend_t;
use crate::abi::status::{DTL_ERROR_INTERNAL, DTL_SUCCESS, dtl_status_t};
use crate::error::{Error, Result};
use crate::last_error;
use crate::runtime::{lifecycle, plain, trace};
use crate::sys::cache;
use crate::sys::epoch::{self, Guard, Visit};
use crate::sys::held::Held;
use std::any::type_name;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The usual case of an entry of some nanoseconds, on a backend's plain memory: `body` must not be
/// able to panic. `None`: it is not that case, or `body` says so; take another wrapper.
#[inline(always)]
pub(super) fn quick<T>(backend: dtl_backend_t, body: impl FnOnce() -> Option<T>) -> Option<T> {
    epoch::visit(|_| if lifecycle::is_open_for(backend) { body() } else { None })
}

/// A short stay inside, for an entry that makes several. What is done there must not be able to
/// panic.
#[inline(always)]
pub(super) fn step_in() -> Option<Visit> {
    cache::usual(epoch::step_in()).filter(|_| cache::usually(lifecycle::is_open_for_quick()))
}

/// The same for entries that use objects. `None`: it is not that case, or `body` says so.
#[inline(always)]
pub(super) fn visit<T>(body: impl FnOnce(&Guard) -> Option<T>) -> Option<T> {
    epoch::visit(|inside| if lifecycle::is_open_for_quick() { body(inside) } else { None })
}

/// The same: `whole` is the entry for all other cases.
#[inline(always)]
pub(super) fn quick_or(
    body: impl FnOnce(&Guard) -> Option<()>,
    whole: impl FnOnce() -> dtl_status_t,
) -> dtl_status_t {
    match visit(body) {
        Some(()) => DTL_SUCCESS,
        None => out_of_line(whole),
    }
}

/// The usual case of an entry that may wait: `keep` finds it out inside and leaves with what it
/// needs, `body` does it. Nothing was done where `keep` says no: `whole` is the entry for all other
/// cases.
#[inline(always)]
pub(super) fn usual<T>(
    keep: impl FnOnce(Visit) -> Option<T>,
    body: impl FnOnce(T) -> Result<()>,
    whole: impl FnOnce() -> dtl_status_t,
) -> dtl_status_t {
    match step_in().and_then(keep) {
        Some(kept) => finish(catch_unwind(AssertUnwindSafe(|| body(kept)))),
        None => out_of_line(whole),
    }
}

/// The usual case of an entry that may find inside that it has nothing to wait for. `body` says
/// `None` where it is not that case: then `whole` is the entry.
#[inline(always)]
pub(super) fn attempt(
    body: impl FnOnce(&Guard) -> Option<Result<()>>,
    whole: impl FnOnce() -> dtl_status_t,
) -> dtl_status_t {
    let tried = step_in().map(|stay| catch_unwind(AssertUnwindSafe(move || body(&stay))));
    match tried {
        Some(Ok(Some(outcome))) => finish(Ok(outcome)),
        Some(Err(panic)) => finish(Err(panic)),
        Some(Ok(None)) | None => out_of_line(whole),
    }
}

/// So that the usual case needs no room on the stack.
#[inline(always)]
fn out_of_line(whole: impl FnOnce() -> dtl_status_t) -> dtl_status_t {
    #[cold]
    #[inline(never)]
    fn call(whole: impl FnOnce() -> dtl_status_t) -> dtl_status_t {
        whole()
    }
    cache::rarely();
    call(whole)
}

/// The end of a quick entry that has done its work. If something is `due`, it is done here: out of
/// line, so that the usual case calls nothing.
#[inline(always)]
pub(super) fn quick_end(due: bool) -> dtl_status_t {
    if due { afterwards() } else { DTL_SUCCESS }
}

#[cold]
#[inline(never)]
extern "C" fn afterwards() -> dtl_status_t {
    call(|_| {
        plain::look_after();
        Ok(())
    })
}

/// Inside, once the library lets calls pass, and whether the call is traced; else the status of the
/// refusal.
type Entered = std::result::Result<(Guard, bool), dtl_status_t>;

#[inline(always)]
fn enter(entry: impl FnOnce() -> &'static str) -> Entered {
    let inside = epoch::enter_cheaply();
    if lifecycle::is_open_for_quick() { Ok((inside, false)) } else { admit(inside, entry()) }
}

/// The door of calls that are traced, come first or too late, or need a fence when they enter.
#[cold]
#[inline(never)]
fn admit(inside: Guard, entry: &'static str) -> Entered {
    lifecycle::admit(super::host::builtin).map_err(failed)?;
    let name = if lifecycle::is_traced() { name_of(entry) } else { None };
    // Outside the epoch, as a tool's callback may take long.
    drop(inside);
    let _aside = epoch::aside();
    if trace::has_ended() {
        lifecycle::retrace();
    }
    let is_traced = name.is_some_and(trace::call_begin);
    let inside = epoch::enter();
    if let Err(error) = lifecycle::admit(super::host::builtin) {
        drop(inside);
        let status = failed(error);
        return Err(if is_traced { traced(status) } else { status });
    }
    Ok((inside, is_traced))
}

/// The function of the C interface that a closure is written in, from the closure's path. `None`:
/// it is the library's own, or about the trace itself.
fn name_of(entry: &'static str) -> Option<&'static str> {
    let is_word =
        |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let name = entry.split("::").find(|part| part.starts_with("dtl_") && is_word(part))?;
    (!name.starts_with("dtl_trace_")).then_some(name)
}

#[cold]
#[inline(never)]
fn traced(status: dtl_status_t) -> dtl_status_t {
    let _aside = epoch::aside();
    trace::call_end(status);
    status
}

/// Runs an entry's work inside. `Entry` has a closure that is written in the entry: a trace has its
/// name from that.
#[inline(always)]
fn run<Entry>(work: impl FnOnce(Guard) -> Result<()>) -> dtl_status_t {
    run_as(type_name::<Entry>, work)
}

/// The same of an entry that is told.
#[inline(always)]
fn run_as(
    entry: impl FnOnce() -> &'static str,
    work: impl FnOnce(Guard) -> Result<()>,
) -> dtl_status_t {
    match enter(entry) {
        Ok((inside, is_traced)) => {
            let status = finish(catch_unwind(AssertUnwindSafe(|| work(inside))));
            if is_traced { traced(status) } else { status }
        }
        Err(status) => status,
    }
}

/// An entry that does not wait: runs inside the epoch, so handles may be used without sharing.
#[inline]
pub(super) fn call<B: FnOnce(&Guard) -> Result<()>>(body: B) -> dtl_status_t {
    run::<B>(|inside| body(&inside))
}

/// The same for what several entries have in common: `entry` says which it is.
#[inline(always)]
pub(super) fn call_as(
    entry: impl FnOnce() -> &'static str,
    body: impl FnOnce(&Guard) -> Result<()>,
) -> dtl_status_t {
    run_as(entry, |inside| body(&inside))
}

/// An entry that may wait: `pin` looks handles up inside the epoch, `body` runs outside of it.
#[inline]
pub(super) fn wait<T, P: FnOnce(&Guard) -> Result<T>, B: FnOnce(T) -> Result<()>>(
    pin: P,
    body: B,
) -> dtl_status_t {
    run::<(P, B)>(|inside| {
        let pinned = pin(&inside)?;
        let _waiting = inside.into_blocking();
        body(pinned)
    })
}

/// An entry that waits only if an attempt inside the epoch is not successful. Both write to `told`.
#[inline]
pub(super) fn try_or_wait<T>(
    entry: impl FnOnce() -> &'static str,
    mut told: T,
    attempt: impl FnOnce(&Guard, &mut T) -> Result<bool>,
    wait: impl FnOnce(&mut T) -> Result<()>,
    finish_with: impl FnOnce(T) -> Result<()>,
) -> dtl_status_t {
    run_as(entry, |inside| {
        if !attempt(&inside, &mut told)? {
            let _waiting = inside.into_blocking();
            wait(&mut told)?;
        }
        finish_with(told)
    })
}

/// An entry that may wait, on one object: `hold` takes it out of the epoch without sharing it.
#[inline]
pub(super) fn hold<T, H: FnOnce(Guard) -> Result<Held<T>>, B: FnOnce(&T) -> Result<()>>(
    hold: H,
    body: B,
) -> dtl_status_t {
    run::<(H, B)>(|inside| body(&*hold(inside)?))
}

/// The same for what several entries have in common: `entry` says which it is.
#[inline(always)]
pub(super) fn hold_as<T>(
    entry: impl FnOnce() -> &'static str,
    hold: impl FnOnce(Guard) -> Result<Held<T>>,
    body: impl FnOnce(&T) -> Result<()>,
) -> dtl_status_t {
    run_as(entry, |inside| body(&*hold(inside)?))
}

/// An entry that works in every state of the library and may take locks (enumerations, log). It is
/// counted in its thread's record, where a forked child finds it. It fails in a child in which a
/// lock may have stayed taken.
pub(super) fn always(body: impl FnOnce() -> Result<()>) -> dtl_status_t {
    bare(|| {
        let _aside = lifecycle::aside()?;
        body()
    })
}

/// An entry that works in every state and takes no lock, or handles forks itself (init, finalize).
pub(super) fn bare(body: impl FnOnce() -> Result<()>) -> dtl_status_t {
    finish(catch_unwind(AssertUnwindSafe(body)))
}

#[inline]
fn finish(outcome: std::thread::Result<Result<()>>) -> dtl_status_t {
    match outcome {
        Ok(Ok(())) => DTL_SUCCESS,
        Ok(Err(error)) => {
            cache::rarely();
            failed(error)
        }
        Err(panic) => panicked(panic.as_ref()),
    }
}

#[cold]
fn panicked(panic: &(dyn std::any::Any + Send)) -> dtl_status_t {
    let what = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown");
    failed(Error::new(
        DTL_ERROR_INTERNAL,
        format!("a bug in the library: {what}. Please report it."),
    ))
}

#[cold]
#[inline(never)]
#[allow(
    clippy::needless_pass_by_value,
    reason = "dropping the error here keeps it out of every entry"
)]
fn failed(error: Error) -> dtl_status_t {
    last_error::set(&error);
    error.status()
}
