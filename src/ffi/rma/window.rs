//! Windows: create, fence, lock, flush (one-sided communication).

use crate::abi::comm::window::dtl_win_info_t;
use crate::abi::handle::{dtl_comm_t, dtl_win_t};
use crate::abi::status::dtl_status_t;
use crate::error::Error;
use crate::ffi::args::{self, Out};
use crate::ffi::guard::{self, Entry};
use crate::hints::out_of_line;
use crate::runtime::comm;
use crate::runtime::comm::rma::{self, WindowOffer, fast, sync};
use crate::runtime::component::FlushScope;
use crate::sys::handles::epoch::Visit;
use std::ffi::c_void;

/// Waits for operations on one target of a window, or on all (`None`), to the extent `reach`.
fn flush(entry: Entry, win: dtl_win_t, target: Option<i32>, reach: FlushScope) -> dtl_status_t {
    entry.hold(rma::hold, win, |window| window.flush(entry.0, target, reach))
}

/// Creates a window: memory of each rank that the other ranks access with dtl_win_put, dtl_win_get,
/// dtl_win_accumulate and the like, without calls of this rank. Collective: every rank calls it,
/// each with its own memory, size and unit.
///
/// Operations belong to epochs: between two calls of dtl_win_fence, or between dtl_win_lock (or
/// dtl_win_lock_all) and its unlock. Plain stores of a rank to its own memory are visible to the
/// others after the next fence, or if the rank holds a lock on itself meanwhile. See
/// docs/explanation/one-sided.md for memory, progress and costs.
///
/// The window has an internal communicator. So `comm` may be destroyed while the window exists, and
/// messages of the two never match. The time limit of `comm` applies to every blocking call on the
/// window. The calls that create a window, dtl_win_fence and dtl_win_destroy query the state of the
/// other ranks shortly before the limit and report it.
///
/// Ranks that are threads of one process access each other's memory directly. So do ranks of one
/// node (kind "shm") for memory from dtl_win_allocate. Between processes of one node (kinds "shm"
/// and "hier") the kernel copies puts and gets of other memory if the system permits it; if not,
/// dtl_explain gives the reason. dtl_win_info reports which path is used.
///
/// Otherwise, and for locks and accumulate operations on memory that the kernel copies, the target
/// rank serves the others within its calls of this library. While it makes none, a thread of the
/// library serves them; that thread exists from the first such window to the end of the last. Over
/// an MPI below MPI_THREAD_MULTIPLE there is no such thread, as it could collide with MPI calls of
/// the program. Then a rank serves only within calls of this library, and dtl_win_info reports
/// that.
///
/// @param comm        Communicator of any kind.
/// @param base        `size_bytes` bytes of host memory, which the caller owns and keeps until
///                    dtl_win_destroy. NULL only for 0 bytes. No other rank may pass the same bytes
///                    (for example of a block that several ranks have imported).
/// @param size_bytes  Size of this rank's part in bytes; may differ between ranks.
/// @param disp_unit   Bytes of one step of a displacement in this rank's part, at least 1; for
///                    example the size of an element.
/// @param out         The window. The caller owns it; destroy it with dtl_win_destroy.
/// @return DTL_ERROR_NOT_SUPPORTED: `base` is device memory that the host cannot access.
///         DTL_ERROR_INVALID_ARGUMENT: `disp_unit` is 0, or the ranks are in different collectives.
///         DTL_ERROR_NULL_POINTER: `base` is NULL for more than 0 bytes, or `out` is NULL.
///         DTL_ERROR_OUT_OF_MEMORY: no memory for the window. DTL_ERROR_LIMIT: no window handle is
///         left, or the serving thread cannot start. If one rank fails, all fail, and the text
///         names that rank. DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT, DTL_ERROR_BUSY,
///         DTL_ERROR_INVALID_STATE: see dtl_comm_barrier.
/// Threads: any; one collective on `comm` at a time. Equivalent: MPI_Win_create.
/// dtl:base inout len(size_bytes) opt(size_bytes==0) until(destroy)
/// dtl:out owned(dtl_win_destroy)
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_win_create(
    comm: dtl_comm_t,
    base: *mut c_void,
    size_bytes: u64,
    disp_unit: u64,
    out: *mut dtl_win_t,
) -> dtl_status_t {
    Entry("dtl_win_create").hold(comm::hold, comm, |comm| {
        let out = Out::new(out, "out");
        // If the output is bad, the other ranks hear of that, too.
        let offer = out.as_ref().map_err(Error::clone).and_then(|_| {
            // SAFETY: the caller's contract: the memory stays until the window's end.
            WindowOffer::of(unsafe { args::region(base, size_bytes, "base") }?, disp_unit)
        });
        let (win, _) = rma::create(comm, offer)?;
        out?.set(win);
        Ok(())
    })
}

