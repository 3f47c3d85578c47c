//! The library's thread pointer, one for each of loom's threads.

use std::cell::Cell;
use std::ptr;

loom::thread_local! {
    static POINTER: Cell<*const ()> = Cell::new(ptr::null());
}

/// Null also in a thread's last moments, when its values are gone: as if it had none yet.
pub fn get() -> *const () {
    POINTER.try_with(Cell::get).unwrap_or(ptr::null())
}

pub fn set(value: *const ()) {
    let _ = POINTER.try_with(|pointer| pointer.set(value));
}
