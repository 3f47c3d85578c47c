//! Communicators: open, describe, destroy.

use crate::abi::comm::communicator::*;
use crate::abi::handle::dtl_comm_t;
use crate::abi::status::dtl_status_t;
use crate::error::{Result, fail};
use crate::ffi::args::{self, Out};
use crate::ffi::guard::Entry;
use crate::runtime::comm;
use crate::runtime::comm::open::open_kind;
use crate::sys::memory::buf::Addr;

/// Returns the job's communicator, DTL_COMM_WORLD, and opens it if this is its first use. Its kind
/// is that of dtl_init, else DTL_COMM, else "auto": "self" for one rank without a launcher, "shm"
/// if all ranks run on this node, "hier" on several nodes, else "mpi". Collective at the first use:
/// all ranks open it.
///
/// @param out  DTL_COMM_WORLD. There is nothing to free; dtl_finalize closes it.
/// @return DTL_ERROR_UNAVAILABLE: no kind is usable; the text names what is missing.
///         DTL_ERROR_TIMEOUT: ranks are missing after 30 s, or DTL_TIMEOUT if that is less; the
///         text names them. Equivalent: MPI_COMM_WORLD.
/// dtl:out borrowed
/// dtl:call blocks collective(job)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_get_world(out: *mut dtl_comm_t) -> dtl_status_t {
    Entry("dtl_comm_get_world").wait(
        |inside| Ok((Out::new(out, "out")?, comm::pin(inside, DTL_COMM_WORLD)?)),
        |(out, _opened)| out.put(Ok(DTL_COMM_WORLD)),
    )
}

/// Opens a communicator. Collective: all its ranks call it, with descriptions that agree, and open
/// the communicators of one job in the same order. Threads that open communicators at the same time
/// must use different jobs (desc.job).
///
/// @param desc  Kind, ranks and time limit; start from DTL_COMM_DESC_INIT. NULL: all defaults.
/// @param out   The communicator. The caller owns it; destroy it with dtl_comm_destroy.
/// @return DTL_ERROR_NOT_FOUND: there is no such kind; the text lists the known ones.
///         DTL_ERROR_UNAVAILABLE: the kind cannot run here. DTL_ERROR_TIMEOUT: ranks are missing
///         after 30 s, or desc.timeout_ns if that is less; the text names them. DTL_ERROR_LIMIT:
///         more ranks than the kind supports, or a limit of the system (open files: "shm" needs one
///         per other rank, on rank 0 two during the call). DTL_ERROR_ALREADY_EXISTS: another
///         process claims this rank. DTL_ERROR_INVALID_HANDLE: desc.over is not a communicator.
///         DTL_ERROR_NCCL: NCCL failed; the text has its number and message.
///         DTL_ERROR_INVALID_RANK: desc.rank is out of range. DTL_ERROR_INVALID_ARGUMENT: a field
///         is invalid (kind "nccl": also two ranks on one device). If the call fails, it fails on
///         every rank that took part, and nothing stays open. Exception: over a registered kind,
///         and over an MPI without MPI's own messages, receives are posted after the ranks have
///         connected. If the transport of a rank refuses them (`irecv` of dtl_comm_vtable_t), that
///         rank alone fails, with that status. On the other ranks, operations that need this rank
///         end with DTL_ERROR_RANK_FAILURE, or at the time limit if this rank cannot send either.
/// Threads: any. Equivalent: MPI_Comm_create_from_group.
/// dtl:desc opt
/// dtl:out owned(dtl_comm_destroy)
/// dtl:call blocks collective(job)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_open(
    desc: *const dtl_comm_desc_t,
    out: *mut dtl_comm_t,
) -> dtl_status_t {
    Entry("dtl_comm_open").wait(
        |inside| {
            let out = Out::new(out, "out")?;
            // SAFETY: the caller's contract: null, or a struct as long as its struct_size.
            let raw = unsafe { args::take_or_zero(desc, "desc") }?;
            args::check_reserved(raw.reserved, "desc.reserved")?;
            // SAFETY: the caller's contract: NULL or a NUL-terminated text.
            let kind = unsafe { args::text_or_null(raw.kind, "desc.kind") }?.map(str::to_owned);
            // SAFETY: as above.
            let job = unsafe { args::text_or_null(raw.job, "desc.job") }?.map(str::to_owned);
            let over = if raw.over.id == 0 { None } else { Some(comm::pin(inside, raw.over)?) };
            let settings = one_of(&[
                ("desc.mpi_comm", Addr::new(raw.mpi_comm.cast_mut().cast())),
                ("desc.rdma", Addr::new(raw.rdma.cast_mut().cast())),
                ("desc.config", Addr::new(raw.config)),
            ])?;
            Ok((
                out,
                open_kind::Description { raw, kind, job, over, settings, ..Default::default() },
            ))
        },
        |(out, description)| out.put(open_kind::open(&description)),
    )
}