/// Creates a window with memory that the library allocates. The memory is zeroed, aligned to
/// 64 bytes, and freed by dtl_win_destroy. Prefer it to dtl_win_create where possible: on one node
/// other ranks access this memory directly, in nanoseconds. The rules for windows are those of
/// dtl_win_create.
///
/// @param comm        Communicator of any kind.
/// @param size_bytes  Size of this rank's part in bytes; may differ between ranks.
/// @param disp_unit   Bytes of one step of a displacement in this rank's part, at least 1.
/// @param out_base    First byte of this rank's part; do not free it. NULL for 0 bytes.
/// @param out         The window. The caller owns it; destroy it with dtl_win_destroy.
/// @return DTL_ERROR_INVALID_ARGUMENT: `disp_unit` is 0, or the ranks are in different collectives.
///         DTL_ERROR_NULL_POINTER: `out_base` or `out` is NULL. DTL_ERROR_OUT_OF_MEMORY: no memory
///         for this part. DTL_ERROR_LIMIT: no window handle is left, or the serving thread cannot
///         start. If one rank fails, all fail, and the text names that rank.
///         DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE: see
///         dtl_comm_barrier.
/// Threads: any; one collective on `comm` at a time. Equivalent: MPI_Win_allocate.
/// dtl:out_base borrowed
/// dtl:out owned(dtl_win_destroy)
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_win_allocate(
    comm: dtl_comm_t,
    size_bytes: u64,
    disp_unit: u64,
    out_base: *mut *mut c_void,
    out: *mut dtl_win_t,
) -> dtl_status_t {
    Entry("dtl_win_allocate").hold(comm::hold, comm, |comm| {
        let out = Out::new(out_base, "out_base").and_then(|base| Ok((base, Out::new(out, "out")?)));
        // If an output is bad, the other ranks hear of that, too.
        let is_good = out.as_ref().map_err(Error::clone);
        let offer = is_good.and_then(|_| WindowOffer::allocate(size_bytes, disp_unit));
        let (win, base) = rma::create(comm, offer)?;
        let (out_base, out) = out?;
        out_base.set(base.ptr());
        out.set(win);
        Ok(())
    })
}

/// Destroys a window. Collective: it returns when all ranks have called it and nothing accesses the
/// memory any more. Incomplete requests from dtl_win_rput and dtl_win_rget become stale. Null: no
/// effect.
///
/// After the death of a rank (even during the call) or a failed fence, the call does not wait for
/// the other ranks: it destroys the window and succeeds. The same applies after an unlock that
/// timed out: the locks are then released unchecked, and the operations that were started may or
/// may not be done.
///
/// @return DTL_ERROR_INVALID_STATE: an epoch is open, either by a lock or by a fence after which
///         operations were called. DTL_ERROR_TIMEOUT: the other ranks have not called it; the
///         window still exists, and a second call does not wait for them.
/// Threads: any; no other call on the window at the same time. Equivalent: MPI_Win_free.
/// dtl:call blocks(comm) collective(win) synchronised
#[unsafe(no_mangle)]
pub extern "C" fn dtl_win_destroy(win: dtl_win_t) -> dtl_status_t {
    Entry("dtl_win_destroy").wait(
        |inside| rma::pin_to_destroy(inside, win),
        |window| window.map_or(Ok(()), |window| rma::destroy(&window, win)),
    )
}

/// Describes one rank's part of a window.
///
/// @param rank      0 to ranks-1.
/// @param out_info  Start from DTL_WIN_INFO_INIT.
/// @return DTL_ERROR_INVALID_RANK: `rank` is not in the window. DTL_ERROR_NULL_POINTER: `out_info`
///         is NULL. DTL_ERROR_INVALID_ARGUMENT: struct_size is invalid.
/// Threads: any. Equivalent: MPI_Win_get_attr.
/// dtl:rank rank
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_win_info(
    win: dtl_win_t,
    rank: i32,
    out_info: *mut dtl_win_info_t,
) -> dtl_status_t {
    Entry("dtl_win_info").hold(rma::hold, win, |window| {
        Out::new(out_info, "out_info").map_err(|error| error.within("dtl_win_info"))?;
        // SAFETY: the caller's contract.
        unsafe { args::fill(out_info, "out_info", || rma::info(window, rank)) }
    })
}

