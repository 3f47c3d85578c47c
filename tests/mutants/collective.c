/* wire's slots for collectives, correct over the base's messages, with planted faults. Every rank sends each rank its
 * block and receives the blocks of all; when they are there, the result is computed (fold.c). The match word of the
 * messages has the context and the number of the collective in it; the library's own words are below 2^28. */
#include "collective.h"

#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 8 }; /* collectives in flight of one context; beyond that there is no room */

#define COLLECTIVE_OP (UINT64_C(1) << 60) /* bit of the numbers of these operations; windows have bit 63 */

/* A context, with the number of its next collective. */
typedef struct turns_t {
    struct turns_t *next;
    uint32_t context;
    uint64_t started;
    int in_flight;
} turns_t;

static void *volatile lost; /* what is never freed */

/* ---- who sends what to whom ---- */

static dtl_coll_range_t range_at(const dtl_coll_range_t *list, uint64_t count, int32_t at)
{
    static const dtl_coll_range_t nothing;
    return (uint64_t)at < count ? list[at] : nothing;
}

/* A piece of a range; empty where it does not lie in it. */
static dtl_coll_range_t piece(dtl_coll_range_t whole, uint64_t first, uint64_t bytes)
{
    dtl_coll_range_t part = {NULL, 0};
    if (first <= whole.size_bytes && bytes <= whole.size_bytes - first && bytes > 0) {
        part.ptr = (unsigned char *)whole.ptr + first;
        part.size_bytes = bytes;
    }
    return part;
}

static int is_root_sending(int32_t collective)
{
    return collective == DTL_COLLECTIVE_BCAST || collective == DTL_COLLECTIVE_SCATTER ||
           collective == DTL_COLLECTIVE_SCATTERV;
}

static int is_root_receiving(int32_t collective)
{
    return collective == DTL_COLLECTIVE_REDUCE || collective == DTL_COLLECTIVE_GATHER ||
           collective == DTL_COLLECTIVE_GATHERV;
}

static int is_sent(const coll_t *c, int32_t from, int32_t to)
{
    const int32_t what = c->args.collective;
    if (is_root_sending(what)) {
        return from == c->args.root;
    }
    if (is_root_receiving(what)) {
        return to == c->args.root;
    }
    return what == DTL_COLLECTIVE_SCAN ? from <= to : what == DTL_COLLECTIVE_EXSCAN ? from < to : 1;
}

/* The block of this rank for another one. */
static dtl_coll_range_t block_for(const coll_t *c, int32_t to)
{
    const int32_t what = c->args.collective;
    dtl_coll_range_t block = c->send[0];
    if (is_fault("comm.coll_start.scatter_next_block") && what == DTL_COLLECTIVE_SCATTER) {
        to = (to + 1) % c->size;
    }
    if (is_fault("comm.coll_start.scatterv_next_block") && what == DTL_COLLECTIVE_SCATTERV) {
        to = (to + 1) % c->size;
    }
    if (is_fault("comm.coll_start.alltoall_mirrored") && what == DTL_COLLECTIVE_ALLTOALL) {
        to = c->size - 1 - to;
    }
    if (is_fault("comm.coll_start.alltoallv_own_block") && what == DTL_COLLECTIVE_ALLTOALLV) {
        to = c->rank;
    }
    if (is_fault("comm.coll_start.reduce_scatter_first_block") && what == DTL_COLLECTIVE_REDUCE_SCATTER) {
        to = 0;
    }
    if (is_fault("comm.coll_start.reduce_scatter_block_first_block") &&
        what == DTL_COLLECTIVE_REDUCE_SCATTER_BLOCK) {
        to = 0;
    }
    if (what == DTL_COLLECTIVE_BARRIER) {
        block.size_bytes = 0;
    } else if (what == DTL_COLLECTIVE_BCAST) {
        block = c->recv[0];
    } else if (what == DTL_COLLECTIVE_SCATTER || what == DTL_COLLECTIVE_ALLTOALL ||
               what == DTL_COLLECTIVE_REDUCE_SCATTER_BLOCK) {
        block = piece(c->send[0], (uint64_t)to * c->unit, c->unit);
    } else if (what == DTL_COLLECTIVE_SCATTERV || what == DTL_COLLECTIVE_ALLTOALLV ||
               what == DTL_COLLECTIVE_REDUCE_SCATTER) {
        block = range_at(c->send, c->args.send_count, to);
    }
    return block;
}

