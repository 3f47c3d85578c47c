//! The C library's count of allocated memory, for the tests of leaks.

/// Returns the bytes that this process has from malloc, modulo 2^32: differences count. `None`: the
/// C library does not report it.
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
