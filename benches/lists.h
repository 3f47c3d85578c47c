// A transport of two ranks in one thread: a list of receives and a list of messages for each rank, one memcpy
// per message. What is above it in the library is the protocol of registered transports (backend/p2p_protocol). For
// benches/frames.c and tests/instructions.
#include <dtl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OPS = 256 };

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

static dtl_comm_vtable_t table = DTL_COMM_VTABLE_INIT;

// Registers the transport as kind "lists" and opens both ends.
static void open_lists(dtl_comm_t comms[2])
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
}
