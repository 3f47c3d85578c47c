//! Communicators: duplicate, split, shrink; attributes; reports.

use crate::abi::comm::communicator::{dtl_attribute_copy_fn_t, dtl_attribute_delete_fn_t};
use crate::abi::handle::dtl_comm_t;
use crate::abi::status::dtl_status_t;
use crate::error::fail;
use crate::ffi::args::{self, Out};
use crate::ffi::guard::Entry;
use crate::runtime::comm;
use crate::runtime::comm::diagnostics::hang_report;
use crate::runtime::comm::open::attribute::{self, Key};
use crate::runtime::comm::open::{agree, group};
use crate::sys::memory::buf::Addr;
use std::ffi::{c_char, c_void};

/// Makes a communicator of the same ranks, whose messages are never matched with those of `comm`.
/// Collective. Like all communicators that are made from another one, it shares the connection, has
/// the same time limit, and lives on when `comm` is destroyed. Each rank uses about 9 KiB for it,
/// and on kinds "shm" and "threads" shared memory for small collectives (see
/// docs/explanation/memory.md). A communicator that does not have all ranks in the order of the
/// opened one uses another 4 bytes for each rank of both. The time to make one does not depend on
/// how many communicators there are.
///
/// @param out  yours; end it with dtl_comm_destroy. Attributes are copied as their keys say.
/// @return as dtl_comm_barrier; DTL_ERROR_LIMIT: 2^32 / size were made already; the status of an
///         attribute's copy function, on this rank alone. If the call fails on some ranks only, the
///         others get a duplicate on which collectives end with DTL_ERROR_RANK_FAILURE. `comm` is
///         then as before, unless a rank died. Equivalent: MPI_Comm_dup.
/// dtl:out owned(dtl_comm_destroy)
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_dup(comm: dtl_comm_t, out: *mut dtl_comm_t) -> dtl_status_t {
    Entry("dtl_comm_dup").wait(
        |inside| Ok((Out::new(out, "out")?, comm::pin(inside, comm)?)),
        |(out, pinned)| out.put(group::dup(&pinned, comm)),
    )
}

/// Makes one communicator for each color. Collective over `comm`.
///
/// @param color  0 or more; DTL_UNDEFINED: none for this rank.
/// @param key    ranks of the new one are in the order of keys, equal ones in that of `comm`.
/// @param out    yours, or DTL_COMM_NULL for DTL_UNDEFINED.
/// @return as dtl_comm_dup; DTL_ERROR_INVALID_ARGUMENT: color. Equivalent: MPI_Comm_split.
/// dtl:out owned(dtl_comm_destroy)
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_split(
    comm: dtl_comm_t,
    color: i32,
    key: i32,
    out: *mut dtl_comm_t,
) -> dtl_status_t {
    Entry("dtl_comm_split").wait(
        |inside| Ok((Out::new(out, "out")?, comm::pin(inside, comm)?)),
        |(out, comm)| out.put(group::split(&comm, color, key)),
    )
}

/// Makes one communicator for each node: of the ranks that run under one kernel (kind "hier": that
/// it counts as one node). Collective over `comm`.
///
/// @param key  as in dtl_comm_split.
/// @param out  yours.
/// @return as dtl_comm_dup; DTL_ERROR_NOT_SUPPORTED: a rank cannot tell its node (named).
/// Equivalent: MPI_Comm_split_type with MPI_COMM_TYPE_SHARED.
/// dtl:out owned(dtl_comm_destroy)
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_split_node(
    comm: dtl_comm_t,
    key: i32,
    out: *mut dtl_comm_t,
) -> dtl_status_t {
    Entry("dtl_comm_split_node").wait(
        |inside| Ok((Out::new(out, "out")?, comm::pin(inside, comm)?)),
        |(out, comm)| out.put(group::split_node(&comm, key)),
    )
}

