/* Runs the cases of `dtl-ctk cases` with MPI and writes the digest that `dtl-ctk run --digest` writes:
 *
 *     mpirun -n R oracle CASES DIGEST [CASES DIGEST]...
 *
 * It has no part of dtl: it shares only the file's format and the formulas of tools/dtl-ctk/src/data.rs
 * (inputs, hash; see element.h) and plan.rs (buffers). run.sh compares the two digests. */
#include "element.h"

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)
enum { FILLER = 0xA5, GUARD = 16, FIRST_BLOCK = 1000, MAX_RANKS = 64, MAX_STEPS = 8, MAX_MESSAGES = 64 };
enum { OUT_OF_MEMORY = 9 };

/* The numbers of the operations in the file. */
enum op {
    BARRIER, BCAST, REDUCE, ALLREDUCE, GATHER, GATHERV, SCATTER, SCATTERV, ALLGATHER, ALLGATHERV, ALLTOALL,
    ALLTOALLV, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, SCAN, EXSCAN, NEIGHBOR, P2P, SENDRECV, REPLACE, SSEND,
    PROBE, WINDOW, WINDOW_MIXED, WINDOW_MISUSE
};
typedef struct message {
    int64_t source, dest, tag, count, room, any_tag, any_source, order;
} message;

typedef struct step {
    int op, dtype, reduction, in_place;
    int64_t root, gap, order_count, order[MAX_RANKS], count_count, counts[MAX_RANKS * MAX_RANKS], message_count;
    message messages[MAX_MESSAGES];
} step;

/* One rank's place in a case's communicator, and what its inputs depend on. */
typedef struct view {
    const step *s;
    MPI_Comm comm;
    int rank, size, ranks;
    int64_t elem;
    uint64_t key;
    MPI_Datatype type; /* moves the bytes of an element, padding too */
} view;

/* Blocks in a buffer. */
typedef struct layout {
    int count[MAX_RANKS], displ[MAX_RANKS], blocks;
    int64_t total;
} layout;

static int world_rank, world_size;

static void *need(size_t size) {
    void *memory = malloc(size ? size : 1);
    if (memory == NULL) MPI_Abort(MPI_COMM_WORLD, OUT_OF_MEMORY);
    return memory;
}

static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static uint64_t hash(uint64_t before, const unsigned char *bytes, int64_t size) {
    uint64_t h = before;
    int64_t at;
    for (at = 0; at < size; at += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + at, size - at < 8 ? (size_t)(size - at) : 8);
        h = mix(h ^ word);
    }
    return mix(h ^ (uint64_t)size * GOLDEN);
}

/* What the step's inputs are for: MOVED, or the number of the reduction. */
static int purpose(const view *v) {
    const int op = v->s->op;
    const int reduces = (op >= REDUCE && op <= ALLREDUCE) || (op >= REDUCE_SCATTER && op <= EXSCAN);
    return reduces ? v->s->reduction : MOVED;
}

static void fill(const view *v, unsigned char *out, int64_t count, int source, int64_t block) {
    const uint64_t key = mix(v->key ^ (uint64_t)(source + 1) * GOLDEN);
    int64_t i;
    for (i = 0; i < count; i++) {
        const uint64_t word = mix(key + (((uint64_t)block << 40) + (uint64_t)i) * GOLDEN);
        encode(out + i * v->elem, v->s->dtype, value(word, v->s->dtype, purpose(v), v->ranks, source));
    }
}

static unsigned char *filler(const view *v, int64_t count) {
    unsigned char *bytes = need((size_t)(count * v->elem) + GUARD);
    memset(bytes, FILLER, (size_t)(count * v->elem) + GUARD);
    return bytes;
}

static unsigned char *input(const view *v, int64_t count, int source, int64_t block) {
    unsigned char *bytes = need((size_t)(count * v->elem));
    fill(v, bytes, count, source, block);
    return bytes;
}

static int64_t positive(int64_t count) { return count < 0 ? 0 : count; }

static int64_t between(const view *v, int from, int to) {
    const int swap = v->s->op == ALLTOALLV && v->s->in_place && from > to;
    return v->s->counts[swap ? to * v->ranks + from : from * v->ranks + to];
}

