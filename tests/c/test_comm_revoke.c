/* A rank revokes a communicator: every rank that waits on it, in whatever call, gets DTL_ERROR_REVOKED, and the ranks continue with
 * dtl_comm_shrink. Without arguments: the driver (DTL_TEST_DTLRUN names dtlrun). With arguments: a rank of a scenario, and the kind;
 * with a third, without a time limit. */
#include "comm_kinds.h"
#include <pthread.h>
#include <sys/wait.h>

enum { LARGE = 1 << 20, WAYS = 12, THREADS = 4 };
static dtl_comm_t base;
static int has_limit = 1;
static unsigned char large[LARGE];

static int32_t sum_of(dtl_comm_t of) {
    int32_t one = 1, sum = -1;
    CHECK_OK(dtl_comm_allreduce(of, &one, &sum, 1, DTL_DTYPE_INT32, DTL_OP_SUM));
    return sum;
}

/* Polls until the request is over, without waiting for it. */
static dtl_status_t test_until(dtl_request_t request) {
    int32_t done = 0;
    dtl_status_t status = DTL_SUCCESS;
    while (status == DTL_SUCCESS && !done) status = dtl_request_test(request, &done, NULL);
    return status;
}

static dtl_status_t test_all_until(dtl_request_t *requests, uint64_t count) {
    int32_t done = 0;
    dtl_status_t status = DTL_SUCCESS;
    while (status == DTL_SUCCESS && !done) status = dtl_request_test_all(requests, count, &done, NULL);
    return status;
}

/* Starts an operation. Returns its failure, because the communicator may be revoked already. */
#define BEGIN(call) \
    do { \
        status = (call); \
        if (status != DTL_SUCCESS) return status; \
    } while (0)

/* Waits in one of many ways for the rank `peer`, which lives and does not answer. */
static dtl_status_t wait_in(dtl_comm_t comm, int way, int32_t peer) {
    const dtl_dtype_t type = DTL_DTYPE_INT32;
    dtl_request_t requests[2] = {{0}, {0}};
    int32_t value = 0, sum = 0, found = 0;
    uint64_t index;
    dtl_status_t status = DTL_SUCCESS;
    dtl_comm_t dup;
    switch (way) {
    case 0: return dtl_comm_recv(comm, &value, 1, type, peer, 5, NULL);
    case 1: return dtl_comm_barrier(comm);
    case 2: return dtl_comm_probe(comm, peer, 5, NULL);
    case 3:
        BEGIN(dtl_comm_irecv(comm, &value, 1, type, peer, 5, &requests[0]));
        return dtl_request_wait(requests[0], DTL_TIMEOUT_INFINITE, NULL);
    case 4:
        BEGIN(dtl_comm_irecv(comm, &value, 1, type, DTL_ANY_SOURCE, 5, &requests[0]));
        return test_until(requests[0]);
    case 5:
        BEGIN(dtl_comm_irecv(comm, &value, 1, type, peer, 5, &requests[0]));
        BEGIN(dtl_comm_irecv(comm, &sum, 1, type, peer, 6, &requests[1]));
        return test_all_until(requests, 2);
    case 6:
        BEGIN(dtl_comm_irecv(comm, &value, 1, type, peer, 5, &requests[0]));
        return dtl_request_wait_any(requests, 2, DTL_TIMEOUT_INFINITE, &index, NULL);
    case 7: return dtl_comm_ssend(comm, &value, 1, type, peer, 5);
    case 8:
        BEGIN(dtl_comm_iallreduce(comm, &value, &sum, 1, type, DTL_OP_SUM, &requests[0]));
        return dtl_request_wait(requests[0], DTL_TIMEOUT_INFINITE, NULL);
    case 9:
        while (status == DTL_SUCCESS && !found) status = dtl_comm_iprobe(comm, peer, 5, &found, NULL);
        return status;
    case 10: return dtl_comm_dup(comm, &dup);
    default:
        BEGIN(dtl_comm_recv_init(comm, &value, 1, type, peer, 5, &requests[0]));
        status = dtl_request_start(requests[0]);
        if (status == DTL_SUCCESS) status = dtl_request_wait(requests[0], DTL_TIMEOUT_INFINITE, NULL);
        CHECK_STATUS(dtl_request_start(requests[0]), DTL_ERROR_REVOKED);
        CHECK_OK(dtl_request_destroy(requests[0]));
        return status;
    }
}

