//! One-sided operations through MPI: each window of the library is an MPI window. MPI allocates the
//! memory where possible, because the ranks of a node can then share it.
//!
//! The window is locked for all ranks (shared) from its creation until it is freed, so every
//! operation is allowed at any time, and MPI waits for other ranks only in flushes. The library
//! implements its own locks and fences on top of the window.
//!
//! MPI's windows are used only if threads may call MPI concurrently (MPI_THREAD_MULTIPLE): the
//! library's progress thread must make MPI progress while the program computes, and the MPI calls
//! in this file block.

use super::comm;
use super::library::abi::Int;
use super::library::functions::{Handle, Status};
use super::library::mpi_library::{Hold, Mpi, OVER_TEXT, checked};
use super::message::typed_count;
use super::transport::MpiTransport;
use crate::abi::word::*;
use crate::error::{Result, fail, failure};
use crate::runtime::component::{
    FlushScope, OpId, Rma, RmaOp, Swap, TargetRange, Window, WindowPart,
};
use crate::runtime::log;
use crate::runtime::types::{Reduction, reduction};
use crate::sys::handles::epoch;
use crate::sys::memory::buf::{Addr, Region, Scratch};
use crate::sys::sync::lock::Mutex;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// Alignment, in bytes, that `dtl_win_allocate` guarantees.
const ALIGN: usize = 64;
/// Required alignment, in bytes, of memory that the program passes: MPICH 4.0 assumes that the
/// address of such memory is a multiple of 16; otherwise it accesses memory before that address.
const ALIGN_OF_GIVEN: usize = 16;
/// Maximum number of elements in one MPI accumulate call.
const PIECE: usize = 1 << 28;
/// Maximum number of elements per step of an accumulate operation that updates each element with
/// MPI_Compare_and_swap.
const SWAPPED_PIECE: usize = 1 << 10;

/// Returns `Ok` if the library uses this MPI's windows, otherwise the reason for not using them.
pub(super) fn support(mpi: &Mpi) -> Result<(), &'static str> {
    if !mpi.is_multiple() {
        return Err("MPI's windows need MPI_THREAD_MULTIPLE");
    }
    // Between ranks of a node MPI_Compare_and_swap of Open MPI 4.1 calls a NULL pointer (osc/rdma
    // over btl/vader), and osc/pt2pt does not support MPI_THREAD_MULTIPLE.
    if mpi.is_open_mpi() && major_of(&mpi.version) < 5 {
        return Err("MPI's windows are used from Open MPI 5 on");
    }
    Ok(())
}

fn major_of(version: &str) -> u32 {
    let number =
        version.split(|other: char| !other.is_ascii_digit()).find(|digits| !digits.is_empty());
    number.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Returns true if MPI_Win_flush_all may return too early. MPI_Win_flush_all of MPICH 4.0 returns
/// while large puts to other ranks of the node are still being copied (an MPI program without this
/// library, three ranks, 4 puts of 512 KiB: in 4 of 15 runs; MPI_Win_flush: in 0 of 15 runs).
/// MPI_Win_flush_all of MPICH 5.0 does not return too early (0 of 15 runs). No known property
/// distinguishes correct from faulty earlier releases of the MPICH family, so the function returns
/// true for all of them.
fn is_flush_all_early(mpi: &Mpi) -> bool {
    let is_mended = mpi.version.starts_with("MPICH") && major_of(&mpi.version) >= 5;
    !mpi.is_open_mpi() && !is_mended
}

/// MPI window, and this rank's part of the window memory.
struct MpiWindow {
    mpi: &'static Mpi,
    win: Handle,
    memory: Region,
    rank: c_int,
    ranks: c_int,
    /// True if MPI_Win_flush_all may return too early. A flush of all targets then flushes each
    /// target separately, because MPI_Win_flush does not return too early.
    flushes_each: bool,
    _hold: Hold,
}

impl Rma for MpiTransport {
    fn allocates(&self) -> bool {
        true
    }

    fn window(&self, part: WindowPart<'_>) -> Result<Box<dyn Window>> {
        let &MpiTransport { mpi, user: on, rank, .. } = self;
        let _turn = mpi.enter()?;
        let is_off = |memory: Region, by: usize| memory.addr().get() % by != 0;
        let (win, memory) = match part.memory {
            Some(memory) if comm::agree(mpi, on, is_off(memory, ALIGN_OF_GIVEN))? => {
                return fail!(
                    DTL_ERROR_NOT_SUPPORTED,
                    "memory for MPI's windows is to be {ALIGN_OF_GIVEN}-byte aligned, on all ranks"
                );
            }
            Some(memory) => (create(mpi, on, memory)?, memory),
            None => {
                let size =
                    usize::try_from(rank).ok().and_then(|rank| part.sizes.get(rank)).copied();
                allocate(mpi, on, usize::try_from(size.unwrap_or(0)).unwrap_or(usize::MAX))?
            }
        };
        mpi.make_window_quiet(win)?;
        let is_wrong = !is_unified(mpi, win)? || (part.memory.is_none() && is_off(memory, ALIGN));
        if comm::agree(mpi, on, is_wrong)? {
            free(mpi, win)?;
            return fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "this MPI's windows are not MPI_WIN_UNIFIED, or their memory is not {ALIGN}-byte \
             aligned"
            );
        }
        if part.memory.is_none() {
            memory.fill(0);
        }
        // SAFETY: the window has just been created, and no one else locks it.
        unsafe { checked!(mpi, MPI_Win_lock_all(mpi.abi.int(Int::ModeNocheck), win)) }?;
        let (ranks, flushes_each) = (part.sizes.len() as c_int, is_flush_all_early(mpi));
        Ok(Box::new(MpiWindow { mpi, win, memory, rank, ranks, flushes_each, _hold: Hold::new() }))
    }
}

