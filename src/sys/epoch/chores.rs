//! Work for whoever leaves a call: what becomes possible when others let go of something, and nobody in particular
//! is the last.
//!
//! Not here: what waits for the users of one object (`retire`).

use super::ERRANDS;
use crate::sys::lock::Mutex;
use crate::sys::sync::{Ordering, global};

/// Repeated until it returns true.
type Chore = Box<dyn Fn() -> bool + Send>;

global! {
    static CHORES: Mutex<Vec<Chore>> = Mutex::new(Vec::new());
}

/// Has leavers run `chore` until it returns true, outside the epoch. While there is one, leaving a call costs more.
pub fn until_done(chore: Chore) {
    CHORES.lock().push(chore);
    ERRANDS.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn run() {
    // Not in the list while they run: their own calls end here, too.
    let Some(chores) = CHORES.try_lock().map(|mut chores| std::mem::take(&mut *chores)) else { return };
    let count = chores.len();
    let waiting: Vec<Chore> = chores.into_iter().filter(|chore| !chore()).collect();
    ERRANDS.fetch_sub(count - waiting.len(), Ordering::Relaxed);
    if !waiting.is_empty() {
        CHORES.lock().extend(waiting);
    }
}