/* Places of l->count[] in the step's order. */
static void lay_out(const view *v, layout *l) {
    int i;
    l->blocks = v->size;
    l->total = 0;
    if (v->s->order_count == 0) {
        for (i = 0; i < v->size; i++) {
            l->displ[i] = (int)l->total;
            l->total += l->count[i] + v->s->gap;
        }
        return;
    }
    for (i = 0; i < v->s->order_count; i++) {
        const int64_t block = v->s->order[i];
        if (block >= v->size) continue;
        l->displ[block] = (int)l->total;
        l->total += l->count[block] + v->s->gap;
    }
}

static void put_blocks(const view *v, unsigned char *out, const layout *l) {
    int i;
    for (i = 0; i < l->blocks; i++) fill(v, out + l->displ[i] * v->elem, l->count[i], v->rank, i);
}

/* The operation of a step for MPI_Op_create: MPI passes the dtype that it was given, not ours. */
static int foreign_dtype, foreign_op;

static void fold_foreign(void *left, void *right, int *count, MPI_Datatype *type) {
    const int size = size_of(foreign_dtype);
    int i;
    (void)type;
    for (i = 0; i < *count; i++) {
        unsigned char *into = (unsigned char *)right + i * size;
        const int64_t a = decode((unsigned char *)left + i * size, foreign_dtype), b = decode(into, foreign_dtype);
        encode(into, foreign_dtype, fold_values(foreign_dtype, foreign_op, a, b));
    }
}

static MPI_Op foreign, foreign_commutes;
static MPI_Datatype bytes_of[32]; /* by size */

static void make_types(void) {
    int size;
    MPI_Op_create(fold_foreign, 0, &foreign);
    MPI_Op_create(fold_foreign, 1, &foreign_commutes);
    for (size = 1; size < 32; size++) {
        MPI_Type_contiguous(size, MPI_BYTE, &bytes_of[size]);
        MPI_Type_commit(&bytes_of[size]);
    }
}

static MPI_Op op_of(const view *v) {
    const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MIN,  MPI_MAX,  MPI_LAND,   MPI_LOR,
                          MPI_BAND, MPI_BOR, MPI_LXOR, MPI_BXOR, MPI_MINLOC, MPI_MAXLOC};
    foreign_dtype = v->s->dtype;
    foreign_op = v->s->reduction;
    if (!is_foreign(foreign_dtype, foreign_op)) return ops[foreign_op];
    return foreign_op == REPLACE_OP || foreign_op == NO_OP || foreign_op == USER_MATRIX ? foreign : foreign_commutes;
}

/* What MPI's operations take. */
static MPI_Datatype type_of(const view *v) {
    const MPI_Datatype types[] = {
        MPI_INT8_T,         MPI_INT16_T,          MPI_INT32_T,   MPI_INT64_T,    MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T,
        MPI_UINT64_T,       MPI_FLOAT,            MPI_DOUBLE,    MPI_BYTE,       MPI_C_BOOL,  MPI_BYTE,     MPI_BYTE,
        MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_FLOAT_INT, MPI_DOUBLE_INT, MPI_2INT,    MPI_LONG_INT, MPI_SHORT_INT};
    return is_foreign(v->s->dtype, v->s->reduction) ? v->type : types[v->s->dtype];
}

/* MPI leaves anything between the parts of a pair. */
static void settle_padding(const view *v, unsigned char *bytes, int64_t count) {
    int64_t i;
    for (i = 0; is_pair(v->s->dtype) && i < count; i++)
        encode(bytes + i * v->elem, v->s->dtype, decode(bytes + i * v->elem, v->s->dtype));
}

static uint64_t bcast(const view *v, uint64_t h) {
    const int64_t count = positive(v->s->counts[0]);
    const int root = (int)(v->s->root % v->size);
    unsigned char *buf = filler(v, count);
    if (v->rank == root) fill(v, buf, count, root, 0);
    MPI_Bcast(buf, (int)count, v->type, root, v->comm);
    h = hash(h, buf, count * v->elem + GUARD);
    free(buf);
    return h;
}

