/* Threads that make, use and destroy communicators and windows at the same time. Each thread of a rank has a
 * communicator of its own, so no two threads are in a collective on one communicator, and the threads of different
 * ranks come in different orders. What each call gives is checked.
 *
 *     test_comm_make KIND RANKS THREADS MILLISECONDS [SEED]
 *
 * RANKS counts for the kinds "threads" and "mail" only; else dtlrun says how many there are. */
#include "comm_kinds.h"
#include <pthread.h>

enum { MOST_RANKS = 64, MOST_THREADS = 16, SLOTS = 6, WORDS = 600, STEPS = 16 };

/* A communicator, or a window of it, as one rank sees it. A rank that is no member has neither. */
typedef struct {
    int live, here, has_win, rank, size;
    int members[MOST_RANKS]; /* ranks of the thread's own communicator */
    int64_t id;
    dtl_comm_t comm;
    dtl_win_t win;
    int64_t *cells, own[3];
} slot_t;

typedef struct {
    dtl_comm_t base;
    int rank, size, thread;
    uint64_t common, local; /* random numbers: equal on all ranks, and this rank's */
    int64_t made;
    slot_t slots[SLOTS];
    int64_t in[WORDS], out[WORDS];
} worker_t;

typedef struct {
    dtl_comm_t comm;
    int rank, size;
} rank_t;

static int threads;
static uint64_t milliseconds, seed;

static uint64_t next_of(uint64_t *state, uint64_t below) { /* xorshift64* */
    *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
    return (*state * UINT64_C(2685821657736338717) >> 33) % below;
}

static int pick(worker_t *w, int below) { return (int)next_of(&w->common, (uint64_t)below); }

/* This rank's threads come and go as chance has it. */
static void shake(worker_t *w) {
    struct timespec time = {0, 0};
    time.tv_nsec = (long)next_of(&w->local, 300000);
    if (next_of(&w->local, 24) == 0) nanosleep(&time, NULL);
}

/* ---- making ---- */

static int color_of(int rank, int a, int colors) {
    const int color = (rank * a + rank / 2) % colors;
    return colors > 2 && color == colors - 1 ? DTL_UNDEFINED : color;
}

static void adopt(worker_t *w, slot_t *s, const slot_t *from, const int *ranks_of_parent, int count) {
    int i;
    s->size = count;
    s->rank = -1;
    for (i = 0; i < count; i++) {
        s->members[i] = from->members[ranks_of_parent[i]];
        if (s->members[i] == w->rank) s->rank = i;
    }
    s->here = s->rank >= 0;
}

static void by_split(worker_t *w, slot_t *s, const slot_t *from, int a, int colors, int turn) {
    const int own = color_of(from->rank, a, colors);
    int order[MOST_RANKS], count = 0, key, i;
    CHECK_OK(dtl_comm_split(from->comm, own, (from->rank + turn) % from->size, &s->comm));
    for (key = 0; key < from->size; key++) { /* each key once */
        i = (key + from->size - turn) % from->size;
        if (color_of(i, a, colors) == own) order[count++] = i;
    }
    if (own == DTL_UNDEFINED) CHECK(s->comm.id == DTL_COMM_NULL.id);
    else adopt(w, s, from, order, count);
}

static void by_group(worker_t *w, slot_t *s, const slot_t *from, int first, int count) {
    int32_t list[MOST_RANKS];
    int order[MOST_RANKS], i;
    for (i = 0; i < count; i++) list[i] = order[i] = (first + i) % from->size;
    CHECK_OK(dtl_comm_group_create(from->comm, list, (uint64_t)count, &s->comm));
    adopt(w, s, from, order, count);
    CHECK(s->here == (s->comm.id != DTL_COMM_NULL.id));
}

static void by_dup(worker_t *w, slot_t *s, const slot_t *from) {
    int order[MOST_RANKS], i;
    for (i = 0; i < from->size; i++) order[i] = i;
    CHECK_OK(dtl_comm_dup(from->comm, &s->comm));
    adopt(w, s, from, order, from->size);
}

/* A window stands in a slot with its communicator, which it has for itself. */
static void with_window(slot_t *s, int allocates) {
    void *at = s->own;
    memset(s->own, 0, sizeof s->own);
    if (allocates) CHECK_OK(dtl_win_allocate(s->comm, sizeof s->own, 8, &at, &s->win));
    else CHECK_OK(dtl_win_create(s->comm, s->own, sizeof s->own, 8, &s->win));
    s->cells = (int64_t *)at;
    s->has_win = 1;
    CHECK_OK(dtl_win_fence(s->win));
}

