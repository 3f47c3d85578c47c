//! Thread-local pointers of the library, for each of loom's threads.

use std::cell::Cell;
use std::ptr;

loom::thread_local! {
    static POINTER: Cell<*const ()> = Cell::new(ptr::null());
}

/// Returns the pointer; null also while the thread ends and its values are already destroyed.
pub fn get() -> *const () {
    POINTER.try_with(Cell::get).unwrap_or(ptr::null())
}

pub fn set(value: *const ()) {
    let _ = POINTER.try_with(|pointer| pointer.set(value));
}
