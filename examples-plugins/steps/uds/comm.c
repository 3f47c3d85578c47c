/* uds, the comm component: five slots that move bytes. The library makes all the rest of them: tags, any tag,
 * probing, synchronous sends, truncation, requests, time limits, collectives, splitting.
 *
 * So a table sees nothing but: sends to any rank (itself too), match words below 2^28, receives of exactly one word
 * from one rank or from DTL_ANY_SOURCE, messages that fit. It has to keep one order: two messages of one rank
 * under one word are received in the order sent, by receives in the order posted, whichever of them names its
 * source. An operation is a number of your own (*out_op): an index, or a pointer as uint64_t.
 *
 * Threads: any, but one at a time for each communicator. isend, irecv, test and cancel must not block. */
#define _GNU_SOURCE
#include "uds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { HEADER = 16 };

typedef struct item_t { /* a send, a receive, or a message that has come */
    struct item_t *next;
    uint64_t word, size; /* the header that travels before the bytes */
    uint64_t moved;      /* of header and bytes */
    unsigned char *buf;
    int32_t peer, done;
    dtl_comm_done_t result;
} item_t;

typedef struct comm_t { /* for each rank: a socket to it and one from it, its sends, what comes from it */
    int32_t rank, size;
    int *out, *in;
    item_t **sends, **arriving, *posted, *unexpected;
} comm_t;

static void append(item_t **list, item_t *item)
{
    while (*list != NULL) {
        list = &(*list)->next;
    }
    *list = item;
}

/* Moves what it can of an item through a socket; whether all of it has moved. */
static int move(int socket, item_t *item, int is_send)
{
    while (item->moved < HEADER + item->size) {
        const int is_header = item->moved < HEADER;
        char *at = is_header ? (char *)&item->word + item->moved : (char *)item->buf + (item->moved - HEADER);
        const uint64_t rest = (is_header ? HEADER : HEADER + item->size) - item->moved;
        const ssize_t now = is_send ? send(socket, at, rest, MSG_DONTWAIT | MSG_NOSIGNAL)
                                    : recv(socket, at, rest, MSG_DONTWAIT);
        if (now <= 0) {
            return 0;
        }
        item->moved += (uint64_t)now;
        if (!is_send && item->moved == HEADER && (item->buf = malloc(item->size + 1)) == NULL) {
            abort(); /* a real backend reads no further until there is memory */
        }
    }
    return 1;
}

/* Brings messages, in the order they came, and receives, in the order they were posted, together. */
static void match(comm_t *comm)
{
    for (item_t **place = &comm->unexpected; *place != NULL;) {
        item_t **wanted = &comm->posted, *message = *place;
        while (*wanted != NULL && ((*wanted)->word != message->word ||
                                   ((*wanted)->peer != message->peer && (*wanted)->peer != DTL_ANY_SOURCE))) {
            wanted = &(*wanted)->next;
        }
        item_t *receive = *wanted;
        if (receive == NULL) {
            place = &message->next;
            continue;
        }
        *wanted = receive->next;
        *place = message->next;
        const int fits = message->size <= receive->size;
        memcpy(receive->size > 0 ? receive->buf : message->buf, message->buf, fits ? message->size : receive->size);
        receive->result = (dtl_comm_done_t){message->peer, fits ? DTL_SUCCESS : DTL_ERROR_TRUNCATED, message->word,
                                            message->size};
        receive->done = 1;
        free(message->buf);
        free(message);
    }
}

static void progress(comm_t *comm)
{
    for (int32_t rank = 0; rank < comm->size; rank++) {
        while (comm->sends[rank] != NULL && move(comm->out[rank], comm->sends[rank], 1)) {
            comm->sends[rank]->done = 1;
            comm->sends[rank] = comm->sends[rank]->next;
        }
        while (comm->arriving[rank] != NULL || (comm->arriving[rank] = calloc(1, sizeof(item_t))) != NULL) {
            comm->arriving[rank]->peer = rank;
            if (!move(comm->in[rank], comm->arriving[rank], 0)) {
                break;
            }
            append(&comm->unexpected, comm->arriving[rank]);
            comm->arriving[rank] = NULL;
        }
    }
    match(comm);
}

static dtl_status_t start(void *self, item_t **list, void *buf, uint64_t size, int32_t peer, uint64_t word, uint64_t *out)
{
    item_t *item = calloc(1, sizeof *item);
    if (item == NULL) {
        return uds_fail(self, DTL_ERROR_OUT_OF_MEMORY, "uds: no memory for an operation");
    }
    *item = (item_t){.word = word, .size = size, .buf = buf, .peer = peer};
    append(list, item);
    *out = (uint64_t)(uintptr_t)item;
    return DTL_SUCCESS;
}

/* A name of a rank's socket that is gone with the socket. */
static struct sockaddr_un address(const char *job, uint32_t number, int32_t rank)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "%.70s-%u-%u-%d", job, (unsigned)getuid(), number, rank);
    return at;
}

