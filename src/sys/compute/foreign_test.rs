//! Test function of another library (such as MPI_Test), called directly by the function that waits.
//!
//! During such a test the kernel may copy large messages. A processor that returns from the kernel
//! has lost its predictions of return addresses: each function between the test and the program
//! then costs some ten nanoseconds. So a waiting function calls the test directly, not through its
//! transport.

use crate::sys::memory::buf::Addr;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Maximum number of bytes that a foreign test function may write as the status of an operation.
pub const STATUS_ROOM: usize = 48;

/// Buffer for the status that a foreign test function writes.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct Status(pub [u8; STATUS_ROOM]);

impl Default for Status {
    fn default() -> Self {
        Self::new()
    }
}

impl Status {
    /// Creates a status of zeros.
    pub const fn new() -> Self {
        Status([0; STATUS_ROOM])
    }

    /// Returns the `int` at an offset in bytes; 0 beyond the end.
    #[inline]
    pub fn int(&self, offset: usize) -> c_int {
        match self.0.get(offset..offset + 4) {
            Some(&[a, b, c, d]) => c_int::from_ne_bytes([a, b, c, d]),
            _ => 0,
        }
    }

    /// Returns the eight bytes at an offset as a number; 0 beyond the end.
    #[inline]
    pub fn long(&self, offset: usize) -> u64 {
        let bytes = self.0.get(offset..offset + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    }
}

/// Foreign test function with the arguments of MPI_Test. It sets `over` to 1 once the operation has
/// completed, and then writes the status. It returns 0, or the error of the failed operation.
pub type Test =
    unsafe extern "C" fn(request: *mut u64, over: *mut c_int, status: *mut Status) -> c_int;

/// Bit of an operation's word, below the foreign request: the operation is a send.
pub const SEND: u64 = 1;
/// Bit of an operation's word: the operation is more than a request; its transport must test it.
pub const OTHER: u64 = 2;

/// Returns the foreign request in an operation's word. The shift is arithmetic (with sign), because
/// the highest bits of all requests are equal.
pub fn request_in(word: u64) -> u64 {
    (word as i64 >> 2) as u64
}

/// Outputs of a test.
pub struct TestOutputs {
    /// Foreign request, as the foreign function left it.
    pub request: u64,
    /// Return value of the foreign function.
    pub code: c_int,
    /// Status that the foreign function wrote for a receive.
    pub status: Status,
}

impl TestOutputs {
    /// Creates outputs of zeros.
    pub fn nothing() -> Self {
        TestOutputs { request: 0, code: 0, status: Status::new() }
    }
}

/// Outcome of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TestOutcome {
    /// The operation has completed or failed.
    Over,
    /// The operation has not completed.
    Pending,
    /// The operation cannot be tested here: test it through the transport.
    Unasked,
}

/// Direct call of a transport's foreign test function. All fields are in one cache line.
#[repr(C, align(64))]
pub struct ForeignTester {
    test: Test,
    /// Address passed in place of a status that is not needed.
    nowhere: Addr,
    /// State word. While it equals `open`, any thread may call foreign code at any time.
    state: &'static AtomicU32,
    open: u32,
    /// Number of tests that one patient call makes.
    often: AtomicU32,
    /// Number of operations that may be more than their requests.
    odd: AtomicUsize,
}

impl ForeignTester {
    /// Creates a tester for the operations of one transport.
    ///
    /// # Safety
    /// `test` may be called with the request in any word of that transport that lacks [`OTHER`], as
    /// long as `state` is `open`, `odd` is 0 and `test` has not reported this request as complete.
    /// `test` accepts `nowhere` (or another value of that type with an equal meaning) as status.
    pub unsafe fn new(
        test: Test,
        nowhere: Addr,
        state: &'static AtomicU32,
        open: u32,
        often: u32,
    ) -> Self {
        ForeignTester {
            test,
            nowhere,
            state,
            open,
            often: AtomicU32::new(often),
            odd: AtomicUsize::new(0),
        }
    }

    /// Tests an operation. If it has not completed and `is_patient` returns true, repeats the test
    /// for some microseconds. Where two ranks alternate, as in a large message, each step that is
    /// noticed late delays the whole message.
    #[inline]
    pub fn test(
        &self,
        word: u64,
        heard: &mut TestOutputs,
        is_patient: impl FnOnce() -> bool,
    ) -> TestOutcome {
        let is_open = self.state.load(Ordering::Acquire) == self.open;
        if !crate::sys::sync::hints::usually(word & OTHER == 0 && !self.has_odd() && is_open) {
            return TestOutcome::Unasked;
        }
        heard.request = request_in(word);
        // The foreign function writes less if the status is not needed.
        let status =
            if word & SEND == 0 { &raw mut heard.status } else { self.nowhere.ptr().cast() };
        let (mut over, mut is_patient, mut left) = (0, Some(is_patient), 0);
        loop {
            // SAFETY: the conditions of `new` hold: the word lacks OTHER, `odd` is 0 and `state` is
            // `open` (all checked above), and callers pass no request that was reported as
            // complete. The pointers are to writable locals here and in the caller, or `nowhere`.
            heard.code = unsafe { (self.test)(&raw mut heard.request, &raw mut over, status) };
            if over != 0 || heard.code != 0 {
                return TestOutcome::Over;
            }
            // Only now, because most operations have completed at the first test.
            if let Some(is_patient) = is_patient.take() {
                left = if is_patient() { self.often() } else { 1 };
            }
            left -= 1;
            if left == 0 {
                return TestOutcome::Pending;
            }
        }
    }

    /// Returns the number of tests that one patient call makes.
    pub fn often(&self) -> u32 {
        self.often.load(Ordering::Relaxed)
    }

    /// Lowers the number of tests of a patient call to at most `often`, but not to 0.
    pub fn limit(&self, often: u32) {
        self.often.fetch_min(often.max(1), Ordering::Relaxed);
    }

    /// Returns true if some operations may be more than their requests. Relaxed suffices: an
    /// operation is tested by the thread that started it, or by one that received it from that
    /// thread.
    pub fn has_odd(&self) -> bool {
        self.odd.load(Ordering::Relaxed) > 0
    }

    /// Sets the number of operations that may be more than their requests.
    pub fn set_odd(&self, count: usize) {
        self.odd.store(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "tests/foreign_test.rs"]
mod tests;
