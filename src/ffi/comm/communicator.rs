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

/// The job's communicator (the same as DTL_COMM_WORLD), opened now if nobody has used it yet. Its
/// kind comes from dtl_init, DTL_COMM, else "auto": one rank without a launcher ("self"), shared
/// memory if all ranks run on this node ("shm"), over several nodes "hier", else "mpi". Collective
/// at the first use: all ranks open it.
///
/// @param out  DTL_COMM_WORLD. Nothing to free; dtl_finalize closes it.
/// @return DTL_ERROR_UNAVAILABLE: no kind fits (the text names what is missing). DTL_ERROR_TIMEOUT:
///         ranks are missing after 30 s (or DTL_TIMEOUT if that is less); the text names them.
/// Equivalent: MPI_COMM_WORLD.
/// dtl:out borrowed
/// dtl:call blocks collective(job)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_get_world(out: *mut dtl_comm_t) -> dtl_status_t {
    Entry("dtl_comm_get_world").wait(
        |inside| Ok((Out::new(out, "out")?, comm::pin(inside, DTL_COMM_WORLD)?)),
        |(out, _opened)| out.put(Ok(DTL_COMM_WORLD)),
    )
}

/// Opens a communicator. Collective: all its ranks call it, with descriptions that agree. All ranks
/// must open the communicators of one job in the same order. Threads that open communicators at the
/// same time must give each one a job of its own (desc.job).
///
/// @param desc  kind, ranks, time limit; start from DTL_COMM_DESC_INIT. NULL = all defaults.
/// @param out   yours; end it with dtl_comm_destroy.
/// @return DTL_ERROR_NOT_FOUND: no such kind (the text lists them). DTL_ERROR_UNAVAILABLE: it
///         cannot run here. DTL_ERROR_TIMEOUT: ranks are missing (named) after 30 s, or
///         desc.timeout_ns if that is less. DTL_ERROR_LIMIT: more ranks than the kind takes, or a
///         limit of the system is reached (open files: "shm" takes one for each other rank, while
///         it opens rank 0 takes two). DTL_ERROR_ALREADY_EXISTS: another process claims this rank.
///         DTL_ERROR_INVALID_HANDLE: desc.over. DTL_ERROR_NCCL: NCCL failed (the text has its
///         number and words). DTL_ERROR_INVALID_RANK, DTL_ERROR_INVALID_ARGUMENT (kind "nccl": also
///         two ranks on one device). A failure is one on every rank that was there; nothing stays
///         open. One exception: over a registered kind, and over an MPI where messages are the
///         library's own, receives are posted after the ranks have met. A rank whose transport
///         refuses them (`irecv` of dtl_comm_vtable_t) fails alone, with that status. On the other
///         ranks what needs this rank ends with DTL_ERROR_RANK_FAILURE; or at the time limit, if
///         this rank cannot send either.
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
            Ok((out, open_kind::Description { raw, kind, job, over, settings }))
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

/// Destroys a communicator. Calls of other threads that wait on it return DTL_ERROR_CANCELED;
/// requests in flight are withdrawn (one that has been matched finishes first) and all its
/// requests' handles become stale; messages that were sent stay receivable by the peers. A
/// collective that is in flight is given up on all ranks. Null, DTL_COMM_WORLD and DTL_COMM_SELF:
/// nothing happens.
///
/// The call waits for no other rank. What another rank still needs of this rank on this
/// communicator ends there with DTL_ERROR_RANK_FAILURE, and dtl_comm_shrink leaves this rank out,
/// where a rank that left is noticed (docs/explanation/promises.md: by which kinds, and of which
/// communicators). Elsewhere it ends at the time limit.
///
/// What MPI has begun it does not give back. So over MPI's own messages (see dtl_comm_desc_t) a
/// communicator with sends or collectives in flight is not destroyed: wait for them, then call
/// again. Its receives may have been withdrawn by then. A call of another thread that waits inside
/// MPI goes on until MPI ends it. All that was sent must have been received, and nothing may be
/// sent to a rank that has destroyed its own already: MPI gives the communicator's context to a
/// later one, with what is left in it. Where the library has messages of its own in flight over an
/// MPI, a registered kind or "rdma" (a time limit has passed, say), destroy gives them up to 5 s to
/// end, whatever the time limit: their buffers are the transport's until then. Over "rdma" what was
/// withdrawn is none of them.
///
/// @return DTL_ERROR_NOT_SUPPORTED: MPI's own send is in flight. DTL_ERROR_BUSY: MPI's own
///         collective is; or a call on it is further up this thread, in a function of the program's
///         that it has called (see dtl_op_fn_t).
///         DTL_ERROR_TIMEOUT: a registered kind has not given back what its requests have in flight
///         for 5 s; the communicator stays.
/// Equivalent: MPI_Comm_disconnect, but not collective.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub extern "C" fn dtl_comm_destroy(comm: dtl_comm_t) -> dtl_status_t {
    Entry("dtl_comm_destroy").wait(
        |inside| comm::pin_to_destroy(inside, comm),
        |comm| comm.map_or(Ok(()), |comm| comm::destroy(&comm)),
    )
}

/// This process' rank, 0 ... size-1. Equivalent: MPI_Comm_rank.
/// dtl:out_rank rank
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_rank(comm: dtl_comm_t, out_rank: *mut i32) -> dtl_status_t {
    Entry("dtl_comm_rank").call(|inside| {
        Out::new(out_rank, "out_rank")?.put(comm::pin(inside, comm).map(|comm| comm.rank))
    })
}

/// Number of ranks. Equivalent: MPI_Comm_size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_comm_size(comm: dtl_comm_t, out_size: *mut i32) -> dtl_status_t {
    Entry("dtl_comm_size").call(|inside| {
        Out::new(out_size, "out_size")?.put(comm::pin(inside, comm).map(|comm| comm.size))
    })
}

/// Describes a communicator: ranks, kind, how its data moves, how many ranks have failed.
///
/// @param out_info  start from DTL_COMM_INFO_INIT.
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