/* Bytes of the block of another rank for this one. */
static uint64_t bytes_from(const coll_t *c, int32_t from)
{
    switch (c->args.collective) {
    case DTL_COLLECTIVE_BARRIER:
        return 0;
    case DTL_COLLECTIVE_BCAST:
    case DTL_COLLECTIVE_SCATTER:
    case DTL_COLLECTIVE_SCATTERV:
        return c->recv[0].size_bytes;
    case DTL_COLLECTIVE_GATHERV:
    case DTL_COLLECTIVE_ALLGATHERV:
    case DTL_COLLECTIVE_ALLTOALLV:
        return range_at(c->recv, c->args.recv_count, from).size_bytes;
    case DTL_COLLECTIVE_REDUCE_SCATTER:
        return range_at(c->send, c->args.send_count, c->rank).size_bytes;
    default:
        return c->unit;
    }
}

/* Where the block of a rank goes, of the collectives that only move. */
static dtl_coll_range_t place_of(const coll_t *c, int32_t from)
{
    const int32_t what = c->args.collective;
    const dtl_coll_range_t *recv = c->recv;
    const int is_varied = c->args.recv_count > 1;
    int32_t at = from;
    if (is_root_sending(what)) {
        return recv[0];
    }
    if (is_fault("comm.coll_start.gather_turned_round") && what == DTL_COLLECTIVE_GATHER) {
        at = c->size - 1 - from;
    }
    if (is_fault("comm.coll_start.allgather_own_first") && what == DTL_COLLECTIVE_ALLGATHER) {
        at = (from + c->size - c->rank) % c->size;
    }
    const int is_packed =
        (is_fault("comm.coll_start.gatherv_without_gaps") && what == DTL_COLLECTIVE_GATHERV) ||
        (is_fault("comm.coll_start.allgatherv_without_gaps") && what == DTL_COLLECTIVE_ALLGATHERV) ||
        (is_fault("comm.coll_start.alltoallv_without_gaps") && what == DTL_COLLECTIVE_ALLTOALLV);
    if (is_varied && is_packed) { /* in rank order, from where the lowest block is */
        dtl_coll_range_t block = recv[from];
        unsigned char *next = recv[0].ptr;
        for (int32_t rank = 0; rank < c->size; rank++) {
            next = (unsigned char *)recv[rank].ptr < next ? recv[rank].ptr : next;
        }
        for (int32_t rank = 0; rank < from; rank++) {
            next += recv[rank].size_bytes;
        }
        block.ptr = next;
        return block;
    }
    return is_varied ? range_at(recv, c->args.recv_count, at) : piece(recv[0], (uint64_t)at * c->unit, c->unit);
}

/* ---- the result ---- */

static void copy_into(dtl_coll_range_t to, const unsigned char *from, uint64_t bytes)
{
    bytes = bytes < to.size_bytes ? bytes : to.size_bytes;
    if (bytes > 0) {
        memmove(to.ptr, from, bytes);
    }
}