/// Makes a communicator of the listed ranks, in the list's order. Collective over `comm`: all its
/// ranks pass the same list.
///
/// @param ranks  `count` different ranks of `comm`.
/// @param out    yours, or DTL_COMM_NULL on ranks that are not listed.
/// @return as dtl_comm_dup; DTL_ERROR_INVALID_RANK, DTL_ERROR_INVALID_ARGUMENT: one is listed
///         twice.
/// Equivalent: MPI_Group_incl and MPI_Comm_create.
/// dtl:ranks len(count) rank
/// dtl:out owned(dtl_comm_destroy)
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_group_create(
    comm: dtl_comm_t,
    ranks: *const i32,
    count: u64,
    out: *mut dtl_comm_t,
) -> dtl_status_t {
    Entry("dtl_comm_group_create").wait(
        |inside| {
            let pinned = comm::pin(inside, comm)?;
            let (count, size) = (usize::try_from(count).unwrap_or(usize::MAX), pinned.size);
            if count == 0 || count > size.unsigned_abs() as usize {
                return fail!(DTL_ERROR_INVALID_ARGUMENT, "count {count}: use 1 to {size}");
            }
            if ranks.is_null() {
                return fail!(DTL_ERROR_NULL_POINTER, "ranks is NULL (for {count} ranks)");
            }
            // SAFETY: null, misaligned or `count` ranks by the caller's contract; copied at once.
            let ranks = unsafe { args::slice(ranks, count, "ranks") }?.to_vec();
            Ok((Out::new(out, "out")?, pinned, ranks))
        },
        |(out, comm, ranks)| out.put(group::create(&comm, &ranks)),
    )
}

/// Makes a working communicator of the ranks that survived a failure, in their order. Every
/// survivor calls it. The call first ends all operations that wait on `comm`, on every rank, with
/// DTL_ERROR_RANK_FAILURE. Then the survivors agree on who is left. Ranks that die meanwhile and
/// ranks that destroy `comm` instead are left out, if it is noticed that they do (after a failure:
/// always; without one: docs/explanation/promises.md); else the call ends with DTL_ERROR_TIMEOUT.
/// Without a failure, all other ranks are survivors. Afterwards `comm` is of no use: destroy it.
///
/// The call is collective, and only one thread of a process may be in it for a communicator. Calls
/// of other threads that wait on `comm` end.
///
/// The call may be repeated after DTL_ERROR_TIMEOUT. A shrink that times out is suspended, not
/// failed: the next call on this rank continues it. The ranks need not repeat it at the same time.
/// Other ranks may complete the shrink meanwhile. Their new communicator includes this rank, which
/// gets its handle when its own call succeeds. So all ranks that succeed have the same
/// communicator. If this rank destroys `comm` instead, collectives on the new communicator end with
/// DTL_ERROR_RANK_FAILURE.
///
/// @param out  new communicator, yours, with the survivors as ranks 0 to n-1.
/// @return DTL_ERROR_TIMEOUT: a survivor did not call dtl_comm_shrink within the communicator's
///         time limit (the text reports where that rank is); call it again to continue.
///         DTL_ERROR_RANK_FAILURE: the other ranks have agreed that this rank failed.
///         DTL_ERROR_BUSY: another thread is in this call on `comm`, or a collective on it is
///         further up this thread, in a function of the program's that it has called (see
///         dtl_op_fn_t). DTL_ERROR_CANCELED: another thread destroyed `comm`. Equivalent:
///         MPIX_Comm_revoke and MPIX_Comm_shrink (ULFM).
/// dtl:out owned(dtl_comm_destroy)
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_shrink(comm: dtl_comm_t, out: *mut dtl_comm_t) -> dtl_status_t {
    Entry("dtl_comm_shrink").wait(
        |inside| Ok((Out::new(out, "out")?, comm::pin(inside, comm)?)),
        |(out, comm)| out.put(agree::shrink(&comm)),
    )
}

/// Ends this process at once with an exit code (no atexit functions, no destructors), after a line
/// in the log. The launcher ends the other ranks (dtlrun and mpirun do). Does not return unless it
/// fails.
///
/// @param code  the exit code, 1 ... 255.
/// Equivalent: MPI_Abort.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_comm_abort(comm: dtl_comm_t, code: i32) -> dtl_status_t {
    Entry("dtl_comm_abort").call(|inside| {
        if !(1..=255).contains(&code) {
            return fail!(DTL_ERROR_INVALID_ARGUMENT, "code {code}: use 1 to 255");
        }
        comm::abort(&*comm::pin(inside, comm)?, code)
    })
}

