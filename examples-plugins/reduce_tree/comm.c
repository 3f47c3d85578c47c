/* Messages: queues of cells between each two ranks, and the lists of this rank's operations. */
#include "reduce_tree.h"
#include <stdlib.h>
#include <string.h>

op_t *new_op(int kind)
{
    op_t *op = calloc(1, sizeof *op);
    if (op != NULL) op->kind = kind;
    return op;
}

void append(op_t **list, op_t *op)
{
    while (*list != NULL) list = &(*list)->next;
    *list = op;
}

void drop(op_t **list, op_t *op)
{
    while (*list != op) list = &(*list)->next;
    *list = op->next;
    op->next = NULL;
}

static void progress(comm_t *c);

static queue_t *queue(comm_t *c, int32_t from, int32_t to)
{
    return &c->shared->queues[from * c->size + to];
}

static dtl_status_t isend(void *self, void *comm, const void *buf, uint64_t size_bytes, int32_t dest,
                          uint64_t match_word, uint64_t *out_op)
{
    comm_t *c = comm;
    op_t *op = new_op(SEND);
    (void)self;
    if (op == NULL) return DTL_ERROR_OUT_OF_MEMORY;
    op->peer = dest, op->word = match_word, op->from = buf, op->size_bytes = size_bytes;
    append(&c->sends, op);
    progress(c); /* now: the next call of the library may be much later */
    *out_op = (uint64_t)(uintptr_t)op;
    return DTL_SUCCESS;
}

static dtl_status_t irecv(void *self, void *comm, void *buf, uint64_t size_bytes, int32_t source,
                          uint64_t match_word, uint64_t ignore, uint64_t *out_op)
{
    comm_t *c = comm;
    op_t *op = new_op(RECEIVE);
    (void)self, (void)ignore;
    if (op == NULL) return DTL_ERROR_OUT_OF_MEMORY;
    op->peer = source, op->word = match_word, op->into = buf, op->size_bytes = size_bytes;
    append(&c->receives, op);
    *out_op = (uint64_t)(uintptr_t)op;
    return DTL_SUCCESS;
}

/* Puts as much of a send into its queue as there is room for. */
static void move_send(comm_t *c, op_t *op)
{
    queue_t *q = queue(c, c->rank, op->peer);
    while (!op->is_done && atomic_load(&q->written) - atomic_load(&q->read) < CELLS) {
        const uint64_t at = atomic_load(&q->written), left = op->size_bytes - op->moved;
        cell_t *cell = &q->cells[at % CELLS];
        cell->word = op->word, cell->size_bytes = op->size_bytes;
        cell->bytes = left < CELL_BYTES ? (uint32_t)left : CELL_BYTES;
        cell->is_last = cell->bytes == left;
        if (cell->bytes > 0) memcpy(cell->data, op->from + op->moved, cell->bytes);
        op->moved += cell->bytes;
        op->is_done = cell->is_last;
        atomic_store(&q->written, at + 1);
    }
}

static op_t *posted(comm_t *c, int32_t source, uint64_t word)
{
    op_t *op = c->receives;
    while (op != NULL && (op->is_bound || op->word != word || (op->peer != source && op->peer != DTL_ANY_SOURCE))) {
        op = op->next;
    }
    return op;
}

/* Takes what has arrived from a rank and has a receive. */
static void move_receives(comm_t *c, int32_t source)
{
    queue_t *q = queue(c, source, c->rank);
    while (atomic_load(&q->read) < atomic_load(&q->written)) {
        const uint64_t at = atomic_load(&q->read);
        const cell_t *cell = &q->cells[at % CELLS];
        op_t *op = c->incoming[source];
        uint64_t room;
        if (op == NULL) op = posted(c, source, cell->word);
        if (op == NULL) return;
        op->is_bound = true;
        c->incoming[source] = op;
        room = op->size_bytes > op->moved ? op->size_bytes - op->moved : 0;
        if (room > cell->bytes) room = cell->bytes;
        if (room > 0) memcpy(op->into + op->moved, cell->data, room);
        op->moved += cell->bytes;
        if (cell->is_last) {
            op->result.source = source, op->result.match_word = cell->word;
            op->result.size_bytes = cell->size_bytes;
            op->result.status = cell->size_bytes > op->size_bytes ? DTL_ERROR_TRUNCATED : DTL_SUCCESS;
            op->is_done = true;
            c->incoming[source] = NULL;
            drop(&c->receives, op);
        }
        atomic_store(&q->read, at + 1);
    }
}

static void progress(comm_t *c)
{
    bool is_busy[MOST_RANKS] = {false}; /* sends to one rank stay in order */
    op_t *op = c->sends, *next;
    for (; op != NULL; op = next) {
        next = op->next;
        if (!is_busy[op->peer]) move_send(c, op);
        is_busy[op->peer] = !op->is_done;
        if (op->is_done) drop(&c->sends, op);
    }
    for (int32_t source = 0; source < c->size; source++) move_receives(c, source);
    move_collectives(c);
}

static dtl_status_t test(void *self, void *comm, uint64_t number, int32_t *out_done, dtl_comm_done_t *out_result)
{
    op_t *op = (op_t *)(uintptr_t)number;
    (void)self;
    progress(comm);
    *out_done = op->is_done;
    if (op->is_done) {
        *out_result = op->result;
        free(op);
    }
    return DTL_SUCCESS;
}

/* Withdraws a receive that has no message yet, or a collective. What a collective has given the switch
 * stays there: the library starts no other one afterwards. */
static dtl_status_t cancel(void *self, void *comm, uint64_t number)
{
    comm_t *c = comm;
    op_t *op = (op_t *)(uintptr_t)number;
    (void)self;
    if (op->is_done || op->is_bound || op->kind == SEND) return DTL_SUCCESS;
    drop(op->kind == RECEIVE ? &c->receives : &c->collectives, op);
    op->result.status = DTL_ERROR_CANCELED;
    op->is_done = true;
    return DTL_SUCCESS;
}

static dtl_status_t is_available(void *self, int32_t *out_yes, char *why, uint64_t cap)
{
    (void)self, (void)why, (void)cap;
    *out_yes = 1;
    return DTL_SUCCESS;
}

const dtl_host_api_t *host;

static dtl_status_t load(const dtl_host_api_t *given)
{
    dtl_comm_vtable_t comm = DTL_COMM_VTABLE_INIT;
    dtl_backend_vtable_t backend = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t registered;
    host = given;
    add_open(&comm);
    comm.isend = isend, comm.irecv = irecv, comm.test = test, comm.cancel = cancel;
    add_collectives(&comm);
    backend.is_available = is_available;
    backend.comm = &comm;
    return host->backend_register("reduce_tree", &backend, NULL, 0, &registered);
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *given, dtl_plugin_t *out)
{
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    (void)given;
    plugin.name = "reduce_tree";
    plugin.version = "1.0";
    plugin.description = "ranks of one machine, with a simulated switch that reduces";
    plugin.load = load;
    *out = plugin;
    return DTL_SUCCESS;
}
