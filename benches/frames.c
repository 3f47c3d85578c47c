// Cost of what the library makes of a registered transport: a message through dtl_comm_isend and
// dtl_comm_irecv, and through the bare slots of the same table, interleaved. Two ranks in one thread;
// the transport is a list of receives and a list of messages for each rank, one memcpy per message.
//
//     cc -O2 benches/frames.c $(pkg-config --cflags --libs libdtl) -o frames && ./frames
//
// Prints nanoseconds per message: the 10th percentile over many short batches. With arguments
// "bare|dtl BYTES COUNT" it moves that many messages and prints nothing, to count instructions.
#define _GNU_SOURCE
#include <dtl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CALLS = 200, BATCHES = 1000, OPS = 256, LARGEST = 64 << 10 };

typedef struct op_t {
    struct op_t *next;
    void *buf;
    uint64_t size, word;
    int32_t source, done;
    dtl_comm_done_t result;
} op_t;

typedef struct list_t {
    op_t *first, **last;
} list_t;

typedef struct rank_t {
    list_t receives, messages; /* a message is its send: the bytes are read when a receive takes it */
    int32_t rank;
} rank_t;

static rank_t ranks[2];
static op_t ops[OPS], *spare;

static op_t *new_op(void *buf, uint64_t size, int32_t source, uint64_t word)
{
    op_t *op = spare;
    if (op == NULL) abort();
    spare = op->next;
    op->next = NULL, op->buf = buf, op->size = size, op->source = source, op->word = word, op->done = 0;
    return op;
}

static void append(list_t *list, op_t *op)
{
    *list->last = op;
    list->last = &op->next;
}

static op_t *remove_from(list_t *list, int32_t source, uint64_t word)
{
    for (op_t **op = &list->first; *op != NULL; op = &(*op)->next) {
        op_t *found = *op;
        const int fits = found->source == source || found->source == DTL_ANY_SOURCE || source == DTL_ANY_SOURCE;
        if (fits && found->word == word) {
            *op = found->next;
            if (found->next == NULL) list->last = op;
            return found;
        }
    }
    return NULL;
}

static void meet(op_t *receive, op_t *send)
{
    if (send->size > 0) memcpy(receive->buf, send->buf, send->size);
    receive->result.source = send->source, receive->result.status = DTL_SUCCESS;
    receive->result.match_word = send->word, receive->result.size_bytes = send->size;
    send->result.status = DTL_SUCCESS;
    receive->done = send->done = 1;
}

static dtl_status_t t_open(void *self, const dtl_comm_open_t *args, void **out, int32_t *rank, int32_t *size)
{
    rank_t *me = &ranks[args->rank];
    (void)self;
    me->rank = args->rank;
    me->receives.last = &me->receives.first, me->messages.last = &me->messages.first;
    return *out = me, *rank = args->rank, *size = 2, DTL_SUCCESS;
}
static dtl_status_t t_close(void *self, void *comm)
{
    (void)self, (void)comm;
    return DTL_SUCCESS;
}
static dtl_status_t t_isend(void *self, void *comm, const void *buf, uint64_t size, int32_t dest, uint64_t word,
                            uint64_t *out)
{
    const int32_t source = ((rank_t *)comm)->rank;
    op_t *send = new_op((void *)(uintptr_t)buf, size, source, word);
    op_t *receive = remove_from(&ranks[dest].receives, source, word);
    (void)self;
    if (receive != NULL) meet(receive, send);
    else append(&ranks[dest].messages, send);
    return *out = (uint64_t)(uintptr_t)send, DTL_SUCCESS;
}
static dtl_status_t t_irecv(void *self, void *comm, void *buf, uint64_t size, int32_t source, uint64_t word,
                            uint64_t ignore, uint64_t *out)
{
    rank_t *me = comm;
    op_t *receive = new_op(buf, size, source, word);
    op_t *send = remove_from(&me->messages, source, word);
    (void)self, (void)ignore;
    if (send != NULL) meet(receive, send);
    else append(&me->receives, receive);
    return *out = (uint64_t)(uintptr_t)receive, DTL_SUCCESS;
}
static dtl_status_t t_test(void *self, void *comm, uint64_t word, int32_t *done, dtl_comm_done_t *result)
{
    op_t *op = (op_t *)(uintptr_t)word;
    (void)self, (void)comm;
    if ((*done = op->done) != 0) {
        *result = op->result;
        op->next = spare, spare = op;
    }
    return DTL_SUCCESS;
}

