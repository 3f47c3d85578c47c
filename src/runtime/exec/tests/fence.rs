//! Tests of `fence`.

use super::*;
use crate::abi::status::DTL_ERROR_TIMEOUT;
use std::sync::Arc;

#[test]
fn a_wait_ends_by_completion_time_or_cancellation() {
    let no = AtomicBool::new(false);
    let fence = Fence::pending();
    let late = fence.wait(Deadline::after(1_000_000), &no).unwrap_err();
    assert_eq!(late.status(), DTL_ERROR_TIMEOUT);
    assert_eq!(fence.wait(Deadline::NEVER, &AtomicBool::new(true)), Ok(WaitOutcome::Canceled));
    fence.complete(Some(Error::new(7, "seven")));
    assert_eq!(fence.wait(Deadline::NEVER, &no), Ok(WaitOutcome::Done));
    assert_eq!(fence.result().unwrap_err().status(), 7);
}

#[test]
fn no_wake_up_is_lost() {
    for _ in 0..2_000 {
        let fence = Arc::new(Fence::pending());
        let other = Arc::clone(&fence);
        let waiter =
            std::thread::spawn(move || other.wait(Deadline::NEVER, &AtomicBool::new(false)));
        fence.complete(None);
        assert_eq!(waiter.join().unwrap(), Ok(WaitOutcome::Done));
    }
}
