//! Calls that must fail on every rank, with the expected status, and must leave the result buffer
//! unchanged. The valid operations of the same epoch show that the failed calls wrote nothing at
//! the target and that the window still works.

use super::Sync;
use crate::data::{FILLER, USER_DTYPE, USER_SUM};
use crate::kit::outcome::{Called, Failure, call, name_of};
use crate::user;
use dtl_sys::*;
use std::ffi::c_void;
use std::ptr;

/// Calls a function and checks that it returns the expected status.
macro_rules! answers {
    ($name:ident($($argument:expr),* $(,)?), $expected:expr) => {
        answered(stringify!($name), call!($name($($argument),*)), $expected)
    };
}

/// Buffer with room for an element of any dtype.
type Buffer = [u8; 32];

/// Arguments of a test.
pub(super) struct Tries {
    pub(super) win: dtl_win_t,
    pub(super) me: i32,
    pub(super) ranks: i32,
    /// Target of the calls. It is accessible whenever an epoch is open.
    pub(super) target: i32,
    /// Size of the target's part of the window in bytes.
    pub(super) size: u64,
    /// Displacement unit of the target's part in bytes.
    pub(super) unit: u64,
    pub(super) sync: Sync,
}

/// Time at which a test makes its calls, relative to the window and its epochs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Before the window is created.
    Before,
    /// While no epoch is open.
    Outside,
    Inside,
    /// In an epoch that was opened by a lock, not by a fence.
    Locked,
    Fenced,
}

type Try = fn(&Tries) -> Result<(), Failure>;

/// All tests, indexed by test number. Each entry states when the calls are made, and contains a
/// description and the function.
const ALL: [(When, &str, Try); 15] = [
    (When::Before, "a window with steps of 0 bytes on one rank", nothing),
    (When::Before, "a window without memory on one rank", nothing),
    (When::Outside, "operations without an epoch", no_epoch),
    (When::Outside, "flush and unlock without a lock", not_locked),
    (When::Outside, "locks of no kind and of no rank", bad_locks),
    (When::Inside, "behind the end of the target's part", behind_the_end),
    (When::Inside, "displacements that overflow", overflow),
    (When::Inside, "one element too many", too_many),
    (When::Inside, "accumulating behind the end", accumulate_behind),
    (When::Inside, "targets that are no rank", no_rank),
    (When::Inside, "no target at all", nobody),
    (When::Inside, "dtypes and operations that do not go together", bad_types),
    (When::Inside, "buffers that are missing or overlap", bad_buffers),
    (When::Locked, "a second lock, a fence, the end", locked_twice),
    (When::Fenced, "a flush or unlock in a fence's epoch", flush_in_a_fence),
];

/// Number of tests.
pub(crate) const COUNT: u64 = ALL.len() as u64;

/// Runs test `number` of [`ALL`] if it is a test for [`When::Before`]: all ranks call
/// `dtl_win_create`, the last one with a wrong argument.
pub(super) fn before(number: u64, comm: dtl_comm_t, me: u64, ranks: u64) -> Result<(), Failure> {
    let (when, what, _) = ALL[number as usize];
    if when != When::Before {
        return Ok(());
    }
    let is_wrong = me == ranks - 1;
    let mut memory: Buffer = [FILLER; 32];
    let (mut win, base) = (DTL_WIN_NULL, memory.as_mut_ptr().cast());
    let (base, unit, expected) = match number {
        0 => (base, u64::from(!is_wrong), DTL_ERROR_INVALID_ARGUMENT),
        _ => (if is_wrong { ptr::null_mut() } else { base }, 1, DTL_ERROR_NULL_POINTER),
    };
    let outcome = answers!(dtl_win_create(comm, base, 32, unit, &raw mut win), expected);
    outcome.map_err(|failure| failure.within(&format!("misuse {number}, {what}")))
}

