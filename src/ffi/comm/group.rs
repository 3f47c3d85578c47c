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
use crate::runtime::comm::open::{agree, group, grow};
use crate::sys::memory::buf::Addr;
use std::ffi::{c_char, c_void};

/// Creates a communicator with the same ranks. Its messages never match those of `comm`.
/// Collective. Like all communicators that are created from another one, it shares the connections
/// of `comm`, has its time limit, and stays valid when `comm` is destroyed.
///
/// It uses about 9 KiB per rank and, on kinds "shm" and "threads", shared memory for small
/// collectives (see docs/explanation/memory.md). Unless it has all ranks of the opened one in the
/// same order, it uses another 4 bytes for each of its own ranks and of those of the opened one.
/// The time for the call does not depend on the number of communicators.
///
/// @param out  The communicator. The caller owns it; destroy it with dtl_comm_destroy. Its
///             attributes are those that the copy functions of their keys copy.
/// @return DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE,
///         DTL_ERROR_INVALID_ARGUMENT: see dtl_comm_barrier. DTL_ERROR_LIMIT: 2^32 / size
///         communicators were created already. Otherwise the status of an attribute's copy
///         function, on this rank only. If the call fails on some ranks only, the others get a
///         duplicate on which collectives fail with DTL_ERROR_RANK_FAILURE. `comm` is then
///         unchanged, unless a rank died. Equivalent: MPI_Comm_dup.
/// dtl:out owned(dtl_comm_destroy)
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_dup(comm: dtl_comm_t, out: *mut dtl_comm_t) -> dtl_status_t {
    Entry("dtl_comm_dup").wait(
        |inside| Ok((Out::new(out, "out")?, comm::pin(inside, comm)?)),
        |(out, pinned)| out.put(group::dup(&pinned, comm)),
    )
}

/// Creates one communicator per color. Collective over `comm`. For the rules see dtl_comm_dup;
/// attributes are not copied.
///
/// @param color  0 or more, or DTL_UNDEFINED: no communicator for this rank.
/// @param key    The new ranks are ordered by key, then by rank in `comm`.
/// @param out    The communicator, or DTL_COMM_NULL for DTL_UNDEFINED. The caller owns it; destroy
///               it with dtl_comm_destroy.
/// @return DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE,
///         DTL_ERROR_INVALID_ARGUMENT: see dtl_comm_barrier. The last is also returned if `color`
///         is invalid. DTL_ERROR_LIMIT: 2^32 / size communicators were created already.
/// Equivalent: MPI_Comm_split.
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

/// Creates one communicator per node, with the ranks that run under one kernel (kind "hier": that
/// it treats as one node). Collective over `comm`. For the rules see dtl_comm_dup; attributes are
/// not copied.
///
/// @param key  The new ranks are ordered by key, then by rank in `comm`.
/// @param out  The communicator. The caller owns it; destroy it with dtl_comm_destroy.
/// @return DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE,
///         DTL_ERROR_INVALID_ARGUMENT: see dtl_comm_barrier. DTL_ERROR_LIMIT: 2^32 / size
///         communicators were created already. DTL_ERROR_NOT_SUPPORTED: a rank cannot identify its
///         node; the text names it. Equivalent: MPI_Comm_split_type with MPI_COMM_TYPE_SHARED.
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

/// Creates a communicator of the listed ranks, in the order of the list. Collective over `comm`:
/// all its ranks pass the same list. For the rules see dtl_comm_dup; attributes are not copied.
///
/// @param ranks  `count` different ranks of `comm`.
/// @param count  Number of ranks, 1 to size of `comm`.
/// @param out    The communicator, or DTL_COMM_NULL on ranks that are not listed. The caller owns
///               it; destroy it with dtl_comm_destroy.
/// @return DTL_ERROR_RANK_FAILURE, DTL_ERROR_TIMEOUT, DTL_ERROR_BUSY, DTL_ERROR_INVALID_STATE,
///         DTL_ERROR_INVALID_ARGUMENT: see dtl_comm_barrier. DTL_ERROR_INVALID_RANK: a listed rank
///         is not in `comm`. DTL_ERROR_INVALID_ARGUMENT: `count` is out of range, or a rank is
///         listed twice. DTL_ERROR_LIMIT: 2^32 / size communicators were created already.
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