/// Creates an MPI window over `memory`. Collective; requires an `MpiGuard`.
fn create(mpi: &Mpi, comm: Handle, memory: Region) -> Result<Handle> {
    let (at, len, mut win) = (memory.addr().ptr(), memory.len() as isize, 0);
    // SAFETY: the memory stays valid until the window is closed, per `WindowPart`.
    unsafe { checked!(mpi, MPI_Win_create(at, len, 1, mpi.k.info_null, comm, &raw mut win)) }
        .map(|()| win)
}

fn allocate(mpi: &Mpi, comm: Handle, len: usize) -> Result<(Handle, Region)> {
    // The ranks of a node share one block of memory that contains their parts one after the other.
    let room = len.checked_next_multiple_of(ALIGN).and_then(|room| isize::try_from(room).ok());
    let (mut at, mut win): (*mut c_void, Handle) = (null_mut(), 0);
    let (room, base) = (room.unwrap_or(isize::MAX), (&raw mut at).cast::<c_void>());
    // SAFETY: MPI writes an address and a handle to writable locals.
    unsafe { checked!(mpi, MPI_Win_allocate(room, 1, mpi.k.info_null, comm, base, &raw mut win)) }?;
    let memory = if len == 0 { Region::EMPTY } else { Region::allocated(Addr::new(at), len) };
    Ok((win, memory))
}

fn free(mpi: &Mpi, mut win: Handle) -> Result<()> {
    // SAFETY: the library created the window, which is freed once.
    unsafe { checked!(mpi, MPI_Win_free(&raw mut win)) }
}

/// Returns true if the public and private copies of the window are identical (MPI_WIN_UNIFIED).
fn is_unified(mpi: &Mpi, win: Handle) -> Result<bool> {
    let model =
        mpi.attribute(("MPI_Win_get_attr", mpi.call.MPI_Win_get_attr), win, Int::WinModel)?;
    Ok(model == Some(mpi.abi.int(Int::WinUnified)))
}

impl MpiWindow {
    /// Returns the memory region of the window range `spot` if this rank is the target, or `None`
    /// otherwise.
    fn own(&self, spot: TargetRange) -> Option<Region> {
        (spot.target == self.rank).then(|| self.memory.part(spot.offset, spot.len))
    }

