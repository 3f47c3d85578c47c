//! Tests of when the callback for log lines runs. Each line has a level of its own, which names it.

use super::*;
use std::ffi::{c_char, c_void};

/// Level of a passed line, and the number of calls that the passing thread is in.
static LINES: Mutex<Vec<(i32, u32)>> = Mutex::new(Vec::new());

extern "C" fn record(level: i32, _text: *const c_char, _user: *mut c_void) {
    LINES.lock().push((level, epoch::depth()));
}

fn passed(level: i32) -> Option<u32> {
    LINES.lock().iter().find(|(of, _)| *of == level).map(|(_, depth)| *depth)
}

/// Leaves calls until the line is passed. Returns the number of calls that the passing thread was
/// in.
fn depth_of(level: i32) -> u32 {
    loop {
        if let Some(depth) = passed(level) {
            return depth;
        }
        drop(epoch::enter());
    }
}

// Another test in this process may pass a pending line on its own thread.
#[test]
fn the_callback_runs_outside_calls_or_in_a_wait() {
    set_callback(Some(record), Addr::NULL, DTL_LOG_WARN);
    log(-1, "outside a call");
    assert!(passed(-1).is_some());

    let waiting = epoch::enter().into_blocking();
    log(-2, "in a call");
    let inner = epoch::enter().into_blocking();
    log(-3, "in an inner call");
    deliver(1);
    drop(inner);
    drop(waiting);
    assert_eq!((depth_of(-2), depth_of(-3)), (0, 0));

    let waiting = epoch::enter().into_blocking();
    log(-4, "in a wait");
    deliver(1);
    assert!(depth_of(-4) <= 1);
    drop(waiting);

    std::thread::scope(|scope| {
        scope.spawn(|| {
            enter_progress_thread();
            log(-5, "in a progress thread");
            deliver(0);
            assert_eq!(depth_of(-5), 0);
        });
    });
    set_callback(None, Addr::NULL, DTL_LOG_WARN);
}
