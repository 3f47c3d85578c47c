//! Rust closures for interfaces that take a C function and a user pointer. The user pointer is the
//! number of the closure in a table.
//!
//! Used only for the streams and the host execution of backends (see `stream`, `executor`). The
//! library's own queues store closures directly.

use crate::abi::runtime::dtl_task_fn_t;
use crate::abi::status::*;
use crate::sys::handles::epoch;
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::Mutex;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use std::sync::Arc;

type Once = Box<dyn FnOnce() -> dtl_status_t + Send>;
/// Closure that runs the iterations begin ... end-1 of a loop.
pub(crate) type Piece = Arc<dyn Fn(u64, u64) -> dtl_status_t + Send + Sync>;

struct ClosureTable<T> {
    next: usize,
    waiting: BTreeMap<usize, T>,
}

static ONCE: Mutex<ClosureTable<Once>> =
    Mutex::new(ClosureTable { next: 1, waiting: BTreeMap::new() });
static PIECES: Mutex<ClosureTable<Piece>> =
    Mutex::new(ClosureTable { next: 1, waiting: BTreeMap::new() });

impl<T> ClosureTable<T> {
    fn put(&mut self, item: T) -> usize {
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, item);
        number
    }
}

/// Registers a closure and returns a C function and user pointer. Calling that function with that
/// pointer runs the closure and removes it. [`take_unrun`] removes a closure that has not run.
pub(crate) fn issue(task: Once) -> (dtl_task_fn_t, Addr) {
    let number = ONCE.lock().put(task);
    (Some(redeem), Addr::new(without_provenance_mut(number)))
}

/// Removes a closure whose C function could not be queued. Returns true if the closure had not run.
pub(crate) fn take_unrun(user: Addr) -> bool {
    let task = ONCE.lock().waiting.remove(&user.get());
    task.is_some()
}

extern "C" fn redeem(user: *mut c_void) -> dtl_status_t {
    let _aside = epoch::aside(); // runs on a thread of the backend
    let task = ONCE.lock().waiting.remove(&user.addr());
    task.map_or(DTL_ERROR_INTERNAL, |task| task())
}

/// Number of a loop body in the closure table. Dropping this object removes the loop body from the
/// table.
pub(crate) struct RegisteredBody(usize);

impl RegisteredBody {
    pub(crate) fn new(piece: Piece) -> Self {
        RegisteredBody(PIECES.lock().put(piece))
    }

    pub(crate) fn user(&self) -> Addr {
        Addr::new(without_provenance_mut(self.0))
    }
}

impl Drop for RegisteredBody {
    fn drop(&mut self) {
        drop(PIECES.lock().waiting.remove(&self.0));
    }
}

/// Calls the loop body whose number in the closure table is `user` (see [`RegisteredBody::user`]).
pub(crate) extern "C" fn piece(begin: u64, end: u64, user: *mut c_void) -> dtl_status_t {
    let body = PIECES.lock().waiting.get(&user.addr()).cloned();
    body.map_or(DTL_ERROR_INTERNAL, |body| body(begin, end))
}
