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

/// Makes a window: memory of each rank that the others read and change by dtl_win_put, dtl_win_get,
/// dtl_win_accumulate and their kin, without calls of this rank. Collective: all ranks call it,
/// each with memory, size and unit of its own.
///
/// Operations belong into epochs: between two calls of dtl_win_fence, or between dtl_win_lock (or
/// dtl_win_lock_all) and its unlock. What a rank stores to its own memory with plain stores, others
/// see after the next fence, or if the rank locks itself meanwhile. docs/explanation/one-sided.md
/// has the whole story: memory, progress, costs.
///
/// The window has a communicator of its own within: `comm` may be destroyed while it lives, and its
/// messages meet nobody else's. `comm`'s time limit counts for every call on the window that waits;
/// dtl_win_fence, dtl_win_destroy and the making of a window tell where the other ranks are when it
/// has passed, and ask them before.
///
/// Ranks that are threads of one process reach each other's memory by themselves; so do ranks of
/// one node (kind "shm") that of dtl_win_allocate. Between processes of one node (kinds "shm" and
/// "hier") the kernel copies puts and gets of other memory, if the system permits that; if not,
/// dtl_explain gives the reason. dtl_win_info reports which of these applies. Otherwise, and for
/// locks and accumulating operations on memory that the kernel copies, a rank serves the others in
/// its calls of this library, and a thread of the library does while there is none, from the first
/// such window to the last one's end. Over an MPI below MPI_THREAD_MULTIPLE it may not, as it would
/// meet the program's own calls of MPI: then a rank serves only within calls of this library, and
/// dtl_win_info reports that.
///
/// @param comm        any kind.
/// @param base        `size_bytes` bytes of host memory, yours, that stay until dtl_win_destroy;
///                    NULL only for 0. No other rank gives the same bytes (of a block that several
///                    have imported, say).
/// @param size_bytes  of this rank's part; may differ between ranks.
/// @param disp_unit   bytes of one step of a displacement in this rank's part, at least 1: the
///                    element's size, say.
/// @param out     yours; end it with dtl_win_destroy.
/// @return DTL_ERROR_NOT_SUPPORTED: `base` is device memory that the host cannot reach.
///         DTL_ERROR_INVALID_ARGUMENT, DTL_ERROR_NULL_POINTER, DTL_ERROR_OUT_OF_MEMORY,
///         DTL_ERROR_LIMIT. What is wrong on one rank is a failure on all of them; it names the
///         rank. Else as dtl_comm_barrier.
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

/// As dtl_win_create, with memory that the library allocates: zeroed, aligned to 64 bytes, freed by
/// dtl_win_destroy. Prefer it where you can: on one node it is memory that others reach without
/// this rank's help, in nanoseconds.
///
/// @param out_base  its first byte; not to be freed. NULL for 0 bytes.
/// @return as dtl_win_create. Equivalent: MPI_Win_allocate.
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

/// Destroys a window. Collective: it returns once all ranks have called it, and nothing touches the
/// memory any more. Requests of dtl_win_rput and dtl_win_rget that were not waited for become
/// stale. Null: nothing happens.
///
/// After a rank has died, or a fence has failed, the other ranks are not waited for: the window
/// ends here, and the call succeeds. So it does if one dies meanwhile. After an unlock that did not
/// end in time too: the locks are given back unseen, and what was begun may or may not be done.
///
/// @return DTL_ERROR_INVALID_STATE: an epoch is open: a lock, or a fence after which operations
///         were called. DTL_ERROR_TIMEOUT: the other ranks do not come; the window lives on, and a
///         second call does not wait for them.
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
/// @param rank      0 ... ranks-1.
/// @param out_info  start from DTL_WIN_INFO_INIT.
/// @return DTL_ERROR_INVALID_RANK, DTL_ERROR_NULL_POINTER, DTL_ERROR_INVALID_ARGUMENT
///         (struct_size).
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

/// Ends the epoch of the fence before, on all ranks, and opens another. Collective. All operations
/// of the epoch that ends are done, here and at their targets; what ranks have stored to their own
/// memory is seen by all. The epoch of the last fence needs no end if nothing is done in it: locks
/// and dtl_win_destroy may follow.
///
/// After a failure no epoch of a fence is open, and none will be: operations need a lock, or the
/// window ends. What was begun before may still be on its way, with its buffers in use, until an
/// unlock or a flush of the target, or the window's end.
///
/// @return DTL_ERROR_INVALID_STATE: this rank has a lock, or another thread asks for one or is in a
///         fence; or an earlier fence has failed. A failure of an operation of this epoch. Else as
///         dtl_comm_barrier.
/// Threads: any. Calls that open or end epochs are claimed before they wait: two for one target, or
/// a fence and any
///          other, do not go together, and the second is DTL_ERROR_INVALID_STATE. Equivalent:
///          MPI_Win_fence(0, win).
/// dtl:call blocks(comm) collective(win)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_win_fence(win: dtl_win_t) -> dtl_status_t {
    Entry("dtl_win_fence").hold(rma::hold, win, sync::fence)
}