/* Everything on a revoked communicator fails, except what needs no other rank. */
static void check_revoked(dtl_comm_t comm) {
    int32_t value = 0, found;
    dtl_request_t request;
    dtl_comm_info_t info = DTL_COMM_INFO_INIT;
    dtl_comm_t dup;
    CHECK_STATUS(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, 0, 1), DTL_ERROR_REVOKED);
    CHECK_STATUS(dtl_comm_isend(comm, &value, 1, DTL_DTYPE_INT32, 0, 1, &request), DTL_ERROR_REVOKED);
    CHECK_STATUS(dtl_comm_irecv(comm, &value, 1, DTL_DTYPE_INT32, 0, 1, &request), DTL_ERROR_REVOKED);
    CHECK_STATUS(dtl_comm_iprobe(comm, 0, 1, &found, NULL), DTL_ERROR_REVOKED);
    CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_REVOKED);
    CHECK_STATUS(dtl_comm_ibarrier(comm, &request), DTL_ERROR_REVOKED);
    CHECK_STATUS(dtl_comm_dup(comm, &dup), DTL_ERROR_REVOKED);
    CHECK_OK(dtl_comm_rank(comm, &value));
    CHECK_OK(dtl_comm_info(comm, &info));
    CHECK_OK(dtl_comm_revoke(comm)); /* again: nothing changes */
}

static void check_left(dtl_comm_t comm, int32_t expected) {
    dtl_comm_t left;
    CHECK_OK(dtl_comm_shrink(comm, &left));
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK(sum_of(left) == expected);
    CHECK_OK(dtl_comm_destroy(left));
}

/* The text names the first rank that revoked it: here one of these. */
static void check_names(int32_t rank) {
    char text[40];
    snprintf(text, sizeof text, "rank %d has revoked", (int)rank);
    CHECK(strstr(dtl_last_error(), text) != NULL);
}

/* Ranks in turn revoke while the others wait, in each of the ways, for one that lives. Calls of MPI's own, without a time limit, do
 * not end: then the others wait for requests or poll. */
static void live(void) {
    static const int polling[] = {3, 4, 5, 6, 9, 11};
    int way;
    for (way = 0; way < 2 * WAYS; way++) {
        dtl_comm_t comm;
        const int32_t revoker = way % ranks;
        CHECK_OK(dtl_comm_dup(base, &comm));
        if (me == revoker) {
            if (way % 3 != 0) usleep(30000); /* the others wait */
            CHECK_OK(dtl_comm_revoke(comm));
        } else {
            CHECK_STATUS(wait_in(comm, has_limit ? (way + me) % WAYS : polling[(way + me) % 6], revoker), DTL_ERROR_REVOKED);
            check_names(revoker);
        }
        check_revoked(comm);
        /* A message that is under way is no obstacle. */
        if (way % 2 == 0) {
            check_left(comm, ranks);
        } else {
            CHECK_OK(dtl_comm_destroy(comm)); /* at once, and without the others */
        }
        CHECK(sum_of(base) == ranks); /* that it was made from is not revoked */
    }
}

/* All revoke at the same time. */
static void twice(void) {
    int round;
    for (round = 0; round < 10; round++) {
        dtl_comm_t comm;
        CHECK_OK(dtl_comm_dup(base, &comm));
        CHECK_OK(dtl_comm_barrier(base));
        CHECK_OK(dtl_comm_revoke(comm));
        check_revoked(comm);
        check_left(comm, ranks);
    }
}

/* A long message whose receive is posted: it completes or it ends, and its buffer is left alone. */
static void under_way(void) {
    int round;
    for (round = 0; round < 10; round++) {
        dtl_comm_t comm;
        dtl_request_t request;
        dtl_status_t status;
        CHECK_OK(dtl_comm_dup(base, &comm));
        if (me == 0) {
            memset(large, 7, LARGE);
            CHECK_OK(dtl_comm_isend(comm, large, LARGE, DTL_DTYPE_UINT8, 1, 3, &request));
            CHECK_OK(dtl_comm_revoke(comm));
            status = dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL);
            CHECK(status == DTL_SUCCESS || status == DTL_ERROR_REVOKED);
        } else if (me == 1) {
            memset(large, 1, LARGE);
            status = dtl_comm_irecv(comm, large, LARGE, DTL_DTYPE_UINT8, 0, 3, &request);
            if (status == DTL_SUCCESS) status = dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL);
            CHECK(status == DTL_SUCCESS || status == DTL_ERROR_REVOKED);
            if (status == DTL_SUCCESS) CHECK(is_all(large, LARGE, 7));
            memset(large, 1, LARGE);
            CHECK_OK(dtl_comm_barrier(base));
            CHECK(is_all(large, LARGE, 1));
        }
        if (me != 1) CHECK_OK(dtl_comm_barrier(base));
        CHECK_OK(dtl_comm_revoke(comm));
        check_left(comm, ranks);
    }
}

