//! Last error of each thread. `dtl_last_error` returns its error message. The error message of a
//! failed application function includes that of the dtl_ call that failed inside the function.
//!
//! An application function (a backend's vtable function, a handler, a task) that fails because a
//! dtl_ call inside it has failed returns the status of that call, and the library propagates the
//! error message of that call. To find that message, the library stores the number of failures so
//! far (a [`Mark`]) before it calls the application function. Creating a mark costs one load, the
//! only cost when the function succeeds.
//!
//! Ordering: one atomic counter numbers the failures of all threads. A failure of a thread after it
//! created a mark has a higher number than the mark, and an earlier failure of the same thread does
//! not. This follows from the modification order of that one atomic alone. Increments by other
//! threads only raise the numbers, so they invalidate neither statement. All accesses are therefore
//! relaxed.

use crate::abi::status::dtl_status_t;
use crate::error::Error;
use crate::sys::handles::epoch;
use crate::sys::sync::lock::Mutex;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicU64, Ordering};

/// Last failure in a thread. The error messages of successive failures are stored alternately in
/// two buffers, so that the string to which [`text`] returned a pointer is still unchanged after
/// one more failure. A buffer is never reallocated: a buffer that is too short is replaced by a
/// longer buffer and freed when the thread ends.
#[derive(Default)]
struct Last {
    number: u64,
    status: dtl_status_t,
    /// Buffers for error messages, each NUL-terminated or empty.
    texts: [Vec<u8>; 2],
    current: usize,
    outgrown: Vec<Vec<u8>>,
}

const LEAST_ROOM: usize = 256;

impl Last {
    fn text(&self) -> &CStr {
        let text =
            self.texts.get(self.current).and_then(|text| CStr::from_bytes_until_nul(text).ok());
        text.unwrap_or_default()
    }

    fn put(&mut self, text: &str) {
        self.current = 1 - self.current;
        let Some(to) = self.texts.get_mut(self.current) else { return };
        if to.capacity() <= text.len() {
            let room = (text.len() + 1).next_power_of_two().max(LEAST_ROOM);
            let short = std::mem::replace(to, Vec::with_capacity(room));
            self.outgrown.push(short);
        }
        to.clear();
        to.extend(text.bytes().map(|byte| if byte == 0 { b'?' } else { byte }));
        to.push(0);
    }
}

thread_local! {
    /// Last failure in this thread; `None` if no call made by this thread has failed yet.
    static LAST: RefCell<Option<Box<Last>>> = const { RefCell::new(None) };
}

/// Number of failed calls in all threads.
static FAILURES: AtomicU64 = AtomicU64::new(0);

/// Error messages of calls that failed in threads whose own buffers are already destroyed. Never
/// freed, because the application may still hold pointers to them.
static LAST_WORDS: Mutex<Vec<CString>> = Mutex::new(Vec::new());
const MOST_LAST_WORDS: usize = 64;

/// Records `error` as the calling thread's last failure.
pub fn set(error: &Error) {
    let number = FAILURES.fetch_add(1, Ordering::Relaxed) + 1;
    let kept = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            let last = last.get_or_insert_default();
            (last.number, last.status) = (number, error.status());
            last.put(error.text());
        }
    });
    // In atexit functions and in a thread's last destructors its own buffers are destroyed.
    if kept.is_err() {
        let text = CString::new(error.text().replace('\0', "?")).unwrap_or_default();
        let _aside = epoch::aside();
        let mut words = LAST_WORDS.lock();
        if words.len() < MOST_LAST_WORDS {
            words.push(text);
        }
    }
}

/// Returns the error message of the calling thread's last failed call; an empty string if no call
/// has failed.
pub fn text() -> *const c_char {
    const ENDING: &CStr = c"(the thread is ending: no text)";
    LAST.try_with(|last| {
        last.try_borrow()
            .map_or(ENDING.as_ptr(), |last| last.as_ref().map_or(c"", |last| last.text()).as_ptr())
    })
    .unwrap_or_else(|_| {
        let _aside = epoch::aside();
        LAST_WORDS.lock().last().map_or(ENDING.as_ptr(), |text| text.as_ptr())
    })
}

/// Point in time before the library calls an application function, stored as the number of calls
/// that had failed in all threads by then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark(u64);

impl Mark {
    /// Returns a mark for the current point in time.
    pub fn now() -> Mark {
        Mark(FAILURES.load(Ordering::Relaxed))
    }

    /// If a dtl_ call failed inside an application function, appends the error message of that call
    /// to the function's `error`. Must be called in the thread that called the application
    /// function.
    pub fn explain(self, error: Error) -> Error {
        match self.recorded(error.status()) {
            // Nested functions that pass a failure on would repeat its text.
            Some(recorded) if recorded.starts_with(error.text()) => {
                Error::new(error.status(), recorded)
            }
            Some(recorded) => Error::new(error.status(), format!("{}: {recorded}", error.text())),
            None => error,
        }
    }

    /// Returns the error message of the calling thread's last failure if the failure occurred after
    /// this mark was created and has the status `status`; otherwise `None`.
    pub fn recorded(self, status: dtl_status_t) -> Option<String> {
        let recorded = LAST.try_with(|last| {
            let last = last.try_borrow().ok()?;
            let last = last.as_ref()?;
            let is_its = last.number > self.0 && last.status == status && !last.text().is_empty();
            is_its.then(|| last.text().to_string_lossy().into_owned())
        });
        recorded.ok().flatten()
    }
}