static void write_moved(const coll_t *c)
{
    const uint64_t element = c->args.element_bytes;
    const int32_t what = c->args.collective;
    const int is_short = (is_fault("comm.coll_start.bcast_one_short") && what == DTL_COLLECTIVE_BCAST) ||
                         (is_fault("comm.coll_start.allgather_one_short") && what == DTL_COLLECTIVE_ALLGATHER) ||
                         (is_fault("comm.coll_start.alltoall_one_short") && what == DTL_COLLECTIVE_ALLTOALL) ||
                         (is_fault("comm.coll_start.gatherv_one_short") && what == DTL_COLLECTIVE_GATHERV);
    for (int32_t from = 0; from < c->size; from++) {
        if (!is_sent(c, from, c->rank)) {
            continue;
        }
        uint64_t bytes = c->in_bytes[from];
        if (is_short && from != c->rank && bytes > 0) {
            bytes -= element;
        }
        if (is_fault("comm.coll_start.capped_64k") && bytes > 65536) {
            bytes = 65536;
        }
        /* The counts of the other ranks taken for this rank's own. */
        const uint64_t own = c->in_bytes[c->rank];
        const int is_even = (is_fault("comm.coll_start.gatherv_equal_counts") && what == DTL_COLLECTIVE_GATHERV) ||
                            (is_fault("comm.coll_start.allgatherv_equal_counts") &&
                             what == DTL_COLLECTIVE_ALLGATHERV) ||
                            (is_fault("comm.coll_start.alltoallv_equal_counts") && what == DTL_COLLECTIVE_ALLTOALLV);
        if (is_even && bytes > own) {
            bytes = own;
        }
        if (is_fault("comm.coll_start.scatterv_equal_counts") && what == DTL_COLLECTIVE_SCATTERV && bytes > element) {
            bytes = element;
        }
        copy_into(place_of(c, from), c->in[from], bytes);
        if (is_fault("comm.coll_start.writes_into_gaps") && c->args.recv_count > 1 && bytes > 0) {
            ((unsigned char *)place_of(c, from).ptr)[bytes] ^= 0xFF;
        }
    }
}

static void write_reduced(coll_t *c)
{
    const dtl_coll_args_t *args = &c->args;
    const int32_t what = args->collective;
    int32_t first = 0, last = c->size - 1; /* the ranks whose data goes in */
    if (what == DTL_COLLECTIVE_SCAN || what == DTL_COLLECTIVE_EXSCAN) {
        last = c->rank - (what == DTL_COLLECTIVE_EXSCAN);
    }
    if (is_fault("comm.coll_start.scan_without_own") && what == DTL_COLLECTIVE_SCAN && c->rank > 0) {
        last = c->rank - 1;
    }
    if (is_fault("comm.coll_start.last_rank_left_out") && last > 0 && last == c->size - 1) {
        last--;
    }
    if (is_fault("comm.coll_start.rank_0_left_out") && last > 0) {
        first = 1;
    }
    if (last < first) {
        return;
    }
    unsigned char *result = c->in[first];
    const uint64_t bytes = c->in_bytes[first];
    uint64_t count = args->element_bytes > 0 ? bytes / args->element_bytes : 0;
    if (is_fault("comm.coll_start.reduces_one_short") && count > 1) {
        count--;
    }
    for (int32_t rank = first + 1; rank <= last; rank++) {
        fold(result, c->in[rank], count, args->dtype, args->op);
    }
    if (is_fault("comm.coll_start.rank_0_twice")) {
        fold(result, c->in[last], count, args->dtype, args->op);
    }
    if (is_fault("comm.coll_start.exscan_with_own") && what == DTL_COLLECTIVE_EXSCAN && c->own != NULL) {
        fold(result, c->own, count, args->dtype, args->op);
    }
    copy_into(c->recv[0], result, bytes);
    if (is_fault("comm.coll_start.sends_are_scratch") && !(args->flags & DTL_COLL_IN_PLACE)) {
        copy_into(c->send[0], result, bytes);
    }
}

static void write_result(coll_t *c)
{
    const int is_reduction = c->args.op >= 0;
    if (is_fault("comm.coll_start.exscan_zeroes_rank_0") && c->args.collective == DTL_COLLECTIVE_EXSCAN &&
        c->rank == 0 && c->recv[0].size_bytes > 0) {
        memset(c->recv[0].ptr, 0, c->recv[0].size_bytes);
    }
    if (is_reduction) {
        write_reduced(c);
    } else if (c->args.collective != DTL_COLLECTIVE_BARRIER) {
        write_moved(c);
    }
    if (is_fault("comm.coll_start.writes_past") && c->recv[0].size_bytes > 0 && c->args.recv_count == 1 &&
        !(c->args.flags & DTL_COLL_IN_PLACE)) {
        ((unsigned char *)c->recv[0].ptr)[c->recv[0].size_bytes] ^= 0xFF;
    }
}