/// Runs test `number` of [`ALL`] if it is a test for [`When::Outside`]. Called while no epoch is
/// open.
pub(super) fn outside(number: u64, tries: &Tries) -> Result<(), Failure> {
    try_it(number, tries, &[When::Outside])
}

/// Runs test `number` of [`ALL`] if it applies to an open epoch of the kind `tries.sync`.
pub(super) fn inside(number: u64, tries: &Tries) -> Result<(), Failure> {
    let own = if tries.sync == Sync::Fence { When::Fenced } else { When::Locked };
    try_it(number, tries, &[When::Inside, own])
}

fn try_it(number: u64, tries: &Tries, when: &[When]) -> Result<(), Failure> {
    let (whence, what, body) = ALL[number as usize];
    if !when.contains(&whence) {
        return Ok(());
    }
    body(tries).map_err(|failure| failure.within(&format!("misuse {number}, {what}")))
}

fn nothing(_: &Tries) -> Result<(), Failure> {
    Ok(())
}

fn answered(call: &str, ended: Called, expected: dtl_status_t) -> Result<(), Failure> {
    let status = ended.map_or_else(|refused| refused.status.0, |()| DTL_SUCCESS);
    let (is, should) = (name_of(status), name_of(expected));
    let wrong = || Failure::wrong(format!("{call} answers {is}, expected {should}"));
    if status == expected { Ok(()) } else { Err(wrong()) }
}

/// Arguments common to all calls in one test, and the expected status. Each call has its own value
/// buffer and result buffer. The result buffer must remain unchanged.
struct Calls<'a> {
    tries: &'a Tries,
    expected: dtl_status_t,
    dtype: dtl_dtype_t,
    count: u64,
    target: i32,
    disp: u64,
}

impl Calls<'_> {
    fn put(&self) -> Result<(), Failure> {
        let Calls { expected, dtype, count, target, disp, .. } = *self;
        let value: Buffer = [0; 32];
        let from = value.as_ptr().cast();
        answers!(dtl_win_put(self.tries.win, from, count, dtype, target, disp), expected)
    }

    fn get(&self) -> Result<(), Failure> {
        let Calls { expected, dtype, count, target, disp, .. } = *self;
        let mut result: Buffer = [FILLER; 32];
        let into = result.as_mut_ptr().cast();
        answers!(dtl_win_get(self.tries.win, into, count, dtype, target, disp), expected)?;
        stays("dtl_win_get", &result)
    }

    fn requests(&self) -> Result<(), Failure> {
        let Calls { expected, dtype, count, target, disp, .. } = *self;
        let (mut buffer, win): (Buffer, _) = ([FILLER; 32], self.tries.win);
        let at: *mut c_void = buffer.as_mut_ptr().cast();
        let mut request = dtl_request_t { id: 42 };
        let out = &raw mut request;
        answers!(dtl_win_rput(win, at, count, dtype, target, disp, out), expected)?;
        self.ended("dtl_win_rput", request)?;
        request = dtl_request_t { id: 42 };
        let out = &raw mut request;
        answers!(dtl_win_rget(win, at, count, dtype, target, disp, out), expected)?;
        self.ended("dtl_win_rget", request)?;
        stays("dtl_win_rget", &buffer)
    }

    /// Checks that a rejected call did not return a request; waits for the request that a
    /// successful call returned.
    fn ended(&self, call: &str, request: dtl_request_t) -> Result<(), Failure> {
        if self.expected == DTL_SUCCESS {
            return answers!(
                dtl_request_wait(request, 1_000_000_000, ptr::null_mut()),
                DTL_SUCCESS
            );
        }
        let wrong = || Failure::wrong(format!("{call} writes a request"));
        if request.id == 42 { Ok(()) } else { Err(wrong()) }
    }

    fn accumulate(&self, op: dtl_reduce_op_t) -> Result<(), Failure> {
        let Calls { expected, dtype, count, target, disp, .. } = *self;
        let (value, mut result): (Buffer, Buffer) = ([1; 32], [FILLER; 32]);
        let (from, into) = (value.as_ptr().cast(), result.as_mut_ptr().cast());
        let win = self.tries.win;
        answers!(dtl_win_accumulate(win, from, count, dtype, target, disp, op), expected)?;
        answers!(
            dtl_win_get_accumulate(win, from, into, count, dtype, target, disp, op),
            expected
        )?;
        if count == 1 {
            answers!(dtl_win_fetch_op(win, from, into, dtype, target, disp, op), expected)?;
        }
        stays("dtl_win_get_accumulate or dtl_win_fetch_op", &result)
    }

    fn swap(&self) -> Result<(), Failure> {
        let Calls { expected, dtype, target, disp, .. } = *self;
        let (value, zero, mut result): (Buffer, Buffer, Buffer) = ([1; 32], [0; 32], [FILLER; 32]);
        let (from, none) = (value.as_ptr().cast(), zero.as_ptr().cast());
        let (into, win) = (result.as_mut_ptr().cast(), self.tries.win);
        answers!(dtl_win_compare_and_swap(win, from, none, into, dtype, target, disp), expected)?;
        stays("dtl_win_compare_and_swap", &result)
    }

    fn all(&self) -> Result<(), Failure> {
        self.put()?;
        self.get()?;
        self.requests()?;
        self.accumulate(DTL_OP_SUM)?;
        self.accumulate(DTL_OP_NO_OP)?;
        if self.count == 1 { self.swap() } else { Ok(()) }
    }
}