    /// Returns MPI's datatype and operation for an accumulate call.
    fn pair(&self, dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Result<(Handle, Handle)> {
        self.mpi.k.datatype(dtype).zip(self.mpi.k.op(op)).ok_or_else(|| {
            failure!(DTL_ERROR_INTERNAL, "MPI has no datatype {dtype} or operation {op}")
        })
    }

    /// Flushes one target, or all targets if `target` is `None`. Requires an `MpiGuard`.
    fn flush_some(&self, target: Option<i32>, reach: FlushScope) -> Result<()> {
        let (win, call) = (self.win, &self.mpi.call);
        let code = match (target, reach) {
            // SAFETY: the window is alive, in a passive epoch to all targets.
            (Some(target), FlushScope::Target) => unsafe { (call.MPI_Win_flush)(target, win) },
            // SAFETY: the window is alive, in a passive epoch to all targets.
            (Some(target), FlushScope::Local) => unsafe { (call.MPI_Win_flush_local)(target, win) },
            // SAFETY: the window is alive, in a passive epoch to all targets.
            (None, FlushScope::Target) => unsafe { (call.MPI_Win_flush_all)(win) },
            // SAFETY: the window is alive, in a passive epoch to all targets.
            (None, FlushScope::Local) => unsafe { (call.MPI_Win_flush_local_all)(win) },
        };
        self.mpi.check("MPI_Win_flush", code)
    }

    /// Applies an operation to `n` elements of the target, and fetches their previous values into
    /// `result` if it is not `None`. `from` may be empty if the operation does not read it; the
    /// address of `result` is then passed to MPI instead.
    fn apply_piece(
        &self,
        to: TargetRange,
        from: Region,
        result: Option<Region>,
        n: c_int,
        (kind, op): (Handle, Handle),
    ) -> Result<()> {
        let (target, place, win) = (to.target, to.offset as isize, self.win);
        let into = result.map_or(null_mut(), |result| result.addr().ptr());
        let at = if from.is_empty() { into } else { from.addr().ptr() };
        if result.is_none() {
            // SAFETY: both buffers have `n` elements and are valid until the flush, per `Window`.
            return unsafe {
                checked!(self.mpi, MPI_Accumulate(at, n, kind, target, place, n, kind, op, win))
            };
        }
        if n == 1 {
            // SAFETY: all buffers have one element and are valid until the flush, per `Window`.
            return unsafe {
                checked!(self.mpi, MPI_Fetch_and_op(at, into, kind, target, place, op, win))
            };
        }
        // SAFETY: all buffers have `n` elements and are valid until the flush, per `Window`.
        unsafe {
            checked!(
                self.mpi,
                MPI_Get_accumulate(at, n, kind, into, n, kind, target, place, n, kind, op, win)
            )
        }
    }

    /// Starts a put from, or a get into, the buffer `local`.
    fn copy(
        &self,
        spot: TargetRange,
        local: Region,
        is_put: bool,
        wants_op: bool,
    ) -> Result<Option<OpId>> {
        let _turn = self.mpi.enter()?;
        let (n, datatype) = typed_count(self.mpi, spot.len)?;
        let kind = datatype.1;
        let (call, mut request) = (&self.mpi.call, 0);
        let (at, place, rank, win) =
            (local.addr().ptr(), spot.offset as isize, spot.target, self.win);
        let name = if is_put { "MPI_Put" } else { "MPI_Get" };
        let code = match (is_put, wants_op) {
            // SAFETY: both buffers are valid until the operation completes, per `Window`.
            (true, true) => unsafe {
                (call.MPI_Rput)(at, n, kind, rank, place, n, kind, win, &raw mut request)
            },
            // SAFETY: both buffers are valid until the operation completes, per `Window`.
            (true, false) => unsafe { (call.MPI_Put)(at, n, kind, rank, place, n, kind, win) },
            // SAFETY: both buffers are valid until the operation completes, per `Window`.
            (false, true) => unsafe {
                (call.MPI_Rget)(at, n, kind, rank, place, n, kind, win, &raw mut request)
            },
            // SAFETY: both buffers are valid until the operation completes, per `Window`.
            (false, false) => unsafe { (call.MPI_Get)(at, n, kind, rank, place, n, kind, win) },
        };
        self.mpi.check(name, code).map(|()| wants_op.then_some(OpId(request)))
    }

    fn accumulate(
        &self,
        to: TargetRange,
        from: Region,
        result: Option<Region>,
        by: &Reduction,
    ) -> Result<()> {
        let _turn = self.mpi.enter()?;
        let pair = self.pair(by.dtype, by.op)?;
        let is_right = self.is_right(by);
        let most = by.element * if is_right { PIECE } else { SWAPPED_PIECE };
        for at in (0..to.len).step_by(most) {
            let len = (to.len - at).min(most);
            let spot = TargetRange { offset: to.offset + at, len, ..to };
            let (from, count) = (from.part(at, len), (len / by.element) as c_int);
            let result = result.map(|result| result.part(at, len));
            if is_right {
                self.apply_piece(spot, from, result, count, pair)?;
            } else {
                self.by_swaps(spot, from, result, by)?;
            }
        }
        Ok(())
    }

    fn compare_and_swap(&self, to: TargetRange, swap: Swap) -> Result<()> {
        let _turn = self.mpi.enter()?;
        let (datatype, _) = self.pair(swap.dtype, DTL_OP_NO_OP)?;
        let [value, expected, result] =
            [swap.value, swap.expected, swap.result].map(|one| one.addr().ptr());
        let (place, target, win) = (to.offset as isize, to.target, self.win);
        // SAFETY: all buffers have one element and are valid until the flush, per `Window`.
        unsafe {
            checked!(
                self.mpi,
                MPI_Compare_and_swap(value, expected, result, datatype, target, place, win)
            )
        }
    }

    /// Executes an operation with MPI_Compare_and_swap and waits until it has completed: reads the
    /// elements, replaces those that have not changed since the read, and repeats this for the
    /// others until all are replaced.
    fn by_swaps(
        &self,
        to: TargetRange,
        from: Region,
        result: Option<Region>,
        by: &Reduction,
    ) -> Result<()> {
        let len = 3 * to.len;
        let cells = Scratch::new(len).ok_or_else(|| {
            failure!(DTL_ERROR_OUT_OF_MEMORY, "no {len} bytes for an operation at a target")
        })?;
        let swapped = self.swap_in(cells.region(), to, from, result, by);
        if swapped.is_err() {
            // MPI may still write to the scratch memory, so it is leaked.
            std::mem::forget(cells);
        }
        swapped
    }

    fn swap_in(
        &self,
        cells: Region,
        to: TargetRange,
        from: Region,
        result: Option<Region>,
        by: &Reduction,
    ) -> Result<()> {
        let part = |number: usize| cells.part(number * to.len, to.len);
        let (held, expected, value) = (part(0), part(1), part(2));
        let (look, count) = (self.pair(by.dtype, DTL_OP_NO_OP)?, (to.len / by.element) as c_int);
        self.apply_piece(to, Region::EMPTY, Some(held), count, look)?;
        self.flush(Some(to.target), FlushScope::Target)?;
        let mut left: Vec<usize> = (0..to.len).step_by(by.element).collect();
        while !left.is_empty() {
            expected.copy_from(held);
            value.copy_from(held);
            by.apply(value, from);
            for at in &left {
                let one = |of: Region| of.part(*at, by.element);
                let spot = TargetRange { offset: to.offset + at, len: by.element, ..to };
                let (value, expected, result) = (one(value), one(expected), one(held));
                self.compare_and_swap(spot, Swap { value, expected, result, dtype: by.dtype })?;
            }
            self.flush(Some(to.target), FlushScope::Target)?;
            left.retain(|at| !are_same(held.part(*at, by.element), expected.part(*at, by.element)));
        }
        result.into_iter().for_each(|result| result.copy_from(held));
        Ok(())
    }

    /// Returns true if, on 4-byte and 8-byte integers, the operation of this MPI for the reduction
    /// `by` gives the same results as the library's operation.
    fn is_right(&self, by: &Reduction) -> bool {
        match by.op {
            DTL_OP_SUM | DTL_OP_PROD | DTL_OP_REPLACE | DTL_OP_NO_OP => true,
            // MPICH 4.0 and Open MPI 5.0 (osc/rdma) take the top bit of unsigned values for a sign.
            DTL_OP_MIN | DTL_OP_MAX => [DTL_DTYPE_INT32, DTL_DTYPE_INT64].contains(&by.dtype),
            // On one element, where btl/sm executes the network's atomics, Open MPI 5.0 confuses
            // one atomic operation with another: its MPI_BXOR with 0 gives 0.
            _ => !self.mpi.is_open_mpi(),
        }
    }
}

fn are_same(one: Region, other: Region) -> bool {
    // SAFETY: memory of `by_swaps`; the operations that wrote to it have been flushed.
    let one = unsafe { one.as_slice() };
    // SAFETY: memory of `by_swaps`; the operations that wrote to it have been flushed.
    one == unsafe { other.as_slice() }
}

impl Window for MpiWindow {
    fn describe(&self) -> &'static str {
        "MPI's windows; locks and some atomics by messages"
    }