/// Ends the current fence epoch on all ranks and opens the next one. Collective. All operations of
/// the ended epoch are complete at the origin and the target, and stores of all ranks to their own
/// memory are visible to all. An epoch in which nothing was done need not be ended: locks and
/// dtl_win_destroy may follow.
///
/// After a failure no fence epoch is open, and none can be opened: use locks, or destroy the
/// window. Operations that were started may still be in flight, with their buffers in use, until an
/// unlock or a flush of the target, or the end of the window.
///
/// @return DTL_ERROR_INVALID_STATE: this rank holds a lock, another thread waits for a lock or is
///         in a fence, or an earlier fence failed. DTL_ERROR_RANK_FAILURE: a rank died, left or is
///         absent. DTL_ERROR_TIMEOUT: the time limit passed. DTL_ERROR_INVALID_ARGUMENT: the ranks
///         are in different collectives. Otherwise the failure of an operation of the epoch.
/// Threads: any. Only one call that opens or ends an epoch may be in progress per target, and a
/// fence excludes all others: the second call returns DTL_ERROR_INVALID_STATE. Equivalent:
/// MPI_Win_fence(0, win).
/// dtl:call blocks(comm) collective(win)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_win_fence(win: dtl_win_t) -> dtl_status_t {
    Entry("dtl_win_fence").hold(rma::hold, win, sync::fence)
}

