/* New ranks join: the ranks of a job start processes by dtlrun (dtl_comm_grow), also in the place of ranks that died. Without
 * arguments: the driver (DTL_TEST_DTLRUN names dtlrun). With one: a rank of that scenario, or a process that joins. */
#include "comm_kinds.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { VICTIM = 1 };
static dtl_comm_t comm;

static void sleep_ms(long ms) {
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* Whether another rank has started this process. */
static int is_new(void) { return strncmp(getenv("DTL_JOB"), "grow-", 5) == 0; }

static int32_t sum_of(dtl_comm_t of) {
    int32_t one = 1, sum = -1;
    CHECK_OK(dtl_comm_allreduce(of, &one, &sum, 1, DTL_DTYPE_INT32, DTL_OP_SUM));
    return sum;
}

/* What all ranks of a grown communicator do, the new ones too. Rank 0 says what they get there. */
static void check_grown(dtl_comm_t grown, int32_t expected, int32_t state) {
    int32_t rank, size, got = state, value, from;
    dtl_comm_t dup;
    dtl_recv_info_t info;
    CHECK_OK(dtl_comm_rank(grown, &rank));
    CHECK_OK(dtl_comm_size(grown, &size));
    CHECK(expected == 0 || size == expected);
    CHECK_OK(dtl_comm_bcast(grown, &got, 1, DTL_DTYPE_INT32, 0));
    CHECK(got == 42);
    CHECK(sum_of(grown) == size);
    value = rank;
    CHECK_OK(dtl_comm_sendrecv(grown, &value, 1, (rank + 1) % size, 4, &from, 1, DTL_ANY_SOURCE, 4, DTL_DTYPE_INT32, &info));
    CHECK(from == (rank + size - 1) % size && info.source == from);
    CHECK_OK(dtl_comm_dup(grown, &dup));
    CHECK(sum_of(dup) == size);
    CHECK_OK(dtl_comm_destroy(dup));
    CHECK_OK(dtl_comm_barrier(grown));
}

/* A healthy one grows, twice; the new ranks of the first time are old ones the second time. */
static void healthy(void) {
    dtl_comm_t grown, more;
    int32_t rank;
    if (is_new()) {
        CHECK(me == ranks - 1 || me == ranks - 2);
        grown = comm;
    } else {
        if (ranks > 1) { /* nothing is started */
            CHECK_STATUS(dtl_comm_grow(comm, 1 + (me == 0), 0, &grown), DTL_ERROR_INVALID_ARGUMENT);
            CHECK_TEXT("pass the same number on all ranks");
            CHECK_STATUS(dtl_comm_grow(comm, me != VICTIM, 0, &grown), DTL_ERROR_INVALID_ARGUMENT);
            CHECK_TEXT(me == VICTIM ? "new_ranks 0" : "rank 1 passes a bad argument (DTL_ERROR_INVALID_ARGUMENT)");
            CHECK_STATUS(dtl_comm_grow(comm, 1, me == VICTIM, &grown), DTL_ERROR_INVALID_ARGUMENT);
            CHECK_TEXT(me == VICTIM ? "flags 0x1" : "rank 1 passes a bad argument");
            CHECK_STATUS(dtl_comm_grow(comm, 1, 0, me == VICTIM ? NULL : &grown),
                me == VICTIM ? DTL_ERROR_NULL_POINTER : DTL_ERROR_INVALID_ARGUMENT);
        }
        CHECK_OK(dtl_comm_grow(comm, 2, 0, &grown));
        CHECK_OK(dtl_comm_rank(grown, &rank));
        CHECK(rank == me);
    }
    check_grown(grown, 0, 42);
    if (!is_new() || ranks == 4) { /* of 2 ranks: the second time there are 5 */
        CHECK_OK(dtl_comm_grow(grown, 1, 0, &more));
        check_grown(more, 5, 42);
        CHECK_OK(dtl_comm_destroy(more));
    }
    CHECK_OK(dtl_comm_destroy(grown));
}

static void alone(void) {
    dtl_comm_t grown = comm;
    if (!is_new()) CHECK_OK(dtl_comm_grow(comm, 2, 0, &grown));
    check_grown(grown, 3, 42);
}

/* A rank dies, the others shrink, and a new process takes part instead. */
static void replace(void) {
    dtl_comm_t left, grown = comm;
    if (!is_new()) {
        if (me == VICTIM) kill(getpid(), SIGKILL);
        while (dtl_comm_barrier(comm) == DTL_SUCCESS) {}
        CHECK(dtl_comm_grow(comm, 1, 0, &grown) != DTL_SUCCESS); /* with a dead rank */
        CHECK_OK(dtl_comm_shrink(comm, &left));
        CHECK_OK(dtl_comm_destroy(comm));
        CHECK_OK(dtl_comm_grow(left, 1, 0, &grown));
        CHECK_OK(dtl_comm_destroy(left));
    }
    check_grown(grown, ranks, me == 0 ? 42 : -1);
    CHECK_OK(dtl_comm_destroy(grown));
}

/* New ranks are wanted, and the call fails with this status; rank 0 says why. The communicator still works. */
static void fails(int32_t new_ranks, dtl_status_t expected, const char *why) {
    dtl_comm_t grown;
    CHECK_STATUS(dtl_comm_grow(comm, new_ranks, 0, &grown), expected);
    CHECK_TEXT(me == 0 ? why : "see the error text of rank 0");
    CHECK(sum_of(comm) == ranks);
    CHECK_OK(dtl_comm_destroy(comm));
}

/* The process ends without opening. */
static void lazy(void) { fails(1, DTL_ERROR_UNAVAILABLE, "new rank 2 exited with status 7"); }

/* One process opens, the other one is killed: the first one does not wait until its time limit. */
static void half(void) { fails(2, DTL_ERROR_UNAVAILABLE, "new rank 3 was killed by signal 9"); }

/* The process opens too late, of a limit of 3 s: the old ranks do not wait for it, and it does not wait for them. */
static void late(void) {
    fails(1, DTL_ERROR_TIMEOUT, "new ranks [2] have not opened the communicator: no message from the launcher");
}

/* A new process dies while the ranks open: the call fails with one status on all ranks, and the next one succeeds. */
static void crash(void) {
    dtl_comm_t grown = comm;
    if (!is_new()) {
        CHECK_STATUS(dtl_comm_grow(comm, 2, 0, &grown), DTL_ERROR_UNAVAILABLE);
        if (me == 0) CHECK_TEXT("was killed by signal 9");
        CHECK(sum_of(comm) == ranks);
        CHECK_OK(dtl_comm_grow(comm, 2, 0, &grown));
    }
    check_grown(grown, 5, 42);
    CHECK_OK(dtl_comm_destroy(grown));
}

/* A new process is stopped after it has reported: the call fails at half the time limit. */
static void stopped(void) {
    dtl_comm_t grown;
    CHECK_STATUS(dtl_comm_grow(comm, 2, 0, &grown), DTL_ERROR_TIMEOUT);
    CHECK(sum_of(comm) == ranks);
    CHECK_OK(dtl_comm_destroy(comm));
}

/* While rank 0 waits for the new process, another rank dies, or a thread of it revokes or destroys the communicator. */
static const char *event;

static void *disturb(void *unused) {
    sleep_ms(300);
    if (strcmp(event, "die") == 0) kill(getpid(), SIGKILL);
    if (strcmp(event, "revoke") == 0) CHECK_OK(dtl_comm_revoke(comm));
    if (strcmp(event, "destroy") == 0) CHECK_OK(dtl_comm_destroy(comm));
    return unused;
}

static void disturbed(void) {
    dtl_status_t expected = strcmp(event, "revoke") == 0 ? DTL_ERROR_REVOKED : DTL_ERROR_RANK_FAILURE;
    dtl_comm_t grown;
    pthread_t thread;
    if (me == VICTIM && strcmp(event, "destroy") == 0) expected = DTL_ERROR_CANCELED;
    if (me == VICTIM) CHECK(pthread_create(&thread, NULL, disturb, NULL) == 0);
    CHECK_STATUS(dtl_comm_grow(comm, 1, 0, &grown), expected);
    if (me == VICTIM) CHECK(pthread_join(thread, NULL) == 0);
    if (expected != DTL_ERROR_CANCELED) CHECK_OK(dtl_comm_destroy(comm));
}

/* Rank 0 is stopped until the limit of the other rank has passed: the communicator still works. */
static void *stop(void *unused) {
    sleep_ms(300);
    kill(getpid(), SIGSTOP);
    return unused;
}

static void stuck(void) {
    int64_t own = getpid(), all[2] = {0, 0};
    dtl_comm_t grown;
    pthread_t thread;
    CHECK_OK(dtl_comm_allgather(comm, &own, 1, all, DTL_DTYPE_INT64));
    if (me == 0) CHECK(pthread_create(&thread, NULL, stop, NULL) == 0);
    CHECK_STATUS(dtl_comm_grow(comm, 1, 0, &grown), DTL_ERROR_TIMEOUT);
    if (me == 0) CHECK(pthread_join(thread, NULL) == 0);
    if (me != 0) CHECK(kill((pid_t)all[0], SIGCONT) == 0);
    CHECK(sum_of(comm) == ranks);
    CHECK_OK(dtl_comm_destroy(comm));
}

/* Reports to dtlrun that this process begins to open, as the library does. Returns the connection for the reply. */
static int report(void) {
    struct sockaddr_un address;
    const struct sockaddr *any = (const struct sockaddr *)&address;
    char line[100];
    const char *name = getenv("DTL_LAUNCHER");
    const int stream = socket(AF_UNIX, SOCK_STREAM, 0);
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path + 1, name, strlen(name)); /* abstract: the first byte is 0 */
    CHECK(connect(stream, any, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))) == 0);
    snprintf(line, sizeof line, "join %s %s\n", getenv("DTL_JOB"), getenv("DTL_RANK"));
    CHECK(write(stream, line, strlen(line)) == (ssize_t)strlen(line));
    return stream;
}

