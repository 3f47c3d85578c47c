/* Ranks are killed at random moments, in random operations; the survivors shrink and go on.
 *
 *     test_random_kills                 a few jobs, for CTest
 *     test_random_kills COUNT [SEED]    jobs SEED ... SEED + COUNT - 1 (tests/full/kills.sh)
 *     dtlrun -n RANKS test_random_kills rank SEED     one job by hand
 *
 * A job has 3 to 8 ranks, 1 to 3 of which die. All ranks draw the same operations from the seed. What is
 * checked: no survivor waits in a call for longer than the time limit and two seconds; statuses are those
 * that the header names; results of calls that succeed are right; nothing is left behind.
 *
 * A wait is measured in the waiting process's own progress: a thread of it counts sleeps of 10 ms. If the
 * machine is busy, this thread counts more slowly, too. */
#include "comm_kinds.h"
#include <pthread.h>
#include <stdarg.h>

enum { LIMIT_MS = 2000, BEYOND_MS = 2000, TICK_MS = 10, OPERATIONS = 40, MOST = 8, CELLS = 16384 };
typedef struct random_t { uint64_t state; } random_t;

static uint64_t draw(random_t *from) { /* splitmix64 */
    uint64_t z = from->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static int below(random_t *from, int end) { return (int)(draw(from) % (uint64_t)end); }

/* ---- what a job is about: the same on the driver and on all ranks ---- */

static uint64_t seed;
static int victims[MOST]; /* by rank: 0 = survives, 1 = dies at a time, 2 = before an operation */

static int plan(void) {
    random_t from = {seed * 977};
    const int count = 3 + below(&from, 6);
    int deaths = 1 + below(&from, count > 4 ? 3 : 2);
    while (deaths-- > 0) victims[below(&from, count)] = 1 + below(&from, 2);
    return count;
}

/* ---- a rank ---- */

static volatile unsigned ticks, since;
static const char *volatile inside; /* the call that this rank is in */
static const char *within = "";     /* the operation that the call is part of */
static random_t shared, own;
static int32_t size, rank, operations;
static int64_t out[CELLS * MOST], in[CELLS * MOST], memory[CELLS];

static void fail(const char *format, ...) {
    va_list list;
    va_start(list, format);
    fprintf(stderr, "FAULT in job %llu, rank %d: ", (unsigned long long)seed, me);
    vfprintf(stderr, format, list);
    fprintf(stderr, " (%s, error \"%s\")\n", within, dtl_last_error());
    va_end(list);
    if (getenv("DTL_TEST_STOP")) pause();
    _exit(97);
}

static void *count_ticks(void *unused) {
    (void)unused;
    for (;;) {
        usleep(TICK_MS * 1000);
        ticks++;
        if (inside != NULL && ticks - since > (LIMIT_MS + BEYOND_MS) / TICK_MS) {
            fprintf(stderr, "FAULT in job %llu, rank %d: %s does not return (%s)\n", (unsigned long long)seed, me, inside, within);
            if (getenv("DTL_TEST_STOP")) pause();
            _exit(98);
        }
    }
    return NULL;
}

static void *die_later(void *microseconds) {
    usleep(*(const useconds_t *)microseconds);
    kill(getpid(), SIGKILL);
    return NULL;
}

static void enter(const char *call) {
    since = ticks;
    inside = call;
}

/* A call has returned: its status is one of those that the header names for a failure of ranks. */
static dtl_status_t leave(const char *call, dtl_status_t status) {
    /* By hand, to find waits that are too long though within the limit. */
    if (getenv("DTL_TEST_SLOW") && ticks - since > 40) {
        printf("slow: rank %d, %u ms, %s in %s: %s\n", me, TICK_MS * (ticks - since), call, within, dtl_status_name(status));
    }
    inside = NULL;
    if (status == DTL_ERROR_TIMEOUT) printf("timeout %s in %s: %s\n", call, within, dtl_last_error());
    if (status != DTL_SUCCESS && status != DTL_ERROR_RANK_FAILURE && status != DTL_ERROR_TIMEOUT
        && status != DTL_ERROR_INVALID_STATE) {
        fail("%s: %s", call, dtl_status_name(status));
    }
    return status;
}

#define CALL(call) (enter(#call), leave(#call, call))
/* Leaves the operation with the status of a call that fails. */
#define TRY(call) do { const dtl_status_t tried = CALL(call); if (tried != DTL_SUCCESS) return tried; } while (0)
#define EXPECT(condition) do { if (!(condition)) fail("wrong result: %s", #condition); } while (0)

static int64_t sum_of_ranks(void) { return (int64_t)size * (size + 1) / 2; }

/* Elements: few, some, or many. */
static uint64_t some(void) {
    static const int most[] = {4, 600, CELLS};
    return (uint64_t)(1 + below(&shared, most[below(&shared, 3)]));
}

static void fill_out(uint64_t count) {
    uint64_t i;
    for (i = 0; i < count; i++) out[i] = rank + 1;
}

static dtl_status_t collectives(dtl_comm_t c) {
    const uint64_t n = some(), each = n / (uint64_t)size + 1;
    const int32_t root = below(&shared, size);
    fill_out(n + each * (uint64_t)size);
    switch (below(&shared, 11)) {
    case 0: TRY(dtl_comm_barrier(c)); break;
    case 1:
        TRY(dtl_comm_bcast(c, out, n, DTL_DTYPE_INT64, root));
        EXPECT(out[n - 1] == root + 1);
        break;
    case 2:
        TRY(dtl_comm_reduce(c, out, in, n, DTL_DTYPE_INT64, DTL_OP_SUM, root));
        if (rank == root) EXPECT(in[n - 1] == sum_of_ranks());
        break;
    case 3:
        TRY(dtl_comm_allreduce(c, out, in, n, DTL_DTYPE_INT64, DTL_OP_SUM));
        EXPECT(in[0] == sum_of_ranks() && in[n - 1] == sum_of_ranks());
        break;
    case 4:
        TRY(dtl_comm_gather(c, out, each, in, DTL_DTYPE_INT64, root));
        if (rank == root) EXPECT(in[each * (uint64_t)size - 1] == size);
        break;
    case 5:
        TRY(dtl_comm_scatter(c, out, each, in, DTL_DTYPE_INT64, root));
        EXPECT(in[each - 1] == root + 1);
        break;
    case 6:
        TRY(dtl_comm_allgather(c, out, each, in, DTL_DTYPE_INT64));
        EXPECT(in[0] == 1 && in[each * (uint64_t)size - 1] == size);
        break;
    case 7:
        TRY(dtl_comm_alltoall(c, out, each, in, DTL_DTYPE_INT64));
        EXPECT(in[0] == 1 && in[each * (uint64_t)size - 1] == size);
        break;
    case 8:
        TRY(dtl_comm_reduce_scatter_block(c, out, in, each, DTL_DTYPE_INT64, DTL_OP_SUM));
        EXPECT(in[each - 1] == sum_of_ranks());
        break;
    case 9:
        TRY(dtl_comm_scan(c, out, in, n, DTL_DTYPE_INT64, DTL_OP_SUM));
        EXPECT(in[n - 1] == (int64_t)(rank + 1) * (rank + 2) / 2);
        break;
    default: TRY(dtl_comm_exscan(c, out, in, n, DTL_DTYPE_INT64, DTL_OP_SUM)); break;
    }
    return DTL_SUCCESS;
}

/* Waits for all of them, also after a failure: their buffers are free then. */
static dtl_status_t wait_for(dtl_request_t *requests, int count) {
    dtl_status_t first = DTL_SUCCESS, status;
    int i;
    for (i = 0; i < count; i++) {
        status = CALL(dtl_request_wait(requests[i], MILLISECONDS(LIMIT_MS), NULL));
        if (status == DTL_ERROR_TIMEOUT) {
            /* It goes on, and is cancelled: a collective cannot be, so its communicator is destroyed. */
            enter("dtl_request_destroy");
            status = dtl_request_destroy(requests[i]);
            inside = NULL;
            if (status == DTL_SUCCESS) status = DTL_ERROR_TIMEOUT;
        }
        if (first == DTL_SUCCESS) first = status;
    }
    return first;
}

static dtl_status_t nonblocking(dtl_comm_t c) {
    dtl_request_t requests[4];
    const int count = 1 + below(&shared, 4);
    const uint64_t n = some() / 4 + 1;
    dtl_status_t status = DTL_SUCCESS;
    int begun = 0, i;
    fill_out(4 * n);
    for (i = 0; i < count && status == DTL_SUCCESS; i++) {
        switch (below(&shared, 3)) {
        case 0: status = CALL(dtl_comm_ibarrier(c, &requests[i])); break;
        case 1: status = CALL(dtl_comm_iallreduce(c, out, &in[(uint64_t)i * n], n, DTL_DTYPE_INT64, DTL_OP_SUM, &requests[i])); break;
        default: status = CALL(dtl_comm_ibcast(c, &out[(uint64_t)i * n], n, DTL_DTYPE_INT64, 0, &requests[i])); break;
        }
        begun += status == DTL_SUCCESS;
    }
    if (below(&shared, 2)) CALL(dtl_comm_barrier(c));
    i = wait_for(requests, begun);
    return status == DTL_SUCCESS ? i : status;
}

static dtl_status_t messages(dtl_comm_t c) {
    const int32_t next = (rank + 1) % size, last = (rank + size - 1) % size;
    const uint64_t n = some();
    dtl_request_t requests[2];
    dtl_message_t message;
    dtl_status_t status;
    fill_out(n);
    switch (below(&shared, 5)) {
    case 0:
        TRY(dtl_comm_sendrecv(c, out, n, next, 7, in, n, last, 7, DTL_DTYPE_INT64, NULL));
        EXPECT(in[n - 1] == last + 1);
        break;
    case 1:
        TRY(dtl_comm_sendrecv_replace(c, out, n, DTL_DTYPE_INT64, next, 7, last, 7, NULL));
        EXPECT(out[n - 1] == last + 1);
        break;
    case 2:
        TRY(dtl_comm_irecv(c, in, n, DTL_DTYPE_INT64, below(&shared, 2) ? last : DTL_ANY_SOURCE, 7, &requests[0]));
        status = CALL(dtl_comm_isend(c, out, n, DTL_DTYPE_INT64, next, 7, &requests[1]));
        if (status != DTL_SUCCESS) {
            CALL(dtl_request_destroy(requests[0]));
            return status;
        }
        return wait_for(requests, 2);
    case 3:
        TRY(dtl_comm_isend(c, out, n, DTL_DTYPE_INT64, next, 7, &requests[0]));
        status = CALL(dtl_comm_mprobe(c, last, 7, &message, NULL));
        if (status == DTL_SUCCESS) status = CALL(dtl_comm_mrecv(message, in, n, DTL_DTYPE_INT64, NULL));
        if (status == DTL_SUCCESS) return wait_for(requests, 1);
        CALL(dtl_request_destroy(requests[0]));
        return status;
    default: /* to and from one */
        if (rank == 0) {
            int32_t i;
            for (i = 1; i < size; i++) TRY(dtl_comm_recv(c, in, n, DTL_DTYPE_INT64, i, 8, NULL));
        } else {
            TRY(dtl_comm_ssend(c, out, n, DTL_DTYPE_INT64, 0, 8));
        }
        break;
    }
    return DTL_SUCCESS;
}

/* ---- windows ---- */

static dtl_status_t in_fences(dtl_win_t win, const int64_t *base) {
    const int32_t next = (rank + 1) % size, last = (rank + size - 1) % size;
    const uint64_t n = (some() + 1) / 2, half = CELLS / 2;
    int rounds = 1 + below(&shared, 3);
    TRY(dtl_win_fence(win));
    while (rounds-- > 0) {
        fill_out(n);
        TRY(dtl_win_put(win, out, n, DTL_DTYPE_INT64, next, 0));
        TRY(dtl_win_accumulate(win, out, n, DTL_DTYPE_INT64, next, half, DTL_OP_SUM));
        TRY(dtl_win_fence(win));
        EXPECT(base[n - 1] == last + 1);
        TRY(dtl_win_get(win, in, n, DTL_DTYPE_INT64, next, 0));
        TRY(dtl_win_fence(win));
        EXPECT(in[n - 1] == rank + 1);
    }
    return DTL_SUCCESS;
}

static dtl_status_t in_locks(dtl_win_t win) {
    int rounds = 1 + below(&shared, 4);
    while (rounds-- > 0) {
        const int32_t target = below(&own, size);
        const int is_all = below(&own, 4) == 0, how = below(&own, 2) ? DTL_LOCK_SHARED : DTL_LOCK_EXCLUSIVE;
        const uint64_t n = (uint64_t)(1 + below(&own, CELLS));
        dtl_status_t status = is_all ? CALL(dtl_win_lock_all(win)) : CALL(dtl_win_lock(win, how, target));
        dtl_request_t request;
        int64_t one = 1, expected = 0, got = 0;
        if (status != DTL_SUCCESS) return status;
        fill_out(n);
        switch (below(&own, 6)) {
        case 0: status = CALL(dtl_win_put(win, out, n, DTL_DTYPE_INT64, target, 0)); break;
        case 1: status = CALL(dtl_win_get(win, in, n, DTL_DTYPE_INT64, target, 0)); break;
        case 2: status = CALL(dtl_win_accumulate(win, out, n, DTL_DTYPE_INT64, target, 0, DTL_OP_SUM)); break;
        case 3: status = CALL(dtl_win_fetch_op(win, &one, &got, DTL_DTYPE_INT64, target, 0, DTL_OP_SUM)); break;
        case 4: status = CALL(dtl_win_compare_and_swap(win, &one, &expected, &got, DTL_DTYPE_INT64, target, 1)); break;
        default:
            status = CALL(dtl_win_rget(win, in, n, DTL_DTYPE_INT64, target, 0, &request));
            if (status == DTL_SUCCESS) status = wait_for(&request, 1);
            break;
        }
        if (status == DTL_SUCCESS && below(&own, 2)) status = CALL(dtl_win_flush(win, target));
        {
            const dtl_status_t ended = is_all ? CALL(dtl_win_unlock_all(win)) : CALL(dtl_win_unlock(win, target));
            if (status == DTL_SUCCESS) status = ended;
        }
        if (status != DTL_SUCCESS) return status;
    }
    return DTL_SUCCESS;
}

static dtl_status_t windows(dtl_comm_t c) {
    void *base = memory;
    dtl_win_t win;
    dtl_status_t status, ended;
    if (below(&shared, 2)) TRY(dtl_win_create(c, memory, sizeof memory, 8, &win));
    else TRY(dtl_win_allocate(c, sizeof memory, 8, &base, &win));
    status = below(&shared, 2) ? in_fences(win, (const int64_t *)base) : in_locks(win);
    /* The window may be amid an epoch: the first destroy says so, or waits in vain for the others. */
    ended = status == DTL_SUCCESS ? CALL(dtl_comm_barrier(c)) : status;
    if (CALL(dtl_win_destroy(win)) != DTL_SUCCESS) {
        CALL(dtl_win_fence(win));
        if (CALL(dtl_win_destroy(win)) != DTL_SUCCESS) CALL(dtl_win_destroy(win));
    }
    return ended;
}

/* ---- communicators made from others ---- */

static dtl_status_t operate(dtl_comm_t c, int depth);

/* A failure in a part: some ranks shrink it, others only destroy it. */
static void end_part(dtl_comm_t part, dtl_status_t status) {
    dtl_comm_t left;
    if (status != DTL_SUCCESS && below(&own, 2) && CALL(dtl_comm_shrink(part, &left)) == DTL_SUCCESS) {
        CALL(dtl_comm_barrier(left));
        CALL(dtl_comm_destroy(left));
    }
    CALL(dtl_comm_destroy(part));
}

static dtl_status_t parts(dtl_comm_t c, int depth) {
    const int32_t its_size = size, its_rank = rank;
    const int how = below(&shared, 3);
    random_t after;
    dtl_comm_t part = DTL_COMM_NULL;
    dtl_status_t status = DTL_SUCCESS;
    int32_t half[MOST], i, rounds = 1 + below(&shared, 3);
    after.state = draw(&shared);
    for (i = 0; i < MOST; i++) half[i] = i;
    if (how == 0) TRY(dtl_comm_dup(c, &part));
    if (how == 1) TRY(dtl_comm_split(c, rank % 2, -rank, &part));
    if (how == 2) TRY(dtl_comm_group_create(c, half, (uint64_t)(size + 1) / 2, &part));
    if (part.id != 0) {
        CHECK_OK(dtl_comm_size(part, &size));
        CHECK_OK(dtl_comm_rank(part, &rank));
        while (rounds-- > 0 && status == DTL_SUCCESS) status = operate(part, depth + 1);
        end_part(part, status);
    }
    size = its_size;
    rank = its_rank;
    shared = after;
    return status;
}

static dtl_status_t operate(dtl_comm_t c, int depth) {
    const char *const outer = within;
    dtl_status_t status;
    const int what = below(&shared, depth < 2 ? 12 : 9);
    if (victims[me] == 2 && ++operations == 1 + (int)(seed % OPERATIONS)) kill(getpid(), SIGKILL);
    within = what < 4 ? "collective" : what < 6 ? "nonblocking" : what < 9 ? "messages" : what < 11 ? "window" : "part";
    if (what < 4) status = collectives(c);
    else if (what < 6) status = nonblocking(c);
    else if (what < 9) status = messages(c);
    else if (what < 11) status = windows(c);
    else status = parts(c, depth);
    within = outer;
    return status;
}

static int be_a_rank(void) {
    static useconds_t microseconds;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t c, left;
    pthread_t thread;
    int step, attempts, epoch = 0;
    desc.kind = getenv("DTL_COMM");
    desc.timeout_ns = MILLISECONDS(LIMIT_MS);
    while (dtl_comm_open(&desc, &c) == DTL_ERROR_TIMEOUT); /* on a busy machine; all ranks are told alike */
    CHECK_OK(dtl_comm_rank(c, &me));
    CHECK_OK(dtl_comm_size(c, &ranks));
    CHECK(ranks == plan());
    own.state = seed * 31 + (uint64_t)me;
    CHECK(pthread_create(&thread, NULL, count_ticks, NULL) == 0);
    microseconds = (useconds_t)below(&own, 150000);
    if (victims[me] == 1) CHECK(pthread_create(&thread, NULL, die_later, &microseconds) == 0);
    rank = me;
    size = ranks;
    shared.state = seed;
    for (step = 0; step < OPERATIONS;) {
        if (operate(c, 0) == DTL_SUCCESS) {
            step++;
            continue;
        }
        within = "shrink";
        /* Others may be late for as long as their own calls last, one after the other. */
        for (attempts = 0; CALL(dtl_comm_shrink(c, &left)) == DTL_ERROR_TIMEOUT; attempts++) {
            if (attempts == 20) fail("no end of dtl_comm_shrink");
        }
        CALL(dtl_comm_destroy(c));
        c = left;
        CHECK_OK(dtl_comm_size(c, &size));
        CHECK_OK(dtl_comm_rank(c, &rank));
        /* Whoever is in this one has shrunk as often. */
        shared.state = seed + (uint64_t)++epoch * 1000003;
        step = 0;
    }
    within = "end";
    CALL(dtl_comm_barrier(c));
    CALL(dtl_comm_destroy(c));
    CHECK_OK(dtl_finalize());
    printf("rank %d has ended\njob name %s\n", me, getenv("DTL_JOB"));
    return 0;
}

/* ---- the driver ---- */

/* Whether sockets or files of a job are there, all ranks of which have ended. Their names have its hash. */
static int left_behind(const char *job) {
    char command[200];
    uint64_t hash = UINT64_C(0xCBF29CE484222325) * UINT64_C(0x100000001B3);
    for (; *job > ' '; job++) hash = (hash ^ (unsigned char)*job) * UINT64_C(0x100000001B3);
    snprintf(command, sizeof command, "(cat /proc/net/unix; ls /dev/shm /tmp /run) | grep %016llx >&2", (unsigned long long)hash);
    return system(command) == 0;
}

static int run_job(const char *program, uint64_t number, int *timeouts) {
    static char text[1 << 20];
    char command[5000], word[80], *line;
    size_t length;
    FILE *pipe;
    int i, count, faults = 0;
    memset(victims, 0, sizeof victims);
    seed = number;
    count = plan();
    snprintf(command, sizeof command, "'%s' -n %d --on-failure=continue '%s' rank %llu 2>&1", getenv("DTL_TEST_DTLRUN"), count,
        program, (unsigned long long)number);
    pipe = popen(command, "r");
    CHECK(pipe != NULL);
    length = fread(text, 1, sizeof text - 1, pipe);
    text[length] = '\0';
    pclose(pipe); /* all ranks have ended: they had the pipe */
    for (i = 0; i < count; i++) {
        snprintf(word, sizeof word, "rank %d has ended", i);
        if (strstr(text, word) != NULL) continue;
        snprintf(word, sizeof word, "rank %d was killed by signal 9", i);
        if (victims[i] == 0 || strstr(text, word) == NULL) faults++;
    }
    if (strstr(text, "FAULT") != NULL) faults++;
    line = strstr(text, "job name ");
    if (line == NULL || left_behind(line + strlen("job name "))) faults++;
    if (faults > 0) fprintf(stderr, "job %llu, %d ranks:\n%s\n", (unsigned long long)number, count, text);
    for (line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strncmp(line, "timeout", 7) == 0) (*timeouts)++;
        if (strncmp(line, "timeout", 7) == 0 || strncmp(line, "slow", 4) == 0) printf("job %llu: %s\n", (unsigned long long)number, line);
    }
    fflush(stdout);
    return faults > 0;
}

int main(int argc, char **argv) {
    char path[4096];
    const uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    const int jobs = argc > 1 ? atoi(argv[1]) : 6;
    int i, faults = 0, timeouts = 0;
    if (argc > 2 && strcmp(argv[1], "rank") == 0) {
        seed = first;
        return be_a_rank();
    }
    if (getenv("DTL_TEST_DTLRUN") == NULL) SKIP("DTL_TEST_DTLRUN does not name dtlrun");
    CHECK(realpath(argv[0], path) != NULL);
    for (i = 0; i < jobs; i++) faults += run_job(path, first + (uint64_t)i, &timeouts);
    printf("%d jobs from seed %llu: %d with faults, %d calls ended by their time limit\n", jobs, (unsigned long long)first, faults,
        timeouts);
    return faults > 0;
}