static void make(worker_t *w, slot_t *s) {
    const int parent = pick(w, SLOTS + 1), how = pick(w, 4), a = 1 + pick(w, 3), b = pick(w, 64), window = pick(w, 6);
    slot_t base, *from = parent < SLOTS ? &w->slots[parent] : &base;
    memset(&base, 0, sizeof base);
    memset(s, 0, sizeof *s);
    s->live = 1;
    s->id = ++w->made * MOST_THREADS + w->thread;
    if (parent == SLOTS || !from->live) {
        const int whole = w->size;
        int i;
        from = &base;
        base.comm = w->base, base.here = 1, base.rank = w->rank, base.size = whole;
        for (i = 0; i < whole; i++) base.members[i] = i;
    }
    if (!from->here) return;
    if (how == 0) by_dup(w, s, from);
    else if (how == 1) by_group(w, s, from, b % from->size, 1 + b / 7 % from->size);
    else by_split(w, s, from, a, how, b % from->size);
    if (s->here && window < 2) with_window(s, window);
}

static void end(worker_t *w, slot_t *s) {
    if (s->here) {
        shake(w);
        if (s->has_win) CHECK_OK(dtl_win_destroy(s->win));
        CHECK_OK(dtl_comm_destroy(s->comm));
    }
    s->live = s->here = 0;
}

/* ---- using ---- */

static void sums(worker_t *w, slot_t *s, int count) {
    const int64_t n = s->size;
    int i;
    for (i = 0; i < count; i++) w->in[i] = s->id * 1000 + s->rank + i, w->out[i] = -1;
    CHECK_OK(dtl_comm_allreduce(s->comm, w->in, w->out, (uint64_t)count, DTL_DTYPE_INT64, DTL_OP_SUM));
    for (i = 0; i < count; i++) CHECK(w->out[i] == n * (s->id * 1000 + i) + n * (n - 1) / 2);
}

static void sums_in_flight(slot_t *s) {
    dtl_request_t requests[3];
    int64_t mine[3], all[3];
    int i;
    for (i = 0; i < 3; i++) {
        mine[i] = s->id + i, all[i] = -1;
        CHECK_OK(dtl_comm_iallreduce(s->comm, &mine[i], &all[i], 1, DTL_DTYPE_INT64, DTL_OP_SUM, &requests[i]));
    }
    for (i = 2; i >= 0; i--) CHECK_OK(dtl_request_wait(requests[i], MILLISECONDS(60000), NULL));
    for (i = 0; i < 3; i++) CHECK(all[i] == s->size * (s->id + i));
}

static void names(worker_t *w, slot_t *s) {
    int32_t mine = w->rank, all[MOST_RANKS];
    int i;
    CHECK_OK(dtl_comm_allgather(s->comm, &mine, 1, all, DTL_DTYPE_INT32));
    for (i = 0; i < s->size; i++) CHECK(all[i] == s->members[i]);
}

static void ring(worker_t *w, slot_t *s) {
    const int right = (s->rank + 1) % s->size, left = (s->rank + s->size - 1) % s->size;
    int64_t out = s->id * 100 + w->rank, in = -1;
    CHECK_OK(dtl_comm_sendrecv(s->comm, &out, 1, right, 3, &in, 1, left, 3, DTL_DTYPE_INT64, NULL));
    CHECK(in == s->id * 100 + s->members[left]);
}

static void cast(worker_t *w, slot_t *s, int root) {
    int64_t value = s->rank == root ? s->id : -1;
    CHECK_OK(dtl_comm_bcast(s->comm, &value, 1, DTL_DTYPE_INT64, root));
    CHECK(value == s->id);
    shake(w);
}

/* Each puts to the right and adds to the first; cells: put, added. */
static void windows(worker_t *w, slot_t *s) {
    const int right = (s->rank + 1) % s->size, left = (s->rank + s->size - 1) % s->size;
    const int64_t out = s->id * 100 + w->rank, one = s->id;
    s->cells[0] = s->cells[1] = 0;
    CHECK_OK(dtl_win_fence(s->win));
    CHECK_OK(dtl_win_put(s->win, &out, 1, DTL_DTYPE_INT64, right, 0));
    CHECK_OK(dtl_win_accumulate(s->win, &one, 1, DTL_DTYPE_INT64, 0, 1, DTL_OP_SUM));
    CHECK_OK(dtl_win_fence(s->win));
    CHECK(s->cells[0] == s->id * 100 + s->members[left]);
    CHECK(s->cells[1] == (s->rank == 0 ? s->size * s->id : 0));
}

