//! Random numbers from the kernel.

use std::io;

/// Returns a random number from the kernel.
pub fn random_u64() -> io::Result<u64> {
    let mut bytes = [0_u8; 8];
    // SAFETY: the kernel writes at most 8 bytes into `bytes`.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == 8 { Ok(u64::from_ne_bytes(bytes)) } else { Err(io::Error::last_os_error()) }
}