static uint64_t fold(const view *v, uint64_t h) {
    const int64_t count = positive(v->s->counts[0]);
    const int root = (int)(v->s->root % v->size), n = (int)count;
    const int receives = v->s->op != REDUCE || v->rank == root;
    const int in_place = v->s->in_place && receives;
    const MPI_Op op = op_of(v);
    const MPI_Datatype type = type_of(v);
    unsigned char *recv = filler(v, receives ? count : 0);
    unsigned char *own = in_place ? NULL : input(v, count, v->rank, 0);
    void *send = in_place ? MPI_IN_PLACE : own;
    if (in_place) fill(v, recv, count, v->rank, 0);
    if (v->s->op == REDUCE) MPI_Reduce(send, recv, n, type, op, root, v->comm);
    else if (v->s->op == ALLREDUCE) MPI_Allreduce(send, recv, n, type, op, v->comm);
    else if (v->s->op == SCAN) MPI_Scan(send, recv, n, type, op, v->comm);
    else MPI_Exscan(send, recv, n, type, op, v->comm);
    if (receives && !(v->s->op == EXSCAN && v->rank == 0)) settle_padding(v, recv, count);
    h = hash(h, recv, !receives || (v->s->op == EXSCAN && v->rank == 0) ? 0 : count * v->elem + GUARD);
    free(own);
    free(recv);
    return h;
}

static uint64_t fold_blocks(const view *v, uint64_t h) {
    const int is_uniform = v->s->op == REDUCE_SCATTER_BLOCK;
    const MPI_Datatype type = type_of(v);
    int counts[MAX_RANKS], i;
    int64_t total = 0, mine;
    unsigned char *recv, *own;
    void *send;
    for (i = 0; i < v->size; i++) total += counts[i] = (int)positive(v->s->counts[is_uniform ? 0 : i]);
    mine = counts[v->rank];
    recv = filler(v, v->s->in_place ? total : mine);
    own = v->s->in_place ? NULL : input(v, total, v->rank, 0);
    send = v->s->in_place ? MPI_IN_PLACE : own;
    if (v->s->in_place) fill(v, recv, total, v->rank, 0);
    if (is_uniform) MPI_Reduce_scatter_block(send, recv, counts[0], type, op_of(v), v->comm);
    else MPI_Reduce_scatter(send, recv, counts, type, op_of(v), v->comm);
    settle_padding(v, recv, mine);
    h = hash(h, recv, mine * v->elem + (v->s->in_place ? 0 : GUARD));
    free(own);
    free(recv);
    return h;
}

/* The blocks of a gather or scatter. */
static layout rooted_blocks(const view *v) {
    const int op = v->s->op;
    layout l;
    int i;
    for (i = 0; i < v->size; i++)
        l.count[i] = (int)positive(v->s->counts[op == GATHER || op == SCATTER || op == ALLGATHER ? 0 : i]);
    lay_out(v, &l);
    return l;
}

static uint64_t collect(const view *v, uint64_t h) {
    const int op = v->s->op, root = (int)(v->s->root % v->size), me = v->rank;
    const int receives = op == ALLGATHER || op == ALLGATHERV || me == root;
    const int in_place = v->s->in_place && receives;
    const layout l = rooted_blocks(v);
    const int mine = l.count[me];
    unsigned char *recv = filler(v, receives ? l.total : 0);
    unsigned char *own = in_place ? NULL : input(v, mine, me, 0);
    void *send = in_place ? MPI_IN_PLACE : own;
    if (in_place) fill(v, recv + l.displ[me] * v->elem, mine, me, 0);
    if (op == GATHER) MPI_Gather(send, mine, v->type, recv, mine, v->type, root, v->comm);
    else if (op == GATHERV) MPI_Gatherv(send, mine, v->type, recv, l.count, l.displ, v->type, root, v->comm);
    else if (op == ALLGATHER) MPI_Allgather(send, mine, v->type, recv, mine, v->type, v->comm);
    else MPI_Allgatherv(send, mine, v->type, recv, l.count, l.displ, v->type, v->comm);
    h = hash(h, recv, receives ? l.total * v->elem + GUARD : 0);
    free(own);
    free(recv);
    return h;
}

