//! Deferred work, which becomes possible when all threads have stopped using a resource. No thread
//! can detect that it was the last user, so every thread that returns from a library call tries to
//! do the work.
//!
//! Work that waits until no thread uses one particular object any more is in `epoch::retire`, not
//! here.

use super::ERRANDS;
use crate::sys::sync::lock::Mutex;
use crate::sys::sync::{Ordering, global};

/// Function that is called repeatedly until it returns true.
type Chore = Box<dyn Fn() -> bool + Send>;

global! {
    static CHORES: Mutex<Vec<Chore>> = Mutex::new(Vec::new());
}

/// Adds `chore` to the deferred work: threads that return from a library call run it outside the
/// epoch until it returns true. Until then, each return from a call costs more.
pub fn until_done(chore: Chore) {
    CHORES.lock().push(chore);
    ERRANDS.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn run() {
    // The list is emptied while the chores run, because calls that they make run chores too.
    let Some(chores) = CHORES.try_lock().map(|mut chores| std::mem::take(&mut *chores)) else {
        return;
    };
    let count = chores.len();
    let waiting: Vec<Chore> = chores.into_iter().filter(|chore| !chore()).collect();
    ERRANDS.fetch_sub(count - waiting.len(), Ordering::Relaxed);
    if !waiting.is_empty() {
        CHORES.lock().extend(waiting);
    }
}