    fn memory(&self) -> Region {
        self.memory
    }

    fn blocks(&self) -> bool {
        true
    }

    fn start(&self, at: TargetRange, op: &RmaOp, wants_op: bool) -> Result<Option<OpId>> {
        match (*op, self.own(at)) {
            (RmaOp::Put(from), Some(own)) => own.copy_from(from),
            (RmaOp::Get(into), Some(own)) => into.copy_from(own),
            (RmaOp::Put(from), None) => return self.copy(at, from, true, wants_op),
            (RmaOp::Get(into), None) => return self.copy(at, into, false, wants_op),
            (RmaOp::Accumulate { from, result, by }, _) => {
                let result = (!result.is_empty()).then_some(result);
                self.accumulate(at, from, result, &reduction(by.dtype, by.op)?)?;
            }
            (RmaOp::CompareAndSwap(swap), _) => self.compare_and_swap(at, swap)?,
        }
        Ok(None)
    }

    fn test(&self, OpId(mut request): OpId) -> Result<bool> {
        let Some(_turn) = self.mpi.enter_unless_over()? else {
            return fail!(DTL_ERROR_INVALID_STATE, "{OVER_TEXT}");
        };
        let (mut over, mut status) = (0, Status::new());
        // SAFETY: the library created the request, and no other caller tests it now; the other
        // arguments are writable locals.
        unsafe { checked!(self.mpi, MPI_Test(&raw mut request, &raw mut over, &raw mut status)) }
            .map(|()| over != 0)
    }

