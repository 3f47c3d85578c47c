//! Calls of slots: if an exception leaves a slot, backend and slot are logged before the process
//! ends.
//!
//! Nothing here can catch a foreign exception: the first `catch_unwind` that it reaches ends the
//! process. Before that, the frames that it passes are cleaned up, and this cleanup writes the log.
//! A call that returns pays nothing for it.

use super::BackendObject;
use crate::abi::status::dtl_status_t;
use crate::runtime::log;

/// Function pointer of a slot, convertible to one that may unwind: otherwise the compiler drops the
/// cleanup around the call.
pub(super) trait Slot {
    /// The type of the function that may unwind.
    type Unwinding;
    /// Returns the function as one that may unwind.
    fn unwinding(self) -> Self::Unwinding;
}

macro_rules! slots {
    ($($($argument:ident)+;)+) => {$(
        impl<$($argument),+> Slot for unsafe extern "C" fn($($argument),+) -> dtl_status_t {
            type Unwinding = unsafe extern "C-unwind" fn($($argument),+) -> dtl_status_t;
            fn unwinding(self) -> Self::Unwinding {
                // SAFETY: the two conventions pass arguments and results alike; they differ in what
                // unwinding does.
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

/// Guard of a slot call. [`Inside::left`] ends it when the slot has returned; it is dropped only by
/// unwinding.
pub(super) struct SlotGuard<'a> {
    owner: &'a BackendObject,
    slot: &'static str,
}

impl<'a> SlotGuard<'a> {
    /// Begins the guard, before the call.
    pub(super) fn enter(owner: &'a BackendObject, slot: &'static str) -> Self {
        SlotGuard { owner, slot }
    }

    /// Ends the guard when the slot has returned.
    pub(super) fn left(self) {
        std::mem::forget(self);
    }
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        exception_left(self.owner, self.slot);
    }
}

/// Out of line and by value: otherwise each call of a slot keeps an [`SlotGuard`] on the stack for
/// it.
#[cold]
#[inline(never)]
fn exception_left(owner: &BackendObject, slot: &str) {
    let name = &owner.name;
    log::error!(
        "backend {name}: an exception left {slot}, which must return a status; the process ends"
    );
}