/// Opens a passive-target epoch: locks one target, which makes no call itself. Blocks until the
/// lock is granted. Requests are granted in order (where ranks access the memory directly, only
/// approximately, but without starvation). Several targets may be locked at once. The lock of a
/// rank that dies, or leaves by dtl_finalize, is released. (Kind "mpi" does not report deaths:
/// there it stays locked.)
///
/// A granted lock ends a fence epoch in which nothing was done. A lock that is not granted changes
/// nothing: an open fence epoch stays open.
///
/// @param type    DTL_LOCK_SHARED, or DTL_LOCK_EXCLUSIVE: no other rank holds a lock on the target
///                meanwhile.
/// @param target  A rank, which may be this one, or DTL_PROC_NULL (no effect).
/// @return DTL_ERROR_INVALID_STATE: this rank holds a lock on the target already, another thread
///         waits for one, or operations since the last fence are not complete. DTL_ERROR_TIMEOUT:
///         the lock was not granted within the time limit; the request is cancelled.
///         DTL_ERROR_RANK_FAILURE: the target died, left, or destroyed the window after a failure.
///         DTL_ERROR_INVALID_RANK: `target` is not in the window. DTL_ERROR_INVALID_ARGUMENT:
///         `type` is invalid.
/// Threads: any, with the rule of dtl_win_fence. Equivalent: MPI_Win_lock.
/// dtl:type values(DTL_LOCK_)
/// dtl:target rank(null)
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_win_lock(win: dtl_win_t, r#type: i32, target: i32) -> dtl_status_t {
    Entry("dtl_win_lock").hold(rma::hold, win, |window| sync::lock(window, r#type, target))
}

/// Ends the epoch of dtl_win_lock. Blocks until all operations on the target are complete at the
/// origin and the target.
///
/// @param target  A rank that this rank has locked, or DTL_PROC_NULL (no effect).
/// @return DTL_ERROR_INVALID_STATE: this rank holds no lock on the target. DTL_ERROR_TIMEOUT:
///         operations are not complete. The epoch continues: call it again, or abandon the window
///         with dtl_win_destroy. DTL_ERROR_RANK_FAILURE: the target died, left, or destroyed the
///         window after a failure; the epoch has ended. DTL_ERROR_INVALID_RANK: `target` is not in
///         the window. Otherwise the failure of an operation.
/// Threads: any, with the rule of dtl_win_fence. Equivalent: MPI_Win_unlock.
/// dtl:target rank(null)
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_win_unlock(win: dtl_win_t, target: i32) -> dtl_status_t {
    const NAME: &str = "dtl_win_unlock";
    Entry(NAME).hold(rma::hold, win, |window| window.unlock(NAME, Some(target)))
}

/// Opens an epoch to all targets, with a shared lock on each. Not collective. Blocks until all
/// locks are granted. They are acquired in the order of ranks, so there is no deadlock with ranks
/// that lock one target at a time, or several in that order.
///
/// @return DTL_ERROR_INVALID_STATE, DTL_ERROR_TIMEOUT, DTL_ERROR_RANK_FAILURE: see dtl_win_lock.
/// Threads: any, with the rule of dtl_win_fence. Equivalent: MPI_Win_lock_all.
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_win_lock_all(win: dtl_win_t) -> dtl_status_t {
    const NAME: &str = "dtl_win_lock_all";
    Entry(NAME).hold(rma::hold, win, |window| window.lock(NAME, None, false))
}

/// Ends the epoch of dtl_win_lock_all. Blocks until all operations are complete at the origin and
/// the target.
///
/// @return DTL_ERROR_INVALID_STATE: there was no dtl_win_lock_all. DTL_ERROR_TIMEOUT,
///         DTL_ERROR_RANK_FAILURE, or the failure of an operation: see dtl_win_unlock.
/// Threads: any, with the rule of dtl_win_fence. Equivalent: MPI_Win_unlock_all.
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_win_unlock_all(win: dtl_win_t) -> dtl_status_t {
    const NAME: &str = "dtl_win_unlock_all";
    Entry(NAME).hold(rma::hold, win, |window| window.unlock(NAME, None))
}

/// Blocks until this rank's operations on a target are complete at the origin and the target. The
/// lock stays.
///
/// @param target  A rank that this rank has locked (dtl_win_lock or dtl_win_lock_all), or
///                DTL_PROC_NULL.
/// @return DTL_ERROR_INVALID_STATE: this rank holds no lock on the target (between fences only a
///         fence completes operations). DTL_ERROR_TIMEOUT: the operations continue, and their
///         buffers stay in use; flush again. DTL_ERROR_RANK_FAILURE: the target has died (each
///         flush of it returns this status), or has destroyed the window after a failure.
///         DTL_ERROR_INVALID_RANK: `target` is not in the window. Otherwise the first failure of an
///         operation.
/// Threads: any, several at once. Equivalent: MPI_Win_flush.
/// dtl:target rank(null)
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_win_flush(win: dtl_win_t, target: i32) -> dtl_status_t {
    let fast = move |visit: Visit| fast::flush(&visit, win, target, false);
    guard::quick(guard::is_open_for_quick, fast, move || {
        out_of_line(move || flush(Entry("dtl_win_flush"), win, Some(target), FlushScope::Target))
    })
}

/// Blocks until this rank's operations on a target are complete locally. Buffers may then be
/// reused, and fetched values are available. Data of a put may not have reached the target yet.
///
/// @param target  A rank that this rank has locked (dtl_win_lock or dtl_win_lock_all), or
///                DTL_PROC_NULL.
/// @return DTL_ERROR_INVALID_STATE, DTL_ERROR_TIMEOUT, DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_INVALID_RANK, or the first failure of an operation: see dtl_win_flush.
/// Threads: any, several at once. Equivalent: MPI_Win_flush_local.
/// dtl:target rank(null)
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_win_flush_local(win: dtl_win_t, target: i32) -> dtl_status_t {
    let fast = move |visit: Visit| fast::flush(&visit, win, target, true);
    guard::quick(guard::is_open_for_quick, fast, move || {
        out_of_line(move || {
            flush(Entry("dtl_win_flush_local"), win, Some(target), FlushScope::Local)
        })
    })
}

/// Blocks until this rank's operations on all targets are complete at the origin and the target.
/// The locks stay.
///
/// @return DTL_ERROR_INVALID_STATE, DTL_ERROR_TIMEOUT, DTL_ERROR_RANK_FAILURE, or the first failure
///         of an operation: see dtl_win_flush.
/// Threads: any, several at once. Equivalent: MPI_Win_flush_all.
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_win_flush_all(win: dtl_win_t) -> dtl_status_t {
    flush(Entry("dtl_win_flush_all"), win, None, FlushScope::Target)
}

/// Blocks until this rank's operations on all targets are complete locally, as for
/// dtl_win_flush_local.
///
/// @return DTL_ERROR_INVALID_STATE, DTL_ERROR_TIMEOUT, DTL_ERROR_RANK_FAILURE, or the first failure
///         of an operation: see dtl_win_flush.
/// Threads: any, several at once. Equivalent: MPI_Win_flush_local_all.
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_win_flush_local_all(win: dtl_win_t) -> dtl_status_t {
    flush(Entry("dtl_win_flush_local_all"), win, None, FlushScope::Local)
}
