//! Wrapper of every entry of the C interface: state check, epoch, panics, and the stored last error
//! (`last_error`).

use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use crate::error::{Error, Result, failure};
use crate::hints;
use crate::last_error;
use crate::runtime::{lifecycle, trace};
use crate::sys::handles::epoch::{self, Guard, Visit};
use crate::sys::handles::handle_table::HazardRef;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(super) use crate::runtime::lifecycle::{is_open_for, is_open_for_quick};

/// Entry of the C interface, identified by its name, which traces show for its calls.
#[derive(Clone, Copy)]
pub(super) struct Entry(pub(super) &'static str);

/// Entry that is not traced: internal work of the library, and calls that control tracing.
pub(super) const UNTRACED: Entry = Entry("");

/// Result of a fast path: success, an error that is still to be recorded, or the status of an error
/// that is already recorded.
pub(super) trait Outcome {
    fn into_status(self) -> dtl_status_t;
}

impl Outcome for () {
    fn into_status(self) -> dtl_status_t {
        DTL_SUCCESS
    }
}

impl Outcome for Result<()> {
    fn into_status(self) -> dtl_status_t {
        finish(Ok(self))
    }
}

impl Outcome for dtl_status_t {
    fn into_status(self) -> dtl_status_t {
        self
    }
}

/// Runs the fast path of an entry if `is_open` returns true. `fast` runs inside the epoch and ends
/// the visit itself before it continues outside. `fast` returns `None`, without any effect, if the
/// fast path does not apply; then `general` runs as the entry.
///
/// `general` calls a cold function with C calling convention, which cannot unwind and receives its
/// arguments one by one: the call is a jump, and the fast path needs no stack space for it. (See
/// also `hints::out_of_line`.) Both closures are `move` closures: variables captured by reference
/// would have to be in memory.
#[inline(always)] // row: win_counter
pub(super) fn quick<R: Outcome>(
    is_open: impl FnOnce() -> bool,
    fast: impl FnOnce(Visit) -> Option<R>,
    general: impl FnOnce() -> dtl_status_t,
) -> dtl_status_t {
    let visit = epoch::step_in().filter(|_| is_open());
    match visit.map(|visit| catch_unwind(AssertUnwindSafe(|| fast(visit)))) {
        Some(Ok(Some(outcome))) => outcome.into_status(),
        Some(Err(panic)) => panicked(panic.as_ref()),
        Some(Ok(None)) | None => general(),
    }
}

/// Outcome of entering: the epoch guard and 1 if the call is traced, else 0; or no guard and the
/// status of the failure. A pair of scalars is returned in registers, so that the fast path of an
/// entry keeps nothing in memory.
type Admission = (Option<Guard>, i32);

/// Slow path of entering, for calls that are traced, come before the library is open or after it is
/// finalized, or need a fence on entry.
#[cold]
#[inline(never)]
fn admit(inside: Guard, Entry(name): Entry) -> Admission {
    if let Err(error) = lifecycle::admit(super::host::builtin) {
        return (None, failed(error));
    }
    let is_to_trace = !name.is_empty() && lifecycle::is_traced();
    // Outside the epoch, because a tool's callback may take long.
    drop(inside);
    let _aside = epoch::aside();
    if trace::has_ended() {
        lifecycle::retrace();
    }
    let is_traced = is_to_trace && trace::call_begin(name);
    let inside = epoch::enter();
    if let Err(error) = lifecycle::admit(super::host::builtin) {
        drop(inside);
        let status = failed(error);
        return (None, if is_traced { traced(status) } else { status });
    }
    (Some(inside), i32::from(is_traced))
}

#[cold]
#[inline(never)]
fn traced(status: dtl_status_t) -> dtl_status_t {
    let _aside = epoch::aside();
    trace::call_end(status);
    status
}

impl Entry {
    /// Runs the work of an entry, starting inside the epoch. After a panic, the guard is dropped
    /// outside `catch_unwind`: the cleanup of a function that unwinds would need it in memory.
    #[inline]
    fn run(self, work: impl FnOnce(&mut Option<Guard>) -> Result<()>) -> dtl_status_t {
        let inside = epoch::enter_cheaply();
        let entered = if is_open_for_quick() { (Some(inside), 0) } else { admit(inside, self) };
        let (mut inside, word) = entered;
        if inside.is_none() {
            return word;
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| work(&mut inside)));
        drop(inside);
        let status = finish(outcome);
        if word == 0 { status } else { traced(status) }
    }

    /// Runs an entry that does not wait. `body` runs inside the epoch, so it can use handles
    /// without acquiring references.
    #[inline]
    pub(super) fn call(self, body: impl FnOnce(&Guard) -> Result<()>) -> dtl_status_t {
        self.run(|inside| {
            let done = inside.as_ref().map_or(Ok(()), body);
            drop(inside.take());
            done
        })
    }

    /// Runs an entry that may wait. `pin` resolves handles in the epoch; `body` runs outside it.
    #[inline]
    pub(super) fn wait<T>(
        self,
        pin: impl FnOnce(&Guard) -> Result<T>,
        body: impl FnOnce(T) -> Result<()>,
    ) -> dtl_status_t {
        self.run(|inside| {
            let Some(inside) = inside.take() else { return Ok(()) };
            let pinned = pin(&inside)?;
            let _waiting = inside.into_blocking();
            body(pinned)
        })
    }

    /// Runs an entry that may wait, on the object of `handle`. `hold` protects the object by a
    /// hazard pointer and leaves the epoch, without acquiring a reference.
    #[inline]
    pub(super) fn hold<H, T>(
        self,
        hold: impl FnOnce(Guard, H) -> Result<HazardRef<T>>,
        handle: H,
        body: impl FnOnce(&T) -> Result<()>,
    ) -> dtl_status_t {
        self.run(|inside| inside.take().map_or(Ok(()), |inside| body(&*hold(inside, handle)?)))
    }
}

/// Locks acquired by an entry that works in every state of the library.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Locks {
    /// No locks, or the entry handles forks itself (init, finalize).
    None,
    /// Some locks. The thread is marked in its record, where a forked child finds the mark. The
    /// entry fails in a child process in which a lock may have remained locked.
    Some,
}

/// Runs an entry that works in every state of the library.
pub(super) fn always(locks: Locks, body: impl FnOnce() -> Result<()>) -> dtl_status_t {
    finish(catch_unwind(AssertUnwindSafe(|| {
        let _aside = if locks == Locks::Some { Some(lifecycle::aside()?) } else { None };
        body()
    })))
}

#[inline]
fn finish(outcome: std::thread::Result<Result<()>>) -> dtl_status_t {
    match outcome {
        Ok(Ok(())) => DTL_SUCCESS,
        Ok(Err(error)) => {
            hints::rarely();
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
    failed(failure!(DTL_ERROR_INTERNAL, "a bug in the library: {what}. Please report it."))
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

#[cfg(test)]
#[path = "tests/guard.rs"]
mod tests;
