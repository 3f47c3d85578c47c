//! Hints to the processor about its caches, and to the compiler about what goes there.

/// Called where the program rarely comes: the compiler lays the other way straight. (Of a cold
/// function that may unwind it does not take that hint where the unwinding is caught.)
#[cold]
#[inline(never)]
pub extern "C" fn rarely() {
    std::hint::black_box(());
}

/// `is`, which it nearly always is: the compiler lays that way straight.
#[inline]
pub fn usually(is: bool) -> bool {
    if !is {
        rarely();
    }
    is
}

/// `value`, which is nearly always there.
#[inline]
pub fn usual<T>(value: Option<T>) -> Option<T> {
    if value.is_none() {
        rarely();
    }
    value
}

/// Calls `general` out of line: the fast path around it then has a smaller frame.
#[inline]
pub fn out_of_line<T>(general: impl FnOnce() -> T) -> T {
    #[cold]
    #[inline(never)]
    fn call<T>(general: impl FnOnce() -> T) -> T {
        general()
    }
    call(general)
}

/// Prefetches a cache line that will be used soon. An invalid address does no harm.
#[inline]
pub fn prefetch<T>(soon: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: nothing that a program can see changes, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(soon.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = soon;
}
