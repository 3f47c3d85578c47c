//! Tests of `foreign_test`.

use super::*;

static STATE: AtomicU32 = AtomicU32::new(4);
static ASKED: AtomicU32 = AtomicU32::new(0);

/// Test function that reports completion on every third call, and that returns an error for request
/// 9.
unsafe extern "C" fn third(request: *mut u64, over: *mut c_int, status: *mut Status) -> c_int {
    // SAFETY: `test` passes a writable place, which no other code uses during the call.
    let request = unsafe { request.as_ref() };
    // SAFETY: `test` passes a writable local of its own.
    let over = unsafe { over.as_mut() };
    // SAFETY: `test` passes a writable place, which no other code uses during the call.
    let status = unsafe { status.as_mut() };
    let (Some(request), Some(over), Some(status)) = (request, over, status) else { return 6 };
    if *request == 9 {
        return 5;
    }
    *over = c_int::from(ASKED.fetch_add(1, Ordering::Relaxed) % 3 == 2);
    status.0[0] = 7;
    0
}

#[test]
fn a_question_is_put_as_often_as_it_may() {
    let mut nowhere = Status::new();
    let at = Addr::new((&raw mut nowhere).cast());
    // SAFETY: `third` accepts any request.
    let asking = unsafe { ForeignTester::new(third, at, &STATE, 4, 200) };
    let mut outputs = TestOutputs::nothing();
    assert_eq!(asking.test(8 << 2, &mut outputs, || false), TestOutcome::Pending);
    assert_eq!(asking.test(8 << 2, &mut outputs, || true), TestOutcome::Over);
    assert_eq!((outputs.request, outputs.code, outputs.status.0[0], nowhere.0[0]), (8, 0, 7, 0));
    let mut outputs = TestOutputs::nothing();
    assert_eq!(asking.test(8 << 2 | SEND, &mut outputs, || true), TestOutcome::Over);
    assert_eq!((outputs.status.0[0], nowhere.0[0]), (0, 7));
    assert_eq!(asking.test(9 << 2, &mut outputs, || true), TestOutcome::Over);
    assert_eq!(outputs.code, 5);
    asking.limit(0);
    assert_eq!(
        (asking.often(), asking.test(8 << 2, &mut outputs, || true)),
        (1, TestOutcome::Pending)
    );
    assert_eq!(asking.test(8 << 2 | OTHER, &mut outputs, || true), TestOutcome::Unasked);
    asking.set_extras(1);
    assert_eq!(asking.test(8 << 2, &mut outputs, || true), TestOutcome::Unasked);
    asking.set_extras(0);
    STATE.store(1, Ordering::Relaxed);
    assert_eq!(asking.test(8 << 2, &mut outputs, || true), TestOutcome::Unasked);
    assert_eq!(request_in(!0xFFF << 2 | 3), !0xFFF);
}