/* Windows over it are revoked too, also one that is locked. */
static void window(void) {
    int locked;
    for (locked = 0; locked < 2; locked++) {
        dtl_comm_t comm;
        dtl_win_t win;
        void *memory;
        int32_t value = 1;
        CHECK_OK(dtl_comm_dup(base, &comm));
        CHECK_OK(dtl_win_allocate(comm, 64, 4, &memory, &win));
        if (locked) CHECK_OK(dtl_win_lock(win, DTL_LOCK_SHARED, me));
        CHECK_OK(dtl_comm_barrier(comm));
        if (me == 0) {
            usleep(30000);
            CHECK_OK(dtl_comm_revoke(comm));
        } else if (locked) {
            CHECK_STATUS(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, 0, 1, NULL), DTL_ERROR_REVOKED);
        } else {
            CHECK_STATUS(dtl_win_fence(win), DTL_ERROR_REVOKED);
            check_names(0);
        }
        CHECK_STATUS(dtl_win_put(win, &value, 1, DTL_DTYPE_INT32, 0, 0), DTL_ERROR_REVOKED);
        CHECK_STATUS(dtl_win_fence(win), DTL_ERROR_REVOKED);
        CHECK_OK(dtl_win_destroy(win));
        check_left(comm, ranks);
    }
}

/* Rank 0 revokes and leaves at once, while the others access its window. */
static void window_left(void) {
    dtl_comm_t comm;
    dtl_win_t win;
    void *memory;
    int32_t value = 1, i;
    dtl_status_t status = DTL_SUCCESS;
    CHECK_OK(dtl_comm_dup(base, &comm));
    CHECK_OK(dtl_win_allocate(comm, 64, 4, &memory, &win));
    if (me != 0) CHECK_OK(dtl_win_lock(win, DTL_LOCK_SHARED, 0));
    CHECK_OK(dtl_comm_barrier(base));
    if (me == 0) {
        CHECK_OK(dtl_comm_revoke(comm));
        if (ranks % 2 == 0) CHECK_OK(dtl_win_destroy(win));
        return;
    }
    while (status == DTL_SUCCESS) {
        status = dtl_win_put(win, &value, 1, DTL_DTYPE_INT32, 0, (uint64_t)me);
        if (status == DTL_SUCCESS) status = dtl_win_flush(win, 0);
    }
    /* Over a network card, the memory can be gone before the notice of the revocation has arrived. */
    for (i = 0; status == DTL_ERROR_RANK_FAILURE && i < 5000; i++) {
        usleep(1000);
        status = dtl_win_flush(win, 0);
    }
    CHECK_STATUS(status, DTL_ERROR_REVOKED);
    check_names(0);
    CHECK_OK(dtl_win_destroy(win));
    check_left(comm, ranks - 1);
}

/* While ranks wait in dtl_win_destroy, another one revokes: the call succeeds. */
static void window_end(void) {
    dtl_comm_t comm;
    dtl_win_t win;
    void *memory;
    CHECK_OK(dtl_comm_dup(base, &comm));
    CHECK_OK(dtl_win_allocate(comm, 64, 4, &memory, &win));
    CHECK_OK(dtl_comm_barrier(base));
    if (me == 0) {
        usleep(30000); /* the others wait */
        CHECK_OK(dtl_comm_revoke(comm));
    }
    CHECK_OK(dtl_win_destroy(win));
    CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_REVOKED);
    check_left(comm, ranks);
}

/* Returns a duplicate of `base`. Rank `last` returns last, so that its end interrupts no collective of another rank. */
static dtl_comm_t dup_before(int32_t last) {
    dtl_comm_t comm;
    int32_t value = 0, i;
    CHECK_OK(dtl_comm_dup(base, &comm));
    if (me != last) CHECK_OK(dtl_comm_send(base, &value, 1, DTL_DTYPE_INT32, last, 9));
    for (i = 1; i < ranks && me == last; i++)
        CHECK_OK(dtl_comm_recv(base, &value, 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, 9, NULL));
    return comm;
}