/* ---- messages of the base ---- */

static void start_message(wire_t *wire, message_t *m, uint64_t word)
{
    uint64_t op = 0;
    const dtl_status_t status =
        m->is_receive ? base.irecv(base_self, wire->base, m->buf, m->bytes, m->peer, word, 0, &op)
                      : base.isend(base_self, wire->base, m->buf, m->bytes, m->peer, word, &op);
    m->op = op;
    m->state = status == DTL_ERROR_BUSY ? HELD : status == DTL_SUCCESS ? FLYING : ENDED;
    m->status = status == DTL_ERROR_BUSY ? DTL_SUCCESS : status;
}

static void test_message(wire_t *wire, coll_t *c, message_t *m)
{
    int32_t is_done = 0;
    dtl_comm_done_t result;
    memset(&result, 0, sizeof result);
    const dtl_status_t status = base.test(base_self, wire->base, m->op, &is_done, &result);
    if (status == DTL_SUCCESS && !is_done) {
        return;
    }
    m->state = ENDED;
    m->status = status != DTL_SUCCESS ? status : result.status;
    if (m->status != DTL_SUCCESS && c->status == DTL_SUCCESS) {
        c->status = m->status;
        c->failed = m->peer;
    }
}

/* After a failure: nothing new begins, and receives are withdrawn. */
static void give_up(wire_t *wire, coll_t *c)
{
    for (int32_t i = 0; i < 2 * c->size; i++) {
        message_t *m = &c->messages[i];
        if (m->state == HELD) {
            m->state = ENDED;
        } else if (m->state == FLYING && m->is_receive && !m->is_withdrawn && base.cancel != NULL) {
            m->is_withdrawn = 1;
            DTL_IGNORE(base.cancel(base_self, wire->base, m->op));
        }
    }
}

/* Moves a collective on. Whether nothing is in flight any more. */
static int move(wire_t *wire, coll_t *c)
{
    int left = 0;
    if (c->status != DTL_SUCCESS) {
        give_up(wire, c);
    }
    for (int32_t i = 0; i < 2 * c->size; i++) {
        message_t *m = &c->messages[i];
        if (m->state == HELD) {
            start_message(wire, m, c->word);
        }
        if (m->state == FLYING) {
            test_message(wire, c, m);
        }
        if (m->state == ENDED && m->status != DTL_SUCCESS && c->status == DTL_SUCCESS) {
            c->status = m->status;
            c->failed = m->peer;
        }
        const int is_last = m->peer == c->size - 1;
        const int is_skipped =
            m->is_receive && ((is_fault("comm.coll_start.last_rank_not_awaited") && is_last) ||
                              (is_fault("comm.coll_start.barrier_awaits_no_last") && is_last &&
                               c->args.collective == DTL_COLLECTIVE_BARRIER) ||
                              (is_fault("comm.coll_start.done_when_sent") && m->bytes > 0));
        left += m->state != ENDED && !is_skipped;
    }
    return left == 0;
}

static void free_messages(wire_t *wire, coll_t *c)
{
    for (int32_t i = 0; i < 2 * c->size; i++) { /* only with a fault are there any */
        message_t *m = &c->messages[i];
        if (m->state == FLYING && m->is_receive && base.cancel != NULL) {
            DTL_IGNORE(base.cancel(base_self, wire->base, m->op));
        }
    }
}

static void drop(wire_t *wire, coll_t *c)
{
    coll_t **place = &wire->collectives;
    while (*place != c) {
        place = &(*place)->next;
    }
    *place = c->next;
    c->turns->in_flight--;
    free_messages(wire, c);
    if (is_fault("comm.coll_start.leaks")) {
        lost = c->memory;
        return;
    }
    free(c->memory);
    free(c);
}

void collectives_progress(wire_t *wire)
{
    coll_t *last_first[AT_ONCE * 16];
    int count = 0;
    for (coll_t *c = wire->collectives; c != NULL; c = c->next) {
        if (is_fault("comm.coll_start.overtaken") && count < AT_ONCE * 16) {
            last_first[count++] = c;
        } else if (!c->is_over) {
            c->is_over = move(wire, c);
        }
    }
    while (count > 0) {
        coll_t *c = last_first[--count];
        c->is_over = c->is_over || move(wire, c);
    }
}