fn stays(call: &str, result: &Buffer) -> Result<(), Failure> {
    if result.iter().all(|byte| *byte == FILLER) {
        return Ok(());
    }
    Err(Failure::wrong(format!("{call} is refused and writes its result")))
}

impl Tries {
    fn expecting(&self, expected: dtl_status_t) -> Calls<'_> {
        Calls {
            tries: self,
            expected,
            dtype: DTL_DTYPE_INT32,
            count: 1,
            target: self.target,
            disp: 0,
        }
    }

    /// Returns the first displacement at which an element of this size does not fit completely into
    /// the target's part of the window.
    fn first_behind(&self, bytes: u64) -> u64 {
        if self.size < bytes { 0 } else { (self.size - bytes) / self.unit + 1 }
    }
}

fn no_epoch(tries: &Tries) -> Result<(), Failure> {
    if tries.size < 4 {
        return Ok(());
    }
    tries.expecting(DTL_ERROR_INVALID_STATE).all()
}

fn not_locked(tries: &Tries) -> Result<(), Failure> {
    let (win, target) = (tries.win, tries.target);
    let state = DTL_ERROR_INVALID_STATE;
    answers!(dtl_win_unlock(win, target), state)?;
    answers!(dtl_win_unlock_all(win), state)?;
    answers!(dtl_win_flush(win, target), state)?;
    answers!(dtl_win_flush_local(win, target), state)?;
    answers!(dtl_win_flush_all(win), state)?;
    answers!(dtl_win_flush_local_all(win), state)
}

fn bad_locks(tries: &Tries) -> Result<(), Failure> {
    let (win, me, ranks) = (tries.win, tries.me, tries.ranks);
    answers!(dtl_win_lock(win, 0, me), DTL_ERROR_INVALID_ARGUMENT)?;
    answers!(dtl_win_lock(win, 77, me), DTL_ERROR_INVALID_ARGUMENT)?;
    answers!(dtl_win_lock(win, DTL_LOCK_SHARED, ranks), DTL_ERROR_INVALID_RANK)?;
    answers!(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, -77), DTL_ERROR_INVALID_RANK)?;
    answers!(dtl_win_unlock(win, ranks), DTL_ERROR_INVALID_RANK)?;
    answers!(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, DTL_PROC_NULL), DTL_SUCCESS)?;
    answers!(dtl_win_unlock(win, DTL_PROC_NULL), DTL_SUCCESS)
}

