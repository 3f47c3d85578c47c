/* Survivors go on: a rank is killed at several moments, the others shrink the communicator and work
 * with what is left. Without arguments: the driver (DTL_TEST_DTLRUN names dtlrun). With one: a rank. */
#include "comm_kinds.h"
#include <pthread.h>
#include <sys/wait.h>

enum { VICTIM = 1 };
static dtl_comm_t comm;

static int32_t sum_of(dtl_comm_t of) {
    int32_t one = 1, sum = -1;
    CHECK_OK(dtl_comm_allreduce(of, &one, &sum, 1, DTL_DTYPE_INT32, DTL_OP_SUM));
    return sum;
}

static void check_survivors(dtl_comm_t all, dtl_comm_t left, int lost) {
    int32_t rank, size, old_rank, value, got = -1, i;
    dtl_recv_info_t info;
    CHECK_OK(dtl_comm_rank(all, &old_rank));
    CHECK_OK(dtl_comm_rank(left, &rank));
    CHECK_OK(dtl_comm_size(left, &size));
    CHECK(size == ranks - lost && rank == old_rank - (old_rank > VICTIM));
    CHECK(sum_of(left) == size);
    /* Everything works, with DTL_ANY_SOURCE too, though a rank of the connection is dead. */
    value = rank;
    CHECK_OK(dtl_comm_sendrecv(left, &value, 1, (rank + 1) % size, 4, &got, 1, DTL_ANY_SOURCE, 4, DTL_DTYPE_INT32, &info));
    CHECK(got == (rank + size - 1) % size && info.source == got);
    for (i = 0; i < 20; i++) CHECK(sum_of(left) == size);
}

/* The victim dies after the others have passed the first barrier: over a network card what it has not sent dies with it. */
static void all_are_through(void) {
    int32_t i, value;
    if (me != VICTIM) {
        CHECK_OK(dtl_comm_send(comm, &me, 1, DTL_DTYPE_INT32, VICTIM, 3));
        return;
    }
    for (i = 1; i < ranks; i++) CHECK_OK(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, 3, NULL));
    usleep(50000); /* most of them wait in their next call by then */
}

static void die_in(const char *scenario) {
    int32_t value = 0;
    if (strcmp(scenario, "before") == 0) kill(getpid(), SIGKILL);
    if (strcmp(scenario, "leaves") == 0) exit(0); /* without a word: that is a death too */
    if (strcmp(scenario, "late") == 0) {
        CHECK_OK(dtl_comm_barrier(comm));
        kill(getpid(), SIGKILL);
    }
    if (strcmp(scenario, "waiting") == 0) {
        CHECK_OK(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, 0, 1));
        CHECK_OK(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, 0, 4, NULL)); /* it has arrived */
        usleep(50000);
        kill(getpid(), SIGKILL);
    }
    CHECK(!"no such scenario");
}

static void survive(const char *scenario) {
    int32_t value;
    dtl_comm_t left, again;
    dtl_status_t status = DTL_SUCCESS;
    if (strcmp(scenario, "waiting") == 0) {
        /* Rank 0 sees the death and shrinks; the others wait for a rank that lives and are called. */
        if (me == 0) {
            CHECK_OK(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, VICTIM, 1, NULL));
            CHECK_OK(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, VICTIM, 4));
            CHECK_STATUS(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, VICTIM, 1, NULL), DTL_ERROR_RANK_FAILURE);
        } else {
            CHECK_STATUS(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, 0, 2, NULL), DTL_ERROR_RANK_FAILURE);
            CHECK_TEXT("shrink");
        }
    } else {
        while (status == DTL_SUCCESS) status = dtl_comm_barrier(comm);
        CHECK(status == DTL_ERROR_RANK_FAILURE);
        status = dtl_comm_barrier(comm); /* out of step, unless another rank shrinks it already */
        CHECK(status == DTL_ERROR_INVALID_STATE || status == DTL_ERROR_RANK_FAILURE);
    }
    CHECK_OK(dtl_comm_shrink(comm, &left));
    CHECK_STATUS(dtl_comm_send(comm, &value, 0, DTL_DTYPE_INT32, 0, 1), DTL_ERROR_RANK_FAILURE); /* it is revoked */
    check_survivors(comm, left, 1);
    /* A healthy one can be shrunk as well, and derived ones are as good as others. */
    CHECK_OK(dtl_comm_dup(left, &again));
    CHECK(sum_of(again) == ranks - 1);
    CHECK_OK(dtl_comm_destroy(again));
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK_OK(dtl_comm_barrier(left));
    CHECK_OK(dtl_comm_destroy(left));
}