/* Part of a new process whose call of dtl_comm_grow fails. */
static int end_new(const char *scenario) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    if (strcmp(scenario, "lazy") == 0) return 7;
    if (strcmp(scenario, "half") == 0 && strcmp(getenv("DTL_RANK"), "3") == 0) {
        sleep_ms(300);
        kill(getpid(), SIGKILL);
    }
    if (strcmp(scenario, "stopped") == 0) {
        if (strcmp(getenv("DTL_RANK"), "3") == 0) CHECK(report() >= 0);
        kill(getpid(), SIGSTOP);
    }
    if (strcmp(scenario, "crash") == 0) {
        char go[3];
        CHECK(read(report(), go, sizeof go) == sizeof go && memcmp(go, "go\n", sizeof go) == 0);
        kill(getpid(), SIGKILL);
    }
    if (strcmp(scenario, "half") != 0) sleep_ms(30000); /* dtlrun ends it */
    desc.kind = getenv("DTL_COMM");
    CHECK_STATUS(dtl_comm_open(&desc, &comm), DTL_ERROR_INVALID_STATE);
    CHECK_TEXT("the call of dtl_comm_grow that started this process has failed");
    CHECK_OK(dtl_finalize());
    printf("survived\n");
    return 0;
}

static void arguments(void) {
    dtl_comm_t grown, threads[2];
    CHECK_STATUS(dtl_comm_grow(comm, 0, 0, &grown), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("new_ranks 0");
    CHECK_STATUS(dtl_comm_grow(comm, -1, 0, &grown), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_comm_grow(comm, INT32_MAX, 0, &grown), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_comm_grow(comm, 1, 1, &grown), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("flags 0x1");
    CHECK_STATUS(dtl_comm_grow(comm, 1, 0, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_comm_grow(comm, 100000, 0, &grown), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_comm_grow(comm, 2000, 0, &grown), DTL_ERROR_UNAVAILABLE); /* more than dtlrun starts */
    if (me == 0) CHECK_TEXT("new_ranks 2000: dtlrun starts jobs of at most 1024 ranks, and 2 exist: pass at most 1022");
    CHECK_OK(dtl_comm_threads(2, MILLISECONDS(1000), threads));
    CHECK_STATUS(dtl_comm_grow(threads[0], 1, 0, &grown), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("threads");
    CHECK_OK(dtl_comm_destroy(threads[0]));
    CHECK_OK(dtl_comm_destroy(threads[1]));
    CHECK(setenv("DTL_LAUNCHER", "nobody-listens-here", 1) == 0);
    CHECK_STATUS(dtl_comm_grow(comm, 1, 0, &grown), DTL_ERROR_NOT_SUPPORTED);
    CHECK(unsetenv("DTL_LAUNCHER") == 0);
    CHECK_STATUS(dtl_comm_grow(comm, 1, 0, &grown), DTL_ERROR_NOT_SUPPORTED);
    if (me == 0) CHECK_TEXT("dtlrun");
    /* The revocation must not end the call above on rank 1, nor the receive on rank 0. */
    if (me == 1) CHECK_OK(dtl_comm_ssend(comm, NULL, 0, DTL_DTYPE_UINT8, 0, 1));
    if (me == 0) CHECK_OK(dtl_comm_recv(comm, NULL, 0, DTL_DTYPE_UINT8, 1, 1, NULL));
    CHECK_OK(dtl_comm_revoke(comm));
    CHECK_STATUS(dtl_comm_grow(comm, 1, 0, &grown), DTL_ERROR_REVOKED);
    CHECK_OK(dtl_comm_destroy(comm));
}

static int run(const char *program, const char *scenario, const char *count, int expected) {
    char command[12000];
    snprintf(command, sizeof command, "timeout 120 '%s' --on-failure=continue -n %s '%s' %s >grow.out 2>&1",
        getenv("DTL_TEST_DTLRUN"), count, program, scenario);
    (void)!system(command);
    snprintf(command, sizeof command, "test $(grep -c 'survived' grow.out) -eq %d || { cat grow.out; exit 1; }", expected);
    if (system(command) == 0) return 0;
    fprintf(stderr, "%s with %s ranks\n", scenario, count);
    return 1;
}

static int drive(const char *program) {
    static const struct { const char *name, *ranks; int expected; } runs[] = {
        {"healthy", "2", 5}, {"replace", "2", 2}, {"replace", "4", 4}, {"lazy", "2", 2}, {"half", "2", 3}, {"late", "2", 2},
        {"crash", "3", 5}, {"stopped", "2", 2}, {"stuck", "2", 2}, {"revoke", "3", 3}, {"die", "3", 2},
        {"destroy", "3", 3}, {"arguments", "2", 2}};
    size_t i;
    if (getenv("DTL_TEST_DTLRUN") == NULL) SKIP("DTL_TEST_DTLRUN does not name dtlrun");
    for (i = 0; i < sizeof runs / sizeof *runs; i++) {
        if (run(program, runs[i].name, runs[i].ranks, runs[i].expected) != 0) return 1;
    }
    /* One rank, of kind "self", becomes several. */
    if (getenv("DTL_COMM") == NULL && run(program, "alone", "1", 3) != 0) return 1;
    remove("crashed");
    return remove("grow.out");
}

/* Whether a new process runs `end_new`. In `crash`, one of the new processes does. */
static int has_part(const char *scenario) {
    static const char *const names[] = {"lazy", "half", "late", "stopped", "stuck", "revoke", "die", "destroy"};
    size_t i;
    if (strcmp(scenario, "crash") == 0) return open("crashed", O_CREAT | O_EXCL, 0600) >= 0;
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(scenario, names[i]) == 0) return 1;
    }
    return 0;
}

static uint64_t limit_of(const char *scenario) {
    if (strcmp(scenario, "crash") == 0) return MILLISECONDS(10000);
    if (strcmp(scenario, "late") == 0 || strcmp(scenario, "stopped") == 0 || strcmp(scenario, "stuck") == 0) {
        return MILLISECONDS(3000);
    }
    return MILLISECONDS(60000);
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*run)(void); } scenarios[] = {
        {"healthy", healthy}, {"alone", alone}, {"replace", replace}, {"lazy", lazy}, {"half", half},
        {"late", late}, {"crash", crash}, {"stopped", stopped}, {"stuck", stuck}, {"revoke", disturbed},
        {"die", disturbed}, {"destroy", disturbed}, {"arguments", arguments}};
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    char folder[] = "/tmp/grow-XXXXXX";
    size_t i;
    if (argc < 2) {
        char path[4096];
        int status;
        CHECK(realpath(argv[0], path) != NULL);
        CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0);
        status = drive(path);
        CHECK(rmdir(folder) == 0 || status != 0);
        return status;
    }
    event = argv[1];
    if (is_new() && has_part(event)) return end_new(event);
    desc.kind = getenv("DTL_COMM"); /* NULL = "auto", which is shm */
    desc.timeout_ns = limit_of(event);
    if (is_new() && strcmp(event, "crash") == 0) { /* fails in the process that the first call has started */
        if (dtl_comm_open(&desc, &comm) != DTL_SUCCESS) return 0;
    } else {
        CHECK_OK(dtl_comm_open(&desc, &comm));
    }
    CHECK_OK(dtl_comm_rank(comm, &me));
    CHECK_OK(dtl_comm_size(comm, &ranks));
    for (i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(argv[1], scenarios[i].name) == 0) scenarios[i].run();
    }
    CHECK_OK(dtl_finalize());
    printf("survived\n");
    return 0;
}