fn behind_the_end(tries: &Tries) -> Result<(), Failure> {
    let refused = tries.expecting(DTL_ERROR_OUT_OF_BOUNDS);
    Calls { disp: tries.first_behind(4), ..refused }.all()?;
    let refused = tries.expecting(DTL_ERROR_OUT_OF_BOUNDS);
    Calls { disp: tries.size / tries.unit + 1, count: 0, ..refused }.put()
}

fn overflow(tries: &Tries) -> Result<(), Failure> {
    for disp in
        [u64::MAX, u64::MAX / tries.unit, u64::MAX / tries.unit - 1, 1 << 63, u64::MAX / 2 + 2]
    {
        Calls { disp, ..tries.expecting(DTL_ERROR_OUT_OF_BOUNDS) }.all()?;
    }
    Ok(())
}

/// Makes calls with too many elements: from displacement 0 if the target's part is smaller than 24
/// bytes, otherwise from the last displacement at which one element fits.
fn too_many(tries: &Tries) -> Result<(), Failure> {
    let dtype = DTL_DTYPE_UINT64;
    if tries.size < 24 {
        let count = tries.size / 8 + 1;
        return Calls { count, dtype, ..tries.expecting(DTL_ERROR_OUT_OF_BOUNDS) }.all();
    }
    let disp = tries.first_behind(8) - 1;
    Calls { disp, count: 4, dtype, ..tries.expecting(DTL_ERROR_OUT_OF_BOUNDS) }.all()
}

fn accumulate_behind(tries: &Tries) -> Result<(), Failure> {
    for (dtype, size) in [(DTL_DTYPE_INT8, 1), (DTL_DTYPE_INT64, 8)] {
        let refused = tries.expecting(DTL_ERROR_OUT_OF_BOUNDS);
        let refused = Calls { disp: tries.first_behind(size), dtype, ..refused };
        refused.accumulate(DTL_OP_SUM)?;
        refused.accumulate(DTL_OP_REPLACE)?;
        refused.swap()?;
    }
    let refused = tries.expecting(DTL_ERROR_OUT_OF_BOUNDS);
    let disp = tries.first_behind(16);
    Calls { disp, dtype: DTL_DTYPE_COMPLEX128, ..refused }.accumulate(DTL_OP_SUM)
}

fn no_rank(tries: &Tries) -> Result<(), Failure> {
    for target in [tries.ranks, i32::MAX, -77] {
        Calls { target, ..tries.expecting(DTL_ERROR_INVALID_RANK) }.all()?;
    }
    Ok(())
}

fn nobody(tries: &Tries) -> Result<(), Failure> {
    Calls { target: DTL_PROC_NULL, disp: 1 << 40, ..tries.expecting(DTL_SUCCESS) }.all()?;
    if tries.sync != Sync::Fence {
        answers!(dtl_win_flush(tries.win, DTL_PROC_NULL), DTL_SUCCESS)?;
        answers!(dtl_win_flush_local(tries.win, DTL_PROC_NULL), DTL_SUCCESS)?;
    }
    Ok(())
}

fn bad_types(tries: &Tries) -> Result<(), Failure> {
    if tries.size < 32 {
        return Ok(());
    }
    let refused = |dtype, expected| Calls { dtype, ..tries.expecting(expected) };
    refused(DTL_DTYPE_FLOAT64, DTL_ERROR_TYPE).accumulate(DTL_OP_BAND)?;
    refused(DTL_DTYPE_BOOL, DTL_ERROR_TYPE).accumulate(DTL_OP_SUM)?;
    refused(DTL_DTYPE_COMPLEX64, DTL_ERROR_TYPE).accumulate(DTL_OP_MAX)?;
    refused(DTL_DTYPE_INT32, DTL_ERROR_TYPE).accumulate(DTL_OP_MINLOC)?;
    refused(user::dtype(USER_DTYPE), DTL_ERROR_TYPE).accumulate(DTL_OP_REPLACE)?;
    refused(user::dtype(USER_DTYPE), DTL_ERROR_TYPE).accumulate(user::operation(USER_SUM))?;
    refused(DTL_DTYPE_INT32, DTL_ERROR_TYPE).accumulate(user::operation(USER_SUM))?;
    refused(DTL_DTYPE_INT32, DTL_ERROR_INVALID_ARGUMENT).accumulate(77)?;
    refused(99, DTL_ERROR_INVALID_ARGUMENT).all()?;
    refused(DTL_DTYPE_FLOAT32, DTL_ERROR_TYPE).swap()?;
    refused(DTL_DTYPE_FLOAT64_INT32, DTL_ERROR_TYPE).swap()?;
    refused(user::dtype(USER_DTYPE), DTL_ERROR_TYPE).swap()
}