static char out[LARGEST], in[LARGEST];
static dtl_comm_t comms[2];
static dtl_comm_vtable_t table = DTL_COMM_VTABLE_INIT;

static void move_bare(uint64_t size, int count)
{
    for (int i = 0; i < count; i++) {
        uint64_t send, receive;
        int32_t done = 0;
        dtl_comm_done_t result;
        if (table.irecv(NULL, &ranks[1], in, size, 0, 1u << 26 | 1, 0, &receive) != DTL_SUCCESS ||
            table.isend(NULL, &ranks[0], out, size, 1, 1u << 26 | 1, &send) != DTL_SUCCESS)
            abort();
        while (!done) DTL_CHECK(table.test(NULL, &ranks[1], receive, &done, &result));
        for (done = 0; !done;) DTL_CHECK(table.test(NULL, &ranks[0], send, &done, &result));
    }
}

static void move_dtl(uint64_t size, int count)
{
    for (int i = 0; i < count; i++) {
        dtl_request_t send, receive;
        int sent = 0, received = 0;
        DTL_CHECK(dtl_comm_irecv(comms[1], in, size, DTL_DTYPE_BYTE, 0, 1, &receive));
        DTL_CHECK(dtl_comm_isend(comms[0], out, size, DTL_DTYPE_BYTE, 1, 1, &send));
        while (!sent || !received) {
            if (!received) DTL_CHECK(dtl_request_test(receive, &received, NULL));
            if (!sent) DTL_CHECK(dtl_request_test(send, &sent, NULL));
        }
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void compare(uint64_t size)
{
    static double bare[BATCHES], dtl[BATCHES];
    for (int i = 0; i < BATCHES; i++) {
        const double begin = now();
        move_bare(size, CALLS);
        const double middle = now();
        move_dtl(size, CALLS);
        bare[i] = (middle - begin) / CALLS;
        dtl[i] = (now() - middle) / CALLS;
    }
    qsort(bare, BATCHES, sizeof *bare, ascending);
    qsort(dtl, BATCHES, sizeof *dtl, ascending);
    printf("%6d B  bare %8.1f ns  dtl %8.1f ns  ratio %.2f\n", (int)size, bare[BATCHES / 10], dtl[BATCHES / 10],
           dtl[BATCHES / 10] / bare[BATCHES / 10]);
}

int main(int argc, char **argv)
{
    dtl_backend_vtable_t backend = DTL_BACKEND_VTABLE_INIT;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_backend_t registered;
    for (int i = 0; i < OPS; i++) ops[i].next = spare, spare = &ops[i];
    table.open = t_open, table.close = t_close, table.isend = t_isend, table.irecv = t_irecv, table.test = t_test;
    backend.comm = &table;
    DTL_CHECK(dtl_backend_register("lists", &backend, NULL, 0, &registered));
    desc.kind = "lists", desc.size = 2;
    for (desc.rank = 0; desc.rank < 2; desc.rank++) DTL_CHECK(dtl_comm_open(&desc, &comms[desc.rank]));
    if (argc == 4) {
        const uint64_t size = strtoull(argv[2], NULL, 10);
        if (size > LARGEST) return 2;
        (strcmp(argv[1], "bare") == 0 ? move_bare : move_dtl)(size, atoi(argv[3]));
    } else {
        compare(8);
        compare(4096);
        compare(LARGEST);
    }
    DTL_CHECK(dtl_finalize());
    return 0;
}