/* Writes into a buffer that has been given back: comm.cancel.writes_later. */
static void write_later(wire_t *wire)
{
    if (wire->later.size_bytes > 0 && ++wire->later_asked > 5) {
        memset(wire->later.ptr, 0xEE, wire->later.size_bytes);
        wire->later.size_bytes = 0;
    }
}

static coll_t *of_number(wire_t *wire, uint64_t number)
{
    coll_t *c = wire->collectives;
    while (c != NULL && (c->number | COLLECTIVE_OP) != number) {
        c = c->next;
    }
    return c;
}

int collective_test(wire_t *wire, uint64_t number, int32_t *out_done, dtl_comm_done_t *out_result)
{
    collectives_progress(wire);
    write_later(wire);
    coll_t *c = of_number(wire, number);
    if (c == NULL) {
        return 0;
    }
    *out_done = 0;
    if (!c->is_over || is_fault("comm.test.collective_never_done")) {
        return 1;
    }
    if (is_fault("comm.coll_start.zero_never_done") && c->unit == 0 && c->args.dtype >= 0) {
        return 1;
    }
    *out_done = is_fault("comm.test.collective_odd_boolean") ? 3 : 1;
    out_result->source = c->failed;
    out_result->status = c->is_canceled ? DTL_ERROR_CANCELED : c->status;
    if (is_fault("comm.coll_start.failure_is_success") || (c->is_canceled && is_fault("comm.cancel.is_success"))) {
        out_result->status = DTL_SUCCESS;
    }
    if (is_fault("comm.coll_start.unknown_result")) {
        out_result->status = ODD_STATUS;
    }
    if (c->status == DTL_SUCCESS && !c->is_canceled && !is_fault("comm.coll_start.done_before_the_data")) {
        write_result(c);
    }
    if (c->is_canceled && is_fault("comm.cancel.writes_later")) {
        wire->later = c->recv[0];
        wire->later_asked = 0;
    }
    drop(wire, c);
    return 1;
}

int collective_cancel(wire_t *wire, uint64_t number)
{
    coll_t *c = of_number(wire, number);
    if (c == NULL) {
        return 0;
    }
    if (!is_fault("comm.cancel.collective_ignored") && !c->is_over) {
        c->is_canceled = 1;
        c->status = DTL_ERROR_CANCELED;
        give_up(wire, c);
    }
    return 1;
}

/* ---- starting ---- */

static turns_t *turns_of(wire_t *wire, uint32_t context)
{
    turns_t *turns = wire->turns;
    while (turns != NULL && turns->context != context) {
        turns = turns->next;
    }
    if (turns == NULL && (turns = calloc(1, sizeof *turns)) != NULL) {
        turns->context = context;
        turns->next = wire->turns;
        wire->turns = turns;
    }
    return turns;
}

/* One piece of memory: messages, ranges, blocks. */
static int make_room(coll_t *c)
{
    const uint64_t ranks = (uint64_t)c->size, ranges = c->args.send_count + c->args.recv_count;
    uint64_t bytes = 2 * ranks * sizeof *c->messages + ranges * sizeof *c->send + ranks * sizeof *c->in +
                     ranks * sizeof *c->in_bytes;
    c->send = (dtl_coll_range_t *)(uintptr_t)c->args.send; /* the caller's, until they are copied */
    c->recv = (dtl_coll_range_t *)(uintptr_t)c->args.recv;
    for (int32_t from = 0; from < c->size; from++) {
        bytes += bytes_from(c, from) + 16;
    }
    bytes += c->send[0].size_bytes + 16;
    c->memory = calloc(1, bytes);
    if (c->memory == NULL) {
        return 0;
    }
    c->messages = c->memory;
    dtl_coll_range_t *send = (dtl_coll_range_t *)(c->messages + 2 * ranks), *recv = send + c->args.send_count;
    memcpy(send, c->send, c->args.send_count * sizeof *send);
    memcpy(recv, c->recv, c->args.recv_count * sizeof *recv);
    c->send = send;
    c->recv = recv;
    c->in = (unsigned char **)(recv + c->args.recv_count);
    c->in_bytes = (uint64_t *)(c->in + ranks);
    unsigned char *next = (unsigned char *)(c->in_bytes + ranks);
    for (int32_t from = 0; from < c->size; from++) {
        c->in[from] = next;
        c->in_bytes[from] = bytes_from(c, from);
        next += (c->in_bytes[from] + 15) / 16 * 16;
    }
    c->own = next;
    if (c->send[0].size_bytes > 0) {
        memcpy(c->own, c->send[0].ptr, c->send[0].size_bytes);
    }
    return 1;
}