fn bad_buffers(tries: &Tries) -> Result<(), Failure> {
    if tries.size < 8 {
        return Ok(());
    }
    let (win, to, int) = (tries.win, tries.target, DTL_DTYPE_INT32);
    let mut buffer = [0_i32; 2];
    let both: *mut c_void = buffer.as_mut_ptr().cast();
    let in_place = crate::collective::in_place();
    let (null, bad) = (DTL_ERROR_NULL_POINTER, DTL_ERROR_INVALID_ARGUMENT);
    answers!(dtl_win_put(win, ptr::null(), 1, int, to, 0), null)?;
    answers!(dtl_win_get(win, ptr::null_mut(), 1, int, to, 0), null)?;
    answers!(dtl_win_put(win, in_place, 1, int, to, 0), bad)?;
    answers!(dtl_win_put(win, both, u64::MAX, int, to, 0), bad)?;
    answers!(dtl_win_rget(win, both, 1, int, to, 0, ptr::null_mut()), null)?;
    answers!(dtl_win_fetch_op(win, ptr::null(), both, int, to, 0, DTL_OP_SUM), null)?;
    answers!(dtl_win_get_accumulate(win, both, both, 2, int, to, 0, DTL_OP_SUM), bad)?;
    answers!(dtl_win_fetch_op(win, both, both, int, to, 0, DTL_OP_SUM), bad)?;
    answers!(dtl_win_compare_and_swap(win, both, both, both, int, to, 0), bad)
}

fn locked_twice(tries: &Tries) -> Result<(), Failure> {
    let (win, target, state) = (tries.win, tries.target, DTL_ERROR_INVALID_STATE);
    answers!(dtl_win_lock(win, DTL_LOCK_SHARED, target), state)?;
    answers!(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, target), state)?;
    answers!(dtl_win_lock_all(win), state)?;
    answers!(dtl_win_fence(win), state)?;
    answers!(dtl_win_destroy(win), state)?;
    if tries.sync == Sync::LockAll {
        return answers!(dtl_win_unlock(win, target), state);
    }
    answers!(dtl_win_unlock_all(win), state)?;
    if tries.ranks == 1 || tries.size < 4 {
        return Ok(());
    }
    // The lock is one of the next rank only.
    let other = Calls { target: tries.me, disp: 0, count: 0, ..tries.expecting(state) };
    other.put()?;
    answers!(dtl_win_flush(win, tries.me), state)
}

fn flush_in_a_fence(tries: &Tries) -> Result<(), Failure> {
    let (win, target, state) = (tries.win, tries.target, DTL_ERROR_INVALID_STATE);
    answers!(dtl_win_flush(win, target), state)?;
    answers!(dtl_win_flush_local(win, target), state)?;
    answers!(dtl_win_flush_all(win), state)?;
    answers!(dtl_win_unlock(win, target), state)?;
    // Something was done, if it is only a look.
    let looks = Calls { count: 0, ..tries.expecting(DTL_SUCCESS) };
    looks.get()?;
    answers!(dtl_win_lock(win, DTL_LOCK_SHARED, target), state)?;
    answers!(dtl_win_lock_all(win), state)?;
    answers!(dtl_win_destroy(win), state)
}
