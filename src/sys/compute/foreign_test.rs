//! A foreign function that tells whether an operation is over, called by the very function that
//! waits.
//!
//! In such a question large messages are copied by the kernel. A processor that comes back from
//! there does not know any more where functions return to: each one between the question and the
//! program costs some ten nanoseconds then. So who waits calls through this what he would else
//! reach by his transport.

use crate::sys::memory::buf::Addr;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Room for what any such function says of an operation.
pub const STATUS_ROOM: usize = 48;

/// That room.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct Status(pub [u8; STATUS_ROOM]);

impl Default for Status {
    fn default() -> Self {
        Self::new()
    }
}

impl Status {
    /// All zero.
    #[must_use]
    pub const fn new() -> Self {
        Status([0; STATUS_ROOM])
    }

    /// The `int` at an offset; 0 beyond the end.
    #[inline]
    #[must_use]
    pub fn int(&self, offset: usize) -> c_int {
        match self.0.get(offset..offset + 4) {
            Some(&[a, b, c, d]) => c_int::from_ne_bytes([a, b, c, d]),
            _ => 0,
        }
    }

    /// The eight bytes at an offset; 0 beyond the end.
    #[inline]
    #[must_use]
    pub fn long(&self, offset: usize) -> u64 {
        let bytes = self.0.get(offset..offset + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    }
}

/// As MPI_Test: sets `over` to 1 once the operation is over, and then writes the status. What it
/// returns is 0, or an error that the operation has ended with.
pub type Test =
    unsafe extern "C" fn(request: *mut u64, over: *mut c_int, status: *mut Status) -> c_int;

/// In an operation's word, below the foreign request: it is a send.
pub const SEND: u64 = 1;
/// It is not a request alone: who started it asks after it himself.
pub const OTHER: u64 = 2;

/// The request in an operation's word. Shifted as a number with a sign: the highest bits of all
/// requests are equal.
#[inline(always)]
#[must_use]
pub fn request_in(word: u64) -> u64 {
    (word as i64 >> 2) as u64
}

/// What a question heard.
pub struct Heard {
    /// What the foreign function made of the request.
    pub request: u64,
    /// What it returned.
    pub code: c_int,
    /// What it wrote of a receive.
    pub status: Status,
}

impl Heard {
    /// Nothing as yet.
    #[inline(always)]
    #[must_use]
    pub fn nothing() -> Self {
        Heard { request: 0, code: 0, status: Status::new() }
    }
}

/// What became of a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is over, well or not.
    Over,
    /// Not yet.
    Pending,
    /// It could not be asked here: ask the transport.
    Unasked,
}

/// Direct call of a transport's foreign test function, without the frames of the transport. All
/// fields lie in one cache line.
#[repr(C, align(64))]
pub struct Asking {
    test: Test,
    /// In place of a status that nobody wants.
    nowhere: Addr,
    /// The word that tells when foreign code may be called by any thread at any time, and what it
    /// is then.
    state: &'static AtomicU32,
    open: u32,
    /// How many times a patient caller asks.
    often: AtomicU32,
    /// While it is not 0, some operations are more than their requests.
    odd: AtomicUsize,
}

impl Asking {
    /// For the operations of one transport.
    ///
    /// # Safety
    /// `test` may be called with the request in any word of that transport's which has not
    /// [`OTHER`], as long as `state` is `open`, `odd` is 0 and it has not said that this request is
    /// over; with `nowhere` (or what of its type says the same) as status.
    #[must_use]
    pub unsafe fn new(
        test: Test,
        nowhere: Addr,
        state: &'static AtomicU32,
        open: u32,
        often: u32,
    ) -> Self {
        Asking {
            test,
            nowhere,
            state,
            open,
            often: AtomicU32::new(often),
            odd: AtomicUsize::new(0),
        }
    }

