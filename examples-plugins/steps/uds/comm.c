/* uds, the comm component: five slots that move bytes. The library implements everything else:
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
#define _GNU_SOURCE
#include "uds.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { HEADER = 16, MOST = 64 };

typedef struct item_t { /* a send, a receive, or the header of a message that comes; next is then its receive */
    struct item_t *next;
    uint64_t word, size, moved; /* word and size travel before the bytes; moved counts both */
    char *buf;
    int32_t peer, done;
} item_t;

typedef struct comm_t { /* for each rank: a socket to it and one from it, its sends, the message that comes */
    int32_t rank, size;
    int out[MOST], in[MOST];
    item_t *sends[MOST], arriving[MOST], *posted;
} comm_t;

/* Moves an item's first bytes through a socket, as many as it takes now; whether all of them have moved. */
static int move(int socket, item_t *item, uint64_t bytes, int is_send)
{
    while (item->moved < bytes) {
        const int is_header = item->moved < HEADER;
        char *at = is_header ? (char *)&item->word + item->moved : item->buf + (item->moved - HEADER);
        const uint64_t rest = (is_header ? HEADER : bytes) - item->moved;
        const ssize_t now = is_send ? send(socket, at, rest, MSG_DONTWAIT | MSG_NOSIGNAL)
                                    : recv(socket, at, rest, MSG_DONTWAIT);
        if (now <= 0) {
            return 0;
        }
        item->moved += (uint64_t)now;
    }
    return 1;
}

static dtl_status_t start(item_t **list, const void *buf, uint64_t size, int32_t peer, uint64_t word, uint64_t *out)
{
    item_t *item = malloc(sizeof *item);
    if (item == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    *item = (item_t){.word = word, .size = size, .buf = (char *)(uintptr_t)buf, .peer = peer};
    for (; *list != NULL; list = &(*list)->next) {}
    *list = item;
    *out = (uint64_t)(uintptr_t)item;
    return DTL_SUCCESS;
}

/* The oldest receive that matches this message, taken from the list; NULL: none is posted. */
static item_t *match(item_t **at, const item_t *message, int32_t from)
{
    for (; *at != NULL && ((*at)->word != message->word || ((*at)->peer != DTL_ANY_SOURCE && (*at)->peer != from));
         at = &(*at)->next) {}
    item_t *receive = *at;
    if (receive != NULL) {
        *at = receive->next;
        receive->size = message->size; /* it fits: the library sees to that */
        receive->moved = HEADER;
        receive->peer = from;
    }
    return receive;
}

static void progress(comm_t *comm)
{
    for (int32_t rank = 0; rank < comm->size; rank++) {
        item_t *first, *now = &comm->arriving[rank];
        while ((first = comm->sends[rank]) != NULL && move(comm->out[rank], first, HEADER + first->size, 1)) {
            comm->sends[rank] = first->next;
            first->done = 1;
        }
        /* An unexpected message stays in the socket, and so do all later ones. */
        while (move(comm->in[rank], now, HEADER, 0) &&
               (now->next != NULL || (now->next = match(&comm->posted, now, rank)) != NULL) &&
               move(comm->in[rank], now->next, HEADER + now->size, 0)) {
            now->next->done = 1;
            *now = (item_t){.next = NULL};
        }
    }
}

/* A name of a rank's socket that is gone with the socket. */
static struct sockaddr_un address(const char *job, uint32_t number, int32_t rank)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "%.70s-%u-%u-%d", job, (unsigned)getuid(), number, rank);
    return at;
}

/* Connects to each rank and is connected to by each. The rank that did not come, or size: all have. */
static int32_t meet(comm_t *comm, const dtl_comm_open_t *args, uint32_t number, int listener)
{
    int32_t missing = 0;
    for (int32_t to = 0, waited_ms = 0; to < comm->size; to++) {
        const struct sockaddr_un at = address(args->job, number, to);
        comm->out[to] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        for (; connect(comm->out[to], (const void *)&at, sizeof at) != 0; usleep(1000), waited_ms++) {
            if ((uint64_t)waited_ms * 1000000 > args->timeout_ns) {
                return to;
            }
        }
        (void)!send(comm->out[to], &comm->rank, sizeof comm->rank, MSG_NOSIGNAL);
    }
    for (int32_t i = 0, from; i < comm->size; i++) {
        const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (recv(fd, &from, sizeof from, MSG_WAITALL) == (ssize_t)sizeof from && from >= 0 && from < comm->size) {
            comm->in[from] = fd;
        }
    }
    for (; missing < comm->size && comm->in[missing] >= 0; missing++) {}
    return missing;
}