/* ---- a shrink that times out ---- */

enum { BLOCKS = 4096, BLOCK = 64, THREADS = 4 };
static unsigned char *blocks[BLOCKS];
static dtl_comm_t olds[THREADS], news[THREADS];
static dtl_status_t ended[THREADS];

/* Memory of the size that a rank's word takes, such as the library may have freed just now. */
static void take_memory(void) {
    int i;
    for (i = 0; i < BLOCKS; i++) {
        CHECK(posix_memalign((void **)&blocks[i], BLOCK, BLOCK) == 0);
        memset(blocks[i], 0xEE, BLOCK);
    }
}

static void check_memory(void) {
    int i;
    for (i = 0; i < BLOCKS; i++) {
        CHECK(is_all(blocks[i], BLOCK, 0xEE)); /* the library has not written to it */
        free(blocks[i]);
    }
}

/* Nothing stays posted into memory that the library has freed. Ranks are threads; here one is all of them. */
static void test_memory(void) {
    dtl_comm_t all[3], left;
    int i;
    CHECK_OK(dtl_comm_threads(3, MILLISECONDS(100), all));
    CHECK_STATUS(dtl_comm_shrink(all[0], &left), DTL_ERROR_TIMEOUT);
    take_memory();
    CHECK_STATUS(dtl_comm_shrink(all[2], &left), DTL_ERROR_TIMEOUT);
    check_memory();
    for (i = 0; i < 3; i++) CHECK_OK(dtl_comm_destroy(all[i]));
}

static void *shrink_once(void *rank) {
    const int i = *(const int *)rank;
    ended[i] = dtl_comm_shrink(olds[i], &news[i]);
    return NULL;
}

/* With a time limit that passes again and again, beginning at another time each. */
static void *shrink_at_last(void *rank) {
    const int i = *(const int *)rank;
    unsigned seed = (unsigned)i + 1;
    do {
        usleep((useconds_t)(rand_r(&seed) % 15000));
        ended[i] = dtl_comm_shrink(olds[i], &news[i]);
    } while (ended[i] == DTL_ERROR_TIMEOUT);
    return NULL;
}