/// Creates a working communicator of the ranks that survived a failure, in their order. Every
/// survivor calls it. The call first ends all waiting operations on `comm`, on every rank, with
/// DTL_ERROR_RANK_FAILURE. Then the survivors agree on the remaining ranks. Ranks that die
/// meanwhile are excluded. So are ranks that destroy `comm` instead, if that is detected (after a
/// failure: always; without one: docs/explanation/promises.md); else the call ends with
/// DTL_ERROR_TIMEOUT. Without a failure, all other ranks are survivors. Afterwards `comm` cannot be
/// used: destroy it.
///
/// The call is collective. Only one thread of a process may be in it for one communicator. Waiting
/// calls of other threads on `comm` end.
///
/// The call may be repeated after DTL_ERROR_TIMEOUT. A shrink that times out is suspended, not
/// failed: the next call on this rank continues it. The ranks need not repeat it at the same time.
/// Other ranks may complete the shrink meanwhile. Their new communicator includes this rank, which
/// gets its handle when its own call succeeds. So all ranks that succeed have the same
/// communicator. If this rank destroys `comm` instead, collectives on the new communicator end with
/// DTL_ERROR_RANK_FAILURE.
///
/// @param out  The new communicator, with the survivors as ranks 0 to n-1. The caller owns it;
///             destroy it with dtl_comm_destroy.
/// @return DTL_ERROR_TIMEOUT: a survivor did not call dtl_comm_shrink within the communicator's
///         time limit (the text reports where that rank is); call it again to continue.
///         DTL_ERROR_RANK_FAILURE: the other ranks have agreed that this rank failed.
///         DTL_ERROR_BUSY: another thread is in this call on `comm`, or the call comes from a
///         callback of a collective on `comm` (see dtl_op_fn_t). DTL_ERROR_CANCELED: another thread
///         destroyed `comm`. Equivalent: MPIX_Comm_revoke and MPIX_Comm_shrink (ULFM).
/// dtl:out owned(dtl_comm_destroy)
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_shrink(comm: dtl_comm_t, out: *mut dtl_comm_t) -> dtl_status_t {
    Entry("dtl_comm_shrink").wait(
        |inside| Ok((Out::new(out, "out")?, comm::pin(inside, comm)?)),
        |(out, comm)| out.put(agree::shrink(&comm)),
    )
}

/// Revokes a communicator: on every rank, operations on it that wait end with DTL_ERROR_REVOKED,
/// and later operations fail with it. Not collective: any rank may call it at any time, for example
/// a rank that got DTL_ERROR_RANK_FAILURE while others wait for its messages. It does not wait. A
/// second call, also on another rank, has no effect.
///
/// Each rank detects the revocation in a call that waits, or that tests without success, on this or
/// another communicator, and then notifies all others. So all live ranks detect it even if the
/// caller dies. If the caller then destroys the communicator or finalizes, ranks that wait for it
/// get DTL_ERROR_REVOKED, not DTL_ERROR_RANK_FAILURE. The same holds if the caller dies, unless it
/// dies before the notification is sent. A call that completes at once may succeed before the rank
/// has detected the revocation. A message that has arrived completely may still be received by a
/// request that waits for it. A message that is matched is completed first; after that, the library
/// does not access the buffers of operations that ended.
/// Operations that MPI itself executes do not end: blocking calls and collectives of kind "mpi"
/// without a time limit (see docs/explanation/failures.md).
///
/// dtl_comm_shrink, dtl_comm_destroy, dtl_comm_dump, and queries such as dtl_comm_rank and
/// dtl_comm_info still work on `comm`. Windows over `comm` are revoked too: dtl_win_destroy still
/// works, and does not wait. Communicators that were made from `comm` are not revoked.
///
/// Several threads may call it, also while another thread waits in a call on `comm`.
///
/// @return DTL_ERROR_BUSY: the call comes from a callback of a collective on `comm` (see
///         dtl_op_fn_t). DTL_ERROR_CANCELED: another thread destroyed `comm`. Equivalent:
///         MPIX_Comm_revoke (ULFM).
#[unsafe(no_mangle)]
pub extern "C" fn dtl_comm_revoke(comm: dtl_comm_t) -> dtl_status_t {
    Entry("dtl_comm_revoke").wait(|inside| comm::pin(inside, comm), |comm| comm::revoke(&comm))
}