/* The root as the planted fault sees it. */
static int32_t root_of(const dtl_coll_args_t *args)
{
    const int32_t what = args->collective;
    const int is_ignored = (is_fault("comm.coll_start.bcast_of_rank_0") && what == DTL_COLLECTIVE_BCAST) ||
                           (is_fault("comm.coll_start.reduce_to_rank_0") && what == DTL_COLLECTIVE_REDUCE) ||
                           (is_fault("comm.coll_start.gather_to_rank_0") && what == DTL_COLLECTIVE_GATHER) ||
                           (is_fault("comm.coll_start.gatherv_to_rank_0") && what == DTL_COLLECTIVE_GATHERV) ||
                           (is_fault("comm.coll_start.scatter_of_rank_0") && what == DTL_COLLECTIVE_SCATTER) ||
                           (is_fault("comm.coll_start.scatterv_of_rank_0") && what == DTL_COLLECTIVE_SCATTERV);
    return is_ignored ? 0 : args->root;
}

static void begin(wire_t *wire, coll_t *c)
{
    for (int32_t other = 0; other < c->size; other++) {
        message_t *send = &c->messages[other], *receive = &c->messages[c->size + other];
        const dtl_coll_range_t block = block_for(c, other);
        send->peer = receive->peer = other;
        send->state = receive->state = ENDED;
        receive->is_receive = 1;
        receive->buf = c->in[other];
        receive->bytes = c->in_bytes[other];
        send->buf = block.ptr;
        send->bytes = block.size_bytes;
        if (other == c->rank) {
            if (is_sent(c, other, other)) {
                const dtl_coll_range_t to = {c->in[other], c->in_bytes[other]};
                copy_into(to, block.ptr, block.size_bytes);
            }
            continue;
        }
        send->state = is_sent(c, c->rank, other) ? HELD : ENDED;
        receive->state = is_sent(c, other, c->rank) ? HELD : ENDED;
    }
    const int is_away = is_fault("comm.coll_start.last_rank_absent") && c->rank == c->size - 1;
    for (int32_t i = 0; is_away && i < 2 * c->size; i++) {
        c->messages[i].state = ENDED; /* it sends nothing, and waits for nothing */
    }
    if (is_fault("comm.coll_start.in_place_overwritten") && (c->args.flags & DTL_COLL_IN_PLACE) &&
        c->recv[0].size_bytes > 0) {
        memset(c->recv[0].ptr, 0, c->recv[0].size_bytes / 2 + 1); /* room for a result, before it is sent */
    }
    if (!is_fault("comm.coll_start.overtaken")) {
        c->is_over = move(wire, c);
        return;
    }
    for (int32_t i = c->size; i < 2 * c->size; i++) { /* the receives in order, the sends last first */
        if (c->messages[i].state == HELD) {
            start_message(wire, &c->messages[i], c->word);
        }
    }
}

