/* uds, the comm component: five slots that move bytes. The library makes all the rest of them: tags, any tag,
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
#define _GNU_SOURCE
#include "uds.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { HEADER = 16, MOST = 64 };

typedef struct item_t { /* a send, a receive, or a message that comes or has come */
    struct item_t *next;
    uint64_t word, size, moved; /* word and size travel before the bytes; moved counts both */
    unsigned char *buf;
    int32_t peer, done;
    dtl_comm_done_t result;
} item_t;

typedef struct comm_t { /* for each rank: a socket to it and one from it, its sends, the message that comes */
    int32_t rank, size;
    int out[MOST], in[MOST];
    item_t *sends[MOST], arriving[MOST], *posted, *unexpected;
} comm_t;

/* Moves what it can of an item through a socket; whether all of it has moved. */
static int move(int socket, item_t *item, int is_send)
{
    while (item->moved < HEADER + item->size) {
        const int is_header = item->moved < HEADER;
        if (!is_header && item->buf == NULL && (item->buf = malloc(item->size)) == NULL) {
            return 0; /* the next call tries again */
        }
        char *at = is_header ? (char *)&item->word + item->moved : (char *)item->buf + (item->moved - HEADER);
        const uint64_t rest = (is_header ? HEADER : HEADER + item->size) - item->moved;
        const ssize_t now = is_send ? send(socket, at, rest, MSG_DONTWAIT | MSG_NOSIGNAL)
                                    : recv(socket, at, rest, MSG_DONTWAIT);
        if (now <= 0) {
            return 0;
        }
        item->moved += (uint64_t)now;
    }
    return 1;
}

static dtl_status_t start(item_t **list, void *buf, uint64_t size, int32_t peer, uint64_t word, uint64_t *out)
{
    item_t *item = malloc(sizeof *item);
    if (item == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    *item = (item_t){.word = word, .size = size, .buf = buf, .peer = peer};
    while (*list != NULL) {
        list = &(*list)->next;
    }
    *list = item;
    *out = (uint64_t)(uintptr_t)item;
    return DTL_SUCCESS;
}

/* Brings messages, in the order they came, and receives, in the order they were posted, together. */
static void match(comm_t *comm)
{
    for (item_t **place = &comm->unexpected; *place != NULL;) {
        item_t **at = &comm->posted, *message = *place;
        while (*at != NULL && ((*at)->word != message->word ||
                               ((*at)->peer != DTL_ANY_SOURCE && (*at)->peer != message->peer))) {
            at = &(*at)->next;
        }
        item_t *receive = *at;
        if (receive == NULL) {
            place = &message->next;
            continue;
        }
        *at = receive->next;
        *place = message->next;
        if (message->size > 0) {
            memcpy(receive->buf, message->buf, message->size); /* it fits: the library sees to that */
        }
        receive->result = (dtl_comm_done_t){message->peer, DTL_SUCCESS, message->word, message->size};
        receive->done = 1;
        free(message->buf);
        free(message);
    }
}

static void progress(comm_t *comm)
{
    for (int32_t rank = 0; rank < comm->size; rank++) {
        item_t *now = &comm->arriving[rank];
        uint64_t unused;
        while (comm->sends[rank] != NULL && move(comm->out[rank], comm->sends[rank], 1)) {
            comm->sends[rank]->done = 1;
            comm->sends[rank] = comm->sends[rank]->next;
        }
        while (move(comm->in[rank], now, 0) &&
               start(&comm->unexpected, now->buf, now->size, rank, now->word, &unused) == DTL_SUCCESS) {
            *now = (item_t){.next = NULL};
        }
    }
    match(comm);
}

/* A name of a rank's socket that is gone with the socket. */
static struct sockaddr_un address(const char *job, uint32_t number, int32_t rank)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "%.70s-%u-%u-%d", job, (unsigned)getuid(), number, rank);
    return at;
}

/* (required) Opens a communicator: your own pointer for it, this process' rank, the number of ranks. All ranks
 * call it; it may block, up to args->timeout_ns (at most 30 s). args->rank and size are the launcher's or the
 * caller's (both -1: nobody said; be one rank). args->job is a name that the ranks of one job share and no other
 * job on this node has, of any length and characters; empty if nobody named one.
 * It is called once for each communicator that the program opens, with the same job each time: all ranks open in
 * one order, so count them, or let nothing of one open be found by the next.
 * Errors: DTL_ERROR_TIMEOUT naming the ranks that did not come; DTL_ERROR_INVALID_ARGUMENT for several ranks
 * without a job's name, if they need one to meet. A failure leaves nothing open. */
