//! This node: its processors and memory.

use crate::{Result, call, sys};
use std::ptr;

/// Describes this node. Values that the operating system does not report are 0.
///
/// # Errors
/// See `dtl_topology`.
pub fn topology() -> Result<sys::dtl_topology_t> {
    let mut node = sys::DTL_TOPOLOGY_INIT;
    // SAFETY: the output is a local with its size.
    unsafe { call!(dtl_topology(&raw mut node)) }?;
    Ok(node)
}

/// Returns the CPUs on which the calling thread may run, in ascending order.
///
/// # Errors
/// See `dtl_affinity`.
pub fn affinity() -> Result<Vec<i32>> {
    let mut count = 0;
    // SAFETY: NULL with capacity 0 requests only the count, which is written to a local.
    unsafe { call!(dtl_affinity(ptr::null_mut(), 0, &raw mut count)) }?;
    loop {
        let mut cpus = vec![0; count as usize];
        let (out, room) = (cpus.as_mut_ptr(), cpus.len() as u64);
        // SAFETY: room for `room` numbers; the count is a local.
        let status = unsafe { call!(dtl_affinity(out, room, &raw mut count)) };
        // Another thread may have changed this one's affinity between the two calls.
        if status.is_err() && count > room {
            continue;
        }
        status?;
        cpus.truncate(count as usize);
        return Ok(cpus);
    }
}