/// Creates a communicator of the ranks of `comm` and of new ranks, which can replace those that a
/// dtl_comm_shrink has removed. For each new rank a process of the program is started, with the
/// program's arguments and the launcher's environment. dtlrun starts it on its own node. For kind
/// "mpi", MPI starts it and chooses the node. `comm` is not changed.
///
/// In a new process, DTL_COMM_WORLD and the first dtl_comm_open without rank and size are the grown
/// communicator: the process waits there for the ranks of `comm`. A new process must open the same
/// kind (there DTL_COMM names it) with the same flags. Then it must make the same collective calls
/// as the old ranks make after this call, for example a dtl_comm_bcast of the state from rank 0. It
/// must create all further communicators from that one (dtl_comm_dup, dtl_comm_split).
/// docs/explanation/failures.md has the rules.
///
/// The call is collective over `comm`. It blocks until all ranks have opened the new communicator.
/// All ranks first compare their arguments. In the first step, rank 0 waits until all new processes
/// have begun to open the new communicator. In the second step, all ranks complete the opening.
/// Each step takes at most 30 s, or half the time limit of `comm` if that is less. A step ends
/// early if a process that dtlrun has started ends, or if a rank of `comm` dies, or revokes or
/// destroys `comm`. The second step does not end early for registered kinds, nor for kind "rdma" if
/// its ranks meet by a file or TCP address. Finally the ranks agree on the result over `comm`:
/// unless one of them dies meanwhile, either all succeed or all fail.
///
/// If the call fails, opening fails in the new processes that have not completed it, and dtlrun
/// ends all new processes. Processes that MPI has started are not ended: opening fails there when
/// it is called, at the latest at the time limit. No limit applies inside functions of MPI.
/// MPI_Comm_spawn waits until all new processes have initialized MPI. If one of them ends or stops
/// before that, rank 0 may not return. The other ranks then return DTL_ERROR_TIMEOUT at the time
/// limit of `comm`, if it has one.
///
/// @param new_ranks  Number of processes to start, 1 or more.
/// @param flags      0.
/// @param out        The new communicator, with the kind ("shm" if that is "self"), the time limit
///                   and the flags of `comm` except DTL_COMM_NO_DUP. In a new process, the time
///                   limit is that of its dtl_comm_desc_t or of DTL_TIMEOUT. The ranks of `comm`
///                   keep their numbers, and the new ones follow. The caller owns it; destroy it
///                   with dtl_comm_destroy.
/// @return DTL_ERROR_INVALID_ARGUMENT: `new_ranks` is out of range, or not the same on all ranks;
///         `flags` is not 0; or another rank passes a bad argument, including NULL for `out` (the
///         text names the rank). DTL_ERROR_NULL_POINTER: `out` is NULL on this rank.
///         DTL_ERROR_NOT_SUPPORTED: the kind cannot be extended (kinds "hier", "nccl" and
///         "threads"), the launcher cannot start processes during a job (dtlrun can), or the MPI
///         lacks a function that the text names.
///         DTL_ERROR_UNAVAILABLE: the processes could not be started, or one of them ended before
///         all ranks had opened the communicator; the text of rank 0 has the reason, or the rank
///         and its exit status. DTL_ERROR_TIMEOUT: a process did not open the communicator in time
///         (the text of rank 0 names its rank), or rank 0 did not report the result in time. In all
///         cases above `comm` still works, and the call may be repeated. DTL_ERROR_RANK_FAILURE,
///         DTL_ERROR_INVALID_STATE, DTL_ERROR_REVOKED: a rank of `comm` ended or destroyed `comm`
///         during the call, or collectives on `comm` fail; call dtl_comm_shrink first.
///         DTL_ERROR_CANCELED: another thread destroyed `comm`.
///         DTL_ERROR_BUSY: the call comes from a callback of a collective on `comm` (see
///         dtl_op_fn_t). Equivalent: MPI_Comm_spawn and MPI_Intercomm_merge.
/// dtl:out owned(dtl_comm_destroy)
/// dtl:call blocks(comm) collective(comm)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_grow(
    comm: dtl_comm_t,
    new_ranks: i32,
    flags: u64,
    out: *mut dtl_comm_t,
) -> dtl_status_t {
    Entry("dtl_comm_grow").wait(
        |inside| {
            // Not reported here: a bad argument of one rank fails the call on all ranks.
            let out = Out::new(out, "out").and_then(|out| match flags {
                0 => Ok(out),
                _ => fail!(DTL_ERROR_INVALID_ARGUMENT, "flags {flags:#x}: use 0"),
            });
            Ok((out, comm::pin(inside, comm)?))
        },
        |(out, comm)| {
            let checked = out.as_ref().map(|_| ()).map_err(Clone::clone);
            let made = grow::grow(&comm, new_ranks, checked);
            out.map_or_else(Err, |out| out.put(made))
        },
    )
}

