//! The thread's last error: the text that `dtl_last_error` shows, and what of it belongs to the
//! failure of a program's function.
//!
//! A function of the program (a slot, a handler, a task) that fails because a dtl_ call inside it
//! has failed passes the status on, and the text goes with it: the caller of such a function takes
//! a [`Mark`] before. A mark is one load, so that functions that succeed pay for nothing else.
//!
//! Ordering: failures are numbered by one atomic. A thread's own failure after its mark has a
//! higher number than the mark, one before it has not, by the order of changes of that one atomic
//! alone; what other threads do to it in between makes numbers higher and changes neither. So
//! everything is relaxed.

use crate::abi::status::dtl_status_t;
use crate::error::Error;
use crate::sys::handles::epoch;
use crate::sys::sync::lock::Mutex;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicU64, Ordering};

/// A thread's last failure. Its text alternates between two buffers, so that a pointer from
/// [`text`] still shows the same text after one more failure. A buffer is never reallocated: one
/// that is too short is kept until the thread ends and replaced by a longer one.
#[derive(Default)]
struct Last {
    number: u64,
    status: dtl_status_t,
    /// NUL-terminated, or empty.
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
    /// `None`: no call of this thread has failed yet.
    static LAST: RefCell<Option<Box<Last>>> = const { RefCell::new(None) };
}

/// Failures of calls, of all threads.
static FAILURES: AtomicU64 = AtomicU64::new(0);

/// Texts of calls that failed in threads whose own buffers are gone. They stay, as the program may
/// read them.
static LAST_WORDS: Mutex<Vec<CString>> = Mutex::new(Vec::new());
const MOST_LAST_WORDS: usize = 64;

/// A call of the calling thread has failed.
pub fn set(error: &Error) {
    let number = FAILURES.fetch_add(1, Ordering::Relaxed) + 1;
    let kept = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            let last = last.get_or_insert_default();
            (last.number, last.status) = (number, error.status());
            last.put(error.text());
        }
    });
    // In atexit functions and in a thread's last destructors its own buffers are gone.
    if kept.is_err() {
        let text = CString::new(error.text().replace('\0', "?")).unwrap_or_default();
        let _aside = epoch::aside();
        let mut words = LAST_WORDS.lock();
        if words.len() < MOST_LAST_WORDS {
            words.push(text);
        }
    }
}

/// The text of the calling thread's last failed call.
#[must_use]
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

/// A moment before a function of the program's is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark(u64);

impl Mark {
    /// The moment now.
    #[must_use]
    pub fn now() -> Mark {
        Mark(FAILURES.load(Ordering::Relaxed))
    }

    /// Adds the text of the dtl_ call that failed inside the function, if one did, to the
    /// function's failure. Call it in the thread that called the function.
    #[must_use]
    pub fn explain(self, error: Error) -> Error {
        match self.said(error.status()) {
            // Nested functions that pass a failure on would repeat its text.
            Some(said) if said.starts_with(error.text()) => Error::new(error.status(), said),
            Some(said) => Error::new(error.status(), format!("{}: {said}", error.text())),
            None => error,
        }
    }

    /// The text of the thread's last failed call, if that came after this moment and had this
    /// status.
    #[must_use]
    pub fn said(self, status: dtl_status_t) -> Option<String> {
        let said = LAST.try_with(|last| {
            let last = last.try_borrow().ok()?;
            let last = last.as_ref()?;
            let is_its = last.number > self.0 && last.status == status && !last.text().is_empty();
            is_its.then(|| last.text().to_string_lossy().into_owned())
        });
        said.ok().flatten()
    }
}