static dtl_status_t comm_close(void *self, void *comm);

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
                              int32_t *out_rank, int32_t *out_size)
{
    static _Atomic uint32_t opened; /* the n-th communicator here is the n-th of the other ranks */
    const uint32_t number = ++opened;
    const int32_t size = args->size > 0 ? args->size : 1, rank = args->size > 0 ? args->rank : 0;
    const struct timeval limit = {(time_t)(args->timeout_ns / 1000000000), 1};
    const struct sockaddr_un own = address(args->job, number, rank);
    comm_t *comm = size > MOST || (size > 1 && args->job[0] == 0) ? NULL : calloc(1, sizeof *comm);
    if (comm == NULL) {
        return uds_fail(self, DTL_ERROR_INVALID_ARGUMENT, "%d ranks: name the job, and use at most %d", size, MOST);
    }
    memset(comm->out, -1, sizeof comm->out);
    memset(comm->in, -1, sizeof comm->in);
    *out_rank = comm->rank = rank;
    *out_size = comm->size = size;
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit); /* of accept */
    const int is_heard = bind(listener, (const void *)&own, sizeof own) == 0 && listen(listener, size) == 0;
    const int32_t missing = is_heard ? meet(comm, args, number, listener) : rank;
    close(listener);
    if (missing < size) {
        (void)comm_close(self, comm);
        return uds_fail(self, DTL_ERROR_TIMEOUT, "rank %d of %d is not at @%s", missing, size, own.sun_path + 1);
    }
    *out_comm = comm;
    return DTL_SUCCESS;
}

/* (required) Closes a communicator; may block. No operation is pending, unless the transport has
 * not completed it within a second after cancel; its buffer then stays valid. Every send that
 * comm_test reported as done must still arrive, also at ranks that receive it later. Not
 * collective: other ranks close at other times, so do not wait long for them. */
static dtl_status_t comm_close(void *self, void *comm)
{
    const comm_t *closing = comm;
    (void)self;
    for (int32_t rank = 0; rank < closing->size; rank++) {
        close(closing->out[rank]); /* what was sent can still be read */
        close(closing->in[rank]);
    }
    free(comm);
    return DTL_SUCCESS;
}

/* (required) Starts a send of size_bytes (0 is allowed; buf may then be NULL). buf does not change
 * until the operation is done; it is done when buf is no longer needed. Transmit immediately what
 * there is room for: for the program a small send is complete now, and the next call of test may be
 * much later.
 * Errors: DTL_ERROR_BUSY: no room now, the library calls again later. DTL_ERROR_RANK_FAILURE: dest
 * has died. */
static dtl_status_t comm_isend(void *self, void *comm, const void *buf, uint64_t size_bytes,
                               int32_t dest, uint64_t match_word, uint64_t *out_op)
{
    const dtl_status_t status = start(&((comm_t *)comm)->sends[dest], buf, size_bytes, dest, match_word, out_op);
    (void)self;
    progress(comm); /* what fits into the socket is out at once */
    return status;
}

/* (required) Starts a receive of at most size_bytes from `source` (a rank or DTL_ANY_SOURCE) under
 * exactly this match word (`ignore` is 0).
 * Errors: DTL_ERROR_BUSY: no room now, the library calls again later. */
static dtl_status_t comm_irecv(void *self, void *comm, void *buf, uint64_t size_bytes,
                               int32_t source, uint64_t match_word, uint64_t ignore,
                               uint64_t *out_op)
{
    (void)self, (void)ignore;
    return start(&((comm_t *)comm)->posted, buf, size_bytes, source, match_word, out_op);
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
                              dtl_comm_done_t *out_result)
{
    item_t *item = (item_t *)(uintptr_t)op;
    (void)self;
    progress(comm);
    *out_done = item->done;
    if (item->done) {
        *out_result = (dtl_comm_done_t){item->peer, DTL_SUCCESS, item->word, item->size};
        free(item);
    }
    return DTL_SUCCESS;
}

dtl_comm_vtable_t uds_comm_table(void)
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