static uint64_t hand_out(const view *v, uint64_t h) {
    const int root = (int)(v->s->root % v->size), me = v->rank;
    const int in_place = v->s->in_place && me == root;
    const layout l = rooted_blocks(v);
    const int mine = l.count[me];
    unsigned char *send = filler(v, me == root ? l.total : 0), *own = filler(v, mine);
    void *recv = in_place ? MPI_IN_PLACE : own;
    if (me == root) put_blocks(v, send, &l);
    if (v->s->op == SCATTER) MPI_Scatter(send, mine, v->type, recv, mine, v->type, root, v->comm);
    else MPI_Scatterv(send, l.count, l.displ, v->type, recv, mine, v->type, root, v->comm);
    h = hash(h, own, in_place ? 0 : mine * v->elem + GUARD);
    free(own);
    free(send);
    return h;
}

static uint64_t exchange(const view *v, uint64_t h) {
    const int is_uniform = v->s->op == ALLTOALL;
    layout to, from;
    unsigned char *recv, *own = NULL;
    int i;
    for (i = 0; i < v->size; i++) {
        to.count[i] = (int)positive(is_uniform ? v->s->counts[0] : between(v, v->rank, i));
        from.count[i] = (int)positive(is_uniform ? v->s->counts[0] : between(v, i, v->rank));
    }
    lay_out(v, &to);
    lay_out(v, &from);
    recv = filler(v, from.total);
    if (v->s->in_place) {
        put_blocks(v, recv, &from);
    } else {
        own = filler(v, to.total);
        put_blocks(v, own, &to);
    }
    if (is_uniform)
        MPI_Alltoall(own ? (void *)own : MPI_IN_PLACE, to.count[0], v->type, recv, from.count[0], v->type, v->comm);
    else
        MPI_Alltoallv(own ? (void *)own : MPI_IN_PLACE, to.count, to.displ, v->type, recv, from.count, from.displ,
                      v->type, v->comm);
    h = hash(h, recv, from.total * v->elem + GUARD);
    free(own);
    free(recv);
    return h;
}

/* Ranks to send to, or to receive from, with their blocks one after the other. */
static int neighbors(const view *v, int sends, int *list, layout *l) {
    int i, found = 0;
    l->total = 0;
    for (i = 0; i < (v->s->order_count ? v->s->order_count : v->size); i++) {
        const int other = (int)(v->s->order_count ? v->s->order[i] : i);
        const int64_t count = other >= v->size ? -1 : sends ? between(v, v->rank, other) : between(v, other, v->rank);
        if (count < 0) continue;
        list[found] = other;
        l->count[found] = (int)count;
        l->displ[found++] = (int)l->total;
        l->total += count + v->s->gap;
    }
    return found;
}

static uint64_t neighborhood(const view *v, uint64_t h) {
    int dests[MAX_RANKS], sources[MAX_RANKS], weights[MAX_RANKS] = {0}, i;
    layout to, from;
    const int outs = neighbors(v, 1, dests, &to), ins = neighbors(v, 0, sources, &from);
    unsigned char *send = filler(v, to.total), *recv = filler(v, from.total);
    MPI_Comm graph;
    for (i = 0; i < outs; i++) fill(v, send + to.displ[i] * v->elem, to.count[i], v->rank, dests[i]);
    MPI_Dist_graph_create_adjacent(v->comm, ins, sources, weights, outs, dests, weights, MPI_INFO_NULL, 0, &graph);
    MPI_Neighbor_alltoallv(send, to.count, to.displ, v->type, recv, from.count, from.displ, v->type, graph);
    MPI_Comm_free(&graph);
    h = hash(h, recv, from.total * v->elem + GUARD);
    free(send);
    free(recv);
    return h;
}

static uint64_t shift(const view *v, uint64_t h) {
    const int by = (int)(v->s->root % (v->size + 1)), me = v->rank, n = v->size, wraps = v->s->in_place;
    const int dest = wraps ? (me + by) % n : me + by < n ? me + by : MPI_PROC_NULL;
    const int source = wraps ? (me + 2 * n - by) % n : me >= by ? me - by : MPI_PROC_NULL;
    const int tag = (int)v->s->gap;
    const int64_t sends = positive(v->s->counts[v->s->op == REPLACE ? 0 : me]);
    const int64_t receives = v->s->op == REPLACE ? sends : source < 0 ? 1 : positive(v->s->counts[source]);
    unsigned char *own = input(v, sends, me, 0), *recv = filler(v, receives);
    if (v->s->op == REPLACE) {
        fill(v, recv, sends, me, 0);
        MPI_Sendrecv_replace(recv, (int)sends, v->type, dest, tag, source, tag, v->comm, MPI_STATUS_IGNORE);
    } else {
        MPI_Sendrecv(own, (int)sends, v->type, dest, tag, recv, (int)receives, v->type, source, tag, v->comm,
                     MPI_STATUS_IGNORE);
    }
    h = hash(h, recv, receives * v->elem + GUARD);
    free(own);
    free(recv);
    return h;
}