static void on_threads(int count, void *(*run)(void *)) {
    static const int numbers[THREADS] = {0, 1, 2, 3};
    pthread_t threads[THREADS];
    int i;
    for (i = 0; i < count; i++) CHECK(pthread_create(&threads[i], NULL, run, (void *)&numbers[i]) == 0);
    for (i = 0; i < count; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

/* All of them have the same new communicator: messages of each reach each. No call waits. */
static void check_same(int count) {
    int32_t from, to, got, size;
    for (from = 0; from < count; from++) {
        CHECK(ended[from] == DTL_SUCCESS);
        CHECK_OK(dtl_comm_size(news[from], &size));
        CHECK(size == count);
        for (to = 0; to < count; to++) {
            CHECK_OK(dtl_comm_send(news[from], &from, 1, DTL_DTYPE_INT32, to, 1));
            CHECK_OK(dtl_comm_recv(news[to], &got, 1, DTL_DTYPE_INT32, from, 1, NULL));
            CHECK(got == from);
        }
    }
    for (to = 0; to < count; to++) {
        CHECK_OK(dtl_comm_destroy(news[to]));
        CHECK_OK(dtl_comm_destroy(olds[to]));
    }
}

/* A call after DTL_ERROR_TIMEOUT continues: ranks never disagree. */
static void test_retry(void) {
    int round;
    CHECK_OK(dtl_comm_threads(2, MILLISECONDS(100), olds));
    CHECK_STATUS(dtl_comm_shrink(olds[0], &news[0]), DTL_ERROR_TIMEOUT);
    CHECK_TEXT("call it again");
    CHECK_OK(dtl_comm_shrink(olds[1], &news[1])); /* rank 0 has said its word */
    on_threads(1, shrink_once);
    ended[1] = DTL_SUCCESS;
    check_same(2);
    for (round = 0; round < 10; round++) {
        CHECK_OK(dtl_comm_threads(THREADS, MILLISECONDS(5), olds));
        on_threads(THREADS, shrink_at_last);
        check_same(THREADS);
    }
}

/* A rank gives the shrink up and destroys the communicator: the new one has an absent rank. */
static void test_given_up(void) {
    dtl_comm_t left;
    CHECK_OK(dtl_comm_threads(3, MILLISECONDS(100), olds));
    CHECK_STATUS(dtl_comm_shrink(olds[0], &left), DTL_ERROR_TIMEOUT);
    CHECK_STATUS(dtl_comm_shrink(olds[1], &left), DTL_ERROR_TIMEOUT);
    CHECK_OK(dtl_comm_shrink(olds[2], &news[2])); /* all have said their words */
    CHECK_OK(dtl_comm_shrink(olds[1], &news[1]));
    CHECK_OK(dtl_comm_destroy(olds[0]));
    CHECK_STATUS(dtl_comm_barrier(news[1]), DTL_ERROR_RANK_FAILURE);
    CHECK_STATUS(dtl_comm_barrier(news[2]), DTL_ERROR_RANK_FAILURE);
    CHECK_OK(dtl_comm_destroy(olds[1]));
    CHECK_OK(dtl_comm_destroy(olds[2]));
    CHECK_OK(dtl_comm_destroy(news[1]));
    CHECK_OK(dtl_comm_destroy(news[2]));
}

/* The memory of test_memory between processes; then all three shrink, the late ones last. */
static void suspended(void) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t hasty, left;
    int32_t found, size, token = 0;
    desc.timeout_ns = MILLISECONDS(300);
    do desc.kind = getenv("DTL_COMM");
    while (dtl_comm_open(&desc, &hasty) == DTL_ERROR_TIMEOUT); /* the limit is that of opening, too */
    if (me == 0) {
        CHECK_STATUS(dtl_comm_shrink(hasty, &left), DTL_ERROR_TIMEOUT);
        take_memory();
        CHECK_OK(dtl_comm_send(comm, &token, 1, DTL_DTYPE_INT32, 2, 1));
        do CHECK_OK(dtl_comm_iprobe(comm, 2, 1, &found, NULL));
        while (!found); /* moves messages on */
        check_memory();
        CHECK_OK(dtl_comm_recv(comm, &token, 1, DTL_DTYPE_INT32, 2, 1, NULL));
    } else if (me == 2) {
        CHECK_OK(dtl_comm_recv(comm, &token, 1, DTL_DTYPE_INT32, 0, 1, NULL));
        CHECK_STATUS(dtl_comm_shrink(hasty, &left), DTL_ERROR_TIMEOUT);
        CHECK_OK(dtl_comm_send(comm, &token, 1, DTL_DTYPE_INT32, 0, 1));
    }
    CHECK_OK(dtl_comm_barrier(comm));
    while (dtl_comm_shrink(hasty, &left) != DTL_SUCCESS) CHECK_TEXT("call it again");
    CHECK_OK(dtl_comm_size(left, &size));
    CHECK(size == 3);
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(hasty));
    CHECK_OK(dtl_comm_destroy(left));
}