static void use(worker_t *w, slot_t *s) {
    const int how = pick(w, 7), root = pick(w, 64);
    if (!s->here) return;
    shake(w);
    if (s->has_win && how < 3) windows(w, s);
    else if (how == 0) sums(w, s, WORDS);
    else if (how == 1) sums_in_flight(s);
    else if (how == 2) names(w, s);
    else if (how == 3) ring(w, s);
    else if (how == 4) cast(w, s, root % s->size);
    else sums(w, s, 1);
}

/* ---- threads ---- */

static void *work(void *argument) {
    worker_t *w = (worker_t *)argument;
    const uint64_t began = now_ms();
    int64_t over = 0, all = 0;
    int i;
    while (!all) {
        for (i = 0; i < STEPS; i++) {
            slot_t *s = &w->slots[pick(w, SLOTS)];
            const int ends = pick(w, 4) == 0;
            if (!s->live) make(w, s);
            else if (ends) end(w, s);
            else use(w, s);
        }
        over = now_ms() - began >= milliseconds;
        CHECK_OK(dtl_comm_allreduce(w->base, &over, &all, 1, DTL_DTYPE_INT64, DTL_OP_MAX));
    }
    for (i = 0; i < SLOTS; i++)
        if (w->slots[i].live) end(w, &w->slots[i]);
    CHECK_OK(dtl_comm_destroy(w->base));
    return NULL;
}

static void *run_rank(void *argument) {
    const rank_t *self = (const rank_t *)argument;
    worker_t *workers = (worker_t *)calloc((size_t)threads, sizeof(worker_t));
    pthread_t ids[MOST_THREADS];
    int64_t made = 0;
    int i;
    CHECK(workers != NULL);
    for (i = 0; i < threads; i++) {
        worker_t *w = &workers[i];
        w->rank = self->rank, w->size = self->size, w->thread = i;
        w->common = (seed * MOST_THREADS + (uint64_t)i + 1) * UINT64_C(0x9E3779B97F4A7C15);
        w->local = w->common ^ (uint64_t)(self->rank + 1) << 40;
        CHECK_OK(dtl_comm_dup(self->comm, &w->base));
    }
    for (i = 0; i < threads; i++) CHECK(pthread_create(&ids[i], NULL, work, &workers[i]) == 0);
    for (i = 0; i < threads; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    for (i = 0; i < threads; i++) made += workers[i].made;
    if (self->rank == 0) printf("%d ranks of %d threads: %lld made\n", self->size, threads, (long long)made);
    free(workers);
    CHECK_OK(dtl_comm_destroy(self->comm));
    return NULL;
}

static void run_as_threads(void) {
    static dtl_comm_t all[MOST_RANKS];
    static rank_t each[MOST_RANKS];
    pthread_t ids[MOST_RANKS];
    int i;
    CHECK_OK(dtl_comm_threads(ranks, MILLISECONDS(60000), all));
    for (i = 0; i < ranks; i++) {
        each[i].comm = all[i], each[i].rank = i, each[i].size = ranks;
        CHECK(pthread_create(&ids[i], NULL, run_rank, &each[i]) == 0);
    }
    for (i = 0; i < ranks; i++) CHECK(pthread_join(ids[i], NULL) == 0);
}

int main(int argc, char **argv) {
    const int by_threads = argc > 1 && strcmp(argv[1], "threads") == 0;
    rank_t self;
    if (argc < 5) SKIP("it runs with arguments: kind, ranks, threads, milliseconds, and perhaps a seed");
    threads = atoi(argv[3]);
    milliseconds = (uint64_t)atoll(argv[4]);
    seed = argc > 5 ? (uint64_t)atoll(argv[5]) : 1;
    CHECK(threads >= 1 && threads <= MOST_THREADS);
    if (by_threads) ranks = atoi(argv[2]);
    else start(argc, argv);
    CHECK(ranks >= 1 && ranks <= MOST_RANKS);
    CHECK_OK(dtl_init(NULL));
    if (by_threads) {
        run_as_threads();
    } else {
        /* Over MPI, a time limit would keep MPI's own communicators and collectives out. */
        self.comm = strcmp(kind, "mpi") == 0 ? open_with(DTL_TIMEOUT_INFINITE) : open_comm();
        self.rank = me, self.size = ranks;
        run_rank(&self);
    }
    CHECK_OK(dtl_finalize());
    if (!by_threads) finish();
    return 0;
}