    /// Asks, if it is patient again and again for some microseconds: of what two ranks do in turn,
    /// such as a large message, each answer that is heard late makes the whole later.
    #[inline(always)]
    pub fn ask(&self, word: u64, heard: &mut Heard, is_patient: bool) -> Answer {
        let is_open = self.state.load(Ordering::Acquire) == self.open;
        if !crate::sys::sync::hints::usually(word & OTHER == 0 && !self.has_odd() && is_open) {
            return Answer::Unasked;
        }
        heard.request = request_in(word);
        // The other side writes less if nobody wants it.
        let status =
            if word & SEND == 0 { &raw mut heard.status } else { self.nowhere.ptr().cast() };
        let (mut over, mut left) = (0, if is_patient { self.often() } else { 1 });
        loop {
            // SAFETY: as `new` says; writable locals of the caller.
            heard.code = unsafe { (self.test)(&raw mut heard.request, &raw mut over, status) };
            if over != 0 || heard.code != 0 {
                return Answer::Over;
            }
            left -= 1;
            if left == 0 {
                return Answer::Pending;
            }
        }
    }

    /// How many times a patient caller asks.
    pub fn often(&self) -> u32 {
        self.often.load(Ordering::Relaxed)
    }

    /// At most so many times; not none.
    pub fn limit(&self, often: u32) {
        self.often.fetch_min(often.max(1), Ordering::Relaxed);
    }

    /// Whether some operations may be more than their requests. Relaxed: who started an operation
    /// is the one who asks after it, or heard of it from that thread.
    #[inline(always)]
    pub fn has_odd(&self) -> bool {
        self.odd.load(Ordering::Relaxed) > 0
    }

    /// So many are.
    pub fn set_odd(&self, count: usize) {
        self.odd.store(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static STATE: AtomicU32 = AtomicU32::new(4);
    static ASKED: AtomicU32 = AtomicU32::new(0);

    /// Over when it is asked for the third time; request 9 fails.
    unsafe extern "C" fn third(request: *mut u64, over: *mut c_int, status: *mut Status) -> c_int {
        // SAFETY: `ask` passes a writable place, which nobody else uses during the call.
        let request = unsafe { request.as_ref() };
        // SAFETY: `ask` passes a writable local of its own.
        let over = unsafe { over.as_mut() };
        // SAFETY: `ask` passes a writable place, which nobody else uses during the call.
        let status = unsafe { status.as_mut() };
        let (Some(request), Some(over), Some(status)) = (request, over, status) else { return 6 };
        if *request == 9 {
            return 5;
        }
        *over = c_int::from(ASKED.fetch_add(1, Ordering::Relaxed) % 3 == 2);
        status.0[0] = 7;
        0
    }

    #[test]
    fn a_question_is_put_as_often_as_it_may() {
        let mut nowhere = Status::new();
        let at = Addr::new((&raw mut nowhere).cast());
        // SAFETY: `third` takes any request.
        let asking = unsafe { Asking::new(third, at, &STATE, 4, 200) };
        let mut heard = Heard::nothing();
        assert_eq!(asking.ask(8 << 2, &mut heard, false), Answer::Pending);
        assert_eq!(asking.ask(8 << 2, &mut heard, true), Answer::Over);
        assert_eq!((heard.request, heard.code, heard.status.0[0], nowhere.0[0]), (8, 0, 7, 0));
        let mut heard = Heard::nothing();
        assert_eq!(asking.ask(8 << 2 | SEND, &mut heard, true), Answer::Over);
        assert_eq!((heard.status.0[0], nowhere.0[0]), (0, 7));
        assert_eq!(asking.ask(9 << 2, &mut heard, true), Answer::Over);
        assert_eq!(heard.code, 5);
        asking.limit(0);
        assert_eq!((asking.often(), asking.ask(8 << 2, &mut heard, true)), (1, Answer::Pending));
        assert_eq!(asking.ask(8 << 2 | OTHER, &mut heard, true), Answer::Unasked);
        asking.set_odd(1);
        assert_eq!(asking.ask(8 << 2, &mut heard, true), Answer::Unasked);
        asking.set_odd(0);
        STATE.store(1, Ordering::Relaxed);
        assert_eq!(asking.ask(8 << 2, &mut heard, true), Answer::Unasked);
        assert_eq!(request_in(!0xFFF << 2 | 3), !0xFFF);
    }
}
