/* @NAME@, the comm component: five slots that move bytes. The library makes all the rest of them: tags, any tag,
 * probing, synchronous sends, truncation, requests, time limits, collectives, splitting.
 *
 * So a table sees nothing but: sends to any rank (itself too), match words below 2^28, receives of exactly one word
 * from one rank or from DTL_ANY_SOURCE, messages that fit. It has to keep one order: two messages of one rank
 * under one word are received in the order sent, by receives in the order posted, whichever of them names its
 * source. An operation is a number of your own (*out_op): an index, or a pointer as uint64_t.
 *
 * A message may wait inside until somebody posts its receive, in memory of yours or where it is: the receives
 * of small ones are always posted, larger ones are sent when theirs is.
 *
 * Most have two functions behind the slots. progress: moves what it can without waiting, the first send to each
 * rank and the message that is coming from each. match: gives each message, in the order they came, to the oldest
 * receive that wants it.
 *
 * Threads: any, but one at a time for each communicator. isend, irecv, test and cancel must not block. */
#include "@HEADER@"

/* (required) Opens a communicator: your own pointer for it, this process' rank, the number of ranks. All ranks
 * call it; it may block, up to args->timeout_ns (at most 30 s). args->rank and size are the launcher's or the
 * caller's (both -1: nobody said; be one rank). args->job is a name that the ranks of one job share and no other
 * job on this node has, of any length and characters; empty if nobody named one.
 * It is called once for each communicator that the program opens, with the same job each time: all ranks open in
 * one order, so count them, or let nothing of one open be found by the next.
 * Errors: DTL_ERROR_TIMEOUT naming the ranks that did not come; DTL_ERROR_INVALID_ARGUMENT for several ranks
 * without a job's name, if they need one to meet. A failure leaves nothing open. */
static dtl_status_t comm_open(void *self, const dtl_comm_open_t *args, void **out_comm, int32_t *out_rank,
                              int32_t *out_size)@NOTHROW@
{
    (void)args, (void)out_comm, (void)out_rank, (void)out_size;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "comm_open is not written yet");
}

/* (required) Closes it; may block. No operation is pending, unless yours did not end within a second after cancel:
 * their buffers stay valid. What was sent must still arrive: each send that comm_test called done, also at ranks
 * that read it later. The others close when they do; wait for them little or not at all. */
static dtl_status_t comm_close(void *self, void *comm)@NOTHROW@
{
    (void)comm;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "comm_close is not written yet");
}

/* (required) Starts a send of size_bytes (0 allowed; buf may then be NULL). buf stays as it is until the operation
 * is done, which it is when buf is no longer needed. Move at once what there is room for: to the program a small
 * send is over now, and the next call of test may be far away.
 * Errors: DTL_ERROR_BUSY = no room now, the library calls again; DTL_ERROR_RANK_FAILURE = dest is gone. */
static dtl_status_t comm_isend(void *self, void *comm, const void *buf, uint64_t size_bytes, int32_t dest,
                               uint64_t match_word, uint64_t *out_op)@NOTHROW@
{
    (void)comm, (void)buf, (void)size_bytes, (void)dest, (void)match_word, (void)out_op;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "comm_isend is not written yet");
}

/* (required) Starts a receive of at most size_bytes from `source` (a rank or DTL_ANY_SOURCE) under this match word
 * (`ignore` is 0).
 * Errors: DTL_ERROR_BUSY as above. */
static dtl_status_t comm_irecv(void *self, void *comm, void *buf, uint64_t size_bytes, int32_t source,
                               uint64_t match_word, uint64_t ignore, uint64_t *out_op)@NOTHROW@
{
    (void)comm, (void)buf, (void)size_bytes, (void)source, (void)match_word, (void)ignore, (void)out_op;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "comm_irecv is not written yet");
}

/* (required) Moves what can be moved, on all operations of the communicator, then asks after one. Done: *out_done
 * = 1 and *out_result filled in (of a receive: source, match word, the message's size; else status only); the
 * number may be used again. A failed operation is done, too: the failure is out_result->status. A rank that has
 * died: DTL_ERROR_RANK_FAILURE for what needs it and for one receive from any source, result.source telling who,
 * after the messages that it had sent; one that has closed may look the same.
 * It is called until something is done, with pauses that grow, so do not wait in here. */
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
    /* Optional. A slot that stays NULL:
     *
     *   dtl_status_t cancel(void *self, void *comm, uint64_t op)
     *       Withdraws a receive, which then ends in test with DTL_ERROR_CANCELED (or as usual, if it was too
     *       late). Used before close only.       NULL: a message of this rank to itself ends each of them.
     *
     * Slots for windows, if your hardware reads and writes other ranks' memory without their help; the contracts are
     * in dtl.h. Each group whole or absent. NULL: messages that the target serves do it.
     *
     *   win_create, win_attach, win_destroy, win_put, win_get, win_flush
     *       Memory of this rank, found by a key that the library carries to the others; copies to and from a
     *       target; an operation that is done when the ones before it are done at the target.
     *   win_atomics, win_accumulate, win_compare_and_swap
     *       Which dtypes you change as a whole, whoever else does; changing them.
     *
     * table.match_bits: how many bits of the match word you compare, 28 to 64; 0 = 64. */
    return table;
}
