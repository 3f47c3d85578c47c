//! Calls to slots, which are the C functions in a backend's tables. If an exception escapes from a
//! slot, the library logs the backend and the slot before the process terminates.
//!
//! Rust code cannot catch a foreign exception: the first `catch_unwind` that the exception reaches
//! terminates the process. Before that, unwinding runs the cleanup of the frames in between, and
//! this cleanup writes the log. A call that returns has no overhead.

use super::BackendObject;
use crate::runtime::log;

/// Function pointer of a slot (C function of a table), convertible to a pointer of type `extern
/// "C-unwind"`, whose function may unwind. Without the conversion, the compiler omits the cleanup
/// around the call.
pub(super) trait Slot {
    /// Type of a pointer to a function that may unwind.
    type Unwinding;
    /// Converts the function pointer to the type `Unwinding`.
    fn unwinding(self) -> Self::Unwinding;
}

macro_rules! slots {
    ($($($argument:ident)+;)+) => {$(
        impl<R, $($argument),+> Slot for unsafe extern "C" fn($($argument),+) -> R {
            type Unwinding = unsafe extern "C-unwind" fn($($argument),+) -> R;
            fn unwinding(self) -> Self::Unwinding {
                // SAFETY: both calling conventions pass arguments and results alike; they differ
                // only in the effect of unwinding.
                unsafe { std::mem::transmute::<Self, Self::Unwinding>(self) }
            }
        }
    )+};
}
slots! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
    A B C D E F G H I;
    A B C D E F G H I J;
    A B C D E F G H I J K;
    A B C D E F G H I J K L;
}

/// Guard of a call to a slot (C function of a table). When the slot has returned, the caller must
/// call `mem::forget` on the guard, so that only unwinding drops the guard.
pub(super) struct SlotGuard<'a> {
    pub(super) owner: &'a BackendObject,
    pub(super) slot: &'static str,
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        exception_left(self.owner, self.slot);
    }
}

/// Logs an exception that propagated out of a slot (C function of a table). The function is out of
/// line and receives references instead of the guard: otherwise each call to a slot would keep a
/// [`SlotGuard`] on the stack.
#[cold]
#[inline(never)]
fn exception_left(owner: &BackendObject, slot: &str) {
    let name = &owner.name;
    log::error!(
        "backend {name}: an exception left {slot}, which must return a status; the process ends"
    );
    log::deliver(u32::MAX);
}
