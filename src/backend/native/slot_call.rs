//! How a slot is called: if an exception leaves it, backend and slot are named before the process ends.
//!
//! Nothing here can catch a foreign exception: the first `catch_unwind` on its way ends the process. Until then the
//! frames on the way are cleaned up, which costs a call that returns nothing.

use super::Owner;
use crate::abi::status::dtl_status_t;
use crate::runtime::log;

/// A slot, and the same slot as something that may unwind: otherwise the compiler drops the cleanup around the call.
pub(super) trait Slot {
    /// The type of the function that may unwind.
    type Unwinding;
    /// The same function.
    fn unwinding(self) -> Self::Unwinding;
}

macro_rules! slots {
    ($($($argument:ident)+;)+) => {$(
        impl<$($argument),+> Slot for unsafe extern "C" fn($($argument),+) -> dtl_status_t {
            type Unwinding = unsafe extern "C-unwind" fn($($argument),+) -> dtl_status_t;
            fn unwinding(self) -> Self::Unwinding {
                // SAFETY: the two conventions pass arguments and results alike; they differ in what unwinding does.
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

/// Lives while a slot is called; [`Inside::left`] when it has returned. Dropped otherwise: by unwinding.
pub(super) struct Inside<'a> {
    owner: &'a Owner,
    slot: &'static str,
}

impl<'a> Inside<'a> {
    /// Before the call.
    #[inline(always)]
    pub(super) fn enter(owner: &'a Owner, slot: &'static str) -> Self {
        Inside { owner, slot }
    }

    /// The slot has returned.
    #[inline(always)]
    pub(super) fn left(self) {
        std::mem::forget(self);
    }
}

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        exception_left(self.owner, self.slot);
    }
}

/// Out of line and by value: otherwise each call of a slot keeps an [`Inside`] on the stack for it.
#[cold]
#[inline(never)]
fn exception_left(owner: &Owner, slot: &str) {
    let name = &owner.name;
    log::error!("backend {name}: an exception left {slot}, which must return a status; the process ends");
}
