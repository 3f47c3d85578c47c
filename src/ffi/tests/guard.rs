//! Tests of the wrappers of entries.

use super::*;
use crate::abi::status::DTL_ERROR_INTERNAL;

#[test]
fn a_panic_is_a_status_and_leaves_the_epoch() {
    let call = |fails: bool| {
        Entry("dtl_test").call(|inside| {
            assert!(epoch::is_inside() && inside.thread_number() < usize::MAX && !fails);
            Ok(())
        })
    };
    // The first call opens the library, so it takes the slow path.
    for fails in [false, true, false, true] {
        assert_eq!(call(fails), if fails { DTL_ERROR_INTERNAL } else { DTL_SUCCESS });
        assert!(!epoch::is_inside());
    }
}
