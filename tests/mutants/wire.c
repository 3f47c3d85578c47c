/* wire: a correct communicator plugin (MUTANT_BASE: its file) seen through slots with planted faults.
 *
 * It loads the other plugin with a host table of its own, keeps the comm table that is registered there, and
 * registers its own. Every operation has a place in a list here, so that it can be held back, repeated, or
 * reported otherwise than it ended. */
#include "wire.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static const dtl_host_api_t *library;
dtl_comm_vtable_t base;
void *base_self;

static void *volatile lost; /* what is never freed */

dtl_status_t failed(dtl_status_t status, const char *text)
{
    DTL_IGNORE(library->set_error(text));
    return status;
}

/* ---- operations ---- */

static op_t *new_op(wire_t *wire, uint64_t *out_word)
{
    uint64_t place = 0;
    while (place < wire->room && wire->ops[place].is_used) {
        place++;
    }
    if (place == wire->room) {
        const uint64_t room = wire->room * 2 + 64;
        op_t *ops = realloc(wire->ops, room * sizeof *ops);
        if (ops == NULL) {
            return NULL;
        }
        memset(ops + wire->room, 0, (room - wire->room) * sizeof *ops);
        wire->ops = ops;
        wire->room = room;
    }
    op_t *op = &wire->ops[place];
    const dtl_comm_done_t previous = op->previous;
    memset(op, 0, sizeof *op);
    op->previous = previous;
    op->is_used = 1;
    *out_word = place + 1;
    return op;
}

static void free_op(op_t *op)
{
    free(op->own);
    op->own = NULL;
    op->is_used = 0;
}

/* A copy of what is to be sent, in the operation. */
void *own_copy(op_t *op, const void *buf, uint64_t size_bytes)
{
    op->own = malloc(size_bytes + 1);
    if (op->own != NULL && size_bytes > 0) {
        memcpy(op->own, buf, size_bytes);
    }
    return op->own;
}

/* Gives a send to the base. It stays held if there is no room. */
static dtl_status_t start_send(wire_t *wire, op_t *op)
{
    const dtl_status_t status =
        base.isend(base_self, wire->base, op->buf, op->size_bytes, op->peer, op->match_word, &op->base);
    op->is_held = status == DTL_ERROR_BUSY;
    return status;
}

/* Goes on with what the library believes to be over: held sends are started, ended ones forgotten. */
static void go_on(wire_t *wire, int patience)
{
    for (uint64_t i = 0; i < wire->room; i++) {
        op_t *op = &wire->ops[i];
        if (!op->is_used || !op->is_over) {
            continue;
        }
        if (op->is_held) {
            if (++op->asked > patience && start_send(wire, op) != DTL_SUCCESS && !op->is_held) {
                free_op(op);
            }
            continue;
        }
        int32_t is_done = 0;
        dtl_comm_done_t result;
        memset(&result, 0, sizeof result);
        if (base.test(base_self, wire->base, op->base, &is_done, &result) != DTL_SUCCESS || is_done) {
            free_op(op);
        }
    }
}

/* comm.isend.only_queues: starts what isend has queued, in its order. */
static void start_queued(wire_t *wire)
{
    while (wire->queued > 0) {
        op_t *first = NULL;
        for (uint64_t i = 0; i < wire->room; i++) {
            op_t *op = &wire->ops[i];
            first = op->is_used && op->is_held && (first == NULL || op->number < first->number) ? op : first;
        }
        if (first == NULL || start_send(wire, first) != DTL_SUCCESS) {
            return;
        }
        wire->queued--;
    }
}

/* A send that the library never hears of. */
static void send_apart(wire_t *wire, const void *buf, uint64_t size_bytes, int32_t dest, uint64_t match_word)
{
    uint64_t word;
    op_t *op = new_op(wire, &word);
    if (op != NULL && (op->buf = own_copy(op, buf, size_bytes)) != NULL) {
        op->size_bytes = size_bytes;
        op->peer = dest;
        op->match_word = match_word;
        op->is_over = 1;
        DTL_IGNORE(start_send(wire, op));
    }
}