/* Rank 0 revokes and is dead before anybody has read that. */
static void dies(void) {
    static const int ways[] = {0, 2, 3, 5, 7, 9};
    const dtl_comm_t comm = dup_before(0);
    if (me == 0) {
        if (ranks % 2 == 0) usleep(30000); /* the others wait */
        CHECK_OK(dtl_comm_revoke(comm));
        kill(getpid(), SIGKILL);
    }
    /* In calls that wait for a rank that lives: the death of rank 0 is not what ends them. */
    CHECK_STATUS(wait_in(comm, ways[me % 6], 1 + me % (ranks - 1)), DTL_ERROR_REVOKED);
    check_names(0);
    check_left(comm, ranks - 1);
}

/* Rank 0 revokes and leaves at once: it destroys the communicator, finalizes, or (`is_killed`) dies. The others wait
 * for it, in ways that depend on the number of ranks. Their calls report the revocation, not that rank 0 has left. */
static void goes(int is_killed) {
    const dtl_comm_t comm = dup_before(0);
    if (me == 0) {
        if (ranks % 2 == 0) usleep(30000); /* the others wait */
        CHECK_OK(dtl_comm_revoke(comm));
        if (is_killed) kill(getpid(), SIGKILL);
        if (ranks % 2 == 1) CHECK_OK(dtl_comm_destroy(comm));
        return;
    }
    CHECK_STATUS(wait_in(comm, (me - 1 + 3 * ranks) % WAYS, 0), DTL_ERROR_REVOKED);
    check_names(0);
    check_revoked(comm);
    check_left(comm, ranks - 1);
}

static void leaves(void) {
    goes(0);
}

static void killed(void) {
    goes(1);
}

/* Rank 1 dies; rank 0 detects that and revokes, since the others wait for rank 0. */
static void death(void) {
    const dtl_comm_t comm = dup_before(1);
    int32_t value = 0;
    if (me == 1) kill(getpid(), SIGKILL);
    if (me == 0) {
        CHECK_STATUS(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, 1, 1, NULL), DTL_ERROR_RANK_FAILURE);
        CHECK_OK(dtl_comm_revoke(comm));
    } else {
        CHECK_STATUS(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, 0, 1, NULL), DTL_ERROR_REVOKED);
        check_names(0);
    }
    check_revoked(comm);
    check_left(comm, ranks - 1);
}

/* ---- ranks that are threads ---- */

static dtl_comm_t all[THREADS];
static dtl_status_t ended[THREADS];

static void *waits(void *rank) {
    const int i = *(const int *)rank;
    ended[i] = wait_in(all[i], i, 0);
    return NULL;
}

static void *revokes(void *rank) {
    const int i = *(const int *)rank;
    ended[i] = dtl_comm_revoke(all[i]);
    return NULL;
}

