//! Hints to the processor about its caches, and to the compiler about likely branches.

/// Marks the calling path as unlikely: the compiler lays out the other path as straight-line code.
/// (This function is `extern "C"`, so it cannot unwind. If it could, the hint would be lost in code
/// that catches the unwinding.)
#[cold]
#[inline(never)]
pub extern "C" fn rarely() {
    std::hint::black_box(());
}

/// Returns `is`, which is nearly always true: the compiler lays out the path for true as
/// straight-line code.
pub fn usually(is: bool) -> bool {
    if !is {
        rarely();
    }
    is
}

/// Returns `value`, which is nearly always `Some`: the compiler lays out the path for `Some` as
/// straight-line code.
pub fn usual<T>(value: Option<T>) -> Option<T> {
    if value.is_none() {
        rarely();
    }
    value
}

/// Calls `general` out of line, so that the calling function has a smaller stack frame on its fast
/// path.
pub fn out_of_line<T>(general: impl FnOnce() -> T) -> T {
    #[cold]
    #[inline(never)]
    fn call<T>(general: impl FnOnce() -> T) -> T {
        general()
    }
    call(general)
}

/// Prefetches a cache line that will be used soon. An invalid address does no harm.
pub fn prefetch<T>(soon: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no effect that a program can observe, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(soon.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = soon;
}