/// Tells where the ranks are: which operation each is in, as far as it answers within half a second
/// (a rank answers while it waits in a call of this library), and each rank's last operations. Any
/// rank may ask at any time, also from another thread while the first one waits.
///
/// @param buf      `cap` bytes for the text and its NUL; NULL with cap 0 asks for the length only
///                 (the text may be another one the next time: pass a few KiB).
/// @param out_len  length needed without the NUL; may be NULL.
/// @return DTL_ERROR_BUFFER_TOO_SMALL: nothing written but *out_len.
/// dtl:buf out len(cap) opt(cap==0)
/// dtl:out_len opt
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_dump(
    comm: dtl_comm_t,
    buf: *mut c_char,
    cap: u64,
    out_len: *mut u64,
) -> dtl_status_t {
    Entry("dtl_comm_dump").wait(
        |inside| comm::pin(inside, comm),
        |comm| {
            // SAFETY: the caller's contract.
            unsafe { args::put_text(&hang_report::dump(&comm), buf, cap, out_len) }
        },
    )
}

/// Makes a key for attributes: pointers of the program's own on communicators.
///
/// @param copy_fn    called by dtl_comm_dup; NULL: duplicates do not get the attribute.
/// @param delete_fn  called when an attribute ends; NULL: nothing to do.
/// @param user       passed to both.
/// @param out_key    yours; end it with dtl_comm_key_destroy. dtl_finalize ends all keys.
/// @return DTL_ERROR_LIMIT. Equivalent: MPI_Comm_create_keyval.
/// dtl:user opaque opt until(call_of:dtl_finalize)
/// dtl:out_key owned(dtl_comm_key_destroy)
/// dtl:copy_fn opt until(call_of:dtl_finalize)
/// dtl:delete_fn opt until(call_of:dtl_finalize)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_key_create(
    copy_fn: dtl_attribute_copy_fn_t,
    delete_fn: dtl_attribute_delete_fn_t,
    user: *mut c_void,
    out_key: *mut i32,
) -> dtl_status_t {
    Entry("dtl_comm_key_create").call(|_| {
        Out::new(out_key, "out_key")?.put(attribute::create_key(Key {
            copy: copy_fn,
            delete: delete_fn,
            user: Addr::new(user),
        }))
    })
}

/// Ends a key. Attributes under it stay, and dtl_comm_get_attr finds them, until their
/// communicators are destroyed; none can be set any more.
///
/// @return DTL_ERROR_INVALID_HANDLE: no such key. Equivalent: MPI_Comm_free_keyval.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_comm_key_destroy(key: i32) -> dtl_status_t {
    Entry("dtl_comm_key_destroy").call(|_| attribute::destroy_key(key))
}

/// Puts a pointer on a communicator, of this process only. One that was there under the key ends.
///
/// @return DTL_ERROR_INVALID_HANDLE: communicator or key. Equivalent: MPI_Comm_set_attr.
/// dtl:value opaque opt until(call_of:dtl_comm_delete_attr|dtl_comm_destroy)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_comm_set_attr(
    comm: dtl_comm_t,
    key: i32,
    value: *mut c_void,
) -> dtl_status_t {
    Entry("dtl_comm_set_attr").wait(
        |inside| comm::pin(inside, comm),
        |pinned| pinned.attributes.set(comm, key, Addr::new(value)),
    )
}

/// Reads an attribute.
///
/// @param out_value  the pointer; NULL if there is none.
/// @param out_found  1 or 0.
/// @return DTL_ERROR_INVALID_HANDLE: communicator or key. Equivalent: MPI_Comm_get_attr.
/// dtl:out_found bool
/// dtl:out_value borrowed
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_get_attr(
    comm: dtl_comm_t,
    key: i32,
    out_value: *mut *mut c_void,
    out_found: *mut i32,
) -> dtl_status_t {
    Entry("dtl_comm_get_attr").call(|inside| {
        let (out_value, out_found) =
            (Out::new(out_value, "out_value")?, Out::new(out_found, "out_found")?);
        let value = comm::pin(inside, comm)?.attributes.get(key)?;
        out_value.set(value.map_or(std::ptr::null_mut(), Addr::ptr));
        out_found.set(i32::from(value.is_some()));
        Ok(())
    })
}

/// Ends an attribute: its key's delete_fn is called.
///
/// @return DTL_ERROR_NOT_FOUND: there is none. DTL_ERROR_INVALID_HANDLE: communicator or key.
/// Equivalent: MPI_Comm_delete_attr.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_comm_delete_attr(comm: dtl_comm_t, key: i32) -> dtl_status_t {
    Entry("dtl_comm_delete_attr")
        .wait(|inside| comm::pin(inside, comm), |pinned| pinned.attributes.delete(comm, key))
}