static int is_mine(const view *v, const message *m) { return m->dest == v->rank && m->source < v->size; }

/* Posts the receives of a batch, by `order`; which message each is for goes to `of`. */
static int post(const view *v, MPI_Request *requests, unsigned char **buffers, int *of) {
    int posted = 0, i;
    int64_t order;
    for (order = 0; order <= 100; order++) {
        for (i = 0; i < v->s->message_count; i++) {
            const message *m = &v->s->messages[i];
            const int64_t count = m->room > m->count ? m->room : m->count;
            if (!is_mine(v, m) || m->order != order) continue;
            of[posted] = i;
            buffers[posted] = filler(v, count);
            MPI_Irecv(buffers[posted], (int)count, v->type, m->any_source ? MPI_ANY_SOURCE : (int)m->source,
                      m->any_tag ? MPI_ANY_TAG : (int)m->tag, v->comm, &requests[posted]);
            posted++;
        }
    }
    return posted;
}

static uint64_t batch(const view *v, uint64_t before) {
    MPI_Request requests[2 * MAX_MESSAGES];
    MPI_Status status[2 * MAX_MESSAGES];
    unsigned char *buffers[MAX_MESSAGES], *sent[MAX_MESSAGES];
    int of[MAX_MESSAGES], used[MAX_MESSAGES] = {0}, i, k;
    const int posted = post(v, requests, buffers, of);
    int all = posted;
    uint64_t h = 0;
    for (i = 0; i < v->s->message_count; i++) {
        const message *m = &v->s->messages[i];
        if (m->source != v->rank || m->dest >= v->size) continue;
        sent[all - posted] = input(v, m->count, v->rank, FIRST_BLOCK + i);
        MPI_Isend(sent[all - posted], (int)m->count, v->type, (int)m->dest, (int)m->tag, v->comm, &requests[all]);
        all++;
    }
    MPI_Waitall(all, requests, status);
    for (i = 0; i < v->s->message_count; i++) {
        const message *m = &v->s->messages[i];
        if (!is_mine(v, m)) continue;
        for (k = 0; k < posted; k++)
            if (!used[k] && (m->any_source ? status[k].MPI_SOURCE == m->source : of[k] == i)) break;
        if (k == posted) MPI_Abort(v->comm, 1);
        used[k] = 1;
        h = hash(h, buffers[k], (m->room < m->count ? m->room : m->count) * v->elem);
    }
    for (k = 0; k < posted; k++) free(buffers[k]);
    for (k = posted; k < all; k++) free(sent[k - posted]);
    return mix(before ^ h);
}

static int64_t number(char **text) { return strtoll(*text, text, 10); }

#include "window.h"

static story window_story;

static uint64_t run(const view *v, uint64_t h) {
    switch (v->s->op) {
        case BARRIER: MPI_Barrier(v->comm); return hash(h, NULL, 0);
        case BCAST: return bcast(v, h);
        case REDUCE: case ALLREDUCE: case SCAN: case EXSCAN: return fold(v, h);
        case REDUCE_SCATTER: case REDUCE_SCATTER_BLOCK: return fold_blocks(v, h);
        case GATHER: case GATHERV: case ALLGATHER: case ALLGATHERV: return collect(v, h);
        case SCATTER: case SCATTERV: return hand_out(v, h);
        case ALLTOALL: case ALLTOALLV: return exchange(v, h);
        case NEIGHBOR: return neighborhood(v, h);
        case SENDRECV: case REPLACE: return shift(v, h);
        case WINDOW: case WINDOW_MIXED: case WINDOW_MISUSE: return window(v, &window_story, h);
        default: return batch(v, h);
    }
}

