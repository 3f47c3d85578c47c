//! Time and tracing: monotonic clock, trace file, callbacks for tools.

use crate::sys::sync::wait;

/// Returns the seconds since a fixed point in the past, which differs between processes. The clock
/// is monotonic: setting the time of day does not change it. Its resolution is about 1 ns. Works in
/// every state.
///
/// Threads: any. Equivalent: MPI_Wtime.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_comm_wtime() -> f64 {
    wait::now_ns() as f64 * 1e-9
}