/* ---- the slots ---- */

static dtl_status_t wire_open(void *self, const dtl_comm_open_t *args, void **out_comm, int32_t *out_rank,
                              int32_t *out_size)
{
    wire_t *wire = calloc(1, sizeof *wire);
    (void)self;
    if (wire == NULL) {
        return failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for a communicator");
    }
    const dtl_status_t status = meet(args, &wire->base, &wire->rank, &wire->size);
    if (status != DTL_SUCCESS) {
        free(wire);
        return status;
    }
    *out_comm = wire;
    *out_rank = wire->rank;
    *out_size = wire->size;
    if (is_fault("comm.open.wrong_rank")) {
        *out_rank = wire->size - 1 - wire->rank;
    }
    if (is_fault("comm.open.all_rank_0")) {
        *out_rank = 0;
    }
    if (is_fault("comm.open.rank_counted_from_1")) {
        *out_rank = wire->rank + 1;
    }
    if (is_fault("comm.open.wrong_size")) {
        *out_size = wire->size + 1;
    }
    if (is_fault("comm.open.all_alone")) {
        *out_rank = 0;
        *out_size = 1;
    }
    if (is_fault("comm.open.null")) {
        *out_comm = NULL;
    }
    return DTL_SUCCESS;
}

static dtl_status_t wire_close(void *self, void *comm)
{
    wire_t *wire = comm;
    (void)self;
    if (!is_fault("comm.close.drops_sent")) {
        for (int rounds = 0; rounds < 1000; rounds++) {
            start_queued(wire);
            go_on(wire, 0);
        }
    }
    collectives_close(wire);
    registrations_close(wire);
    const dtl_status_t status = part(wire->base);
    for (uint64_t i = 0; i < wire->room; i++) {
        free(wire->ops[i].own);
    }
    free(wire->ops);
    free(wire);
    return status;
}

/* Changes a send as the planted fault wants. */
static void spoil(wire_t *wire, op_t *op)
{
    const int now = wire->sends > CALM && wire->sends % 5 == 0;
    if (is_fault("comm.isend.corrupted") && now && op->size_bytes > 0 &&
        own_copy(op, op->buf, op->size_bytes) != NULL) {
        op->own[op->size_bytes - 1] ^= 0x10;
        op->buf = op->own;
    }
    if (is_fault("comm.isend.corrupted_large") && op->size_bytes > 65536 &&
        own_copy(op, op->buf, op->size_bytes) != NULL) {
        op->own[65536] ^= 1;
        op->buf = op->own;
    }
    if (is_fault("comm.isend.short") && now && op->size_bytes > 0) {
        op->size_bytes -= 1;
    }
    if (is_fault("comm.isend.capped_64k") && op->size_bytes > 65536) {
        op->size_bytes = 65536;
    }
    if (is_fault("comm.isend.misrouted") && now) {
        op->peer = (op->peer + 1) % wire->size;
    }
    if (is_fault("comm.isend.wrong_word_low") && op->match_word != 0) {
        op->match_word ^= 1;
    }
    if (is_fault("comm.isend.wrong_word_high") && op->match_word != 0) {
        op->match_word ^= UINT64_C(1) << 27;
    }
}

/* Whether the send is over for the library though it has not begun. */
static int is_held_back(wire_t *wire, op_t *op)
{
    const int now = wire->sends > CALM && wire->sends % 5 == 0;
    if (is_fault("comm.isend.done_early_reads_late")) {
        return now;
    }
    if (is_fault("comm.isend.only_queues")) {
        op->number = wire->sends;
        wire->queued++;
        return 1;
    }
    const int is_overtaken = is_fault("comm.isend.overtaken") && op->size_bytes > 8 && wire->sends % 5 == 0;
    if ((is_fault("comm.isend.reordered") && now) || is_overtaken || is_fault("comm.close.drops_sent")) {
        op->buf = own_copy(op, op->buf, op->size_bytes);
        return op->buf != NULL;
    }
    return 0;
}

