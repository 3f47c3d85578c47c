//! Time and tracing: monotonic clock, trace file, callbacks for tools.

use crate::sys::sync::wait;

/// Seconds since some point in the past that stays the same for this process (other processes have
/// others). The monotonic clock: setting the time of day does not change it; resolution about 1 ns.
/// Works in every state. Threads: any. Equivalent: MPI_Wtime.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_comm_wtime() -> f64 {
    wait::now_ns() as f64 * 1e-9
}