/* More messages without a receive than kind shm keeps of one pair: the shrink ends them. */
static void unreceived(void) {
    enum { COUNT = 5000 };
    static dtl_request_t requests[COUNT];
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t steady, left;
    int i;
    /* The shrink of one rank ends the calls of others: all begin it after the last send. The barrier
     * needs a connection of its own, because the messages fill that of `comm`. */
    desc.kind = getenv("DTL_COMM");
    CHECK_OK(dtl_comm_open(&desc, &steady));
    for (i = 0; me == 0 && i < COUNT; i++)
        CHECK_OK(dtl_comm_issend(comm, &me, 1, DTL_DTYPE_INT32, 1, i, &requests[i]));
    CHECK_OK(dtl_comm_barrier(steady));
    CHECK_OK(dtl_comm_shrink(comm, &left));
    CHECK(sum_of(left) == ranks);
    for (i = 0; me == 0 && i < COUNT; i++)
        CHECK_STATUS(dtl_request_wait(requests[i], DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_RANK_FAILURE);
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK_OK(dtl_comm_destroy(steady));
    CHECK_OK(dtl_comm_destroy(left));
}

static int run(const char *program, const char *scenario, const char *count, int survivors) {
    char command[12000];
    snprintf(command, sizeof command, "timeout 60 '%s' --on-failure=continue -n %s '%s' %s >shrink.out 2>&1",
        getenv("DTL_TEST_DTLRUN"), count, program, scenario);
    (void)!system(command);
    snprintf(command, sizeof command, "test $(grep -c 'survived' shrink.out) -eq %d || { cat shrink.out; exit 1; }", survivors);
    if (system(command) == 0) return 0;
    fprintf(stderr, "%s with %s ranks\n", scenario, count);
    return 1;
}

static int drive(const char *program) {
    static const char *const scenarios[] = {"before", "leaves", "late", "waiting"};
    static const char *const sizes[] = {"2", "3", "5", "8"};
    size_t i, j;
    const char *name = getenv("DTL_COMM");
    char nodes[16];
    if (getenv("DTL_TEST_DTLRUN") == NULL) SKIP("DTL_TEST_DTLRUN does not name dtlrun");
    for (i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        for (j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            snprintf(nodes, sizeof nodes, "1,%d", atoi(sizes[j]) - 1);
            if (name != NULL && strcmp(name, "hier") == 0) CHECK(setenv("DTL_FAKE_NODES", nodes, 1) == 0);
            if (run(program, scenarios[i], sizes[j], atoi(sizes[j]) - 1) != 0) return 1;
        }
    }
    if (name != NULL && strcmp(name, "hier") == 0) CHECK(setenv("DTL_FAKE_NODES", "1,2", 1) == 0);
    if (run(program, "suspended", "3", 3) != 0) return 1;
    if (run(program, "unreceived", "3", 3) != 0) return 1;
    return remove("shrink.out");
}

int main(int argc, char **argv) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    char folder[] = "/tmp/shrink-XXXXXX";
    if (argc < 2) {
        char path[4096];
        int status;
        test_memory();
        test_retry();
        test_given_up();
        CHECK(realpath(argv[0], path) != NULL);
        CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0);
        status = drive(path);
        CHECK(rmdir(folder) == 0 || status != 0);
        return status;
    }
    desc.kind = getenv("DTL_COMM"); /* NULL = "auto", which is shm */
    desc.timeout_ns = MILLISECONDS(30000);
    CHECK_OK(dtl_comm_open(&desc, &comm));
    CHECK_OK(dtl_comm_rank(comm, &me));
    CHECK_OK(dtl_comm_size(comm, &ranks));
    CHECK_OK(dtl_comm_barrier(comm));
    if (strcmp(argv[1], "suspended") == 0 || strcmp(argv[1], "unreceived") == 0) {
        if (argv[1][0] == 's') suspended(); else unreceived();
        printf("survived\n");
        return 0;
    }
    all_are_through();
    if (me == VICTIM) die_in(argv[1]);
    survive(argv[1]);
    printf("survived\n");
    return 0;
}