static dtl_status_t comm_open(void *self, const dtl_comm_open_t *args, void **out_comm, int32_t *out_rank,
                              int32_t *out_size)
{
    static uint32_t opened; /* the n-th communicator here is the n-th of the other ranks */
    const int32_t size = args->size > 0 ? args->size : 1, rank = args->size > 0 ? args->rank : 0;
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr_un own = address(args->job, ++opened, rank);
    comm_t *comm = calloc(1, sizeof *comm);
    if (comm == NULL || size > MOST || bind(listener, &own, sizeof own) != 0 || listen(listener, size) != 0) {
        return uds_fail(self, DTL_ERROR_UNAVAILABLE, "rank %d cannot listen at @%s", rank, own.sun_path + 1);
    }
    for (int32_t to = 0, waited_ms = 0; to < size; to++) {
        const struct sockaddr_un at = address(args->job, opened, to);
        comm->out[to] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        for (; connect(comm->out[to], &at, sizeof at) != 0; usleep(1000), waited_ms++) {
            if ((uint64_t)waited_ms * 1000000 > args->timeout_ns) {
                return uds_fail(self, DTL_ERROR_TIMEOUT, "rank %d of %d did not come", to, size);
            }
        }
        (void)!send(comm->out[to], &rank, sizeof rank, MSG_NOSIGNAL);
    }
    for (int32_t i = 0, from; i < size; i++) { /* all have found somebody here, so all are there */
        const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (recv(fd, &from, sizeof from, MSG_WAITALL) == (ssize_t)sizeof from && from >= 0 && from < size) {
            comm->in[from] = fd;
        }
    }
    close(listener);
    *out_comm = comm;
    *out_rank = comm->rank = rank;
    *out_size = comm->size = size;
    return DTL_SUCCESS;
}

/* (required) Closes it; may block. No operation is pending, unless yours did not end within a second after cancel:
 * their buffers stay valid. What was sent must still arrive: each send that comm_test called done, also at ranks
 * that read it later. The others close when they do; wait for them little or not at all. */
static dtl_status_t comm_close(void *self, void *comm)
{
    const comm_t *closing = comm;
    (void)self;
    for (int32_t rank = 0; rank < closing->size; rank++) {
        close(closing->out[rank]); /* what was sent can still be read */
        close(closing->in[rank]);
        free(closing->arriving[rank].buf);
    }
    free(comm);
    return DTL_SUCCESS;
}

/* (required) Starts a send of size_bytes (0 allowed; buf may then be NULL). buf stays as it is until the operation
 * is done, which it is when buf is no longer needed. Move at once what there is room for: to the program a small
 * send is over now, and the next call of test may be far away.
 * Errors: DTL_ERROR_BUSY = no room now, the library calls again; DTL_ERROR_RANK_FAILURE = dest is gone. */
static dtl_status_t comm_isend(void *self, void *comm, const void *buf, uint64_t size_bytes, int32_t dest,
                               uint64_t match_word, uint64_t *out_op)
{
    const dtl_status_t status =
        start(&((comm_t *)comm)->sends[dest], (void *)(uintptr_t)buf, size_bytes, dest, match_word, out_op);
    (void)self;
    progress(comm); /* what fits into the socket is out at once */
    return status;
}

/* (required) Starts a receive of at most size_bytes from `source` (a rank or DTL_ANY_SOURCE) under this match word
 * (`ignore` is 0).
 * Errors: DTL_ERROR_BUSY as above. */
static dtl_status_t comm_irecv(void *self, void *comm, void *buf, uint64_t size_bytes, int32_t source,
                               uint64_t match_word, uint64_t ignore, uint64_t *out_op)
{
    (void)self, (void)ignore;
    return start(&((comm_t *)comm)->posted, buf, size_bytes, source, match_word, out_op);
}

/* (required) Moves what can be moved, on all operations of the communicator, then asks after one. Done: *out_done
 * = 1 and *out_result filled in (of a receive: source, match word, the message's size; else status only); the
 * number may be used again. A failed operation is done, too: the failure is out_result->status. A rank that has
 * died: DTL_ERROR_RANK_FAILURE for what needs it and for one receive from any source, result.source telling who,
 * after the messages that it had sent; one that has closed may look the same.
 * It is called until something is done, with pauses that grow, so do not wait in here. */
static dtl_status_t comm_test(void *self, void *comm, uint64_t op, int32_t *out_done,
                              dtl_comm_done_t *out_result)
{
    item_t *item = (item_t *)(uintptr_t)op;
    (void)self;
    progress(comm);
    *out_done = item->done;
    if (item->done) {
        *out_result = item->result;
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
    /* Optional. A slot that stays NULL:
     *
     *   dtl_status_t cancel(void *self, void *comm, uint64_t op)
     *       Withdraws a receive, which then ends in test with DTL_ERROR_CANCELED (or as usual, if it was too
     *       late). Used before close only.       NULL: a message of this rank to itself ends each of them.
     *
     * table.match_bits: how many bits of the match word you compare, 28 to 64; 0 = 64. */
    return table;
}
