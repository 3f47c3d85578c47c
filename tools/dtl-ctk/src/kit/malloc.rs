//! Memory that the C library has allocated, for the tests that look for leaks.

/// Returns the number of bytes that this process has allocated with malloc, modulo 2^32; only
/// differences are meaningful. Returns `None` if the C library does not report the number.
#[must_use]
pub(crate) fn malloc_bytes() -> Option<i32> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it has no arguments and only reads malloc's own counts, under their locks.
        let told = unsafe { libc::mallinfo() };
        Some(told.uordblks.wrapping_add(told.hblkhd))
    }
    #[cfg(not(target_env = "gnu"))]
    None
}