/* (required) Opens a communicator: your own pointer for it, this process' rank, the number of ranks. All ranks
 * call it; it may block, up to args->timeout_ns. args->rank and size are the launcher's or the caller's (size <= 0:
 * nobody said; be one rank), args->job is a name that the ranks of one job share and no other job has.
 * Errors: DTL_ERROR_TIMEOUT naming the ranks that did not come. */
static dtl_status_t comm_open(void *self, const dtl_comm_open_t *args, void **out_comm, int32_t *out_rank,
                              int32_t *out_size)
{
    static uint32_t opened; /* the n-th communicator here is the n-th of the other ranks */
    const uint32_t number = __atomic_fetch_add(&opened, 1, __ATOMIC_RELAXED);
    const int32_t size = args->size > 0 ? args->size : 1, rank = args->size > 0 ? args->rank : 0;
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr_un own = address(args->job, number, rank);
    comm_t *comm = calloc(1, sizeof *comm + (size_t)size * (2 * sizeof(item_t *) + 2 * sizeof(int)));
    if (comm == NULL || bind(listener, (const struct sockaddr *)&own, sizeof own) != 0 || listen(listener, size) != 0) {
        return uds_fail(self, DTL_ERROR_UNAVAILABLE, "uds: rank %d cannot listen at @%s", rank, own.sun_path + 1);
    }
    *comm = (comm_t){.rank = rank, .size = size, .sends = (item_t **)(comm + 1)};
    comm->arriving = comm->sends + size;
    comm->out = (int *)(comm->arriving + size);
    comm->in = comm->out + size;
    for (int32_t to = 0, waited_ms = 0; to < size; to++) {
        const struct sockaddr_un at = address(args->job, number, to);
        comm->out[to] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        for (; connect(comm->out[to], (const struct sockaddr *)&at, sizeof at) != 0; waited_ms++) {
            if ((uint64_t)waited_ms * 1000000 > args->timeout_ns) {
                return uds_fail(self, DTL_ERROR_TIMEOUT, "uds: rank %d of %d did not come", to, size);
            }
            nanosleep(&(struct timespec){0, 1000000}, NULL);
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
    *out_rank = rank;
    *out_size = size;
    return DTL_SUCCESS;
}

/* (required) Closes it; may block. No operation is pending, unless yours did not end within a second after cancel:
 * their buffers stay valid. What was sent must still arrive. */
static dtl_status_t comm_close(void *self, void *comm)
{
    const comm_t *closing = comm;
    (void)self;
    for (int32_t rank = 0; rank < closing->size; rank++) {
        close(closing->out[rank]); /* what was sent can still be read */
        close(closing->in[rank]);
        free(closing->arriving[rank]);
    }
    free(comm);
    return DTL_SUCCESS;
}

/* (required) Starts a send of size_bytes (0 allowed; buf may then be NULL). buf stays as it is until the operation
 * is done, which it is when buf is no longer needed.
 * Errors: DTL_ERROR_BUSY = no room now, the library calls again; DTL_ERROR_RANK_FAILURE = dest is gone. */
static dtl_status_t comm_isend(void *self, void *comm, const void *buf, uint64_t size_bytes, int32_t dest,
                               uint64_t match_word, uint64_t *out_op)
{
    item_t **list = &((comm_t *)comm)->sends[dest];
    return start(self, list, (void *)(uintptr_t)buf, size_bytes, dest, match_word, out_op);
}

/* (required) Starts a receive of at most size_bytes from `source` (a rank or DTL_ANY_SOURCE) under this match word
 * (`ignore` is 0).
 * Errors: DTL_ERROR_BUSY as above. */
static dtl_status_t comm_irecv(void *self, void *comm, void *buf, uint64_t size_bytes, int32_t source,
                               uint64_t match_word, uint64_t ignore, uint64_t *out_op)
{
    (void)ignore;
    return start(self, &((comm_t *)comm)->posted, buf, size_bytes, source, match_word, out_op);
}

/* (required) Moves what can be moved, on all operations of the communicator, then asks after one. Done: *out_done
 * = 1 and *out_result filled in (of a receive: source, match word, the message's size; else status only); the
 * number may be used again. A failed operation is done, too: the failure is out_result->status. A rank that has
 * died: DTL_ERROR_RANK_FAILURE for what needs it and for one receive from any source, result.source telling who.
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

void uds_fill_comm(dtl_comm_vtable_t *table)
{
    table->open = comm_open;
    table->close = comm_close;
    table->isend = comm_isend;
    table->irecv = comm_irecv;
    table->test = comm_test;
    /* Optional. A slot that stays NULL:
     *
     *   dtl_status_t cancel(void *self, void *comm, uint64_t op)
     *       Withdraws a receive, which then ends in test with DTL_ERROR_CANCELED (or as usual, if it was too
     *       late). Used before close only.       NULL: a message of this rank to itself ends each of them.
     *
     * table->match_bits: how many bits of the match word you compare, 28 to 64; 0 = 64. */
}
