/* @NAME@, the comm component: five slots that move bytes. The library implements everything else:
 * tags, any tag, probing, synchronous sends, truncation, requests, time limits, collectives,
 * splitting.
 *
 * A table sees only: sends to any rank (this one too), match words below 2^28, receives of exactly
 * one match word from one rank or from DTL_ANY_SOURCE, and messages that fit. It must keep one
 * order: two messages from one rank under one match word are received in the order sent, by
 * receives in the order posted, whether these name the source or not. An operation is identified by
 * any number (*out_op): an index, or a pointer as uint64_t.
 *
 * A message may wait in the transport, or at its sender, until its receive is posted: receives for
 * small messages are always posted, and larger ones are sent when theirs is.
 *
 * Most transports have two functions behind the slots. progress: moves what it can without waiting,
 * the first send to each rank and the incoming message from each rank. match: assigns each message,
 * in the order of arrival, to the oldest receive that matches.
 *
 * Threads: any thread, but one at a time for each communicator. isend, irecv, test and cancel must
 * not block. */
#include "@HEADER@"

/* (required) Opens a communicator: writes the transport's pointer to it, the rank of this process
 * and the number of ranks. Collective; it may wait for the other ranks up to args->timeout_ns (at
 * most 30 s). args->rank and args->size are those of the launcher or the caller (both -1: not
 * given; open one rank). args->job is a name that the ranks of one job share and no other job on
 * this node has, of any length and characters; empty if it is not given.
 * Called once for each communicator that the program opens, with the same job each time. All ranks
 * open in the same order: number the calls, so that one open cannot find data of another.
 * Errors: DTL_ERROR_TIMEOUT, with a text that names the missing ranks; DTL_ERROR_INVALID_ARGUMENT
 * for several ranks without a job name, if the transport needs one. A failed open leaves nothing
 * behind. */
static dtl_status_t comm_open(void *self, const dtl_comm_open_t *args, void **out_comm,
                              int32_t *out_rank, int32_t *out_size)@NOTHROW@
{
    (void)args, (void)out_comm, (void)out_rank, (void)out_size;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "comm_open is not written yet");
}

/* (required) Closes a communicator; may block. No operation is pending, unless the transport has
 * not completed it within a second after cancel; its buffer then stays valid. Every send that
 * comm_test reported as done must still arrive, also at ranks that receive it later. Not
 * collective: other ranks close at other times, so do not wait long for them. */
static dtl_status_t comm_close(void *self, void *comm)@NOTHROW@
{
    (void)comm;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "comm_close is not written yet");
}

/* (required) Starts a send of size_bytes (0 is allowed; buf may then be NULL). buf does not change
 * until the operation is done; it is done when buf is no longer needed. Transmit immediately what
 * there is room for: for the program a small send is complete now, and the next call of test may be
 * much later.
 * Errors: DTL_ERROR_BUSY: no room now, the library calls again later. DTL_ERROR_RANK_FAILURE: dest
 * has died. */
static dtl_status_t comm_isend(void *self, void *comm, const void *buf, uint64_t size_bytes,
                               int32_t dest, uint64_t match_word, uint64_t *out_op)@NOTHROW@
{
    (void)comm, (void)buf, (void)size_bytes, (void)dest, (void)match_word, (void)out_op;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "comm_isend is not written yet");
}

/* (required) Starts a receive of at most size_bytes from `source` (a rank or DTL_ANY_SOURCE) under
 * exactly this match word (`ignore` is 0).
 * Errors: DTL_ERROR_BUSY: no room now, the library calls again later. */
static dtl_status_t comm_irecv(void *self, void *comm, void *buf, uint64_t size_bytes,
                               int32_t source, uint64_t match_word, uint64_t ignore,
                               uint64_t *out_op)@NOTHROW@
{
    (void)comm, (void)buf, (void)size_bytes, (void)source;
    (void)match_word, (void)ignore, (void)out_op;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "comm_irecv is not written yet");
}

/* (required) Makes progress on all operations of the communicator and tests one. *out_done = 1: it
 * is complete, and *out_result is filled (receives: source, match word and size of the message;
 * sends: only the status). Its number may be used again. A failed operation is complete too, with
 * its status in out_result->status.
 * After the death of a rank, operations that need it fail with DTL_ERROR_RANK_FAILURE, and so does
 * one receive from any source, with the rank in out_result->source, after the messages that the
 * rank had sent. A rank that has closed may look the same.
 * The library calls it repeatedly, with growing pauses, so it must not wait. */
static dtl_status_t comm_test(void *self, void *comm, uint64_t op, int32_t *out_done,
                              dtl_comm_done_t *out_result)@NOTHROW@
{
    (void)comm, (void)op, (void)out_done, (void)out_result;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "comm_test is not written yet");
}

dtl_comm_vtable_t @ID@_comm_table(void)
{
    dtl_comm_vtable_t table = DTL_COMM_VTABLE_INIT;
    table.open = comm_open;
    table.close = comm_close;
    table.isend = comm_isend;
    table.irecv = comm_irecv;
    table.test = comm_test;
    /* Optional slots, and what happens while they are NULL:
     *
     *   dtl_status_t cancel(void *self, void *comm, uint64_t op)
     *       Cancels a receive (before close), or a collective. It then completes through test: with
     *       DTL_ERROR_CANCELED, or normally if it was too late.
     *       NULL: a message from this rank to itself completes each receive that is still posted.
     *
     * Slots of windows are for hardware that accesses the memory of other ranks without their help;
     * see dtl_comm_vtable_t in dtl_backend.h. Each group is complete or absent. Absent: the library
     * uses messages that the target serves.
     *
     *   win_create, win_attach, win_destroy, win_put, win_get, win_flush
     *       Memory of this rank, accessed with a key that the library distributes; copies to and
     *       from a target; completion at the target.
     *   win_atomics, win_accumulate, win_compare_and_swap
     *       The dtypes that change atomically, and the operations on them.
     *
     * Slots of collectives are for hardware that executes them itself, such as a switch that
     * reduces. Both or none. Absent, and for what coll_supports refuses: the library's algorithms.
     *
     *   coll_supports, coll_start
     *       Whether a collective is executed here, the same on all ranks; its start.
     *
     * Memory slots are for hardware that accesses device memory, or that is faster with registered
     * buffers. All or none. Absent: messages in device memory are staged through host memory.
     *
     *   mem_supports, mem_register, mem_deregister
     *       How the hardware accesses an allocation; registers and deregisters it.
     *
     * table.match_bits: number of bits of the match word that the transport compares, 28 to 64;
     * 0 = 64. */
    return table;
}
