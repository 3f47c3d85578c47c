//! Copies between the memory of this process and that of another process of the same user.

use std::io::{Error, ErrorKind, Result};
use std::ptr;

/// Lets other processes of this user copy from and to the memory of this process. It is needed
/// where the Linux security module Yama is active, and has no effect elsewhere.
pub fn allow_copies() {
    // SAFETY: passes integers only.
    let _ = unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
}

/// Reads memory of another process, from the address `there` on.
pub fn read_memory(process: u32, there: u64, into: &mut [u8]) -> Result<()> {
    copy(process, libc::process_vm_readv, into.as_mut_ptr(), there, into.len())
}

/// Writes memory of another process, from the address `there` on. Refuses this process.
pub fn write_memory(process: u32, from: &[u8], there: u64) -> Result<()> {
    if process == std::process::id() {
        return Err(Error::from(ErrorKind::InvalidInput));
    }
    copy(process, libc::process_vm_writev, from.as_ptr().cast_mut(), there, from.len())
}

type Copy = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> libc::ssize_t;

fn copy(process: u32, by: Copy, here: *mut u8, there: u64, bytes: usize) -> Result<()> {
    let there = ptr::without_provenance_mut::<u8>(there as usize);
    let mut done = 0;
    while done < bytes {
        let [own, other] = [here, there].map(|base| libc::iovec {
            iov_base: base.wrapping_add(done).cast(),
            iov_len: bytes - done,
        });
        // SAFETY: `own` is inside a slice that the caller has borrowed, mutably if it is written.
        // The kernel checks the addresses of the other process.
        match unsafe { by(process as libc::pid_t, &raw const own, 1, &raw const other, 1, 0) } {
            copied @ 1.. => done += copied as usize,
            0 => return Err(Error::from(ErrorKind::WriteZero)),
            _ => return Err(Error::last_os_error()),
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/memory.rs"]
mod tests;
