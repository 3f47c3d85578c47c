//! Tests of `device`.

use super::*;
use crate::runtime::component::{BackendProbe, Device};
use crate::sys::handles::epoch;

struct One;

impl BackendProbe for One {}

impl Device for One {}

#[test]
fn entries_of_backends_that_are_gone_are_dropped() {
    for _ in 0..50 {
        let mut backend = Backend::new(c"passing", 0, false, Box::new(One));
        backend.device = Some(Box::new(One));
        let handle = registry::add(Arc::new(backend), 0).expect("added");
        let inside = epoch::enter();
        set(backend_of(&inside, handle), 0).expect("set");
        forget_gone(&inside);
        registry::remove(&inside, handle, 0).expect("removed");
    }
    assert_eq!(DEVICES.with(|devices| devices.borrow().len()), 1, "only the last one's");
}

fn backend_of(inside: &Guard, handle: dtl_backend_t) -> &Backend {
    backend(inside, handle).expect("registered")
}