/// Exits this process at once with an exit code, after a message in the log. No atexit functions or
/// destructors run. The launcher terminates the other ranks (dtlrun and mpirun do). Returns only if
/// it fails.
///
/// @param code  Exit code, 1 to 255.
/// @return DTL_ERROR_INVALID_ARGUMENT: `code` is out of range. Equivalent: MPI_Abort.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_comm_abort(comm: dtl_comm_t, code: i32) -> dtl_status_t {
    Entry("dtl_comm_abort").call(|inside| {
        if !(1..=255).contains(&code) {
            return fail!(DTL_ERROR_INVALID_ARGUMENT, "code {code}: use 1 to 255");
        }
        comm::abort(&*comm::pin(inside, comm)?, code)
    })
}

/// Reports the operation that each rank is in, if the rank replies within half a second (a rank
/// replies while it waits in a call of this library), and the last operations of each rank. Any
/// rank may call it at any time, even in one thread while another waits.
///
/// @param buf      `cap` bytes for the text and its NUL. NULL with cap 0: only the length is
///                 returned (the next text may differ: pass a few KiB).
/// @param cap      Size of `buf` in bytes.
/// @param out_len  Length of the text without the NUL; may be NULL.
/// @return DTL_ERROR_BUFFER_TOO_SMALL: only *out_len was written.
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

/// Creates a key for attributes: pointers that the program attaches to communicators.
///
/// @param copy_fn    Called by dtl_comm_dup. NULL: duplicates do not get the attribute.
/// @param delete_fn  Called when an attribute is released. NULL: no call.
/// @param user       Pointer that is passed to both functions.
/// @param out_key    The key. The caller owns it; destroy it with dtl_comm_key_destroy.
///                   dtl_finalize destroys all.
/// @return DTL_ERROR_LIMIT: no key is left. Equivalent: MPI_Comm_create_keyval.
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

/// Destroys a key. Its attributes stay, and dtl_comm_get_attr finds them, until their communicators
/// are destroyed. No further ones can be set.
///
/// @return DTL_ERROR_INVALID_HANDLE: there is no such key. Equivalent: MPI_Comm_free_keyval.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_comm_key_destroy(key: i32) -> dtl_status_t {
    Entry("dtl_comm_key_destroy").call(|_| attribute::destroy_key(key))
}

/// Attaches a pointer to a communicator, in this process only. A previous one with this key is
/// released.
///
/// @param value  The pointer. The library does not dereference it.
/// @return DTL_ERROR_INVALID_HANDLE: there is no such communicator or key.
/// Equivalent: MPI_Comm_set_attr.
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

/// Returns the attribute of a communicator for a key.
///
/// @param out_value  The pointer; NULL if there is none.
/// @param out_found  1 if there is one, else 0.
/// @return DTL_ERROR_INVALID_HANDLE: there is no such communicator or key.
/// Equivalent: MPI_Comm_get_attr.
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

/// Deletes an attribute and calls the delete_fn of its key.
///
/// @return DTL_ERROR_NOT_FOUND: there is none. DTL_ERROR_INVALID_HANDLE: there is no such
///         communicator or key. Equivalent: MPI_Comm_delete_attr.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_comm_delete_attr(comm: dtl_comm_t, key: i32) -> dtl_status_t {
    Entry("dtl_comm_delete_attr")
        .wait(|inside| comm::pin(inside, comm), |pinned| pinned.attributes.delete(comm, key))
}
