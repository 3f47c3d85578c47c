//! Processors on which a thread may run.

use std::io;

/// Binds the calling thread to this processor.
pub fn bind(cpu: usize) -> io::Result<()> {
    if cpu >= 8 * size_of::<libc::cpu_set_t>() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: all-zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` is inside the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` is a set of the given size; 0 = the calling thread.
    if unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Returns the processors that this process may run on.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: all-zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a writable set of the given size.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let inside = |&cpu: &usize| {
        // SAFETY: `cpu` is below the number of bits of the set.
        unsafe { libc::CPU_ISSET(cpu, &set) }
    };
    Ok((0..8 * size_of::<libc::cpu_set_t>()).filter(inside).collect())
}