static void on_threads(int first, void *(*run)(void *)) {
    static const int numbers[THREADS] = {0, 1, 2, 3};
    pthread_t threads[THREADS];
    int i;
    for (i = first; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, run, (void *)&numbers[i]) == 0);
    if (first > 0) {
        usleep(20000);
        CHECK_OK(dtl_comm_revoke(all[0]));
    }
    for (i = first; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

static void test_threads(void) {
    int i;
    CHECK_OK(dtl_comm_threads(THREADS, MILLISECONDS(60000), all));
    on_threads(1, waits);
    for (i = 1; i < THREADS; i++) CHECK(ended[i] == DTL_ERROR_REVOKED);
    for (i = 0; i < THREADS; i++) check_revoked(all[i]);
    for (i = 0; i < THREADS; i++) CHECK_OK(dtl_comm_destroy(all[i]));
    CHECK_OK(dtl_comm_threads(THREADS, MILLISECONDS(60000), all));
    on_threads(0, revokes);
    for (i = 0; i < THREADS; i++) {
        CHECK(ended[i] == DTL_SUCCESS);
        check_revoked(all[i]);
        CHECK_OK(dtl_comm_destroy(all[i]));
    }
}

static void *destroys(void *comm) {
    CHECK_OK(dtl_comm_destroy(*(const dtl_comm_t *)comm));
    return NULL;
}

/* One thread revokes what another destroys. */
static void test_destroy(void) {
    int round;
    for (round = 0; round < 200; round++) {
        dtl_comm_t two[2];
        pthread_t thread;
        dtl_status_t status;
        CHECK_OK(dtl_comm_threads(2, MILLISECONDS(60000), two));
        CHECK(pthread_create(&thread, NULL, destroys, &two[0]) == 0);
        status = dtl_comm_revoke(two[0]);
        CHECK(status == DTL_SUCCESS || status == DTL_ERROR_INVALID_HANDLE || status == DTL_ERROR_CANCELED);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK_STATUS(dtl_comm_revoke(two[0]), DTL_ERROR_INVALID_HANDLE);
        CHECK_OK(dtl_comm_revoke(two[1]));
        check_revoked(two[1]);
        CHECK_OK(dtl_comm_destroy(two[1]));
    }
}

static void test_arguments(void) {
    dtl_comm_t none = {0}, alone, left;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    CHECK_STATUS(dtl_comm_revoke(none), DTL_ERROR_INVALID_HANDLE);
    desc.kind = "self";
    CHECK_OK(dtl_comm_open(&desc, &alone));
    CHECK_OK(dtl_comm_revoke(alone));
    check_revoked(alone);
    CHECK_OK(dtl_comm_shrink(alone, &left));
    CHECK(sum_of(left) == 1);
    CHECK_OK(dtl_comm_destroy(left));
    CHECK_OK(dtl_comm_destroy(alone));
    CHECK_STATUS(dtl_comm_revoke(alone), DTL_ERROR_INVALID_HANDLE);
}

/* ---- the driver ---- */

static int run(const char *program, const char *scenario, const char *count, int survivors) {
    char command[12000];
    snprintf(command, sizeof command, "timeout 120 '%s' --on-failure=continue -n %s '%s' %s >revoke.out 2>&1",
        getenv("DTL_TEST_DTLRUN"), count, program, scenario);
    (void)!system(command);
    snprintf(command, sizeof command, "test $(grep -c 'survived' revoke.out) -eq %d || { cat revoke.out; exit 1; }", survivors);
    if (system(command) == 0) return 0;
    fprintf(stderr, "%s with %s ranks\n", scenario, count);
    return 1;
}

static int drive(const char *program) {
    static const struct { const char *name, *ranks; int lost; } runs[] = {
        {"live", "2", 0}, {"live", "5", 0}, {"twice", "4", 0}, {"under_way", "3", 0}, {"window", "3", 0},
        {"dies", "3", 1}, {"dies", "4", 1}, {"dies", "8", 1}, {"death", "3", 1}, {"death", "6", 1},
        {"window_left", "3", 0}, {"window_left", "4", 0}, {"window_end", "3", 0}, {"leaves", "5", 0}, {"leaves", "6", 0},
        {"leaves", "7", 0}, {"killed", "5", 1}};
    size_t i;
    const char *name = getenv("DTL_COMM");
    if (getenv("DTL_TEST_DTLRUN") == NULL) SKIP("DTL_TEST_DTLRUN does not name dtlrun");
    for (i = 0; i < sizeof runs / sizeof *runs; i++) {
        char nodes[16];
        snprintf(nodes, sizeof nodes, "1,%d", atoi(runs[i].ranks) - 1);
        if (name != NULL && strcmp(name, "hier") == 0) CHECK(setenv("DTL_FAKE_NODES", nodes, 1) == 0);
        if (run(program, runs[i].name, runs[i].ranks, atoi(runs[i].ranks) - runs[i].lost) != 0) return 1;
    }
    return remove("revoke.out");
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*run)(void); } scenarios[] = {
        {"live", live}, {"twice", twice}, {"under_way", under_way}, {"window", window}, {"dies", dies},
        {"death", death}, {"window_left", window_left}, {"window_end", window_end}, {"leaves", leaves},
        {"killed", killed}};
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    char folder[] = "/tmp/revoke-XXXXXX";
    size_t i;
    if (argc < 2) {
        char path[4096];
        int status;
        test_arguments();
        test_threads();
        test_destroy();
        CHECK(realpath(argv[0], path) != NULL);
        CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0);
        status = drive(path);
        CHECK(rmdir(folder) == 0 || status != 0);
        return status;
    }
    desc.kind = argc > 2 ? argv[2] : getenv("DTL_COMM"); /* NULL = "auto", which is shm */
    has_limit = argc <= 3 || strcmp(argv[3], "unlimited") != 0;
    if (has_limit) desc.timeout_ns = MILLISECONDS(60000);
    CHECK_OK(dtl_comm_open(&desc, &base));
    CHECK_OK(dtl_comm_rank(base, &me));
    CHECK_OK(dtl_comm_size(base, &ranks));
    CHECK_OK(dtl_comm_barrier(base));
    for (i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(argv[1], scenarios[i].name) == 0) scenarios[i].run();
    }
    CHECK_OK(dtl_finalize());
    printf("survived\n");
    return 0;
}