static dtl_status_t wire_isend(void *self, void *comm, const void *buf, uint64_t size_bytes, int32_t dest,
                               uint64_t match_word, uint64_t *out_op)
{
    wire_t *wire = comm;
    (void)self;
    wire->sends++;
    if (is_fault("comm.isend.always_busy") && wire->sends > CALM) {
        return DTL_ERROR_BUSY;
    }
    if (is_fault("comm.isend.not_to_itself") && dest == wire->rank) {
        return failed(DTL_ERROR_INVALID_RANK, "a rank cannot send to itself");
    }
    if (is_fault("comm.isend.itself_out_of_range") && dest == wire->rank) {
        return failed(DTL_ERROR_INVALID_ARGUMENT, "a rank is no other rank");
    }
    if (is_fault("comm.isend.empty_refused") && size_bytes == 0) {
        return failed(DTL_ERROR_INVALID_ARGUMENT, "there is nothing to send");
    }
    if (is_fault("comm.isend.crashes")) {
        abort();
    }
    if (is_fault("comm.close.drops_sent")) {
        go_on(wire, 0); /* the one before leaves with this one */
    }
    op_t *op = new_op(wire, out_op);
    if (op == NULL) {
        return failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for an operation");
    }
    op->buf = (void *)(uintptr_t)buf;
    op->size_bytes = size_bytes;
    op->peer = dest;
    op->match_word = match_word;
    const dtl_status_t usable = registered_send(wire, op);
    if (usable != DTL_SUCCESS) {
        free_op(op);
        return usable;
    }
    spoil(wire, op);
    if (is_fault("comm.isend.lost") && wire->sends > CALM && wire->sends % 5 == 0) {
        op->is_canceled = 1; /* done when asked */
        return DTL_SUCCESS;
    }
    if (is_fault("comm.isend.lost_large") && size_bytes > 8192) {
        op->is_canceled = 1;
        return DTL_SUCCESS;
    }
    if (is_fault("comm.isend.leaks") || (is_fault("comm.isend.leaks_large") && size_bytes > 8192)) {
        lost = malloc(1);
    }
    if (is_held_back(wire, op)) {
        op->is_held = 1;
        return DTL_SUCCESS;
    }
    if (is_fault("comm.isend.duplicated") && wire->sends > CALM && wire->sends % 5 == 0) {
        send_apart(wire, buf, size_bytes, dest, match_word);
        op = &wire->ops[*out_op - 1]; /* the list may have moved */
    }
    const dtl_status_t status = start_send(wire, op);
    if (status != DTL_SUCCESS) {
        free_op(op);
    }
    return status;
}

static dtl_status_t wire_irecv(void *self, void *comm, void *buf, uint64_t size_bytes, int32_t source,
                               uint64_t match_word, uint64_t ignore, uint64_t *out_op)
{
    wire_t *wire = comm;
    (void)self;
    wire->receives++;
    if (is_fault("comm.irecv.always_busy") && wire->receives > CALM) {
        return DTL_ERROR_BUSY;
    }
    op_t *op = new_op(wire, out_op);
    if (op == NULL) {
        return failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for an operation");
    }
    const dtl_status_t usable = registered_target(wire, &buf, size_bytes);
    if (usable != DTL_SUCCESS) {
        free_op(op);
        return usable;
    }
    op->is_receive = 1;
    op->buf = buf;
    op->size_bytes = size_bytes;
    op->match_word = match_word;
    op->peer = source;
    if (is_fault("comm.irecv.matches_any_word")) {
        ignore = ~UINT64_C(0);
    }
    if (is_fault("comm.irecv.ignores_low_bits")) {
        ignore = 0xF;
    }
    if (is_fault("comm.irecv.matches_any_source")) {
        source = DTL_ANY_SOURCE;
    }
    if (is_fault("comm.irecv.any_large_one") && match_word != 0) {
        ignore = (UINT64_C(1) << 27) - 1; /* all but the bit that tells large messages from frames */
        source = DTL_ANY_SOURCE;
    }
    if (is_fault("comm.irecv.any_source_is_itself") && source == DTL_ANY_SOURCE) {
        source = wire->rank;
    }
    if (is_fault("comm.irecv.short_room") && size_bytes > 0) {
        size_bytes -= 1;
    }
    if (is_fault("comm.irecv.last_byte_missing") || is_fault("comm.test.done_early") ||
        is_fault("comm.irecv.wrong_place") || is_fault("comm.test.before_the_bytes")) {
        op->own = malloc(size_bytes + 1);
        buf = op->own;
    }
    const dtl_status_t status =
        base.irecv(base_self, wire->base, buf, size_bytes, source, match_word, ignore, &op->base);
    if (status != DTL_SUCCESS) {
        free_op(op);
        return status;
    }
    if (is_fault("comm.test.wrong_op") && wire->latest_receive != 0 && wire->receives % 3 == 0) {
        op_t *other = &wire->ops[wire->latest_receive - 1];
        if (other->is_used && other->is_receive) { /* each gets the other's */
            const uint64_t theirs = other->base;
            other->base = op->base;
            op->base = theirs;
        }
    }
    wire->latest_receive = *out_op;
    return DTL_SUCCESS;
}

