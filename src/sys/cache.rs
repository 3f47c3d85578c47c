//! Hints to the processor about its caches.

/// Asks the processor for a line of the cache that will be written soon.
#[inline(always)]
pub fn prefetch<T>(soon: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: nothing that a program can see changes, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(soon).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = soon;
}