static void read_step(char **text, step *s) {
    int64_t i;
    s->op = (int)number(text);
    s->dtype = (int)number(text);
    s->reduction = (int)number(text);
    s->in_place = (int)number(text);
    s->root = number(text);
    s->gap = number(text);
    s->order_count = number(text);
    for (i = 0; i < s->order_count; i++) s->order[i] = number(text);
    s->count_count = number(text);
    for (i = 0; i < s->count_count; i++) s->counts[i] = number(text);
    s->message_count = number(text);
    for (i = 0; i < s->message_count; i++) {
        message *m = &s->messages[i];
        m->source = number(text);
        m->dest = number(text);
        m->tag = number(text);
        m->count = number(text);
        m->room = number(text);
        m->any_tag = number(text);
        m->any_source = number(text);
        m->order = number(text);
    }
    read_story(text, &window_story);
}

/* Runs a case; this rank's hash. */
static uint64_t run_case(char **text, uint64_t seed, uint64_t *out_number) {
    static step s;
    const uint64_t case_number = (uint64_t)number(text);
    const int ranks = (int)number(text), group = (int)number(text);
    int color = 0, key = world_rank, i;
    int64_t steps;
    uint64_t h = 0, step_number;
    view v;
    v.comm = MPI_COMM_WORLD;
    if (group == 1) MPI_Comm_dup(MPI_COMM_WORLD, &v.comm);
    if (group == 2) {
        for (i = 0; i < ranks; i++) {
            const int c = (int)number(text), k = (int)number(text);
            if (i == world_rank) color = c, key = k;
        }
        MPI_Comm_split(MPI_COMM_WORLD, color < 0 ? MPI_UNDEFINED : color, key, &v.comm);
    }
    steps = number(text);
    *out_number = case_number;
    if (v.comm == MPI_COMM_NULL) return 0;
    MPI_Comm_rank(v.comm, &v.rank);
    MPI_Comm_size(v.comm, &v.size);
    v.ranks = ranks;
    v.s = &s;
    for (step_number = 0; step_number < (uint64_t)steps; step_number++) {
        read_step(text, &s);
        v.elem = size_of(s.dtype);
        v.type = bytes_of[v.elem];
        v.key = mix(seed ^ GOLDEN);
        v.key = mix(v.key ^ case_number * GOLDEN);
        v.key = mix(v.key ^ step_number * GOLDEN);
        v.key = mix(v.key ^ (uint64_t)color * GOLDEN);
        h = run(&v, h);
    }
    if (group != 0) MPI_Comm_free(&v.comm);
    return h;
}

static void run_file(const char *cases, const char *digest) {
    FILE *in = fopen(cases, "r"), *out = world_rank == 0 ? fopen(digest, "w") : NULL;
    char *line = NULL, *text;
    size_t room = 0;
    uint64_t seed, all[MAX_RANKS];
    if (in == NULL || (world_rank == 0 && out == NULL) || getline(&line, &room, in) < 0) {
        fprintf(stderr, "oracle: cannot read %s or write %s\n", cases, digest);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    seed = strtoull(line, &text, 10);
    if (strtoll(text, NULL, 10) != world_size) {
        fprintf(stderr, "oracle: %s is not for %d ranks\n", cases, world_size);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    while (getline(&line, &room, in) > 0) {
        uint64_t case_number, mine, h = 0;
        int i;
        text = line;
        mine = run_case(&text, seed, &case_number);
        /* Also keeps the cases apart: messages from any source could meet. */
        MPI_Allgather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, MPI_COMM_WORLD);
        if (world_rank != 0) continue;
        for (i = 0; i < world_size; i++) h = mix(h ^ all[i]);
        text = strchr(line, '#') + 2;
        text[strcspn(text, "\n")] = 0;
        fprintf(out, "%llu %s %016llx\n", (unsigned long long)case_number, text, (unsigned long long)h);
    }
    free(line);
    fclose(in);
    if (out != NULL) fclose(out);
}

int main(int argc, char **argv) {
    int i;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    make_types();
    for (i = 1; i + 1 < argc; i += 2) run_file(argv[i], argv[i + 1]);
    MPI_Finalize();
    return 0;
}