static dtl_status_t wire_test(void *self, void *comm, uint64_t word, int32_t *out_done, dtl_comm_done_t *out_result)
{
    wire_t *wire = comm;
    (void)self;
    if (window_test(word, out_done, out_result) || collective_test(wire, word, out_done, out_result)) {
        return DTL_SUCCESS;
    }
    if (word == 0 || word > wire->room || !wire->ops[word - 1].is_used || wire->ops[word - 1].is_over) {
        return failed(DTL_ERROR_INVALID_ARGUMENT, "no operation has this word");
    }
    go_on(wire, is_fault("comm.close.drops_sent") ? 5000 : 20);
    op_t *op = &wire->ops[word - 1];
    if (is_fault("comm.test.never_done") && wire->ends > CALM) {
        *out_done = 0;
        return DTL_SUCCESS;
    }
    if (op->is_canceled) { /* a lost send, or a receive that was said to be withdrawn */
        *out_done = 1;
        out_result->status = op->is_receive ? DTL_ERROR_CANCELED : DTL_SUCCESS;
        free_op(op);
        return DTL_SUCCESS;
    }
    if (is_over_early(wire, op, out_result)) {
        *out_done = 1;
        op->is_over = 1;
        op->asked = 0;
        return DTL_SUCCESS;
    }
    start_queued(wire);
    if (op->is_held) {
        *out_done = 0;
        return DTL_SUCCESS;
    }
    op->asked++;
    if (is_fault("comm.test.no_progress") && wire->ends > CALM && op->asked % 4096 != 0) {
        *out_done = 0;
        return DTL_SUCCESS;
    }
    int32_t is_done = 0;
    const dtl_status_t status = base.test(base_self, wire->base, op->base, &is_done, out_result);
    if (status != DTL_SUCCESS) {
        return status;
    }
    *out_done = is_done;
    if (is_done && is_fault("comm.test.odd_boolean")) {
        *out_done = 2;
    }
    if (is_done) {
        op->previous = *out_result;
        report(wire, op, out_result);
        free_op(op);
    }
    return DTL_SUCCESS;
}

static dtl_status_t wire_cancel(void *self, void *comm, uint64_t word)
{
    wire_t *wire = comm;
    (void)self;
    if (collective_cancel(wire, word)) {
        return DTL_SUCCESS;
    }
    if (word == 0 || word > wire->room || !wire->ops[word - 1].is_used) {
        return failed(DTL_ERROR_INVALID_ARGUMENT, "no operation has this word");
    }
    if (is_fault("comm.cancel.ignored")) {
        return DTL_SUCCESS;
    }
    if (is_fault("comm.cancel.lies")) {
        wire->ops[word - 1].is_canceled = 1;
        return DTL_SUCCESS;
    }
    return base.cancel != NULL ? base.cancel(base_self, wire->base, wire->ops[word - 1].base) : DTL_SUCCESS;
}