/// The only field of the list that is set, if any.
fn one_of(fields: &[(&'static str, Addr)]) -> Result<Option<(&'static str, Addr)>> {
    let mut set = fields.iter().filter(|(_, address)| !address.is_null());
    match (set.next(), set.next()) {
        (Some((first, _)), Some((second, _))) => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{first} and {second} are set: each is for one kind, so set one at most"
        ),
        (one, _) => Ok(one.copied()),
    }
}

/// Destroys a communicator. Waiting calls of other threads on it return DTL_ERROR_CANCELED.
/// Requests in flight are cancelled (a matched one completes first), and all its request handles
/// become stale. Its registered buffers (dtl_comm_register) are deregistered. Sent messages can
/// still be received by the peers. A collective in flight is abandoned on all ranks. Null,
/// DTL_COMM_WORLD and DTL_COMM_SELF: no effect.
///
/// The call waits for no other rank. Operations of other ranks that still need this rank on this
/// communicator end with DTL_ERROR_RANK_FAILURE, and dtl_comm_shrink excludes this rank, where the
/// departure of a rank is detected (docs/explanation/promises.md: for which kinds and
/// communicators). Elsewhere they end at the time limit.
///
/// MPI does not release an operation that it has started. So with MPI's own messages (see
/// dtl_comm_desc_t) a communicator with sends or collectives in flight is not destroyed: wait for
/// them, then call again. Its receives may have been cancelled by then. A call of another thread
/// that waits inside MPI continues until MPI ends it. All sent messages must have been received,
/// and nothing may be sent to a rank that has already destroyed its handle: MPI reuses the context
/// of the communicator, with everything left in it.
///
/// If the library's own messages are in flight over an MPI, a registered kind or "rdma" (for
/// example after a time limit), the call waits up to 5 s for them, whatever the time limit: until
/// then the transport uses their buffers. On kind "rdma", cancelled operations do not count. The
/// call also waits while another thread is in a function of the transport that blocks
/// (registration of memory). dtl_comm_revoke does not wait for that.
///
/// @return DTL_ERROR_NOT_SUPPORTED: a send of MPI's own is in flight. DTL_ERROR_BUSY: a collective
///         of MPI's own is in flight, or the call comes from a callback of a call on the
///         communicator (see dtl_op_fn_t). DTL_ERROR_TIMEOUT: a registered kind has not released
///         the operations of its requests within 5 s; the communicator stays.
/// Equivalent: MPI_Comm_disconnect, but not collective.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_comm_destroy(comm: dtl_comm_t) -> dtl_status_t {
    Entry("dtl_comm_destroy").wait(
        |inside| comm::pin_to_destroy(inside, comm),
        |comm| comm.map_or(Ok(()), |comm| comm::destroy(&comm)),
    )
}

/// Returns the rank of this process, 0 to size-1. Equivalent: MPI_Comm_rank.
/// dtl:out_rank rank
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_rank(comm: dtl_comm_t, out_rank: *mut i32) -> dtl_status_t {
    Entry("dtl_comm_rank").call(|inside| {
        Out::new(out_rank, "out_rank")?.put(comm::pin(inside, comm).map(|comm| comm.rank))
    })
}

/// Returns the number of ranks. Equivalent: MPI_Comm_size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_size(comm: dtl_comm_t, out_size: *mut i32) -> dtl_status_t {
    Entry("dtl_comm_size").call(|inside| {
        Out::new(out_size, "out_size")?.put(comm::pin(inside, comm).map(|comm| comm.size))
    })
}

/// Describes a communicator: ranks, kind, how its data moves, and how many ranks have failed.
///
/// @param out_info  Start from DTL_COMM_INFO_INIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_info(
    comm: dtl_comm_t,
    out_info: *mut dtl_comm_info_t,
) -> dtl_status_t {
    Entry("dtl_comm_info").call(|inside| {
        let comm = comm::pin(inside, comm)?;
        // SAFETY: the caller's contract.
        unsafe { args::fill(out_info, "out_info", || comm::info(&comm)) }
    })
}