/// Opens an epoch to one target, which need not call anything. Waits until the lock is granted:
/// first come, first served, or, where ranks reach the memory by themselves, nearly so: nobody is
/// kept out by the others' turns. Several targets may be locked at the same time. A lock of a rank
/// that dies, or leaves by dtl_finalize, becomes free. (Over kind "mpi" nobody tells of deaths:
/// there it stays taken.)
///
/// A lock that is granted ends the epoch of a fence in which nothing was done. One that is not
/// leaves all as it was: if a fence's epoch was open, it still is.
///
/// @param type    DTL_LOCK_SHARED, or DTL_LOCK_EXCLUSIVE: nobody else has a lock of the target
///                meanwhile.
/// @param target  a rank, this one too, or DTL_PROC_NULL (nothing happens).
/// @return DTL_ERROR_INVALID_STATE: this rank has a lock of it already, another thread asks for it,
///         or operations since the last fence are not over.
///         DTL_ERROR_TIMEOUT: not granted within the time limit; the request is cancelled.
///         DTL_ERROR_RANK_FAILURE: the target died, left, or destroyed the window after a failure.
///         DTL_ERROR_INVALID_RANK, DTL_ERROR_INVALID_ARGUMENT.
/// Threads: as dtl_win_fence. Equivalent: MPI_Win_lock.
/// dtl:type values(DTL_LOCK_)
/// dtl:target rank(null)
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_win_lock(win: dtl_win_t, r#type: i32, target: i32) -> dtl_status_t {
    Entry("dtl_win_lock").hold(rma::hold, win, |window| sync::lock(window, r#type, target))
}

/// Ends the epoch of dtl_win_lock: all operations on the target are done, here and there.
///
/// @param target  as for dtl_win_lock.
/// @return DTL_ERROR_INVALID_STATE: this rank has no lock of it. DTL_ERROR_TIMEOUT: operations are
///         not over: the epoch goes on, call it again, or give the window up by dtl_win_destroy.
///         DTL_ERROR_RANK_FAILURE: the target died, left, or destroyed the window after a failure;
///         the epoch is over.
/// Threads: as dtl_win_fence. Equivalent: MPI_Win_unlock.
/// dtl:target rank(null)
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_win_unlock(win: dtl_win_t, target: i32) -> dtl_status_t {
    const NAME: &str = "dtl_win_unlock";
    Entry(NAME).hold(rma::hold, win, |window| window.unlock(NAME, Some(target)))
}

/// Opens an epoch to all targets, by a shared lock of each. Not collective. It gets them in the
/// order of ranks, so it waits in no ring with others that lock one target at a time, or several in
/// that order.
///
/// @return as dtl_win_lock. Threads: as dtl_win_fence. Equivalent: MPI_Win_lock_all.
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_win_lock_all(win: dtl_win_t) -> dtl_status_t {
    const NAME: &str = "dtl_win_lock_all";
    Entry(NAME).hold(rma::hold, win, |window| window.lock(NAME, None, false))
}

/// Ends the epoch of dtl_win_lock_all.
///
/// @return as dtl_win_unlock. Threads: as dtl_win_fence. Equivalent: MPI_Win_unlock_all.
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_win_unlock_all(win: dtl_win_t) -> dtl_status_t {
    const NAME: &str = "dtl_win_unlock_all";
    Entry(NAME).hold(rma::hold, win, |window| window.unlock(NAME, None))
}

/// Waits until this rank's operations on a target are done, here and there. The lock stays.
///
/// @param target  one that this rank has a lock of (dtl_win_lock or dtl_win_lock_all), or
///                DTL_PROC_NULL.
/// @return the first failure of one of the operations. DTL_ERROR_INVALID_STATE: no lock (between
///         fences only a fence waits). DTL_ERROR_TIMEOUT: they go on, and their buffers stay in
///         use; flush again. DTL_ERROR_RANK_FAILURE: the target has died (each flush of it returns
///         this status), or has destroyed the window after a failure. DTL_ERROR_INVALID_RANK.
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

/// Waits until this rank's operations on a target are done here: buffers may be used again, and
/// what was fetched is there. What was put may not have reached the target yet.
///
/// @return as dtl_win_flush. Threads: any, several at once. Equivalent: MPI_Win_flush_local.
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

/// As dtl_win_flush, for all targets.
///
/// @return as dtl_win_flush. Threads: any, several at once. Equivalent: MPI_Win_flush_all.
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_win_flush_all(win: dtl_win_t) -> dtl_status_t {
    flush(Entry("dtl_win_flush_all"), win, None, FlushScope::Target)
}

/// As dtl_win_flush_local, for all targets.
///
/// @return as dtl_win_flush. Threads: any, several at once. Equivalent: MPI_Win_flush_local_all.
/// dtl:call blocks(comm)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_win_flush_local_all(win: dtl_win_t) -> dtl_status_t {
    flush(Entry("dtl_win_flush_local_all"), win, None, FlushScope::Local)
}