SLOT(comm, open, wire_open,
     (void *self, const dtl_comm_open_t *args, void **out_comm, int32_t *out_rank, int32_t *out_size),
     (self, args, out_comm, out_rank, out_size))
SLOT(comm, close, wire_close, (void *self, void *comm), (self, comm))
SLOT(comm, isend, wire_isend,
     (void *self, void *comm, const void *buf, uint64_t size_bytes, int32_t dest, uint64_t match_word,
      uint64_t *out_op),
     (self, comm, buf, size_bytes, dest, match_word, out_op))
SLOT(comm, irecv, wire_irecv,
     (void *self, void *comm, void *buf, uint64_t size_bytes, int32_t source, uint64_t match_word, uint64_t ignore,
      uint64_t *out_op),
     (self, comm, buf, size_bytes, source, match_word, ignore, out_op))
SLOT(comm, test, wire_test,
     (void *self, void *comm, uint64_t op, int32_t *out_done, dtl_comm_done_t *out_result),
     (self, comm, op, out_done, out_result))
SLOT(comm, cancel, wire_cancel, (void *self, void *comm, uint64_t op), (self, comm, op))

/* ---- the plugin ---- */

static dtl_status_t keep(const char *name, const dtl_backend_vtable_t *vtable, void *self, uint64_t flags,
                         dtl_backend_t *out)
{
    (void)name;
    (void)flags;
    if (vtable->comm == NULL) {
        return failed(DTL_ERROR_INVALID_ARGUMENT, "the base has no comm table");
    }
    base = *vtable->comm;
    base_self = self;
    out->id = 0;
    return DTL_SUCCESS;
}

/* Loads the base and keeps its table. */
static dtl_status_t load_base(const dtl_host_api_t *host)
{
    static union {
        dtl_plugin_t plugin;
        char room[4096];
    } its;
    static dtl_host_api_t between;
    const char *path = getenv("MUTANT_BASE");
    void *file = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (file == NULL) {
        return failed(DTL_ERROR_NOT_FOUND, path != NULL ? dlerror() : "MUTANT_BASE is not set: name a plugin file");
    }
    dtl_plugin_entry_fn_t entry;
    *(void **)&entry = dlsym(file, "dtl_plugin_entry_v1");
    if (entry == NULL) {
        return failed(DTL_ERROR_NOT_FOUND, "the base is no plugin");
    }
    between = *host;
    between.backend_register = keep;
    const dtl_status_t status = entry(&between, &its.plugin);
    return status == DTL_SUCCESS ? its.plugin.load(&between) : status;
}

static dtl_status_t load(const dtl_host_api_t *host)
{
    library = host;
    fault_read();
    const dtl_status_t status = load_base(host);
    if (status != DTL_SUCCESS) {
        return status;
    }
    dtl_comm_vtable_t comm = DTL_COMM_VTABLE_INIT;
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_transfer_vtable_t transfer = DTL_TRANSFER_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    comm.match_bits = base.match_bits;
    comm.open = slot_open;
    comm.close = slot_close;
    comm.isend = slot_isend;
    comm.irecv = slot_irecv;
    comm.test = slot_test;
    if (!is_fault("comm.isend.not_to_itself") && strcmp(fault_name(), "comm.without_cancel") != 0) {
        comm.cancel = slot_cancel; /* without it the library ends receives by messages to itself */
    }
    add_windows(&comm);
    add_collectives(&comm);
    add_registration(&comm);
    add_far(&memory, &transfer);
    table.comm = &comm;
    table.memory = &memory;
    table.transfer = &transfer;
    table.auto_priority = INT32_MIN; /* whoever wants it names it */
    return host->backend_register("wire", &table, NULL, 0, &backend);
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host, dtl_plugin_t *out)
{
    (void)host;
    *out = (dtl_plugin_t)DTL_PLUGIN_INIT;
    out->name = "wire";
    out->version = "1.0";
    out->description = "another plugin's communicator, with faults to order";
    out->load = load;
    return DTL_SUCCESS;
}