    fn flush(&self, target: Option<i32>, reach: FlushScope) -> Result<Option<OpId>> {
        let _turn = self.mpi.enter()?;
        if target.is_none() && self.flushes_each {
            (0..self.ranks).try_for_each(|each| self.flush_some(Some(each), reach))?;
        } else {
            self.flush_some(target, reach)?;
        }
        Ok(None)
    }

    /// Returns true for integers of 4 and 8 bytes. On elements of other dtypes the library executes
    /// all operations, so that all operations on one element are atomic with respect to each other.
    /// MPI cannot execute all operations with the results that the library guarantees: Open MPI
    /// saturates sums of 8-bit and 16-bit integers (op/avx), MPI does not define MIN and MAX of
    /// NaN, and MPI lacks many of the other dtypes.
    fn has_atomics(&self, dtype: dtl_dtype_t) -> bool {
        matches!(dtype, DTL_DTYPE_INT32 | DTL_DTYPE_INT64 | DTL_DTYPE_UINT32 | DTL_DTYPE_UINT64)
    }

    /// Closes the window. If the ranks do not close it collectively (`together` is false), the MPI
    /// window is kept until MPI is finalized, because freeing it waits for the other ranks.
    fn close(&self, together: bool) {
        if !together {
            LEFT.lock().push(self.win);
            return;
        }
        let Ok(Some(_turn)) = self.mpi.enter_unless_over() else { return };
        log::failure("a window of MPI's could not be freed", end(self.mpi, self.win));
    }
}

/// Windows that were not freed collectively before MPI_Finalize, the oldest first.
static LEFT: Mutex<Vec<Handle>> = Mutex::new(Vec::new());

impl Mpi {
    /// Frees the windows that were not closed collectively. All ranks call this function in
    /// MPI_Finalize.
    pub(super) fn free_windows(&self) {
        let _aside = epoch::aside(); // inside MPI_Finalize, which the program may have called
        let left = std::mem::take(&mut *LEFT.lock());
        for win in left {
            // MPI_Finalize releases every window that MPI does not free now.
            let _ = end(self, win);
        }
    }
}

fn end(mpi: &Mpi, win: Handle) -> Result<()> {
    // SAFETY: `window` created and locked the window.
    unsafe { checked!(mpi, MPI_Win_unlock_all(win)) }?;
    free(mpi, win)
}

#[cfg(test)]
#[path = "tests/window.rs"]
mod tests;