static dtl_status_t wire_coll_start(void *self, void *comm, const dtl_coll_args_t *args, uint64_t *out_op)
{
    wire_t *wire = comm;
    turns_t *turns = turns_of(wire, args->context);
    coll_t *c = calloc(1, sizeof *c), **end = &wire->collectives;
    (void)self;
    if (c == NULL || turns == NULL ||
        (is_fault("comm.mem_register.not_for_collectives") && registered_base(wire, args->recv[0].ptr) != NULL)) {
        return free(c), failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for a collective");
    }
    if (turns->in_flight >= AT_ONCE || is_fault("comm.coll_start.always_busy")) {
        turns->started += is_fault("comm.coll_start.busy_counts");
        return free(c), DTL_ERROR_BUSY;
    }
    c->args = *args;
    c->rank = wire->rank;
    c->size = wire->size;
    c->turns = turns;
    c->args.root = root_of(args);
    c->unit = args->count * args->element_bytes;
    if (is_fault("comm.coll_start.guesses_the_element")) {
        c->unit = args->element_bytes > 16 ? args->count * 8 : c->unit;
    }
    if (!make_room(c)) {
        return free(c), failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for a collective");
    }
    c->number = ++wire->collective_count;
    const uint64_t turn = turns->started++ & 0xFFFFFF, context = args->context;
    c->word = UINT64_C(1) << 63 | context << 24 | turn;
    if (is_fault("comm.coll_start.context_ignored")) {
        c->word = UINT64_C(1) << 63 | (c->number & 0xFFFFFF);
    }
    if (is_fault("comm.coll_start.overtaken")) {
        c->word = UINT64_C(1) << 63 | context << 24;
    }
    turns->in_flight++;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = c;
    begin(wire, c);
    *out_op = c->number | COLLECTIVE_OP;
    return DTL_SUCCESS;
}

/* ---- what is supported ---- */

static dtl_status_t wire_coll_supports(void *self, void *comm, const dtl_coll_args_t *args, int32_t *out_yes)
{
    static unsigned asked;
    const wire_t *wire = comm;
    (void)self;
    *out_yes = args->memory_backend.id == 0 && (args->op < 0 || can_fold(args));
    asked++;
    if (is_fault("comm.coll_supports.odd_boolean") && *out_yes) {
        *out_yes = 2;
    }
    if (is_fault("comm.coll_supports.yes_to_all")) {
        *out_yes = 1;
    }
    if (is_fault("comm.coll_supports.not_on_rank_0") && wire->rank == 0 &&
        args->collective == DTL_COLLECTIVE_ALLGATHER) {
        *out_yes = 0;
    }
    if (is_fault("comm.coll_supports.more_on_the_last_rank") && wire->rank == wire->size - 1 &&
        args->dtype == DTL_DTYPE_FLOAT16) {
        *out_yes = 1;
    }
    if (is_fault("comm.coll_supports.by_turns") && asked % 7 == 0) {
        *out_yes = 0;
    }
    if (is_fault("comm.coll_supports.aligned_only") && ((uintptr_t)args->recv[0].ptr & 15) != 0) {
        *out_yes = 0;
    }
    if (is_fault("comm.coll_supports.not_in_place") && (args->flags & DTL_COLL_IN_PLACE)) {
        *out_yes = 0;
    }
    if (is_fault("comm.coll_supports.by_own_count") && args->count * args->element_bytes > 4096 &&
        args->collective == DTL_COLLECTIVE_GATHERV) {
        *out_yes = 0;
    }
    return DTL_SUCCESS;
}

SLOT(comm, coll_supports, wire_coll_supports,
     (void *self, void *comm, const dtl_coll_args_t *args, int32_t *out_yes), (self, comm, args, out_yes))
SLOT(comm, coll_start, wire_coll_start,
     (void *self, void *comm, const dtl_coll_args_t *args, uint64_t *out_op), (self, comm, args, out_op))

void add_collectives(dtl_comm_vtable_t *table)
{
    table->coll_supports = slot_coll_supports;
    table->coll_start = slot_coll_start;
}

/* Ends what is left; before the base closes. */
void collectives_close(wire_t *wire)
{
    while (wire->collectives != NULL) {
        coll_t *c = wire->collectives;
        give_up(wire, c);
        for (int rounds = 0; rounds < 1000 && !move(wire, c); rounds++) {
        }
        drop(wire, c);
    }
    while (wire->turns != NULL) {
        turns_t *turns = wire->turns;
        wire->turns = turns->next;
        free(turns);
    }
}
